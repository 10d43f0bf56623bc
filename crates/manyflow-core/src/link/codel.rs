//! CoDel, controlled delay (RFC 8289): drops or marks packets when they leave, more often the
//! longer the queue has been too long.
//!
//! | RFC 8289 | here |
//! |---|---|
//! | `TARGET`, 5 ms, and `INTERVAL`, 100 ms | [`CoDelConfig`] |
//! | `dodequeue`: the time in the queue, measured at the departure, has stayed above the target for an interval; a queue of one packet is never too long | `CoDel::pop` |
//! | `control_law`: drop n follows `INTERVAL / sqrt(n)` after the one before | `next_drop` |
//! | `dequeue`: the dropping state, and its start with the count that controlled the last one | `CoDel::dequeue` |
//!
//! A packet that supports ECN is marked instead of dropped and leaves; a mark counts as a drop (the
//! RFC leaves ECN to the implementation; this is what Linux does).
//!
//! The RFC's `maxpacket` is the longest packet that the queue has seen.

use core::time::Duration;

use super::Dropped;
use super::Item;
use super::waiting::{Fifo, Store, Waiting};
use crate::time::Time;

/// The configuration of CoDel (RFC 8289).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// TARGET: the time in the queue that is tolerated for longer than an interval. Default: 5 ms.
    pub target: Duration,
    /// INTERVAL: a worst-case round-trip time of the connections. Default: 100 ms.
    pub interval: Duration,
    /// Whether packets that support ECN are marked instead of dropped. Default: true.
    pub ecn: bool,
}

impl Default for CoDelConfig {
    fn default() -> CoDelConfig {
        CoDelConfig {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: true,
        }
    }
}

/// The state of CoDel for one first-in first-out list. The configuration is an argument: a thousand
/// flows share one.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct CoDel {
    /// The time from which on the delay counts as persistent; `None` while it is below the target.
    first_above: Option<Time>,
    /// The time of the next drop, while packets are dropped.
    drop_next: Time,
    /// The drops since the dropping state was entered.
    count: u32,
    /// `count` when the dropping state was last entered.
    last_count: u32,
    is_dropping: bool,
    /// The length of the longest packet so far.
    longest_bytes: u32,
}

impl CoDel {
    /// Removes and returns the next packet that may leave. Drops the packets before it.
    pub(super) fn dequeue<T: Item>(
        &mut self,
        config: &CoDelConfig,
        now: Time,
        fifo: &mut Fifo,
        store: &mut Store<T>,
    ) -> Option<Waiting<T>> {
        let (mut packet, mut is_persistent) = self.pop(config, now, fifo, store)?;
        if !self.is_dropping {
            if !is_persistent {
                return Some(packet);
            }
            self.enter_dropping(config, now);
            if config.ecn && packet.is_ecn_capable {
                store.mark(&mut packet);
                return Some(packet);
            }
            store.drop(packet, Dropped::Early);
            let (next, _) = self.pop(config, now, fifo, store)?;
            return Some(next);
        }
        loop {
            self.is_dropping = is_persistent;
            if !self.is_dropping || now < self.drop_next {
                return Some(packet);
            }
            self.count = self.count.saturating_add(1);
            let next = next_drop(config, self.drop_next, self.count);
            if config.ecn && packet.is_ecn_capable {
                self.drop_next = next;
                store.mark(&mut packet);
                return Some(packet);
            }
            store.drop(packet, Dropped::Early);
            (packet, is_persistent) = self.pop(config, now, fifo, store)?;
            if is_persistent {
                self.drop_next = next;
            }
        }
    }

    /// `dodequeue`: removes the oldest packet. Returns it, and whether the delay has been above the
    /// target for an interval.
    fn pop<T: Item>(
        &mut self,
        config: &CoDelConfig,
        now: Time,
        fifo: &mut Fifo,
        store: &mut Store<T>,
    ) -> Option<(Waiting<T>, bool)> {
        let Some(packet) = store.pop(now, fifo) else {
            (self.first_above, self.is_dropping) = (None, false);
            return None;
        };
        self.longest_bytes = self.longest_bytes.max(packet.bytes);
        let is_short = fifo.bytes <= u64::from(self.longest_bytes);
        if packet.sojourn(now) < config.target || is_short {
            self.first_above = None;
            return Some((packet, false));
        }
        let from = *self.first_above.get_or_insert(now + config.interval);
        Some((packet, now >= from))
    }

    /// Enters the dropping state. If the last one ended not long ago, the drop rate that controlled
    /// the queue is a good one to start with.
    fn enter_dropping(&mut self, config: &CoDelConfig, now: Time) {
        let grown = self.count.saturating_sub(self.last_count);
        let is_recent = now < self.drop_next + 16 * config.interval;
        self.count = if grown > 1 && is_recent { grown } else { 1 };
        self.last_count = self.count;
        self.drop_next = next_drop(config, now, self.count);
        self.is_dropping = true;
    }
}

/// `control_law`: returns the time of the drop after the one at `last`, which was number `count`.
fn next_drop(config: &CoDelConfig, last: Time, count: u32) -> Time {
    debug_assert!(count > 0);
    last + config.interval.div_f64(f64::from(count).sqrt())
}
