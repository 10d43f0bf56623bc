//! The operations that NATS clients send.
//!
//! Source: "Client Protocol" in the documentation of NATS. Operations are not case-sensitive;
//! fields are separated by spaces or tabs; lines end in CR LF.
//!
//! A message travels through the overlay as its client wrote it: the line of the operation, and the
//! payload. Nothing is copied from the bytes that were read from the client's socket. The daemons
//! of subscribers parse the line again.

mod published;

use core::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use published::Parts;

pub use published::{ALSO, Published};

/// The maximum length of the line of an operation, except CONNECT, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;
/// The maximum length of a CONNECT in bytes. It may contain a token of some kilobytes.
pub const CONNECT_BYTES_MAX: usize = 64 * 1024;

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// CONNECT, with its options as JSON.
    Connect(Bytes),
    /// PUB or HPUB.
    Publish(Published),
    /// SUB.
    Subscribe {
        /// The pattern of subjects.
        pattern: Bytes,
        /// The queue group, if any.
        queue: Option<Bytes>,
        /// The client's identifier of the subscription.
        sid: Bytes,
    },
    /// UNSUB.
    Unsubscribe {
        /// The client's identifier of the subscription.
        sid: Bytes,
        /// The number of messages after which the subscription ends; `None` for now.
        max: Option<u64>,
    },
    /// PING.
    Ping,
    /// PONG.
    Pong,
}

/// The reason why bytes are not an operation. The connection should be closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The operation is not known, or has fields that it should not have.
    #[error("Unknown Protocol Operation")]
    Unknown,
    /// An operation that only a client that has sent CONNECT may send.
    #[error("Authorization Violation")]
    Greeting,
    /// A line is too long.
    #[error("Maximum Control Line Exceeded")]
    Line,
    /// A payload is longer than the server accepts.
    #[error("Maximum Payload Violation")]
    Payload,
}

/// Takes the next operation from the bytes read from a client. Returns `None` if it is not
/// complete. A payload, headers included, has at most `payload_bytes_max` bytes.
///
/// # Errors
/// Returns an error as soon as the bytes can not become an operation.
pub fn parse(
    bytes: &mut BytesMut,
    payload_bytes_max: usize,
) -> Result<Option<Operation>, ParseError> {
    let Some(line) = line(bytes)? else {
        return Ok(None);
    };
    let words = Words::of(&bytes[..line.content]);
    match words.operation()? {
        Name::Publish(has_headers) => {
            let Some(mut published) = words.published(has_headers)? else {
                return Err(ParseError::Unknown);
            };
            if published.length > payload_bytes_max {
                return Err(ParseError::Payload);
            }
            published.content = line.next;
            published.take(bytes)
        }
        name => {
            let taken = bytes.split_to(line.next).freeze();
            let words = Words::of(&taken[..line.content]);
            words.other(name, &taken).map(Some)
        }
    }
}

/// Takes the next operation of a client that has not sent CONNECT: CONNECT, PING or PONG. Reserves
/// no memory for anything else, because anybody can be such a client.
///
/// # Errors
/// Returns an error as soon as the bytes can not become one of these.
pub fn parse_greeting(bytes: &mut BytesMut) -> Result<Option<Operation>, ParseError> {
    let Some(line) = line(bytes)? else {
        return Ok(None);
    };
    match Words::of(&bytes[..line.content]).operation()? {
        Name::Connect | Name::Ping | Name::Pong => parse(bytes, 0),
        _ => Err(ParseError::Greeting),
    }
}

/// A complete line at the beginning of the bytes.
struct Line {
    /// Where the content of the line ends.
    content: usize,
    /// Where the next line begins.
    next: usize,
}

/// Finds the first line that is not empty, and drops empty lines before it.
fn line(bytes: &mut BytesMut) -> Result<Option<Line>, ParseError> {
    while let [b'\r' | b'\n', ..] = bytes[..] {
        bytes.advance(1);
    }
    let most = match bytes.first() {
        Some(b'C' | b'c') => CONNECT_BYTES_MAX,
        _ => LINE_BYTES_MAX,
    };
    let searched = &bytes[..bytes.len().min(most)];
    match memchr_lf(searched) {
        Some(end) => {
            let cr = usize::from(end > 0 && bytes[end - 1] == b'\r');
            Ok(Some(Line {
                content: end - cr,
                next: end + 1,
            }))
        }
        None if bytes.len() >= most => Err(ParseError::Line),
        None => Ok(None),
    }
}

fn memchr_lf(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// The name of an operation.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Name {
    Connect,
    /// Whether it is HPUB.
    Publish(bool),
    Subscribe,
    Unsubscribe,
    Ping,
    Pong,
}

/// The maximum number of fields of an operation, its name included.
const WORDS_MAX: usize = 5;

/// The fields of a line.
struct Words<'a> {
    line: &'a [u8],
    places: [(usize, usize); WORDS_MAX],
    /// The number of fields; more than [`WORDS_MAX`] count as one more.
    count: usize,
}

impl Words<'_> {
    fn of(line: &[u8]) -> Words<'_> {
        let mut words = Words {
            line,
            places: [(0, 0); WORDS_MAX],
            count: 0,
        };
        let mut from = 0;
        while let Some(skipped) = line[from..].iter().position(|byte| !is_space(*byte)) {
            let begin = from + skipped;
            let length = line[begin..].iter().position(|byte| is_space(*byte));
            let end = length.map_or(line.len(), |length| begin + length);
            if words.count == WORDS_MAX {
                words.count += 1;
                break;
            }
            words.places[words.count] = (begin, end);
            words.count += 1;
            from = end;
        }
        words
    }

    fn range(&self, place: usize) -> Range<usize> {
        let (begin, end) = self.places[place];
        begin..end
    }

    fn number(&self, place: usize) -> Option<usize> {
        let digits = core::str::from_utf8(&self.line[self.range(place)]).ok()?;
        let is_number = digits.len() <= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    }

    fn operation(&self) -> Result<Name, ParseError> {
        const NAMES: [(&[u8], Name); 7] = [
            (b"PUB", Name::Publish(false)),
            (b"HPUB", Name::Publish(true)),
            (b"SUB", Name::Subscribe),
            (b"UNSUB", Name::Unsubscribe),
            (b"PING", Name::Ping),
            (b"PONG", Name::Pong),
            (b"CONNECT", Name::Connect),
        ];
        let word = &self.line[self.range(0)];
        let found = NAMES
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name));
        found.map(|(_, name)| *name).ok_or(ParseError::Unknown)
    }

    /// Reads the fields of PUB and HPUB: subject, reply if any, length of the headers in HPUB,
    /// length in all.
    fn published(&self, has_headers: bool) -> Result<Option<Parts>, ParseError> {
        let lengths = 1 + usize::from(has_headers);
        let has_reply = match self.count.checked_sub(2 + lengths) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(ParseError::Unknown),
        };
        let numbers = self.count - lengths;
        let first = self.number(numbers).ok_or(ParseError::Unknown)?;
        let length = self.number(self.count - 1).ok_or(ParseError::Unknown)?;
        let header_bytes = if has_headers { first } else { 0 };
        if header_bytes > length {
            return Err(ParseError::Unknown);
        }
        Ok(Some(Parts {
            subject: self.range(1),
            reply: if has_reply { self.range(2) } else { 0..0 },
            content: 0,
            header_bytes,
            length,
        }))
    }

    /// Reads the fields of all operations but PUB and HPUB. `bytes` begin with the line.
    fn other(&self, name: Name, bytes: &Bytes) -> Result<Operation, ParseError> {
        let word = |place| bytes.slice(self.range(place));
        match (name, self.count) {
            (Name::Ping, 1) => Ok(Operation::Ping),
            (Name::Pong, 1) => Ok(Operation::Pong),
            (Name::Connect, 2..) => {
                let begin = self.range(1).start;
                Ok(Operation::Connect(bytes.slice(begin..self.line.len())))
            }
            (Name::Subscribe, 3) => Ok(Operation::Subscribe {
                pattern: word(1),
                queue: None,
                sid: word(2),
            }),
            (Name::Subscribe, 4) => Ok(Operation::Subscribe {
                pattern: word(1),
                queue: Some(word(2)),
                sid: word(3),
            }),
            (Name::Unsubscribe, 2) => Ok(Operation::Unsubscribe {
                sid: word(1),
                max: None,
            }),
            (Name::Unsubscribe, 3) => {
                let max = self.number(2).ok_or(ParseError::Unknown)? as u64;
                Ok(Operation::Unsubscribe {
                    sid: word(1),
                    max: (max > 0).then_some(max),
                })
            }
            _ => Err(ParseError::Unknown),
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 1024;

    fn operations(bytes: &[u8]) -> Vec<Operation> {
        let mut bytes = BytesMut::from(bytes);
        let operations = core::iter::from_fn(|| parse(&mut bytes, MOST).unwrap());
        operations.collect()
    }

    fn error(bytes: &[u8]) -> ParseError {
        parse(&mut BytesMut::from(bytes), MOST).unwrap_err()
    }

    fn publish(bytes: &[u8]) -> Published {
        match operations(bytes).pop() {
            Some(Operation::Publish(published)) => published,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_keeps_the_bytes_that_the_client_wrote() {
        let bytes = b"pub  a.b\t_INBOX.1  5\r\nhello\r\n";
        let message = publish(bytes);
        assert_eq!(message.subject(), b"a.b");
        assert_eq!(message.reply(), Some(&b"_INBOX.1"[..]));
        assert_eq!(message.payload(), "hello\r\n");
        assert_eq!(message.raw(), &bytes[..]);
        assert_eq!(Published::decode(message.raw().clone()), Some(message));
    }

    #[test]
    fn messages_that_only_a_lying_daemon_sends_are_refused() {
        for bytes in [
            &b"PUB a\x07b 1\r\nx\r\n"[..],
            b"PUB a\xc2\x85b 1\r\nx\r\n",
            b"PUB a..b 1\r\nx\r\n",
            b"PUB a.> 1\r\nx\r\n",
            b"PUB a r\xe2\x80\xa8 1\r\nx\r\n",
            b"PUB a\xff 1\r\nx\r\n",
        ] {
            let raw = Bytes::copy_from_slice(bytes);
            assert_eq!(Published::decode(raw), None, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn strangers_get_no_memory_for_messages() {
        for bytes in ["PUB a 1000000\r\n", "HPUB a 12 1000000\r\n", "SUB a 1\r\n"] {
            let mut bytes = BytesMut::from(bytes);
            assert_eq!(parse_greeting(&mut bytes), Err(ParseError::Greeting));
            assert!(bytes.capacity() < 1000);
        }
        let mut bytes = BytesMut::from("PING\r\nCONNECT {}\r\nPUB");
        assert_eq!(parse_greeting(&mut bytes), Ok(Some(Operation::Ping)));
        let connect = Operation::Connect(Bytes::from_static(b"{}"));
        assert_eq!(parse_greeting(&mut bytes), Ok(Some(connect)));
        assert_eq!(parse_greeting(&mut bytes), Ok(None));
    }

    #[test]
    fn a_header_names_further_subjects() {
        let headers = "NATS/1.0\r\nOther: x\r\nmanyflow-also: b.c  d\r\nManyflow-Also:e\r\n\r\n";
        let line = |headers: &str| {
            let (one, two) = (headers.len(), headers.len() + 2);
            format!("HPUB a {one} {two}\r\n{headers}hi\r\n")
        };
        let message = publish(line(headers).as_bytes());
        assert!(message.subjects().eq([&b"a"[..], b"b.c", b"d", b"e"]));
        assert_eq!(message.subject_for(b"*.c"), Some(&b"b.c"[..]));
        assert_eq!(message.subject_for(b">"), Some(&b"a"[..]));
        assert_eq!(message.subject_for(b"x"), None);
        assert!(Published::decode(message.raw().clone()).is_some());
        // Only a lying daemon forwards subjects that its client could not publish to.
        let wrong = publish(line("NATS/1.0\r\nManyflow-Also: b..c\r\n\r\n").as_bytes());
        assert_eq!(Published::decode(wrong.raw().clone()), None);
    }

    #[test]
    fn headers_precede_the_payload() {
        let message = publish(b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n");
        assert_eq!(message.header_bytes(), 12);
        assert_eq!(message.reply(), None);
        assert_eq!(message.payload(), "hi\r\n");
        assert_eq!(message.content(), "NATS/1.0\r\n\r\nhi\r\n");
    }

    #[test]
    fn operations_follow_each_other_and_are_not_case_sensitive() {
        let bytes = b"Connect {\"a\": 1}\r\nSUB a.* 1\r\nsub b q 2\r\nUNSUB 1 7\r\nUnsub 2\r\nping\r\nPONG\r\n";
        let word = Bytes::from_static;
        let expected = [
            Operation::Connect(word(b"{\"a\": 1}")),
            Operation::Subscribe {
                pattern: word(b"a.*"),
                queue: None,
                sid: word(b"1"),
            },
            Operation::Subscribe {
                pattern: word(b"b"),
                queue: Some(word(b"q")),
                sid: word(b"2"),
            },
            Operation::Unsubscribe {
                sid: word(b"1"),
                max: Some(7),
            },
            Operation::Unsubscribe {
                sid: word(b"2"),
                max: None,
            },
            Operation::Ping,
            Operation::Pong,
        ];
        assert_eq!(operations(bytes), expected);
    }

    #[test]
    fn what_can_not_become_an_operation_is_refused() {
        assert_eq!(error(b"GET / HTTP/1.1\r\n"), ParseError::Unknown);
        assert_eq!(error(b"PUB a\r\n"), ParseError::Unknown);
        assert_eq!(error(b"PUB a b c 1\r\n"), ParseError::Unknown);
        assert_eq!(error(b"PUB a -1\r\n"), ParseError::Unknown);
        assert_eq!(error(b"HPUB a 5 4\r\n"), ParseError::Unknown);
        assert_eq!(error(b"PUB a 1025\r\n"), ParseError::Payload);
        assert_eq!(
            error(b"PUB a 99999999999999999999\r\n"),
            ParseError::Unknown
        );
        assert_eq!(error(&[b'S'; LINE_BYTES_MAX]), ParseError::Line);
        assert_eq!(error(&[b'c'; CONNECT_BYTES_MAX]), ParseError::Line);
    }

    /// A publisher counts characters instead of bytes, and another one forges messages to others.
    #[test]
    fn bytes_behind_a_payload_or_within_headers_do_not_reach_subscribers() {
        for bytes in [
            "PUB a 3\r\nf\u{fc}r\r\n",
            "PUB a 2\r\nhi\n\n",
            "PUB a 0\r\nMSG orders.buy 1 2\r\n",
            "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi..",
            "HPUB a 12 14\r\nNATS/1.0\r\nx\nhi\r\n",
            "HPUB a 12 14\r\nHTTP/1.0\r\n\r\nhi\r\n",
            "HPUB a 4 6\r\n\r\n\r\nhi\r\n",
        ] {
            assert_eq!(error(bytes.as_bytes()), ParseError::Unknown, "{bytes:?}");
            assert_eq!(Published::decode(Bytes::from(bytes)), None, "{bytes:?}");
        }
    }

    #[test]
    fn only_a_whole_message_is_decoded() {
        for bytes in [
            "",
            "PING\r\n",
            "PUB a 2\r\nhi\r",
            "PUB a 2\r\nhi\r\nx",
            "PUB a 2",
        ] {
            assert_eq!(Published::decode(Bytes::from(bytes)), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn operations_do_not_depend_on_how_reads_divide_them(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
            cuts in prop::collection::vec(1..20usize, 1..60),
        ) {
            let mut bytes = Vec::new();
            for payload in &payloads {
                bytes.extend_from_slice(format!("PUB a.b {}\r\n", payload.len()).as_bytes());
                bytes.extend_from_slice(payload);
                bytes.extend_from_slice(b"\r\nPING\r\n");
            }
            let whole = operations(&bytes);
            prop_assert_eq!(whole.len(), 2 * payloads.len());
            let (mut read, mut parsed, mut rest) = (BytesMut::new(), Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                read.extend_from_slice(now);
                while let Some(operation) = parse(&mut read, MOST).unwrap() {
                    parsed.push(operation);
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(parsed, whole);
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = parse(&mut bytes, MOST) {}
        }
    }
}
