use proptest::prelude::*;

use super::*;

/// A message as a library writes it.
fn written(
    raw_type: u32,
    sender: &str,
    groups: &[&str],
    kind: i16,
    payload: &[u8],
    is_little: bool,
) -> Vec<u8> {
    let bytes = |number: u32| match is_little {
        true => number.to_le_bytes(),
        false => number.to_be_bytes(),
    };
    let marks = if is_little { ORDER_BITS } else { 0 };
    let hint = u32::from(kind as u16) << 8 | marks;
    let mut all = bytes(raw_type | marks).to_vec();
    all.extend(padded(sender));
    let numbers = [groups.len() as u32, hint, payload.len() as u32];
    all.extend(numbers.into_iter().flat_map(bytes));
    all.extend(groups.iter().flat_map(|group| padded(group)));
    all.extend(payload);
    all
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written_in_both_orders_of_bytes(
        (service, self_discard, is_little) in (0..6usize, any::<bool>(), any::<bool>()),
        names in prop::collection::vec("[$-~]{1,31}", 0..5),
        kind: i16,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        cut in 0..48usize,
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let raw_type = 1 << service | if self_discard { SELF_DISCARD } else { 0 };
        let all = written(raw_type, "#a#d", &names, kind, &payload, is_little);
        let mut bytes = BytesMut::from(&all[..all.len() - 1 - cut % all.len().min(40)]);
        prop_assert_eq!(Message::take(&mut bytes), Ok(None));
        let mut bytes = BytesMut::from(&[&all[..], b"next"].concat()[..]);
        let message = Message::take(&mut bytes).unwrap().unwrap();
        prop_assert_eq!(&bytes[..], b"next");
        let service = Service::ALL[service];
        prop_assert_eq!(message.header.purpose, Purpose::Send { service, self_discard });
        prop_assert_eq!(message.header.kind, kind);
        let read: Option<Vec<&str>> = message.groups().collect();
        prop_assert_eq!(read, Some(names));
        prop_assert_eq!(message.payload(), payload);
    }

    #[test]
    fn any_bytes_are_a_header_in_its_ranges_or_an_error(bytes: [u8; HEADER_BYTES]) {
        if let Ok(header) = Header::decode(&bytes) {
            let total = header.groups * NAME_BYTES + header.payload_bytes;
            prop_assert!(header.groups <= GROUPS_MAX && total <= MESSAGE_BYTES_MAX);
        }
    }

    #[test]
    fn long_names_are_shortened_to_names_that_differ(name in "[a-z]{32,128}") {
        let field = padded(&name);
        let text = group_name(&field).unwrap();
        prop_assert_eq!(text.len(), NAME_BYTES - 1);
        prop_assert_ne!(field, padded(&format!("{name}x")));
        prop_assert_eq!(field, padded(&name));
    }
}

#[test]
fn a_header_has_the_bytes_of_spread() {
    // As a library on a little-endian machine writes an agreed message of kind 5 to one group.
    let mut expected = vec![0x90, 0, 0, 0x80];
    expected.extend(b"#ada#london");
    expected.resize(36, 0);
    expected.extend([1, 0, 0, 0, 0x80, 5, 0, 0x80, 2, 0, 0, 0]);
    let head = header(type_of(Service::Agreed), "#ada#london", 1, 5, 2);
    assert_eq!(head[..], expected);
    assert_eq!(
        written(0x10, "#ada#london", &["g"], 5, b"hi", true)[..48],
        head
    );
}

#[test]
fn fields_that_are_out_of_their_ranges_are_errors() {
    let valid = written(0x10, "#a#d", &["g"], 0, b"", true);
    let decode = |at: usize, number: u32| {
        let mut bytes = *valid.first_chunk::<HEADER_BYTES>().unwrap();
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        Header::decode(&bytes)
    };
    for raw_type in [
        0,
        0x11,
        0x10_0010 | JOIN,
        JOIN | LEAVE,
        GROUPS,
        REGULAR_VIEW,
    ] {
        let error = decode(0, raw_type | ORDER_BITS).unwrap_err();
        assert_eq!(error, WireError::Type(raw_type));
    }
    assert_eq!(decode(36, 101), Err(WireError::Groups(101)));
    assert_eq!(decode(36, u32::MAX), Err(WireError::Groups(-1)));
    assert_eq!(decode(40, ORDER_BITS | 1), Err(WireError::Hint(1)));
    assert_eq!(decode(44, 144_000), Err(WireError::Length(144_032)));
    assert!(decode(44, 144_000 - 32).is_ok());
    assert!(matches!(decode(44, u32::MAX), Err(WireError::Length(_))));
}

#[test]
fn fields_without_a_name_are_none() {
    for (name, is_name) in [
        (&b"group"[..], true),
        (b"#ada#london", true),
        (b"", false),
        (b"two words", false),
        (b"a#b", false),
        (b"\xff", false),
        (&[b'x'; 31], true),
        (&[b'x'; 32], false),
    ] {
        let mut field = [0; NAME_BYTES];
        field[..name.len()].copy_from_slice(name);
        assert_eq!(group_name(&field).is_some(), is_name, "{name:?}");
    }
}

#[test]
fn a_rejected_message_has_its_old_type_behind_the_header() {
    let bytes = written(JOIN, "#a#d", &["two words"], 3, b"", true);
    let message = Message::take(&mut BytesMut::from(&bytes[..]))
        .unwrap()
        .unwrap();
    let (head, body) = message.rejection("#a#d");
    assert_eq!(head[..48], header(REJECTED, "#a#d", 1, 3, 0));
    assert_eq!(head[48..], (CAUSED_BY_JOIN | ORDER_BITS).to_le_bytes());
    assert_eq!(body[..], padded("two words"));
}
