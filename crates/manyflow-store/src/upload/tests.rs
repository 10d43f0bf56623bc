use core::time::Duration;

use super::*;
use crate::testing::{Service, name};
use crate::{Hash, Manifest, Shelf, ShelfError};

fn config(copies: u8) -> StoreConfig {
    StoreConfig {
        copies,
        ..StoreConfig::default()
    }
}

fn chunk(number: u8, length: usize) -> (Address, Bytes) {
    let bytes = Bytes::from(vec![number; length]);
    (Address::Chunk(Hash::of(&bytes)), bytes)
}

/// Runs an upload until it is idle; time passes only by its timers.
fn run(upload: &mut Upload, service: &mut Service) -> Vec<UploadEvent> {
    let mut now = Time::ZERO;
    for _ in 0..10_000 {
        while let Some((key, request)) = upload.poll_transmit(now) {
            let answer = service.handle(key, &request);
            upload.handle_answer(now, &answer);
        }
        if upload.is_idle() {
            return core::iter::from_fn(|| upload.poll_event()).collect();
        }
        now = upload
            .poll_timeout()
            .expect("the upload waits for something");
        upload.handle_timeout(now);
    }
    panic!("the upload does not end: {upload:?}");
}

#[test]
fn a_chunk_is_stored_when_enough_distinct_members_have_it() {
    let mut service = Service::new(5);
    let mut upload = Upload::new(config(3), Time::ZERO).unwrap();
    let (address, bytes) = chunk(1, 100);
    assert_eq!(upload.add(address, bytes.clone()), 0);
    let mut requests = Vec::new();
    while let Some(request) = upload.poll_transmit(Time::ZERO) {
        requests.push(request);
    }
    assert_eq!(requests.len(), 3);
    for (place, (key, request)) in requests.iter().enumerate() {
        assert_eq!(upload.poll_event(), None, "after {place} answers");
        let answer = service.handle(*key, request);
        upload.handle_answer(Time::ZERO, &answer);
        upload.handle_answer(Time::ZERO, &answer);
    }
    let Some(UploadEvent::Stored { chunk: 0, members }) = upload.poll_event() else {
        panic!("the chunk is stored");
    };
    assert_eq!(members.len(), 3);
    for member in service.members.iter_mut().flatten() {
        let holds = member.shelf_mut().get(address).unwrap().is_some();
        assert_eq!(holds, members.contains(member.name()));
    }
}

#[test]
fn too_few_members_fail_the_upload_with_the_number_of_copies() {
    let mut service = Service::new(2);
    let mut upload = Upload::new(config(3), Time::ZERO).unwrap();
    let (address, bytes) = chunk(1, 100);
    upload.add(address, bytes);
    let events = run(&mut upload, &mut service);
    let [UploadEvent::Failed(error)] = &events[..] else {
        panic!("{events:?}");
    };
    let text = error.to_string();
    assert!(text.starts_with("chunk 0 has 2 of 3 copies"), "{text}");
    assert!(text.contains("m0") && text.contains("m1"), "{text}");
}

#[test]
fn a_manifest_that_too_few_members_store_is_not_called_a_chunk() {
    let mut service = Service::new(2);
    let mut upload = Upload::new(config(3), Time::ZERO).unwrap();
    let removal = Manifest {
        is_removed: true,
        ..Manifest::empty("file", 1)
    };
    upload.add(Address::of_name("file"), removal.encode().unwrap());
    let events = run(&mut upload, &mut service);
    let [UploadEvent::Failed(error)] = &events[..] else {
        panic!("{events:?}");
    };
    let text = error.to_string();
    assert!(text.starts_with("the manifest has 2 of 3"), "{text}");
}

#[test]
fn a_member_that_cannot_store_is_replaced_by_the_next_rank() {
    let mut service = Service::new(3);
    for full in [0, 1] {
        let shelf = crate::MemoryShelf::with_room(10);
        service.members[full] = Some(crate::Member::new(name(full), shelf));
    }
    let mut upload = Upload::new(config(1), Time::ZERO).unwrap();
    for number in 0..10 {
        let (address, bytes) = chunk(number, 100);
        upload.add(address, bytes);
    }
    let events = run(&mut upload, &mut service);
    assert_eq!(events.len(), 10);
    for event in events {
        let UploadEvent::Stored { members, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(members, [name(2)]);
    }
    let mut upload = Upload::new(config(2), Time::ZERO).unwrap();
    let (address, bytes) = chunk(1, 100);
    upload.add(address, bytes);
    let events = run(&mut upload, &mut service);
    let [UploadEvent::Failed(error)] = &events[..] else {
        panic!("{events:?}");
    };
    let text = error.to_string();
    let reason = ShelfError("no room is left".to_owned()).to_string();
    assert!(text.contains(&format!("m0 failed: {reason}")), "{text}");
}

#[test]
fn a_request_that_times_out_is_repeated_then_given_up_for_another_rank() {
    let mut service = Service::new(3);
    let mut upload = Upload::new(config(1), Time::ZERO).unwrap();
    let (address, bytes) = chunk(1, 100);
    upload.add(address, bytes);
    let deaf = service.route(address.key(0));
    let (mut now, mut lost) = (Time::ZERO, 0);
    while !upload.is_idle() {
        while let Some((key, request)) = upload.poll_transmit(now) {
            if service.route(key) == deaf {
                lost += 1;
            } else {
                let answer = service.handle(key, &request);
                upload.handle_answer(now, &answer);
            }
        }
        now = upload.poll_timeout().unwrap_or(now);
        upload.handle_timeout(now);
    }
    assert_eq!(lost, u32::from(StoreConfig::default().attempts));
    assert!(matches!(
        upload.poll_event(),
        Some(UploadEvent::Stored { .. })
    ));
}

#[test]
fn a_silent_service_fails_the_upload_after_another_connection() {
    let mut upload = Upload::new(config(2), Time::ZERO).unwrap();
    let (address, bytes) = chunk(1, 100);
    upload.add(address, bytes);
    let mut now = Time::ZERO;
    let mut reconnects = Vec::new();
    while !upload.is_idle() {
        while upload.poll_transmit(now).is_some() {}
        now = upload.poll_timeout().unwrap();
        upload.handle_timeout(now);
        if upload.poll_reconnect() {
            upload.handle_reconnect();
            reconnects.push(now);
        }
    }
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    assert!(now <= at(60), "{now}");
    assert_eq!(reconnects, [at(30)], "the connection might have been stuck");
    let event = upload.poll_event();
    let Some(UploadEvent::Failed(error)) = event else {
        panic!("{event:?}");
    };
    assert!(
        error.to_string().contains("chunk 0 had 0 of 2 copies"),
        "{error}"
    );
}

#[test]
fn the_window_bounds_requests_in_flight_and_chunks_in_memory() {
    let config = StoreConfig {
        window_bytes: 1000,
        ..config(2)
    };
    let mut upload = Upload::new(config, Time::ZERO).unwrap();
    let mut added = 0;
    while upload.wants_chunk() {
        let (address, bytes) = chunk(added, 300);
        upload.add(address, bytes);
        added += 1;
    }
    assert_eq!(added, 4, "four chunks reach the window");
    let mut sent = 0;
    while upload.poll_transmit(Time::ZERO).is_some() {
        sent += 1;
    }
    assert_eq!(sent, 3, "three requests fit the window");
}

#[test]
fn requests_of_a_lost_connection_are_sent_again() {
    let mut service = Service::new(4);
    let mut upload = Upload::new(config(2), Time::ZERO).unwrap();
    let (address, bytes) = chunk(1, 100);
    upload.add(address, bytes);
    let mut sent = Vec::new();
    while let Some((key, _)) = upload.poll_transmit(Time::ZERO) {
        sent.push(key);
    }
    upload.handle_reconnect();
    let again = core::iter::from_fn(|| upload.poll_transmit(Time::ZERO));
    let again: Vec<_> = again.collect();
    assert_eq!(again.iter().map(|(key, _)| *key).collect::<Vec<_>>(), sent);
    for (key, request) in again {
        let answer = service.handle(key, &request);
        upload.handle_answer(Time::ZERO, &answer);
    }
    assert!(upload.is_idle());
}

#[test]
fn an_upload_that_asks_first_sends_chunks_only_to_members_that_lack_them() {
    let mut service = Service::new(5);
    let (address, bytes) = chunk(1, 100);
    let mut first = Upload::new(config(2), Time::ZERO).unwrap();
    first.add(address, bytes.clone());
    run(&mut first, &mut service);
    let asking = StoreConfig {
        asks_first: true,
        ..config(3)
    };
    let mut upload = Upload::new(asking, Time::ZERO).unwrap();
    upload.add(address, bytes);
    let mut sent = Vec::new();
    while let Some((key, request)) = upload.poll_transmit(Time::ZERO) {
        let answer = service.handle(key, &request);
        upload.handle_answer(Time::ZERO, &answer);
        // A repeated answer changes nothing.
        upload.handle_answer(Time::ZERO, &answer);
        sent.extend(matches!(request, Request::Put { .. }).then_some(answer.member));
    }
    assert_eq!(sent.len(), 1, "two members have the chunk");
    let Some(UploadEvent::Stored { members, .. }) = upload.poll_event() else {
        panic!("the chunk is stored");
    };
    assert_eq!((members.len(), members.contains(&sent[0])), (3, true));
}

#[test]
fn a_batch_of_manifests_is_stored_on_the_same_members() {
    let mut service = Service::new(5);
    let mut batch = crate::Batch::default();
    for name in ["a", "b", "c"] {
        let manifest = crate::Manifest::empty(name, 1).encode().unwrap();
        assert!(batch.push(&manifest));
    }
    let mut upload = Upload::new(config(2), Time::ZERO).unwrap();
    upload.add_names(batch.into_bytes());
    let events = run(&mut upload, &mut service);
    let [UploadEvent::Stored { members, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    for member in service.members.iter().flatten() {
        let names = member.shelf().list().unwrap().len();
        let wanted = if members.contains(member.name()) {
            3
        } else {
            0
        };
        assert_eq!(names, wanted);
    }
}

#[test]
fn a_chunk_without_bytes_is_read_only_if_a_member_lacks_it() {
    let mut service = Service::new(5);
    let [(held, bytes), (lost, _)] = [chunk(1, 100), chunk(2, 100)];
    let mut first = Upload::new(config(2), Time::ZERO).unwrap();
    first.add(held, bytes);
    run(&mut first, &mut service);
    let mut upload = Upload::new(config(2), Time::ZERO).unwrap();
    upload.add_unread(held.hash());
    let wanted = upload.add_unread(lost.hash());
    let mut events = Vec::new();
    for _ in 0..10 {
        while let Some((key, request)) = upload.poll_transmit(Time::ZERO) {
            assert!(!matches!(request, Request::Put { .. }) || !events.is_empty());
            let answer = service.handle(key, &request);
            upload.handle_answer(Time::ZERO, &answer);
        }
        while let Some(event) = upload.poll_event() {
            if let UploadEvent::Wanted { chunk: place } = event {
                upload.supply(place, chunk(2, 100).1);
            }
            events.push(event);
        }
    }
    assert!(upload.is_idle());
    let place = |event: &UploadEvent| match event {
        UploadEvent::Stored { chunk, .. } => (false, *chunk),
        UploadEvent::Wanted { chunk } => (true, *chunk),
        UploadEvent::Failed(error) => panic!("{error}"),
    };
    let mut places: Vec<_> = events.iter().map(place).collect();
    places.sort_unstable();
    assert_eq!(places, [(false, 0), (false, wanted), (true, wanted)]);
}

#[test]
fn a_conditional_put_fails_if_the_version_is_another_one() {
    let mut service = Service::new(3);
    let mut put_if = |expected, version| {
        let manifest = crate::Manifest {
            version,
            ..crate::Manifest::empty("a", 1)
        };
        let mut upload = Upload::new(config(1), Time::ZERO).unwrap();
        let name = Address::of_name("a").hash();
        upload.add_if(name, expected, manifest.encode().unwrap());
        run(&mut upload, &mut service)
    };
    let stored = |events: Vec<UploadEvent>| matches!(events[..], [UploadEvent::Stored { .. }]);
    assert!(stored(put_if(0, 5)));
    assert!(stored(put_if(0, 5)), "the same put again changes nothing");
    let conflict = UploadEvent::Failed(UploadError::Conflict { held: 5 });
    assert_eq!(put_if(4, 6), [conflict]);
    assert!(stored(put_if(5, 6)));
}
