use proptest::prelude::*;

use super::*;
use crate::{HeldChunk, Summary, Usage};

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 1..200).prop_map(Bytes::from)
}

fn any_address() -> impl Strategy<Value = Address> {
    (any::<bool>(), any::<[u8; 32]>()).prop_map(|(is_name, hash)| match is_name {
        true => Address::Name(Hash(hash)),
        false => Address::Chunk(Hash(hash)),
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let id = any::<u64>;
    prop_oneof![
        (id(), any_address(), any_bytes()).prop_map(|(id, address, bytes)| Request::Put {
            id,
            address,
            bytes
        }),
        (id(), any_address()).prop_map(|(id, address)| Request::Get { id, address }),
        (id(), any_hash(), any::<u64>(), any_bytes()).prop_map(|(id, name, expected, bytes)| {
            Request::PutIf {
                id,
                name,
                expected,
                bytes,
            }
        }),
        (id(), any_hash(), any_bytes()).prop_map(|(id, hash, bytes)| Request::PutNames {
            id,
            hash,
            bytes
        }),
        (id(), any_query()).prop_map(|(id, query)| Request::Query { id, query }),
    ]
}

fn any_hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash)
}

fn any_member() -> impl Strategy<Value = MemberName> {
    "[a-z0-9.:_-]{1,64}".prop_map(|name| MemberName::new(&name).unwrap())
}

fn any_query() -> impl Strategy<Value = Query> {
    let some = 0..4usize;
    prop_oneof![
        (
            prop::collection::vec(any_address(), some.clone()),
            any::<[bool; 2]>()
        )
            .prop_map(|(addresses, [is_deep, refreshes])| Query::Holds {
                addresses,
                is_deep,
                refreshes
            }),
        (".{0,20}", ".{0,20}", any::<bool>()).prop_map(|(prefix, after, is_full)| Query::Names {
            prefix,
            after,
            is_full
        }),
        prop::collection::vec(".{0,20}", some.clone()).prop_map(Query::Versions),
        prop::option::of(any_hash()).prop_map(Query::Chunks),
        (
            any::<u32>(),
            prop::option::of(any_member()),
            prop::collection::vec((any_address(), any::<u64>()), some)
        )
            .prop_map(|(age_s, member, items)| Query::Remove {
                age_s,
                member,
                items
            }),
        Just(Query::Usage),
    ]
}

fn any_summary() -> impl Strategy<Value = Summary> {
    (
        any::<[u64; 2]>(),
        any::<[u32; 2]>(),
        any::<[u8; 2]>(),
        any::<bool>(),
        ".{0,20}",
        any_bytes(),
    )
        .prop_map(
            |(
                [version, size],
                [revision, chunks],
                [copies, earlier],
                is_removed,
                name,
                metadata,
            )| {
                Summary {
                    name,
                    version,
                    revision,
                    size,
                    chunks,
                    copies,
                    is_removed,
                    earlier,
                    metadata,
                }
            },
        )
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let some = 0..4usize;
    let chunk = (any_hash(), any::<[u32; 2]>()).prop_map(|(hash, [bytes, age_s])| HeldChunk {
        hash,
        bytes,
        age_s,
    });
    prop_oneof![
        prop::collection::vec(any::<bool>(), some.clone()).prop_map(Reply::Held),
        (
            prop::collection::vec(any_summary(), some.clone()),
            any::<bool>()
        )
            .prop_map(|(files, has_more)| Reply::Summaries { files, has_more }),
        (
            prop::collection::vec(any_bytes(), some.clone()),
            any::<bool>()
        )
            .prop_map(|(files, has_more)| Reply::Manifests { files, has_more }),
        prop::collection::vec(any::<u64>(), some.clone()).prop_map(Reply::Versions),
        (prop::collection::vec(chunk, some), any::<bool>())
            .prop_map(|(chunks, has_more)| Reply::Chunks { chunks, has_more }),
        (any::<u32>(), any::<u64>()).prop_map(|(count, bytes)| Reply::Removed { count, bytes }),
        any::<[u64; 7]>().prop_map(
            |[
                chunks,
                chunk_bytes,
                names,
                name_bytes,
                damaged,
                free_bytes,
                disk_bytes,
            ]| {
                Reply::Usage(Usage {
                    chunks,
                    chunk_bytes,
                    names,
                    name_bytes,
                    damaged,
                    free_bytes,
                    disk_bytes,
                })
            }
        ),
    ]
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let outcome = prop_oneof![
        Just(Outcome::Stored),
        Just(Outcome::Missing),
        any_bytes().prop_map(Outcome::Chunk),
        ".{0,400}".prop_map(|reason| Outcome::failed(&reason)),
        any::<u64>().prop_map(Outcome::Conflict),
        any_reply().prop_map(Outcome::Reply),
    ];
    (any::<u64>(), any_member(), outcome).prop_map(|(id, member, outcome)| Answer {
        id,
        member,
        outcome,
    })
}

proptest! {
    #[test]
    fn requests_survive_encoding(request in any_request()) {
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn answers_survive_encoding(answer in any_answer()) {
        prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }

    /// The first bytes are drawn so that most inputs are almost valid.
    #[test]
    fn any_bytes_are_refused_or_have_no_other_encoding(
        first in (0..=2u8, 0..=40u8, 0..=3u8, 0..=1u8), rest in prop::collection::vec(prop_oneof![0..=2u8, b'a'..=b'c'], 0..80),
    ) {
        let first = [first.0, first.1, first.2, first.3];
        let frame = Bytes::from([&first[..], &rest].concat());
        if let Ok(request) = Request::decode(&frame) {
            prop_assert_eq!(request.encode(), frame.clone());
        }
        if let Ok(answer) = Answer::decode(&frame) {
            prop_assert_eq!(answer.encode(), frame);
        }
    }

    #[test]
    fn a_frame_that_is_cut_is_refused_or_a_shorter_one(request in any_request(), keep in 0..60usize) {
        let frame = request.encode();
        let cut = frame.slice(..keep.min(frame.len()));
        if let Ok(decoded) = Request::decode(&cut) {
            prop_assert_eq!(decoded.encode(), cut);
        }
    }
}

#[test]
fn the_largest_stored_bytes_fit_a_frame_in_both_directions() {
    let bytes = Bytes::from(vec![7; STORED_BYTES_MAX]);
    let address = Address::Chunk(Hash::of(&bytes));
    let put = Request::Put {
        id: 1,
        address,
        bytes: bytes.clone(),
    };
    let answer = Answer {
        id: 1,
        member: MemberName::new(&"m".repeat(MemberName::BYTES_MAX)).unwrap(),
        outcome: Outcome::Chunk(bytes),
    };
    for frame in [put.encode(), answer.encode()] {
        assert!(frame.len() <= FRAME_BYTES_MAX, "{}", frame.len());
    }
    let mut longer = put.encode().to_vec();
    longer.push(7);
    let refused = WireError::Body(PUT, STORED_BYTES_MAX + 1);
    assert_eq!(Request::decode(&longer.into()), Err(refused));
}

#[test]
fn errors_name_their_cause() {
    let with = |place: usize, byte| {
        let mut frame = vec![0; REQUEST_BYTES];
        frame[..3].copy_from_slice(&[VERSION, GET, 1]);
        frame[place] = byte;
        Request::decode(&frame.into()).unwrap_err()
    };
    assert_eq!(with(0, 2), WireError::Version(2));
    assert_eq!(with(1, 3), WireError::Type(3));
    assert_eq!(with(1, 1), WireError::Body(PUT, 0));
    assert_eq!(with(2, 0), WireError::Kind(0));
    assert_eq!(with(3, 1), WireError::Reserved);
    let nameless = Bytes::from_static(&[VERSION, STORED, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Answer::decode(&nameless), Err(WireError::Member));
    assert_eq!(
        Answer::decode(&nameless.slice(..5)),
        Err(WireError::Short(5))
    );
}
