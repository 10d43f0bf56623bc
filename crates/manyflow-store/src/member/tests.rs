use super::*;
use crate::MemoryShelf;

fn member(shelf: MemoryShelf) -> Member<MemoryShelf> {
    Member::new(MemberName::new("m").unwrap(), shelf)
}

fn put(member: &mut Member<MemoryShelf>, address: Address, bytes: &Bytes) -> Outcome {
    let bytes = bytes.clone();
    let request = Request::Put {
        id: 5,
        address,
        bytes,
    };
    member.handle_request(&request).outcome
}

fn get(member: &mut Member<MemoryShelf>, address: Address) -> Outcome {
    member
        .handle_request(&Request::Get { id: 6, address })
        .outcome
}

fn manifest(name: &str, version: u64) -> Bytes {
    let manifest = Manifest {
        version,
        ..Manifest::empty(name, 1)
    };
    manifest.encode().unwrap()
}

#[test]
fn a_chunk_can_be_put_again_and_read_back() {
    let mut member = member(MemoryShelf::default());
    let bytes = Bytes::from_static(b"chunk");
    let address = Address::Chunk(Hash::of(&bytes));
    assert_eq!(get(&mut member, address), Outcome::Missing);
    for _ in 0..2 {
        assert_eq!(put(&mut member, address, &bytes), Outcome::Stored);
    }
    assert_eq!(get(&mut member, address), Outcome::Chunk(bytes));
    assert_eq!(member.shelf_mut().list().unwrap(), [address]);
    let counted = MemberCounters {
        puts: 2,
        put_bytes: 10,
        gets: 1,
        get_bytes: 5,
        missing: 1,
        ..MemberCounters::default()
    };
    assert_eq!(member.counters(), counted);
}

#[test]
fn bytes_that_do_not_match_their_address_are_refused() {
    let mut member = member(MemoryShelf::default());
    let bytes = manifest("a", 1);
    for address in [Address::Chunk(Hash::of(b"other")), Address::of_name("b")] {
        let outcome = put(&mut member, address, &bytes);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
    let damaged = bytes.slice(1..);
    let outcome = put(&mut member, Address::of_name("a"), &damaged);
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert!(member.shelf_mut().list().unwrap().is_empty());
}

#[test]
fn the_newest_manifest_of_a_name_remains() {
    let mut member = member(MemoryShelf::default());
    let address = Address::of_name("a");
    for version in [2, 3, 1] {
        assert_eq!(
            put(&mut member, address, &manifest("a", version)),
            Outcome::Stored
        );
    }
    assert_eq!(get(&mut member, address), Outcome::Chunk(manifest("a", 3)));
}

#[test]
fn a_full_shelf_keeps_what_it_has() {
    let mut member = member(MemoryShelf::with_room(8));
    let [first, second] = [&b"first"[..], b"second"].map(Bytes::from_static);
    let [one, two] = [&first, &second].map(|bytes| Address::Chunk(Hash::of(bytes)));
    assert_eq!(put(&mut member, one, &first), Outcome::Stored);
    let outcome = put(&mut member, two, &second);
    assert_eq!(outcome, Outcome::Failed("no room is left".to_owned()));
    assert_eq!(get(&mut member, one), Outcome::Chunk(first));
    assert_eq!(get(&mut member, two), Outcome::Missing);
}

fn ask(member: &mut Member<MemoryShelf>, query: Query) -> Reply {
    let answer = member.handle_request(&Request::Query { id: 7, query });
    match answer.outcome {
        Outcome::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn remove(age_s: u32, items: Vec<(Address, u64)>) -> Query {
    Query::Remove {
        age_s,
        member: None,
        items,
    }
}

#[test]
fn a_conditional_put_wants_the_version_that_is_present() {
    let member = member(MemoryShelf::default());
    let put_if = |expected, version, is_removed| {
        let manifest = Manifest {
            version,
            is_removed,
            ..Manifest::empty("a", 1)
        };
        let request = Request::PutIf {
            id: 1,
            name: Address::of_name("a").hash(),
            expected,
            bytes: manifest.encode().unwrap(),
        };
        member.handle_request(&request).outcome
    };
    assert_eq!(put_if(4, 5, false), Outcome::Conflict(0));
    assert_eq!(put_if(0, 5, false), Outcome::Stored);
    assert_eq!(put_if(0, 6, false), Outcome::Conflict(5));
    assert_eq!(put_if(5, 6, true), Outcome::Stored);
    assert_eq!(put_if(0, 7, false), Outcome::Stored, "the name was removed");
}

#[test]
fn a_batch_stores_the_manifests_that_are_newer() {
    let mut member = member(MemoryShelf::default());
    put(&mut member, Address::of_name("b"), &manifest("b", 9));
    let mut batch = Batch::default();
    for (name, version) in [("a", 3), ("b", 2)] {
        assert!(batch.push(&manifest(name, version)));
    }
    let bytes = batch.into_bytes();
    let put_names = |bytes: Bytes| {
        let hash = Hash::of(&bytes);
        let request = Request::PutNames { id: 1, hash, bytes };
        member.handle_request(&request).outcome
    };
    let cut = put_names(bytes.slice(..bytes.len() - 1));
    assert!(matches!(cut, Outcome::Failed(_)), "{cut:?}");
    assert_eq!(put_names(bytes), Outcome::Stored);
    let versions = Query::Versions(["a", "b", "c"].map(str::to_owned).to_vec());
    assert_eq!(ask(&mut member, versions), Reply::Versions(vec![3, 9, 0]));
}

#[test]
fn names_come_in_pages_and_in_order() {
    let mut member = member(MemoryShelf::default());
    let names = ["x/2", "x/1", "y", "x"];
    for name in names {
        put(&mut member, Address::of_name(name), &manifest(name, 1));
    }
    let list = |member: &mut Member<MemoryShelf>, prefix: &str, after: &str| {
        let query = Query::Names {
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            is_full: false,
        };
        match ask(member, query) {
            Reply::Summaries { files, has_more } => {
                assert!(!has_more);
                files.into_iter().map(|file| file.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(list(&mut member, "", ""), ["x", "x/1", "x/2", "y"]);
    assert_eq!(list(&mut member, "x/", ""), ["x/1", "x/2"]);
    assert_eq!(list(&mut member, "x/", "x/1"), ["x/2"]);
    assert_eq!(list(&mut member, "x/", "a"), ["x/1", "x/2"]);
    // A change after the first listing is in the next one.
    put(&mut member, Address::of_name("z"), &manifest("z", 4));
    let gone = remove(
        0,
        vec![(Address::of_name("x"), 1), (Address::of_name("z"), 3)],
    );
    assert!(matches!(
        ask(&mut member, gone),
        Reply::Removed { count: 1, .. }
    ));
    assert_eq!(list(&mut member, "", "x/2"), ["y", "z"]);
    assert_eq!(list(&mut member, "x", ""), ["x/1", "x/2"]);
}

#[test]
fn whole_manifests_come_in_several_pages_if_they_are_long() {
    let mut member = member(MemoryShelf::default());
    for name in ["a", "b", "c"] {
        let long = Manifest {
            size: 4000,
            chunks: vec![
                crate::ChunkEntry {
                    hash: Hash::of(b""),
                    members: Vec::new()
                };
                4000
            ],
            ..Manifest::empty(name, 1)
        };
        put(&mut member, Address::of_name(name), &long.encode().unwrap());
    }
    let mut pages = 0;
    let (mut after, mut names) = (String::new(), Vec::new());
    loop {
        let query = Query::Names {
            prefix: String::new(),
            after: after.clone(),
            is_full: true,
        };
        let Reply::Manifests { files, has_more } = ask(&mut member, query) else {
            panic!("manifests were asked for");
        };
        pages += 1;
        let read = files
            .iter()
            .map(|file| Manifest::decode(file).unwrap().name);
        names.extend(read);
        after = names.last().unwrap().clone();
        if !has_more {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(pages, 2);
}

#[test]
fn only_old_bytes_are_removed_and_a_put_makes_them_young() {
    let mut member = member(MemoryShelf::default());
    let bytes = ["one", "two", "three"].map(|text| Bytes::from_static(text.as_bytes()));
    let addresses = bytes
        .each_ref()
        .map(|bytes| Address::Chunk(Hash::of(bytes)));
    for (address, bytes) in addresses.iter().zip(&bytes) {
        put(&mut member, *address, bytes);
    }
    member.shelf_mut().pass(Duration::from_secs(100));
    put(&mut member, addresses[0], &bytes[0]);
    let refreshed = Query::Holds {
        addresses: vec![addresses[1], Address::of_name("none")],
        is_deep: false,
        refreshes: true,
    };
    assert_eq!(ask(&mut member, refreshed), Reply::Held(vec![true, false]));
    let items: Vec<_> = addresses.map(|address| (address, 0)).into();
    let elsewhere = Query::Remove {
        age_s: 0,
        member: Some(MemberName::new("other").unwrap()),
        items: items.clone(),
    };
    let none = Reply::Removed { count: 0, bytes: 0 };
    assert_eq!(ask(&mut member, elsewhere), none);
    let removed = ask(&mut member, remove(60, items.clone()));
    assert_eq!(removed, Reply::Removed { count: 1, bytes: 5 });
    let Reply::Chunks { chunks, has_more } = ask(&mut member, Query::Chunks(None)) else {
        panic!("chunks were asked for");
    };
    assert!(!has_more && chunks.len() == 2, "{chunks:?}");
    let behind = ask(&mut member, Query::Chunks(Some(chunks[0].hash)));
    let last = vec![chunks[1]];
    assert_eq!(
        behind,
        Reply::Chunks {
            chunks: last,
            has_more: false
        }
    );
    member.shelf_mut().pass(Duration::from_secs(60));
    let removed = ask(&mut member, remove(60, items));
    assert_eq!(removed, Reply::Removed { count: 2, bytes: 6 });
    assert_eq!(member.counters().removed, 3);
}

/// A shelf from which another thread removes bytes as soon as they were read.
#[derive(Default)]
struct Swept(MemoryShelf);

impl Shelf for Swept {
    fn put(&self, address: Address, bytes: &Bytes) -> Result<(), ShelfError> {
        self.0.put(address, bytes)
    }

    fn get(&self, address: Address) -> Result<Option<Bytes>, ShelfError> {
        let bytes = self.0.get(address)?;
        self.0.remove(address, Duration::ZERO)?;
        Ok(bytes)
    }

    fn find(&self, address: Address) -> Result<Option<crate::Held>, ShelfError> {
        self.0.find(address)
    }

    fn refresh(&self, address: Address) -> Result<bool, ShelfError> {
        self.0.refresh(address)
    }

    fn remove(&self, address: Address, age: Duration) -> Result<Option<u64>, ShelfError> {
        self.0.remove(address, age)
    }

    fn list(&self) -> Result<Vec<Address>, ShelfError> {
        self.0.list()
    }

    fn usage(&self) -> Result<crate::Usage, ShelfError> {
        self.0.usage()
    }
}

#[test]
fn a_chunk_that_is_swept_while_it_is_put_again_is_stored() {
    let member = Member::new(MemberName::new("m").unwrap(), Swept::default());
    let bytes = Bytes::from_static(b"chunk");
    let address = Address::Chunk(Hash::of(&bytes));
    for _ in 0..2 {
        let request = Request::Put {
            id: 5,
            address,
            bytes: bytes.clone(),
        };
        assert_eq!(member.handle_request(&request).outcome, Outcome::Stored);
        assert!(member.shelf().find(address).unwrap().is_some());
    }
}
