//! One direction of a link: a queue, a transmitter with a rate, and a wire with a delay and its faults.
//!
//! ```text
//!   push -> [ queue: drop-tail or RED ] -> transmitter (rate) -> wire (delay, loss, duplication, jitter) -> pop_ready
//! ```
//!
//! It is generic over what it carries, has no clock, and is the same in the simulator and under real sockets. When a
//! packet is pushed, its departure is known, as those before it will not change; so one event a packet is enough, that
//! of its arrival, and queue and wire cost nothing in between.

mod config;
mod faults;
mod red;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub use config::{LinkConfig, LossModel, QueueLimit, RedConfig};
use faults::Losses;
use red::{Red, Verdict};

use crate::packet::{Ecn, Packet};
use crate::time::Time;

/// What a link can carry.
pub trait Carried: Clone {
    /// Whether a router may mark it instead of dropping it (RFC 3168).
    fn is_ecn_capable(&self) -> bool {
        false
    }

    /// Marks it: congestion experienced.
    fn mark(&mut self) {}
}

impl Carried for Packet {
    fn is_ecn_capable(&self) -> bool {
        self.ecn != Ecn::NotCapable
    }

    fn mark(&mut self) {
        self.ecn = Ecn::Marked;
    }
}

/// What became of the packets so far. `pushed + duplicated = delivered + dropped + lost + Link::carried`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the link.
    pub pushed: u64,
    /// Taken at its end.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Dropped by the queue.
    pub dropped: u64,
    /// Marked by the queue.
    pub marked: u64,
    /// Lost on the wire, or while the link was cut. Counted when the packet is pushed.
    pub lost: u64,
    /// Copies made on the wire.
    pub duplicated: u64,
}

/// Why a link did not take a packet, which is gone.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The queue was full.
    Full,
    /// Random early detection chose the packet.
    Early,
    /// The link is cut.
    Cut,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    random: Pcg64Mcg,
    losses: Losses,
    red: Option<Red>,
    cut: bool,
    /// When the transmitter has sent everything that was accepted.
    free_at: Time,
    /// What is left of the last transmission time below a nanosecond, in units of 1 ns / rate: so that rates do not drift.
    carry: u64,
    /// Packets that wait for the transmitter: when each begins, and its bytes.
    waiting: VecDeque<(Time, u32)>,
    waiting_bytes: u64,
    /// Packets that will arrive, in that order.
    wire: VecDeque<InTransit<T>>,
    counters: Counters,
}

#[derive(Clone, Debug)]
struct InTransit<T> {
    arrives: Time,
    bytes: u32,
    item: T,
}

impl<T: Carried> Link<T> {
    /// A link whose random choices are drawn from `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Link<T> {
        Link {
            losses: Losses::default(),
            red: config.red.map(Red::new),
            config,
            random: Pcg64Mcg::seed_from_u64(seed),
            cut: false,
            free_at: Time::ZERO,
            carry: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            wire: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What the link is like.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets in the queue, in transmission and on the wire, those left out that the wire is going to lose.
    pub fn carried(&self) -> u64 {
        self.wire.len() as u64
    }

    /// Packets that wait for the transmitter at `now`.
    pub fn queue_packets(&mut self, now: Time) -> usize {
        self.retire(now);
        self.waiting.len()
    }

    /// Hands over a packet of `bytes`.
    ///
    /// # Errors
    /// Where the queue drops it or the link is cut; the packet is counted and gone.
    pub fn push(&mut self, now: Time, mut item: T, bytes: u32) -> Result<(), Dropped> {
        self.counters.pushed += 1;
        if self.cut {
            self.counters.lost += 1;
            return Err(Dropped::Cut);
        }
        self.retire(now);
        if let Err(why) = self.admit(now, &mut item, bytes) {
            self.counters.dropped += 1;
            return Err(why);
        }
        let begins = now.max(self.free_at);
        self.free_at = begins + self.transmission_time(bytes);
        if begins > now {
            self.waiting.push_back((begins, bytes));
            self.waiting_bytes += u64::from(bytes);
        }
        self.put_on_wire(self.free_at, item, bytes);
        Ok(())
    }

    /// The next packet that has arrived by `now`.
    #[inline]
    pub fn pop_ready(&mut self, now: Time) -> Option<T> {
        if self.wire.front()?.arrives > now {
            return None;
        }
        let arrived = self.wire.pop_front()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(arrived.bytes);
        Some(arrived.item)
    }

    /// When [`pop_ready`](Link::pop_ready) is wanted next, if at all.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        self.wire.front().map(|next| next.arrives)
    }

    /// Changes what the link is like. What is in transmission or on the wire goes on as it began; what waits is sent
    /// with the new rate and delay.
    pub fn reconfigure(&mut self, now: Time, config: LinkConfig) {
        self.retire(now);
        let Some(&(begins, _)) = self.waiting.front() else {
            self.adopt(config);
            return;
        };
        // With jitter the wire is not in the order of departure; then the last to arrive are taken for those that wait.
        let kept = self.wire.len().saturating_sub(self.waiting.len());
        let waiting = self.wire.split_off(kept);
        self.waiting.clear();
        (self.waiting_bytes, self.free_at) = (0, begins);
        self.adopt(config);
        for InTransit { item, bytes, .. } in waiting {
            let begins = self.free_at;
            self.free_at = begins + self.transmission_time(bytes);
            self.waiting.push_back((begins, bytes));
            self.waiting_bytes += u64::from(bytes);
            self.deliver_later(self.free_at, item, bytes);
        }
    }

    /// Cuts the link, which loses all that it carries, or restores it.
    pub fn set_cut(&mut self, now: Time, cut: bool) {
        self.cut = cut;
        if cut {
            self.counters.lost += self.carried();
            self.wire.clear();
            self.waiting.clear();
            (self.waiting_bytes, self.free_at) = (0, now);
        }
    }

    fn adopt(&mut self, config: LinkConfig) {
        if config.red != self.config.red {
            self.red = config.red.map(Red::new);
        }
        (self.config, self.carry) = (config, 0);
    }

    /// Forgets the waiting packets whose transmission has begun.
    #[inline]
    fn retire(&mut self, now: Time) {
        while let Some(&(begins, bytes)) = self.waiting.front() {
            if begins > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
    }

    /// Lets the packet into the queue or not; RED may mark it.
    fn admit(&mut self, now: Time, item: &mut T, bytes: u32) -> Result<(), Dropped> {
        let is_busy = self.free_at > now;
        if is_busy && !self.has_room(bytes) {
            return Err(Dropped::Full);
        }
        let Some(red) = &mut self.red else {
            return Ok(());
        };
        let queued = self.waiting.len() + usize::from(is_busy);
        let idle = (!is_busy).then(|| now - self.free_at);
        match red.judge(queued, idle, self.config.rate, &mut self.random) {
            Verdict::Accept => Ok(()),
            Verdict::Congested if red.marks() && item.is_ecn_capable() => {
                item.mark();
                self.counters.marked += 1;
                Ok(())
            }
            Verdict::Congested | Verdict::Drop => Err(Dropped::Early),
        }
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.config.queue {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(limit) => self.waiting.len() < limit as usize,
            QueueLimit::Bytes(limit) => self.waiting_bytes + u64::from(bytes) <= limit,
        }
    }

    fn transmission_time(&mut self, bytes: u32) -> Duration {
        let Some(rate) = self.config.rate else {
            return Duration::ZERO;
        };
        let rate = rate.bits_per_s().max(1);
        // A datagram's bits fit: 2^32 bytes of 8 bits, times 10^9, stay below 2^65; so all but giants take the fast way.
        let scaled = u128::from(bytes) * 8_000_000_000 + u128::from(self.carry);
        let (whole, rest) = match u64::try_from(scaled) {
            Ok(scaled) => (scaled / rate, scaled % rate),
            Err(_) => (
                (scaled / u128::from(rate)) as u64,
                (scaled % u128::from(rate)) as u64,
            ),
        };
        self.carry = rest;
        Duration::from_nanos(whole)
    }

    fn put_on_wire(&mut self, sent: Time, item: T, bytes: u32) {
        if self.losses.loses_next(&self.config.loss, &mut self.random) {
            self.counters.lost += 1;
            return;
        }
        if self.config.duplication > 0.0 && self.random.random::<f64>() < self.config.duplication {
            self.counters.duplicated += 1;
            self.deliver_later(sent, item.clone(), bytes);
        }
        self.deliver_later(sent, item, bytes);
    }

    fn deliver_later(&mut self, sent: Time, item: T, bytes: u32) {
        let mut arrives = sent + self.config.delay;
        if self.config.jitter > Duration::ZERO {
            arrives += self.config.jitter.mul_f64(self.random.random());
        }
        let last = self.wire.back().map_or(Time::ZERO, |last| last.arrives);
        let packet = InTransit {
            arrives,
            bytes,
            item,
        };
        if arrives >= last {
            self.wire.push_back(packet);
        } else if self.config.reorder {
            let place = self.wire.iter().rposition(|other| other.arrives <= arrives);
            self.wire
                .insert(place.map_or(0, |before| before + 1), packet);
        } else {
            self.wire.push_back(InTransit {
                arrives: last,
                ..packet
            });
        }
    }
}
