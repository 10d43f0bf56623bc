//! One member: counts messages, checks their order, and measures their latency.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Result, bail};

use super::client::PROBE;
use super::load::{Order, SENDERS, Shared, is_time_out};
use manyflow_rig::overlay_lab::wire::{Operation, Stamp, parse};

/// Size of the receive buffer: some hundred messages per system call.
const BUFFER_BYTES: usize = 256 << 10;

/// The messages that a member has received, and their latencies.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The number of the next message of each sender.
    next: [u64; SENDERS],
    order: Order,
    probed: [bool; SENDERS],
    /// In nanoseconds, of the messages that carry a time and were sent while it was measured.
    pub(super) latencies_ns: Vec<u64>,
}

impl Received {
    /// Returns the failures of a member that should have received `sent` messages of each sender.
    pub(super) fn order(&self, sent: &[u64]) -> Order {
        let missed: u64 = sent
            .iter()
            .zip(self.next)
            .map(|(sent, next)| sent - next)
            .sum();
        self.order
            + Order {
                missed,
                repeated: 0,
            }
    }

    /// Counts a message. Returns whether it belongs to the load.
    fn count(&mut self, stamp: Stamp, shared: &Shared) -> bool {
        let sender = stamp.sender as usize;
        if stamp.number == PROBE {
            self.probed[sender] = true;
            return false;
        }
        let next = &mut self.next[sender];
        if stamp.number < *next {
            self.order.repeated += 1;
            return false;
        }
        self.order.missed += stamp.number - *next;
        *next = stamp.number + 1;
        if stamp.sent_ns > 0 && shared.is_measured(stamp.sent_ns) {
            self.latencies_ns.push(shared.elapsed_ns() - stamp.sent_ns);
        }
        true
    }
}

/// Receives until the load has finished. A connection that the server ends is only logged: its
/// messages count as missed.
///
/// # Errors
/// If the server breaks the protocol.
pub(super) fn receive(stream: &TcpStream, member: usize, shared: &Shared) -> Result<Received> {
    let mut received = Received::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut filled, mut is_ready) = (0, false);
    while !shared.has_finished() {
        match { stream }.read(&mut buffer[filled..]) {
            Ok(0) => {
                tracing::warn!("member {member}: the server has closed the connection");
                break;
            }
            Ok(length) => filled += length,
            Err(error) if is_time_out(&error) => continue,
            Err(error) => {
                tracing::warn!("member {member}: {error}");
                break;
            }
        }
        let mut rest = &buffer[..filled];
        let count = handle(&mut rest, stream, &mut received, shared)?;
        let left = rest.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
        shared.add_delivered(member, count);
        if !is_ready && received.probed.iter().all(|&probed| probed) {
            is_ready = true;
            shared.add_ready_member();
        }
    }
    Ok(received)
}

/// Handles all complete operations. Returns the number of messages of the load.
fn handle(
    input: &mut &[u8],
    mut stream: &TcpStream,
    received: &mut Received,
    shared: &Shared,
) -> Result<u64> {
    let mut count = 0;
    while let Some(operation) = parse(input)? {
        match operation {
            Operation::Message { payload, .. } => match Stamp::read(payload) {
                Some(stamp) if (stamp.sender as usize) < SENDERS => {
                    count += u64::from(received.count(stamp, shared));
                }
                _ => bail!("a member received a message that no sender wrote"),
            },
            Operation::Ping => stream.write_all(b"PONG\r\n")?,
            Operation::Error(message) => {
                tracing::warn!("member: {}", String::from_utf8_lossy(message).trim());
            }
            Operation::Pong | Operation::Other => {}
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_repetitions_and_the_missing_end_are_counted() {
        let shared = Shared::default();
        let mut received = Received::default();
        let mut count = |number| {
            let stamp = Stamp {
                sender: 1,
                number,
                sent_ns: 0,
            };
            received.count(stamp, &shared)
        };
        assert!(!count(PROBE));
        assert!(count(0));
        assert!(count(3));
        assert!(!count(2));
        let order = received.order(&[0, 6, 0]);
        assert_eq!((order.missed, order.repeated), (4, 1));
    }
}
