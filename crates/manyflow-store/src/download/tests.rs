use super::*;
use crate::testing::{Service, name};

fn download(manifest: &Manifest, window_bytes: u32) -> Download {
    let config = StoreConfig {
        window_bytes,
        ..StoreConfig::default()
    };
    Download::new(config, manifest.clone(), |_| true, Time::ZERO).unwrap()
}

/// Runs a download to its end. Time passes only by its timers; `change` may change or drop answers.
fn run(
    download: &mut Download,
    service: &mut Service,
    mut change: impl FnMut(&Request, &mut Answer) -> bool,
) -> Result<BTreeMap<u32, Bytes>, DownloadError> {
    let mut now = Time::ZERO;
    let mut chunks = BTreeMap::new();
    for _ in 0..10_000 {
        while let Some((key, request)) = download.poll_transmit(now) {
            let mut answer = service.handle(key, &request);
            if change(&request, &mut answer) {
                download.handle_answer(now, &answer);
            }
            chunks.extend(core::iter::from_fn(|| download.poll_chunk()));
        }
        if let Some(error) = download.poll_failure() {
            return Err(error);
        }
        if download.is_complete() {
            return Ok(chunks);
        }
        now = download
            .poll_timeout()
            .expect("the download waits for something");
        download.handle_timeout(now);
    }
    panic!("the download does not end: {download:?}");
}

fn assert_whole(chunks: &BTreeMap<u32, Bytes>, contents: &[Bytes]) {
    assert!(chunks.values().eq(contents));
    assert!(chunks.keys().copied().eq(0..contents.len() as u32));
}

#[test]
fn chunks_survive_any_loss_of_fewer_members_than_copies() {
    for gone in 0..5 {
        let mut service = Service::new(5);
        let (manifest, contents) = service.store(40, 100, 2);
        service.members[gone] = None;
        let mut download = download(&manifest, 1000);
        let chunks = run(&mut download, &mut service, |_, _| true).unwrap();
        assert_whole(&chunks, &contents);
    }
}

#[test]
fn chunks_are_found_after_members_have_joined() {
    let mut service = Service::new(3);
    let (manifest, contents) = service.store(40, 100, 1);
    let joined = Service::new(8).members.split_off(3);
    service.members.extend(joined);
    let mut download = download(&manifest, 1000);
    let chunks = run(&mut download, &mut service, |_, _| true).unwrap();
    assert_whole(&chunks, &contents);
    assert!(download.counters().missing > 0);
}

#[test]
fn a_chunk_without_a_copy_fails_the_download_after_all_members_were_asked() {
    let mut service = Service::new(4);
    let (manifest, _) = service.store(30, 100, 1);
    service.members[1] = None;
    let error = run(&mut download(&manifest, 1000), &mut service, |_, _| true).unwrap_err();
    let DownloadError::NoCopy {
        asked,
        stored,
        unanswered: 0,
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(asked[..], [0, 2, 3].map(name));
    assert_eq!(stored[..], [name(1)]);
    let text = error.to_string();
    assert!(
        text.contains("has no copy left: 3 members asked (m0, m2, m3)"),
        "{text}"
    );
}

#[test]
fn a_chunk_that_does_not_match_its_hash_is_asked_of_another_member() {
    let mut service = Service::new(3);
    let (manifest, contents) = service.store(20, 100, 2);
    let mut download = download(&manifest, 1000);
    let damage = |_: &Request, answer: &mut Answer| {
        if let (Outcome::Chunk(bytes), true) = (&mut answer.outcome, answer.member == name(0)) {
            *bytes = Bytes::from(vec![99; bytes.len()]);
        }
        true
    };
    let chunks = run(&mut download, &mut service, damage).unwrap();
    assert_whole(&chunks, &contents);
    assert!(download.counters().wrong > 0);
    assert!(!download.counters().bytes.contains_key(&name(0)));
}

#[test]
fn a_member_that_does_not_answer_costs_a_time_out() {
    let mut service = Service::new(3);
    let (manifest, contents) = service.store(20, 100, 2);
    let mut download = download(&manifest, 1000);
    let drop_one = |_: &Request, answer: &mut Answer| answer.member != name(0);
    let chunks = run(&mut download, &mut service, drop_one).unwrap();
    assert_whole(&chunks, &contents);
    assert!(download.counters().timeouts > 0);
}

#[test]
fn a_faster_member_gives_more() {
    let mut service = Service::new(2);
    let (manifest, contents) = service.store(200, 100, 2);
    let mut download = download(&manifest, 1000);
    let (mut now, mut queues) = (Time::ZERO, [VecDeque::new(), VecDeque::new()]);
    let mut chunks = BTreeMap::new();
    for step in 0..10_000 {
        while let Some((key, request)) = download.poll_transmit(now) {
            let answer = service.handle(key, &request);
            queues[usize::from(answer.member == name(1))].push_back(answer);
        }
        now = Time::ZERO + core::time::Duration::from_millis(step);
        // Member 0 answers one request in each step, member 1 one in four steps.
        for (queue, interval) in queues.iter_mut().zip([1, 4]) {
            if step % interval == 0
                && let Some(answer) = queue.pop_front()
            {
                download.handle_answer(now, &answer);
            }
        }
        chunks.extend(core::iter::from_fn(|| download.poll_chunk()));
    }
    assert_whole(&chunks, &contents);
    let [fast, slow] = [0, 1].map(|number| download.counters().bytes[&name(number)]);
    assert!(fast > 3 * slow, "{fast} and {slow} bytes");
}

#[test]
fn only_wanted_chunks_are_asked_for() {
    let mut service = Service::new(2);
    let (manifest, _) = service.store(10, 100, 1);
    let config = StoreConfig::default();
    let mut download = Download::new(config, manifest, |chunk| chunk % 2 == 0, Time::ZERO).unwrap();
    let chunks = run(&mut download, &mut service, |_, _| true).unwrap();
    assert!(chunks.keys().copied().eq([0, 2, 4, 6, 8]));
}
