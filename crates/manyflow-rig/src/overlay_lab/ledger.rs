//! The messages that all connections of clients have sent and read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::payload;

/// The place of a client: its daemon and its group, by their numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The number of the client.
    pub client: usize,
    /// The number of its daemon.
    pub daemon: usize,
    /// The number of its group.
    pub group: usize,
}

impl Seat {
    /// Returns the subject of the group.
    pub fn subject(self) -> String {
        format!("lab.{}", self.group)
    }
}

/// One connection of a client.
#[derive(Debug)]
pub struct Life {
    /// The number among all connections, which its messages carry.
    pub number: u32,
    /// The client, its daemon and its group.
    pub seat: Seat,
    /// When the connection was begun, since the start of the ledger.
    pub begun: Duration,
    log: Mutex<Log>,
    /// The sum of the latencies of its messages in microseconds, and their number.
    latency: (AtomicU64, AtomicU64),
}

impl Life {
    /// Locks and returns the record of the connection.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("nothing panics with the lock")
    }

    /// Returns the average latency in milliseconds since the last call; `None` if no message has
    /// arrived.
    pub fn take_latency_ms(&self) -> Option<f64> {
        let sum_us = self.latency.0.swap(0, Ordering::Relaxed);
        let count = self.latency.1.swap(0, Ordering::Relaxed);
        (count > 0).then(|| sum_us as f64 / count as f64 / 1e3)
    }
}

/// The messages that a connection has sent and read.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// When the daemon had handled the join.
    pub joined: Option<Duration>,
    /// When the connection ended.
    pub ended: Option<Duration>,
    /// The number of messages that were written.
    pub written: u64,
    /// When each message had entered the overlay, in milliseconds since the start of the ledger.
    pub accepted_ms: Vec<u32>,
    /// The messages read, by the number of the connection that sent them.
    pub flows: BTreeMap<u32, Flow>,
}

impl Log {
    pub fn accepted(&self) -> u64 {
        self.accepted_ms.len() as u64
    }

    /// Returns whether the connection is established.
    pub fn is_alive(&self) -> bool {
        self.joined.is_some() && self.ended.is_none()
    }
}

/// The messages of one connection that another has read.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The number of the first message.
    pub first: u64,
    /// The number after the last message.
    pub next: u64,
    pub gaps: Vec<Gap>,
}

/// Messages between two that were read one after the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: u64,
    pub until: u64,
    /// When the message after the gap was read.
    pub at: Duration,
}

/// A message that was read twice, out of order or with a wrong content.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    #[error("a message of {bytes} bytes is not as it was written")]
    Content { bytes: usize },
    #[error("message {number} of connection {sender} belongs to another group")]
    Group { sender: u32, number: u64 },
    #[error("message {number} of connection {sender} was read after {last}")]
    Order { sender: u32, number: u64, last: u64 },
}

/// All connections of clients.
#[derive(Debug)]
pub struct Ledger {
    start: Instant,
    lives: Mutex<Vec<Arc<Life>>>,
    /// The first failure of a connection's checks.
    failure: Mutex<Option<String>>,
    /// Whether clients send.
    pub sending: watch::Sender<bool>,
}

impl Ledger {
    /// Starts an empty ledger, at time 0.
    pub fn start() -> Ledger {
        Ledger {
            start: Instant::now(),
            lives: Mutex::default(),
            failure: Mutex::default(),
            sending: watch::Sender::new(false),
        }
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Begins a connection.
    pub fn begin(&self, seat: Seat) -> Arc<Life> {
        let mut lives = self.lives.lock().expect("nothing panics with the lock");
        let life = Arc::new(Life {
            number: lives.len() as u32,
            seat,
            begun: self.now(),
            log: Mutex::default(),
            latency: Default::default(),
        });
        lives.push(Arc::clone(&life));
        life
    }

    /// Returns all connections, in the order in which they began.
    pub fn lives(&self) -> Vec<Arc<Life>> {
        let lives = self.lives.lock().expect("nothing panics with the lock");
        lives.clone()
    }

    /// Records the first failure.
    pub fn fail(&self, reason: String) {
        let mut failure = self.failure.lock().expect("nothing panics with the lock");
        failure.get_or_insert(reason);
    }

    /// Returns the first failure.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().expect("nothing panics with the lock");
        failure.clone()
    }

    /// Records a message that `life` has read.
    ///
    /// # Errors
    /// If the message was read before, comes out of order, or is not as it was written.
    pub(super) fn read(&self, life: &Life, bytes: &[u8]) -> Result<(), Wrong> {
        let now = self.now();
        let content = Wrong::Content { bytes: bytes.len() };
        let stamp = payload::read(bytes).ok_or(content)?;
        let (sender, number) = (stamp.sender, stamp.number);
        let lives = self.lives.lock().expect("nothing panics with the lock");
        let from = lives.get(sender as usize).map(Arc::clone);
        drop(lives);
        let Some(from) = from.filter(|from| from.seat.group == life.seat.group) else {
            return Err(Wrong::Group { sender, number });
        };
        if from.number != life.number {
            let latency_us = (now.as_nanos() as u64).saturating_sub(stamp.sent_ns) / 1000;
            from.latency.0.fetch_add(latency_us, Ordering::Relaxed);
            from.latency.1.fetch_add(1, Ordering::Relaxed);
        }
        let mut log = life.log();
        let flow = log.flows.entry(sender).or_insert(Flow {
            first: number,
            next: number,
            gaps: Vec::new(),
        });
        flow.add(number, now, sender)
    }
}

impl Flow {
    fn add(&mut self, number: u64, at: Duration, sender: u32) -> Result<(), Wrong> {
        if number < self.next {
            let last = self.next - 1;
            return Err(Wrong::Order {
                sender,
                number,
                last,
            });
        }
        if number > self.next {
            self.gaps.push(Gap {
                from: self.next,
                until: number,
                at,
            });
        }
        self.next = number + 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay_lab::wire::Stamp;

    fn seat(client: usize, group: usize) -> Seat {
        Seat {
            client,
            daemon: 0,
            group,
        }
    }

    fn message(sender: u32, number: u64) -> Vec<u8> {
        let stamp = Stamp {
            sender,
            number,
            sent_ns: 0,
        };
        payload::write(stamp).to_vec()
    }

    #[test]
    fn repeated_swapped_and_foreign_messages_are_found() {
        let ledger = Ledger::start();
        let member = ledger.begin(seat(0, 7));
        ledger.begin(seat(1, 7));
        ledger.begin(seat(2, 8));
        for number in [4, 5, 9] {
            ledger.read(&member, &message(1, number)).unwrap();
        }
        for (sender, number) in [(1, 9), (1, 6), (2, 0), (3, 0)] {
            assert!(ledger.read(&member, &message(sender, number)).is_err());
        }
        let flow = member.log().flows[&1].clone();
        assert_eq!((flow.first, flow.next, flow.gaps.len()), (4, 10, 1));
        assert_eq!((flow.gaps[0].from, flow.gaps[0].until), (6, 9));
    }
}
