//! A NATS client sends any bytes, cut into any reads. The parser does not panic, finds the same
//! operations and the same error however the bytes are cut, and keeps no more bytes than the
//! longest operation has. Another daemon decodes each message to the same one.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::Arbitrary;
use bytes::BytesMut;
use manyflow_messages::nats::parse::{
    CONNECT_BYTES_MAX, LINE_BYTES_MAX, Operation, ParseError, Published, parse,
};

/// Bytes of the longest read.
const READ_BYTES_MAX: usize = 1 << 10;

/// A part of the bytes that a client sends.
#[derive(Arbitrary, Debug)]
enum Piece {
    /// Any bytes.
    Bytes([u8; 6]),
    /// Words of which operations consist, separated by spaces.
    Words { rare: u8, words: [u8; 5] },
    /// An operation without a payload.
    Short(u8),
    /// A PUB or HPUB, its line with these words, and a payload of the announced length.
    Message {
        line: u8,
        headers: u8,
        payload: u8,
        cut: u8,
    },
    /// One byte, repeated. The length is near that of the longest line.
    Long { rare: u8, byte: u8, more: u8 },
}

/// Bytes below this one make a piece that usually ends in an error, and so ends the input.
const RARE: u8 = 32;

const SHORT: [&str; 8] = [
    "PING\r\n",
    "pong \n",
    "SUB a.* 1\r\n",
    "Sub  a\tworkers 22 \r\n",
    "UNSUB 1\r\n",
    "UNSUB 22 5\r\n",
    "CONNECT {\"verbose\": false, \"a\": \"b  c\"}\r\n",
    "\r\n\n",
];

const WORDS: [&str; 24] = [
    "PUB",
    "hpub",
    "SUB",
    "UNSUB",
    "PING",
    "PONG",
    "CONNECT",
    "Connect",
    "pub",
    "a",
    "a.b",
    "*",
    ">",
    "0",
    "2",
    "11",
    "300",
    "4294967296",
    "-1",
    "{}",
    "\t",
    "\r",
    "\r\n",
    "\n",
];

impl Piece {
    fn write(&self, text: &mut Vec<u8>) {
        match *self {
            Piece::Bytes(bytes) if bytes[0] < RARE => text.extend_from_slice(&bytes),
            Piece::Words { rare, words } if rare < RARE => {
                for word in words {
                    text.extend_from_slice(WORDS[usize::from(word) % WORDS.len()].as_bytes());
                    text.push(b' ');
                }
                text.extend_from_slice(b"\r\n");
            }
            Piece::Short(kind) => {
                let line = SHORT[usize::from(kind) % SHORT.len()];
                text.extend_from_slice(line.as_bytes());
            }
            Piece::Message {
                line,
                headers,
                payload,
                cut,
            } => {
                let (headers, payload) = (usize::from(headers % 32), usize::from(payload));
                let length = headers + payload;
                let line = match line % 4 {
                    0 => format!("PUB a.b {length}\r\n"),
                    1 => format!("PUB a _INBOX.b {length}\n"),
                    2 => format!("HPUB a {headers} {length}\r\n"),
                    _ => format!("HPUB a\tb  {headers} {length} \r\n"),
                };
                text.extend_from_slice(line.as_bytes());
                text.resize(text.len() + length, b'\n');
                if cut >= RARE {
                    text.extend_from_slice(b"\r\n");
                }
            }
            Piece::Long { rare, byte, more } if rare < RARE => {
                let longest = match byte % 8 {
                    0 => CONNECT_BYTES_MAX,
                    _ => LINE_BYTES_MAX,
                };
                text.extend_from_slice(if byte % 2 == 0 {
                    b"CONNECT "
                } else {
                    b"SUB a "
                });
                let length = longest - 16 + usize::from(more % 16);
                text.resize(text.len() + length, byte.max(b' '));
                text.extend_from_slice(b"\r\n");
            }
            Piece::Bytes(_) | Piece::Words { .. } | Piece::Long { .. } => {}
        }
    }
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let [payload, cuts @ ..] = bytes else { return };
    let payload_bytes_max = usize::from(*payload) * 2;
    check(bytes, cuts, payload_bytes_max);
    let mut text = Vec::new();
    manyflow_fuzz::each(cuts).for_each(|piece: Piece| piece.write(&mut text));
    check(&text, cuts, payload_bytes_max);
});

/// Compares the operations in the text as a whole with those in pieces of it.
fn check(text: &[u8], cuts: &[u8], payload_bytes_max: usize) {
    let (whole, error) = parse_whole(text, payload_bytes_max);
    let (mut expected, mut rest) = (whole.iter(), text);
    let mut read = BytesMut::new();
    let lengths = cuts.iter().copied().chain(core::iter::repeat(u8::MAX));
    for length in lengths {
        let length = read_length(length).min(rest.len());
        let (now, later) = rest.split_at(length);
        read.extend_from_slice(now);
        rest = later;
        loop {
            match parse(&mut read, payload_bytes_max) {
                Ok(Some(operation)) => assert_eq!(Some(&operation), expected.next()),
                Ok(None) => break,
                Err(found) => {
                    assert_eq!(Some(found), error);
                    assert_eq!(expected.next(), None);
                    return;
                }
            }
        }
        check_memory(&read, payload_bytes_max);
        if rest.is_empty() {
            break;
        }
    }
    assert_eq!((expected.next(), error), (None, None));
}

fn parse_whole(text: &[u8], payload_bytes_max: usize) -> (Vec<Operation>, Option<ParseError>) {
    let (mut bytes, mut operations) = (BytesMut::from(text), Vec::new());
    loop {
        match parse(&mut bytes, payload_bytes_max) {
            Ok(Some(operation)) => operations.push(operation),
            Ok(None) => return (operations, None),
            Err(error) => return (operations, Some(error)),
        }
        if let Some(Operation::Publish(message)) = operations.last() {
            check_message(message, payload_bytes_max);
        }
    }
}

/// Returns the length of a read: mostly a few bytes.
fn read_length(byte: u8) -> usize {
    match byte {
        0..200 => 1 + usize::from(byte % 16),
        200..250 => usize::from(byte),
        _ => READ_BYTES_MAX,
    }
}

fn check_message(message: &Published, payload_bytes_max: usize) {
    let content = message.content();
    assert!(content.len() <= payload_bytes_max + 2);
    assert_eq!(
        content.slice(message.header_bytes()..),
        message.payload(),
        "the payload follows the headers"
    );
    assert!(!message.subject().is_empty());
    assert!(message.reply().is_none_or(|reply| !reply.is_empty()));
    let decoded = Published::decode(message.raw().clone());
    assert_eq!(decoded.as_ref(), Some(message));
}

/// Checks the bytes that wait for the rest of an operation.
fn check_memory(read: &BytesMut, payload_bytes_max: usize) {
    let longest = match read.first() {
        Some(b'C' | b'c') => CONNECT_BYTES_MAX,
        _ => LINE_BYTES_MAX + payload_bytes_max + 2,
    };
    assert!(read.len() < longest, "{} bytes wait", read.len());
    // A buffer that grows takes twice the bytes that it has, or has and needs.
    let most = 2 * (CONNECT_BYTES_MAX + READ_BYTES_MAX);
    assert!(read.capacity() <= most, "capacity {}", read.capacity());
}
