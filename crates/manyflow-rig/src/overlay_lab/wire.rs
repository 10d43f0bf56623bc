//! The NATS client protocol, as far as clients of the stages need it.
//! Source: <https://docs.nats.io/reference/reference-protocols/nats-protocol>.

use anyhow::{Context, Result, ensure};

/// A stamp at the beginning of each payload: sender, number and time of sending.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the sender.
    pub sender: u32,
    /// Counts the sender's messages from 0, or is a number that the load reserves.
    pub number: u64,
    /// Nanoseconds since the start of the load; 0 if the latency is not measured.
    pub sent_ns: u64,
}

impl Stamp {
    /// The length of an encoded stamp.
    pub const BYTES: usize = 20;

    /// Writes the stamp at the beginning of `bytes`, which has at least [`Stamp::BYTES`].
    pub fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.sender.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.number.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads a stamp; `None` if the payload is too short.
    pub fn read(payload: &[u8]) -> Option<Stamp> {
        Some(Stamp {
            sender: u32::from_be_bytes(payload.get(..4)?.try_into().ok()?),
            number: u64::from_be_bytes(payload.get(4..12)?.try_into().ok()?),
            sent_ns: u64::from_be_bytes(payload.get(12..20)?.try_into().ok()?),
        })
    }
}

/// An operation that a server sends to a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// MSG: a message of a group that the client has joined.
    Message {
        /// The subject that it was sent to.
        subject: &'a [u8],
        /// The bytes of the message.
        payload: &'a [u8],
    },
    /// PING: the client has to answer with PONG.
    Ping,
    /// PONG: answers the client's PING.
    Pong,
    /// -ERR with its text: the server refuses something.
    Error(&'a [u8]),
    /// INFO or +OK.
    Other,
}

/// Takes the first operation off `input`; `None` if it is not complete yet.
///
/// # Errors
/// If the server breaks the protocol.
pub fn parse<'a>(input: &mut &'a [u8]) -> Result<Option<Operation<'a>>> {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
        ensure!(input.len() < 64 << 10, "a line of the server has no end");
        return Ok(None);
    };
    let line = input[..end].trim_ascii_end();
    let (mut rest, operation) = (
        &input[end + 1..],
        match line {
            [b'M', b'S', b'G', b' ', ..] => {
                let length = last_number(line).context("MSG without a length")?;
                let Some(payload) = input[end + 1..].get(..length) else {
                    return Ok(None);
                };
                let subject = line[4..].split(|&byte| byte == b' ').next();
                Operation::Message {
                    subject: subject.unwrap_or_default(),
                    payload,
                }
            }
            b"PING" => Operation::Ping,
            b"PONG" => Operation::Pong,
            [b'-', b'E', b'R', b'R', message @ ..] => Operation::Error(message),
            _ => Operation::Other,
        },
    );
    if let Operation::Message { payload, .. } = operation {
        let Some(after) = rest[payload.len()..].strip_prefix(b"\r\n") else {
            ensure!(
                rest.len() < payload.len() + 2,
                "a payload is longer than announced"
            );
            return Ok(None);
        };
        rest = after;
    }
    *input = rest;
    Ok(Some(operation))
}

/// Reads the number at the end of a line.
fn last_number(line: &[u8]) -> Option<usize> {
    let digits = line.rsplit(|&byte| byte == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_taken_one_by_one_and_only_when_complete() {
        let all = b"INFO {}\r\nMSG bench.group 1 3\r\na\r\n\r\nPING\r\nPONG\r\n-ERR 'x'\r\n";
        let wanted = [
            Operation::Other,
            Operation::Message {
                subject: b"bench.group",
                payload: b"a\r\n",
            },
            Operation::Ping,
            Operation::Pong,
            Operation::Error(b" 'x'"),
        ];
        for available in 0..=all.len() {
            let mut input = &all[..available];
            let mut found = 0;
            while let Some(operation) = parse(&mut input).unwrap() {
                assert_eq!(operation, wanted[found]);
                found += 1;
            }
            assert_eq!(found == wanted.len(), available == all.len());
        }
    }

    #[test]
    fn a_payload_that_is_longer_than_announced_is_an_error() {
        assert!(parse(&mut b"MSG bench.group 1 1\r\nab\r\n".as_slice()).is_err());
    }

    #[test]
    fn stamps_survive_a_payload() {
        let stamp = Stamp {
            sender: 2,
            number: 7,
            sent_ns: 9,
        };
        let mut payload = [0; Stamp::BYTES];
        stamp.write(&mut payload);
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(Stamp::read(&payload[1..]), None);
    }
}
