//! One sender: writes messages as fast as the server reads them, or at a rate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::client::PROBE;
use super::load::{Load, SENDERS, Shared, is_time_out};
use manyflow_rig::overlay_lab::wire::{Operation, Stamp, parse};

/// Size of a batch, as the NATS clients in Go write them.
const BATCH_BYTES: usize = 32 << 10;
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// Sends probes until the load begins, then the load. Returns the number of messages.
///
/// # Errors
/// If the connection breaks, or if the server reports an error.
pub(super) fn send(
    stream: &TcpStream,
    sender: u32,
    (subject, load): (&str, &Load),
    shared: &Shared,
) -> Result<u64> {
    let answers = Answers::default();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| answers.read(stream, &ended));
        let mut output = Output {
            stream,
            answers: &answers,
            batch: Batch::new(sender, subject, load),
        };
        let sent = output
            .send_probes(shared)
            .and_then(|()| match load.messages_per_s {
                None => output.send_all(load, shared),
                Some(rate) => output.send_at_rate(rate, sender, shared),
            });
        ended.store(true, Ordering::Relaxed);
        sent.with_context(|| format!("sender {sender} cannot send"))
    })
}

/// The messages of one write, as bytes.
struct Batch {
    bytes: Vec<u8>,
    message_bytes: usize,
    stamp_offset: usize,
    sender: u32,
}

impl Batch {
    fn new(sender: u32, subject: &str, load: &Load) -> Batch {
        let length = load.payload_bytes.max(Stamp::BYTES);
        let mut message = format!("PUB {subject} {length}\r\n").into_bytes();
        let stamp_offset = message.len();
        message.extend(std::iter::repeat_n(b'x', length));
        message.extend(b"\r\n");
        let message_bytes = message.len();
        Batch {
            bytes: message.repeat((BATCH_BYTES / message_bytes).max(1)),
            message_bytes,
            stamp_offset,
            sender,
        }
    }

    /// Returns the bytes of up to `count` messages from `number` on, and how many they are.
    fn stamp(&mut self, number: u64, count: u64, sent_ns: u64) -> (&[u8], u64) {
        let capacity = self.bytes.len() / self.message_bytes;
        let count = count.min(capacity as u64) as usize;
        let bytes = &mut self.bytes[..count * self.message_bytes];
        for (message, number) in bytes.chunks_exact_mut(self.message_bytes).zip(number..) {
            let stamp = Stamp {
                sender: self.sender,
                number,
                sent_ns,
            };
            stamp.write(&mut message[self.stamp_offset..]);
        }
        (bytes, count as u64)
    }
}

struct Output<'a> {
    stream: &'a TcpStream,
    answers: &'a Answers,
    batch: Batch,
}

impl Output<'_> {
    fn send_probes(&mut self, shared: &Shared) -> Result<()> {
        while !shared.has_begun() {
            self.write(PROBE, 1, 0)?;
            thread::sleep(PROBE_INTERVAL);
        }
        Ok(())
    }

    fn send_all(&mut self, load: &Load, shared: &Shared) -> Result<u64> {
        let (mut sent, limit) = (0, load.messages_max.unwrap_or(u64::MAX));
        while sent < limit && !shared.has_stopped() {
            sent += self.write(sent, limit - sent, 0)?;
        }
        Ok(sent)
    }

    /// Sends this sender's share of the rate. The senders take turns.
    fn send_at_rate(&mut self, messages_per_s: u32, sender: u32, shared: &Shared) -> Result<u64> {
        let turn = Duration::from_secs(1) / messages_per_s;
        let start = Instant::now() + turn * sender;
        let mut sent: u64 = 0;
        while !shared.has_stopped() {
            let due = start + turn.mul_f64(sent as f64 * SENDERS as f64);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            sent += self.write(sent, 1, shared.elapsed_ns())?;
        }
        Ok(sent)
    }

    /// Writes up to `count` messages from `number` on. Returns how many they are.
    fn write(&mut self, number: u64, count: u64, sent_ns: u64) -> Result<u64> {
        for _ in 0..self.answers.pings.swap(0, Ordering::Relaxed) {
            self.stream.write_all(b"PONG\r\n")?;
        }
        if self.answers.failed.load(Ordering::Relaxed) {
            bail!("the server has ended the connection");
        }
        let (bytes, count) = self.batch.stamp(number, count, sent_ns);
        match self.stream.write_all(bytes) {
            Err(error) if is_time_out(&error) => bail!("the server does not read"),
            written => written?,
        }
        Ok(count)
    }
}

/// The answers of the server to a sender: pings, and errors.
#[derive(Debug, Default)]
struct Answers {
    /// Pings without a PONG.
    pings: AtomicU32,
    failed: AtomicBool,
}

impl Answers {
    /// Reads until `ended`, or until the connection ends. The stream has a read time-out.
    fn read(&self, mut stream: &TcpStream, ended: &AtomicBool) {
        let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
        while !ended.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(length) if length > 0 => input.extend_from_slice(&buffer[..length]),
                Err(error) if is_time_out(&error) => continue,
                _ => return self.failed.store(true, Ordering::Relaxed),
            }
            let mut rest = input.as_slice();
            while let Ok(Some(operation)) = parse(&mut rest) {
                match operation {
                    Operation::Ping => drop(self.pings.fetch_add(1, Ordering::Relaxed)),
                    Operation::Error(message) => {
                        tracing::warn!("sender: {}", String::from_utf8_lossy(message).trim());
                    }
                    Operation::Message { .. } | Operation::Pong | Operation::Other => {}
                }
            }
            let taken = input.len() - rest.len();
            input.drain(..taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_that_does_not_read_ends_the_load() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(Duration::from_millis(50))).unwrap();
        }
        let load = Load {
            payload_bytes: 1024,
            messages_per_s: None,
            duration: Duration::MAX,
            messages_max: None,
        };
        let shared = Shared::default();
        shared.begin();
        let error = send(&stream, 0, ("s", &load), &shared).unwrap_err();
        let error = format!("{error:#}");
        assert_eq!(error, "sender 0 cannot send: the server does not read");
    }
}
