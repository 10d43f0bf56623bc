use proptest::prelude::*;

use super::*;

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
    (any::<u64>(), any_address(), prop::option::of(any_bytes())).prop_map(|(id, address, bytes)| {
        match bytes {
            Some(bytes) => Request::Put { id, address, bytes },
            None => Request::Get { id, address },
        }
    })
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let outcome = prop_oneof![
        Just(Outcome::Stored),
        Just(Outcome::Missing),
        any_bytes().prop_map(Outcome::Chunk),
        ".{0,400}".prop_map(|reason| Outcome::failed(&reason)),
    ];
    (any::<u64>(), "[a-z0-9.:_-]{1,64}", outcome).prop_map(|(id, name, outcome)| Answer {
        id,
        member: MemberName::new(&name).unwrap(),
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
        first in (0..=2u8, 0..=7u8, 0..=3u8, 0..=1u8), rest in prop::collection::vec(b'a'..=b'c', 0..80),
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
