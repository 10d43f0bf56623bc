use super::*;
use crate::testing::{Service, name};

fn manifest(version: u64) -> Bytes {
    let manifest = Manifest {
        version,
        ..Manifest::empty("file", 1)
    };
    manifest.encode().unwrap()
}

/// Stores a version of the manifest on one member.
fn put(service: &mut Service, member: usize, version: u64) {
    let bytes = manifest(version);
    let address = Address::of_name("file");
    let request = Request::Put {
        id: 0,
        address,
        bytes,
    };
    service.members[member]
        .as_mut()
        .unwrap()
        .handle_request(&request);
}

/// Runs a search to its end, without the answers of `deaf`.
fn run(service: &mut Service, deaf: Option<usize>) -> Found {
    let mut lookup = Lookup::new(StoreConfig::default(), "file", Time::ZERO).unwrap();
    let mut now = Time::ZERO;
    loop {
        while let Some((key, request)) = lookup.poll_transmit(now) {
            let answer = service.handle(key, &request);
            if deaf.is_none_or(|deaf| answer.member != name(deaf)) {
                lookup.handle_answer(now, &answer);
            }
        }
        if let Some(found) = lookup.poll_found() {
            return found.unwrap();
        }
        now = lookup.poll_timeout().unwrap();
        lookup.handle_timeout(now);
    }
}

#[test]
fn the_newest_of_all_members_manifests_is_found() {
    for newest in 0..5 {
        let mut service = Service::new(5);
        (0..5).for_each(|member| put(&mut service, member, 1));
        put(&mut service, newest, 2);
        let found = run(&mut service, None);
        assert_eq!(found.manifest.map(|manifest| manifest.version), Some(2));
        assert_eq!(found.members.len(), 5);
        assert_eq!(found.unanswered, 0);
    }
}

#[test]
fn a_name_that_no_member_has_is_not_found() {
    let found = run(&mut Service::new(3), None);
    assert_eq!((found.manifest, found.members.len()), (None, 3));
}

#[test]
fn ranks_that_do_not_answer_are_counted() {
    let mut service = Service::new(3);
    put(&mut service, 0, 1);
    put(&mut service, 1, 1);
    let found = run(&mut service, Some(2));
    assert_eq!(found.manifest.map(|manifest| manifest.version), Some(1));
    assert!(found.unanswered > 0);
}
