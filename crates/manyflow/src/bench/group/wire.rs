//! The NATS client protocol, as far as the load needs it.
//! Source: <https://docs.nats.io/reference/reference-protocols/nats-protocol>.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

/// The group of the benchmark.
pub(super) const SUBJECT: &str = "bench.group";
/// Maximum length of a line, as in nats-server.
const LINE_MAX: usize = 4096;

/// Connects a client and returns when the server has accepted it.
///
/// # Errors
/// If there is no connection, or if the server refuses the client.
pub(super) fn connect(address: SocketAddr, join: bool) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    stream.set_nodelay(true)?;
    let join = if join {
        format!("SUB {SUBJECT} 1\r\n")
    } else {
        String::new()
    };
    let hello = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"1\",\
         \"protocol\":1,\"headers\":true}}\r\n{join}PING\r\n"
    );
    (&stream).write_all(hello.as_bytes())?;
    wait_for_pong(&stream).with_context(|| format!("{address} refuses a client"))?;
    Ok(stream)
}

/// Reads lines up to the server's PONG. No message arrives before: nobody sends yet.
fn wait_for_pong(stream: &TcpStream) -> Result<()> {
    // A buffer of one byte takes nothing from the stream beyond the line.
    let mut reader = BufReader::with_capacity(1, stream);
    loop {
        let mut line = Vec::new();
        let length = reader
            .by_ref()
            .take(LINE_MAX as u64)
            .read_until(b'\n', &mut line)?;
        ensure!(length > 0, "the connection is closed");
        match line.as_slice() {
            b"PONG\r\n" => return Ok(()),
            line if line.starts_with(b"-ERR") => bail!("{}", String::from_utf8_lossy(line).trim()),
            _ => {}
        }
    }
}

/// A stamp at the beginning of each payload: sender, number and time of sending.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) sender: u32,
    /// Counts the sender's messages from 0, or is [`PROBE`].
    pub(crate) number: u64,
    /// Nanoseconds since the start of the load; 0 if the latency is not measured.
    pub(crate) sent_ns: u64,
}

/// The number of messages that are sent before the load, until all members receive them.
pub(super) const PROBE: u64 = u64::MAX / 2;

impl Stamp {
    pub(super) const BYTES: usize = 20;

    pub(crate) fn write(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.sender.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.number.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads a stamp; `None` if the payload is too short.
    pub(crate) fn read(payload: &[u8]) -> Option<Stamp> {
        Some(Stamp {
            sender: u32::from_be_bytes(payload.get(..4)?.try_into().ok()?),
            number: u64::from_be_bytes(payload.get(4..12)?.try_into().ok()?),
            sent_ns: u64::from_be_bytes(payload.get(12..20)?.try_into().ok()?),
        })
    }
}

/// An operation that a server sends to a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Message {
        payload: &'a [u8],
    },
    Ping,
    Pong,
    Error(&'a [u8]),
    /// INFO or +OK.
    Other,
}

/// Takes the first operation off `input`; `None` if it is not complete yet.
///
/// # Errors
/// If the server breaks the protocol.
pub(crate) fn parse<'a>(input: &mut &'a [u8]) -> Result<Option<Operation<'a>>> {
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
                Operation::Message { payload }
            }
            b"PING" => Operation::Ping,
            b"PONG" => Operation::Pong,
            [b'-', b'E', b'R', b'R', message @ ..] => Operation::Error(message),
            _ => Operation::Other,
        },
    );
    if let Operation::Message { payload } = operation {
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
            Operation::Message { payload: b"a\r\n" },
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
