//! The NATS client protocol, on the client's side.
//!
//! Source: "Client Protocol" in the documentation of NATS.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::Message;

/// Maximum length of a line that a daemon sends; INFO is the longest.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a message, headers included: nats-server's upper limit.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// An operation that a daemon sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The JSON object in INFO.
    Info(Bytes),
    /// A message, and the number of the subscription that it is for.
    Message {
        subscription: u64,
        message: Message,
    },
    Ping,
    Pong,
    Ok,
    /// The text in -ERR, without quotes.
    Error(String),
}

/// The daemon breaks the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Takes the first operation off `input`; `None` if it is not complete yet. Copies nothing.
pub(super) fn parse(input: &mut BytesMut) -> Result<Option<Operation>, Malformed> {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
        return match input.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(Malformed),
        };
    };
    let line = input[..end].trim_ascii_end();
    let name = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    match name.to_ascii_uppercase().as_slice() {
        b"MSG" => parse_message(input, end, false),
        b"HMSG" => parse_message(input, end, true),
        name => {
            let operation = match name {
                b"INFO" => Operation::Info(Bytes::copy_from_slice(&line[4..])),
                b"PING" => Operation::Ping,
                b"PONG" => Operation::Pong,
                b"+OK" => Operation::Ok,
                b"-ERR" => {
                    let text = String::from_utf8_lossy(&line[4..]);
                    Operation::Error(text.trim().trim_matches('\'').to_owned())
                }
                _ => return Err(Malformed),
            };
            input.advance(end + 1);
            Ok(Some(operation))
        }
    }
}

/// Takes a message off `input`, whose line ends at `end`.
fn parse_message(
    input: &mut BytesMut,
    end: usize,
    has_headers: bool,
) -> Result<Option<Operation>, Malformed> {
    let fields = fields(&input[..end], has_headers).ok_or(Malformed)?;
    let total = end + 1 + fields.length + 2;
    if input.len() < total {
        return Ok(None);
    }
    let raw = input.split_to(total).freeze();
    if !raw.ends_with(b"\r\n") {
        return Err(Malformed);
    }
    let content = raw.slice(end + 1..total - 2);
    let message = Message {
        subject: raw.slice(fields.subject),
        reply: fields.reply.map(|reply| raw.slice(reply)),
        headers: has_headers.then(|| content.slice(..fields.header_length)),
        payload: content.slice(fields.header_length..),
    };
    Ok(Some(Operation::Message {
        subscription: fields.subscription,
        message,
    }))
}

/// The fields of the line of a message; texts by their places.
struct Fields {
    subject: std::ops::Range<usize>,
    subscription: u64,
    reply: Option<std::ops::Range<usize>>,
    header_length: usize,
    length: usize,
}

fn fields(line: &[u8], has_headers: bool) -> Option<Fields> {
    let mut words = [(0, 0); 6];
    let mut count = 0;
    let mut start = 0;
    for word in line.trim_ascii_end().split(|&byte| byte == b' ') {
        if !word.is_empty() {
            *words.get_mut(count)? = (start, start + word.len());
            count += 1;
        }
        start += word.len() + 1;
    }
    let words = &words[1..count];
    let number = |&(start, end): &(usize, usize)| -> Option<u64> {
        std::str::from_utf8(&line[start..end]).ok()?.parse().ok()
    };
    let (texts, lengths) =
        words.split_at_checked(words.len().checked_sub(1 + usize::from(has_headers))?)?;
    let length = number(lengths.last()?)? as usize;
    let header_length = if has_headers {
        number(&lengths[0])? as usize
    } else {
        0
    };
    let (subject, subscription, reply) = match texts {
        [subject, subscription] => (subject, subscription, None),
        [subject, subscription, reply] => (subject, subscription, Some(reply.0..reply.1)),
        _ => return None,
    };
    (header_length <= length && length <= MESSAGE_BYTES_MAX).then_some(Fields {
        subject: subject.0..subject.1,
        subscription: number(subscription)?,
        reply,
        header_length,
        length,
    })
}

/// Writes a message for the daemon to `output`.
pub(super) fn write_message(message: &Message, output: &mut BytesMut) {
    let headers = message.headers.as_deref().unwrap_or_default();
    output.put_slice(if headers.is_empty() {
        b"PUB "
    } else {
        b"HPUB "
    });
    output.put_slice(&message.subject);
    if let Some(reply) = &message.reply {
        output.put_u8(b' ');
        output.put_slice(reply);
    }
    if !headers.is_empty() {
        write_number(headers.len(), output);
    }
    write_number(headers.len() + message.payload.len(), output);
    output.put_slice(b"\r\n");
    output.put_slice(headers);
    output.put_slice(&message.payload);
    output.put_slice(b"\r\n");
}

/// Writes a space and a number, without a string between.
fn write_number(number: usize, output: &mut BytesMut) {
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    output.put_u8(b' ');
    output.put_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_all(bytes: &[u8]) -> Result<Vec<Operation>, Malformed> {
        let mut input = BytesMut::from(bytes);
        let mut operations = Vec::new();
        while let Some(operation) = parse(&mut input)? {
            operations.push(operation);
        }
        Ok(operations)
    }

    #[test]
    fn operations_are_taken_when_they_are_complete() {
        let all = b"INFO {}\r\nMSG a.b 7 3\r\nx\r\n\r\nHMSG a 8 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n-ERR 'no'\r\nPING\r\n";
        let operations = parse_all(all).unwrap();
        assert_eq!(operations.len(), 5);
        let Operation::Message {
            subscription,
            message,
        } = &operations[1]
        else {
            panic!("{operations:?}");
        };
        assert_eq!((*subscription, message.subject()), (7, "a.b"));
        assert_eq!(message.payload(), &b"x\r\n"[..]);
        let Operation::Message {
            subscription,
            message,
        } = &operations[2]
        else {
            panic!("{operations:?}");
        };
        assert_eq!((*subscription, message.reply()), (8, Some("r")));
        assert_eq!(message.payload(), &b"hi"[..]);
        assert_eq!(operations[3], Operation::Error("no".to_owned()));
        for available in 0..all.len() {
            assert!(parse_all(&all[..available]).unwrap().len() < 5);
        }
    }

    #[test]
    fn lengths_that_lie_are_malformed() {
        for bytes in [
            &b"MSG a 1 1\r\nab\r\n"[..],
            b"MSG a 1 99999999999\r\n",
            b"MSG a 1 -1\r\n",
            b"HMSG a 1 5 4\r\nabcd\r\n",
            b"MSG a 1\r\n",
            b"MSG a b c d e f 1\r\n",
            b"HELLO\r\n",
        ] {
            assert_eq!(parse_all(bytes), Err(Malformed), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_all(&bytes);
        }

        #[test]
        fn a_written_message_has_its_lengths(payload in prop::collection::vec(any::<u8>(), 0..300), has_header: bool) {
            let mut message = Message::new("a.b", payload.clone()).unwrap().with_reply("r").unwrap();
            if has_header {
                message = message.with_header("k", "v").unwrap();
            }
            let mut output = BytesMut::new();
            write_message(&message, &mut output);
            let headers = message.headers.as_ref().map_or(0, Bytes::len);
            let line = match has_header {
                true => format!("HPUB a.b r {headers} {}\r\n", headers + payload.len()),
                false => format!("PUB a.b r {}\r\n", payload.len()),
            };
            prop_assert!(output.starts_with(line.as_bytes()));
            prop_assert_eq!(output.len(), line.len() + headers + payload.len() + 2);
        }
    }
}
