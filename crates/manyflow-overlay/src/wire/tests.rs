mod any;
mod layers;

use proptest::prelude::*;

use self::layers::{in_one_layer, is_layered};
use super::*;
use crate::message::{
    Ack, Acknowledge, Body, Change, ClientFrame, ClientId, Control, CopyFlags, CostUpdate,
    DATAGRAM_BYTES, DaemonId, Data, Delay, Feedback, Frame, GroupId, GroupSet, Item, LinkState,
    Message, Part, Resent, Welcome,
};
use crate::sequence::{ChangeSeq, LinkSeq, OriginSeq};
use any::{any_client_frame, any_datagram, any_segment, any_stream};
use manyflow_tcp as tcp;

const GROUP: GroupId = GroupId(0x1112_1314);
const DATA_HEADER: Data = Data {
    group: GROUP,
    version: 0x1516,
    sequence: OriginSeq::new(0x2122_2324_2526),
    sender: ClientId(0x3132_3334),
    sent_us: 0x4142_4344,
};
#[rustfmt::skip]
const DATA_WORDS: [u8; 20] = [
    0x11, 0x12, 0x13, 0x14,
    0x15, 0x16, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26,
    0x31, 0x32, 0x33, 0x34,
    0x41, 0x42, 0x43, 0x44,
];

fn range((begin, end): (u32, u32)) -> (LinkSeq, LinkSeq) {
    (LinkSeq(begin), LinkSeq(end))
}

fn message(body: Body) -> Message {
    Message {
        origin: DaemonId(0x0102),
        copy: Default::default(),
        body,
    }
}

fn full_update() -> CostUpdate {
    let link = |number| {
        Some(LinkState {
            to: DaemonId(number),
            queue: 0x0203,
        })
    };
    CostUpdate {
        version: 0x0708,
        links: [link(4), link(6), link(9)],
    }
}

/// Asserts that each frame encodes to its bytes, and they decode to the frame.
fn assert_encodings(cases: &[(Frame, Vec<u8>)]) {
    for (frame, bytes) in cases {
        assert_eq!(frame.encode(0).unwrap().as_bytes(), bytes);
        assert_eq!(Frame::decode(bytes), Ok((*frame, bytes.len())));
    }
}

#[test]
fn probes_of_a_stream_are_encoded_as_documented() {
    let sent_us = 0x4142_4344;
    let cases = [
        (
            Delay::Asked { sent_us },
            [0, 8, 0x3a, 0, 0, 0, 0x41, 0x42, 0x43, 0x44],
        ),
        (
            Delay::Answered { waited_us: 7 },
            [0, 8, 0x3b, 0, 0, 0, 0, 0, 0, 7],
        ),
    ];
    for (delay, bytes) in cases {
        let frame = Frame::Delay(delay);
        assert_eq!(frame.encode_framed(0).unwrap().as_bytes(), bytes);
        assert_eq!(Frame::decode_framed(&bytes), Ok(Some((frame, 10..10))));
        // They belong to streams only.
        assert_eq!(
            Frame::decode(&bytes[2..]),
            Err(WireError::Kind(bytes[2] & 31))
        );
        for place in [3, 4, 5] {
            let mut other = bytes;
            other[place] = 1;
            assert_eq!(Frame::decode_framed(&other), Err(WireError::Reserved));
        }
    }
}

fn repaired_message() -> Message {
    Message {
        copy: CopyFlags::REPAIRED,
        ..message(Body::Data(DATA_HEADER))
    }
}

#[test]
fn messages_and_states_are_encoded_as_documented() {
    let joined = Change {
        incarnation: 9,
        change: ChangeSeq(2),
        item: Item::Members {
            group: GROUP,
            members: 1,
            since: ChangeSeq(2),
        },
    };
    let link = Part {
        change: ChangeSeq(2),
        index: 4,
        item: Item::Link {
            to: DaemonId(0x0506),
            weight: 7,
            since: ChangeSeq(1),
        },
    };
    let group = [0x11, 0x12, 0x13, 0x14];
    assert_encodings(&[
        (
            Frame::Direct(repaired_message()),
            [&[0x21, 0x80, 1, 2][..], &DATA_WORDS].concat(),
        ),
        (
            Frame::Direct(message(Body::Change(joined))),
            [
                &[0x22, 0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 2, 0, 1, 0, 0],
                &group[..],
                &[0, 0, 0, 1, 0, 0, 0, 2],
            ]
            .concat(),
        ),
        (
            Frame::Direct(message(Body::Part(link))),
            [
                &[0x24, 0, 1, 2, 0, 0, 0, 2, 0, 0, 0, 4, 0, 3, 5, 6][..],
                &[0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0],
            ]
            .concat(),
        ),
    ]);
}

#[test]
fn messages_to_one_daemon_and_costs_are_encoded_as_documented() {
    let welcome = Welcome {
        to: DaemonId(0x0506),
        version: 0x0708,
        group: GROUP,
        change: ChangeSeq(2),
        start: OriginSeq::new(3),
        next: OriginSeq::new(5),
    };
    let acknowledge = Acknowledge {
        to: DaemonId(0x0506),
        version: 0x0708,
        flows: [(GROUP, 3), (GroupId(1), 4)],
    };
    let group = [0x11, 0x12, 0x13, 0x14];
    assert_encodings(&[
        (
            Frame::Direct(message(Body::Welcome(welcome))),
            [
                &[0x23, 0, 1, 2],
                &group[..],
                &[7, 8, 0, 0, 0, 0, 0, 3, 5, 6, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2],
            ]
            .concat(),
        ),
        (
            Frame::Direct(message(Body::Acknowledge(acknowledge))),
            [
                &[0x2e, 0x20, 1, 2, 5, 6, 7, 8],
                &group[..],
                &[0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 4],
            ]
            .concat(),
        ),
        (
            Frame::Direct(message(Body::Control(Control::Cost(full_update())))),
            vec![
                0x25, 0x30, 1, 2, 7, 8, 0, 0, 0, 4, 2, 3, 0, 6, 2, 3, 0, 9, 2, 3,
            ],
        ),
    ]);
}

#[test]
fn other_frames_are_encoded_as_documented() {
    let feedback = Feedback {
        expected: LinkSeq(7),
        missing: [(7, 8), (9, 12), (0, 0)].map(range),
    };
    let (number, priority) = (LinkSeq(7), 0x0190);
    let deliver = ClientFrame::Deliver {
        origin: DaemonId(0x0102),
        data: DATA_HEADER,
        layered: false,
    };
    assert_encodings(&[
        (
            Frame::Datagram {
                number,
                message: repaired_message(),
            },
            [
                &[0x28, 0, 0, 0, 0, 0, 0, 7, 0x21, 0x80, 1, 2],
                &DATA_WORDS[..],
            ]
            .concat(),
        ),
        (
            Frame::Feedback(feedback),
            [
                &[0x29, 0x20, 0, 0, 0, 0, 0, 7][..],
                &[0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 12],
            ]
            .concat(),
        ),
        (
            Frame::Client(ClientFrame::Connect { priority }),
            vec![0x30, 0, 1, 0x90],
        ),
        (
            Frame::Client(deliver),
            [&[0x37, 0, 1, 2][..], &DATA_WORDS].concat(),
        ),
    ]);
}

#[test]
fn messages_to_several_groups_are_encoded_as_documented() {
    let groups = GroupSet::of(&[7, 1, 2].map(GroupId)).unwrap();
    let send = ClientFrame::Send {
        groups,
        sent_us: 6,
        layered: false,
    };
    let bytes = [
        &[0x33, 0x20, 0, 0, 0, 0, 0, 7, 0, 0, 0, 6][..],
        &[0, 0, 0, 1, 0, 0, 0, 2],
    ]
    .concat();
    let datagram = |body| Frame::Datagram {
        number: LinkSeq(7),
        message: message(body),
    };
    let encoded = |kind: u8| {
        let begin = [0x28, 0, 0, 0, 0, 0, 0, 7, kind, 0, 1, 2];
        [&begin[..], &DATA_WORDS].concat()
    };
    assert_encodings(&[
        (Frame::Client(send), bytes.clone()),
        (datagram(Body::Shared(DATA_HEADER)), encoded(0x3c)),
        (datagram(Body::Again(DATA_HEADER)), encoded(0x3d)),
    ]);
    let mut twice = bytes;
    twice[15] = 7;
    let error = Frame::decode(&twice).unwrap_err().to_string();
    assert!(error.contains("further group is 7"), "{error}");
    // The payload of a message that repeats it is elsewhere.
    let mut again = encoded(0x3d);
    again.push(0);
    assert_eq!(Frame::decode(&again), Err(WireError::Trailing(1)));
}

#[test]
fn headers_take_24_bytes_for_data_and_62_for_a_cost_update() {
    assert_eq!(message(Body::Data(DATA_HEADER)).wire_bytes(), 24);
    let update = message(Body::Control(Control::Cost(full_update())));
    let message = update;
    let sequence = LinkSeq(0);
    assert_eq!(Frame::Segment { sequence, message }.wire_bytes(), 62);
}

#[test]
fn the_longest_payload_fits_in_a_packet_and_a_longer_one_is_refused() {
    let data = DATA_HEADER;
    let to = DaemonId(0);
    let resent = message(Body::Resent(Resent { to, data }));
    let message = message(Body::Data(data));
    let origin = DaemonId(0);
    let frames = [
        Frame::Segment {
            sequence: LinkSeq(0),
            message,
        },
        Frame::Datagram {
            number: LinkSeq(0),
            message,
        },
        Frame::Client(ClientFrame::Deliver {
            origin,
            data,
            layered: false,
        }),
        Frame::Segment {
            sequence: LinkSeq(0),
            message: resent,
        },
    ];
    for frame in frames {
        assert!(frame.wire_bytes() + PAYLOAD_BYTES_MAX <= 65_535);
        assert!(frame.encode(PAYLOAD_BYTES_MAX).is_ok());
        let too_long = PAYLOAD_BYTES_MAX + 1;
        let error = frame.encode(too_long).unwrap_err();
        assert_eq!(error, WireError::Payload(too_long as usize));
    }
    let datagram = frames[1].encode(0).unwrap();
    let mut bytes = datagram.as_bytes().to_vec();
    bytes.resize(bytes.len() + PAYLOAD_BYTES_MAX as usize, 0);
    assert!(Frame::decode(&bytes).is_ok());
    bytes.push(0);
    let error = Frame::decode(&bytes).unwrap_err();
    assert_eq!(error, WireError::Payload(PAYLOAD_BYTES_MAX as usize + 1));
}

#[test]
fn unknown_reserved_and_out_of_range_values_are_refused_by_name() {
    let data = |at: usize, byte: u8| {
        let mut bytes = [&[0x21, 0, 1, 2][..], &DATA_WORDS].concat();
        bytes[at] = byte;
        Frame::decode(&bytes).unwrap_err()
    };
    assert_eq!(data(0, 0x41), WireError::Version(2));
    assert_eq!(data(0, 0x20), WireError::Kind(0));
    assert_eq!(data(0, 0x3f), WireError::Kind(31));
    assert_eq!(data(0, 0x3f), WireError::Kind(31));
    // The last three bits are reserved.
    assert_eq!(data(1, 0x04), WireError::Reserved);
    assert_eq!(data(1, 0x01), WireError::Reserved);
    let refused: [(&[u8], &str); 9] = [
        (&[0x30, 0, 0, 0], "a client's priority in percent is 0"),
        (&[0x34, 0, 0, 0, 0, 0, 0, 0], "taken is 0"),
        (
            &[
                0x21, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
            ],
            "a sequence number is 0",
        ),
        (
            &[
                0x23, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0,
                1,
            ],
            "first sequence number is 0",
        ),
        (
            &[
                0x23, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 3, 0, 9, 0, 0, 0, 0, 0, 2, 0, 0, 0,
                1,
            ],
            "next sequence number is 2",
        ),
        (
            &[
                0x22, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                0,
            ],
            "the kind of an item is 9",
        ),
        (&[0x35, 0, 0, 1], "reserved"),
        (&[0x36, 0, 0, 0, 9], "1 bytes follow"),
        (
            &[0x31, 0, 0, 0, 9],
            "5 bytes are too few: the header takes 8",
        ),
    ];
    for (bytes, why) in refused {
        let error = Frame::decode(bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{bytes:?}: {error}");
    }
}

#[test]
fn missing_ranges_must_be_in_order_even_where_numbers_wrap() {
    let decoded = |expected, missing: [(u32, u32); 3]| {
        let frame = Frame::Feedback(Feedback {
            expected: LinkSeq(expected),
            missing: missing.map(range),
        });
        Frame::decode(frame.encode(0).unwrap().as_bytes()).map(|(decoded, _)| decoded == frame)
    };
    let none = (0, 0);
    assert_eq!(decoded(5, [none, none, none]), Ok(true));
    assert_eq!(decoded(5, [(5, 6), (8, 9), (9, 20)]), Ok(true));
    assert_eq!(decoded(u32::MAX, [(u32::MAX, 2), (4, 5), none]), Ok(true));
    let refused = [
        [(4, 6), none, none],
        [(6, 5), none, none],
        [(5, 8), (7, 9), none],
        [(8, 9), (5, 6), none],
        [(5, 0x8000_0005), none, none],
    ];
    for missing in refused {
        let error = decoded(5, missing).unwrap_err();
        assert!(matches!(error, WireError::Missing(_)), "{missing:?}");
    }
}

#[test]
fn garbage_on_a_stream_is_refused_at_its_header() {
    // The bytes read as a length of 18,516 and the beginning of a header, `TP/1.`.
    let error = Message::decode_framed(b"HTTP/1.").unwrap_err();
    assert_eq!(error, WireError::Version(2));
    // The length leaves no room for a header.
    let error = Message::decode_framed(&[0, 3, 0x21, 0, 0]).unwrap_err();
    assert_eq!(error, WireError::Short { have: 3, want: 4 });
    assert_eq!(Message::decode_framed(&[0, 4, 0x21, 0, 0]), Ok(None));
    // Client frames are not sent between daemons.
    let ready = ClientFrame::Ready.encode_framed(0).unwrap();
    let error = Message::decode_framed(ready.as_bytes()).unwrap_err();
    assert_eq!(error, WireError::Kind(READY));
}

#[test]
fn foreign_tcp_headers_are_refused() {
    let ack = Frame::Ack(Ack {
        acknowledgement: LinkSeq(3),
        window: 40,
        sack: [(5, 7), (0, 0), (0, 0)].map(range),
    });
    let bytes = ack.encode_tcp(80, 81).unwrap().as_bytes().to_vec();
    assert_eq!(Frame::decode_tcp(&bytes), Ok((ack, 32)));
    // The checksum is ignored. The urgent pointer, the flags, and the sequence number of an
    // acknowledgement are not.
    for (at, known) in [(16, true), (19, false), (13, false), (7, false)] {
        let mut other = bytes.clone();
        other[at] ^= 4;
        assert_eq!(Frame::decode_tcp(&other).is_ok(), known, "{at}");
    }
    let mut below = bytes;
    below[27] = 3;
    let error = Frame::decode_tcp(&below).unwrap_err().to_string();
    assert!(error.contains("SACK"), "{error}");
}

fn has_payload(frame: &Frame) -> bool {
    match frame {
        Frame::Segment { message, .. }
        | Frame::Stream(message)
        | Frame::Datagram { message, .. }
        | Frame::Direct(message) => message.has_payload(),
        Frame::Client(frame) => frame.has_payload(),
        Frame::Ack(_) | Frame::Feedback(_) | Frame::Delay(_) => false,
    }
}

/// Returns the payload if the frame has one, or else nothing. That of a layered frame has a table.
fn payload_of(frame: &Frame, payload: Vec<u8>) -> Vec<u8> {
    match has_payload(frame) {
        true if is_layered(frame) => in_one_layer(&payload),
        true => payload,
        false => vec![],
    }
}

/// Returns bytes that resemble a frame: mostly of a known kind, with small numbers.
fn nearly_a_frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![8 => 0x21..=0x3bu8, 1 => any::<u8>()];
    let flags =
        prop_oneof![4 => Just(0), 4 => (0..16u8).prop_map(|high| high << 4), 1 => any::<u8>()];
    let byte = prop_oneof![3 => Just(0), 2 => 1..=3u8, 1 => any::<u8>()];
    (first, flags, prop::collection::vec(byte, 0..48)).prop_map(|(first, flags, rest)| {
        let mut bytes = vec![first, flags];
        bytes.extend(rest);
        bytes
    })
}

proptest! {
    #[test]
    fn datagrams_round_trip_and_take_their_wire_bytes(
        frame in any_datagram(), payload: Vec<u8>,
    ) {
        let payload = payload_of(&frame, payload);
        let encoded = frame.encode(payload.len() as u32).unwrap();
        let header = encoded.as_bytes().len();
        prop_assert_eq!(header as u32 + DATAGRAM_BYTES, frame.wire_bytes());
        let bytes = [encoded.as_bytes(), &payload].concat();
        prop_assert_eq!(Frame::decode(&bytes), Ok((frame, header)));
        prop_assert!(frame.encode_tcp(1, 2).is_none());
    }

    #[test]
    fn segments_round_trip_and_take_their_wire_bytes(
        frame in any_segment(), payload: Vec<u8>, ports: (u16, u16),
    ) {
        let payload = payload_of(&frame, payload);
        let tcp = frame.encode_tcp(ports.0, ports.1).unwrap();
        let encoded = frame.encode(payload.len() as u32).unwrap();
        let header = tcp.as_bytes().len() + encoded.as_bytes().len();
        // IPv4's header takes 20 bytes.
        prop_assert_eq!(header as u32 + tcp::HEADER_BYTES - 20, frame.wire_bytes());
        let bytes = [tcp.as_bytes(), encoded.as_bytes(), &payload].concat();
        prop_assert_eq!(Frame::decode_tcp(&bytes), Ok((frame, header)));
    }

    #[test]
    fn decoded_frames_encode_to_the_same_bytes(bytes in nearly_a_frame()) {
        for length in 0..=bytes.len() {
            if let Ok((frame, header)) = Frame::decode(&bytes[..length]) {
                let encoded = frame.encode((length - header) as u32).unwrap();
                prop_assert_eq!(encoded.as_bytes(), &bytes[..header]);
                prop_assert!(header == length || has_payload(&frame));
            }
        }
    }

    #[test]
    fn decoded_segments_encode_to_the_same_bytes(
        frame in any_segment(), change in (0..40usize, any::<u8>()), cut in 0..100usize,
    ) {
        let tcp = frame.encode_tcp(1, 2).unwrap();
        let mut bytes = [tcp.as_bytes(), frame.encode(0).unwrap().as_bytes()].concat();
        if let Some(byte) = bytes.get_mut(change.0) {
            *byte = change.1;
        }
        bytes.truncate(cut);
        if let Ok((frame, header)) = Frame::decode_tcp(&bytes) {
            let ports = [bytes[0], bytes[1], bytes[2], bytes[3]];
            let [source, destination] = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
            let tcp = frame.encode_tcp(source, destination).unwrap();
            let encoded = frame.encode((bytes.len() - header) as u32).unwrap();
            // The decoder ignores the checksum; the encoder writes zeros.
            bytes[16..18].fill(0);
            prop_assert_eq!([tcp.as_bytes(), encoded.as_bytes()].concat(), &bytes[..header]);
        }
    }

    #[test]
    fn a_stream_decodes_the_same_however_it_is_split(
        frames in prop::collection::vec((any_stream(), any::<Vec<u8>>()), 0..8),
        pieces in prop::collection::vec(1..40usize, 1..50),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (frame, payload) in frames {
            let payload = payload_of(&frame, payload);
            let before = stream.len();
            stream.extend_from_slice(frame.encode_framed(payload.len() as u32).unwrap().as_bytes());
            stream.extend_from_slice(&payload);
            if !matches!(frame, Frame::Feedback(_)) {
                let bytes = frame.wire_bytes() - tcp::HEADER_BYTES;
                prop_assert_eq!(stream.len() - before, bytes as usize + payload.len());
            }
            expected.push((frame, payload));
        }
        let (mut buffer, mut decoded) = (Vec::new(), Vec::new());
        let mut pieces = pieces.iter().cycle();
        while !stream.is_empty() {
            let piece = (*pieces.next().unwrap()).min(stream.len());
            buffer.extend(stream.drain(..piece));
            while let Some((frame, payload)) = Frame::decode_framed(&buffer).unwrap() {
                decoded.push((frame, buffer[payload.clone()].to_vec()));
                buffer.drain(..payload.end);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(decoded, expected);
    }

    #[test]
    fn a_client_frame_is_decoded_from_a_stream_only_when_complete(frame in any_client_frame(), payload: Vec<u8>) {
        let payload = payload_of(&Frame::Client(frame), payload);
        let encoded = frame.encode_framed(payload.len() as u32).unwrap();
        let start = encoded.as_bytes().len();
        let bytes = [encoded.as_bytes(), &payload].concat();
        for length in 0..bytes.len() {
            prop_assert_eq!(ClientFrame::decode_framed(&bytes[..length]), Ok(None));
        }
        prop_assert_eq!(ClientFrame::decode_framed(&bytes), Ok(Some((frame, start..bytes.len()))));
    }
}
