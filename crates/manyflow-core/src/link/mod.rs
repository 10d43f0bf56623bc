//! One direction of a link: a queue, a transmitter with a rate, and a wire with a delay and its faults.
//!
//! ```text
//!   push -> [ queue, drop-tail ] -> transmitter (rate) -> wire (delay, loss, duplication, reordering) -> pop_ready
//! ```
//!
//! It is generic over what it carries, has no clock, and is the same in the simulator and under real sockets.

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::time::Time;
use crate::units::Rate;

/// What a link is like.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The transmitter's rate; `None` takes no time.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Duration,
    /// What the queue holds at most, the packet in transmission not counted.
    pub queue: QueueLimit,
    /// The probability, 0 to 1, that a packet is lost on the wire.
    pub loss: f64,
    /// The probability, 0 to 1, that a packet arrives twice.
    pub duplication: f64,
    /// A packet is delayed further by up to this, uniformly, and may so be overtaken.
    pub jitter: Duration,
}

impl Default for LinkConfig {
    /// A wire without limits, delay or faults.
    fn default() -> LinkConfig {
        LinkConfig {
            rate: None,
            delay: Duration::ZERO,
            queue: QueueLimit::Unlimited,
            loss: 0.0,
            duplication: 0.0,
            jitter: Duration::ZERO,
        }
    }
}

/// How much a queue holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Whatever comes.
    Unlimited,
    /// This many packets.
    Packets(u32),
    /// This many bytes.
    Bytes(u64),
}

/// What became of the packets so far. `pushed + duplicated = delivered + dropped + lost + Link::carried`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the link.
    pub pushed: u64,
    /// Taken at its end.
    pub delivered: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Lost on the wire, or while the link was cut.
    pub lost: u64,
    /// Copies made on the wire.
    pub duplicated: u64,
}

/// The queue was full, or the link is cut; the packet is gone.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Dropped;

/// One direction of a link.
#[derive(Debug)]
pub struct Link<T> {
    config: LinkConfig,
    random: Pcg64Mcg,
    cut: bool,
    queue: VecDeque<(T, u32)>,
    queued_bytes: u64,
    sending: Option<Sending<T>>,
    /// What is left of the last transmission time below a nanosecond, in units of 1 ns / rate: so that rates do not drift.
    carry: u64,
    /// On the wire, in the order of arrival.
    wire: VecDeque<(Time, T)>,
    counters: Counters,
}

#[derive(Debug)]
struct Sending<T> {
    item: T,
    ends: Time,
}

impl<T: Clone> Link<T> {
    /// A link whose random faults are drawn from `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Link<T> {
        Link {
            config,
            random: Pcg64Mcg::seed_from_u64(seed),
            cut: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            sending: None,
            carry: 0,
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

    /// Packets in the queue, in transmission and on the wire.
    pub fn carried(&self) -> u64 {
        (self.queue.len() + usize::from(self.sending.is_some()) + self.wire.len()) as u64
    }

    /// Hands over a packet of `bytes`.
    ///
    /// # Errors
    /// Where the queue is full or the link is cut; the packet is counted and gone.
    pub fn push(&mut self, now: Time, item: T, bytes: u32) -> Result<(), Dropped> {
        self.advance(now);
        self.counters.pushed += 1;
        if self.cut {
            self.counters.lost += 1;
            return Err(Dropped);
        }
        if self.sending.is_none() {
            self.begin(now, item, bytes);
            self.advance(now);
        } else if self.has_room(bytes) {
            self.queued_bytes += u64::from(bytes);
            self.queue.push_back((item, bytes));
        } else {
            self.counters.dropped += 1;
            return Err(Dropped);
        }
        Ok(())
    }

    /// The next packet that has arrived by `now`.
    pub fn pop_ready(&mut self, now: Time) -> Option<T> {
        self.advance(now);
        if self.wire.front()?.0 > now {
            return None;
        }
        self.counters.delivered += 1;
        self.wire.pop_front().map(|(_, item)| item)
    }

    /// When [`pop_ready`](Link::pop_ready) is wanted next, if at all.
    pub fn next_time(&self) -> Option<Time> {
        let arrival = self.wire.front().map(|(time, _)| *time);
        let sent = self.sending.as_ref().map(|sending| sending.ends);
        arrival.into_iter().chain(sent).min()
    }

    /// Changes what the link is like. What is in transmission or on the wire goes on as it began.
    pub fn reconfigure(&mut self, now: Time, config: LinkConfig) {
        self.advance(now);
        (self.config, self.carry) = (config, 0);
    }

    /// Cuts the link, which loses all that it carries, or restores it.
    pub fn set_cut(&mut self, now: Time, cut: bool) {
        self.advance(now);
        self.cut = cut;
        if cut {
            self.counters.lost += self.carried();
            self.queue.clear();
            self.wire.clear();
            (self.sending, self.queued_bytes) = (None, 0);
        }
    }

    fn has_room(&self, bytes: u32) -> bool {
        match self.config.queue {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(limit) => self.queue.len() < limit as usize,
            QueueLimit::Bytes(limit) => self.queued_bytes + u64::from(bytes) <= limit,
        }
    }

    fn begin(&mut self, now: Time, item: T, bytes: u32) {
        let ends = now + self.transmission_time(bytes);
        self.sending = Some(Sending { item, ends });
    }

    fn transmission_time(&mut self, bytes: u32) -> Duration {
        let Some(rate) = self.config.rate else {
            return Duration::ZERO;
        };
        let rate = u128::from(rate.bits_per_s().max(1));
        let scaled = u128::from(bytes) * 8 * 1_000_000_000 + u128::from(self.carry);
        self.carry = (scaled % rate) as u64;
        Duration::from_nanos((scaled / rate) as u64)
    }

    /// Ends the transmissions that are over by `now`, each followed by the next from the queue.
    fn advance(&mut self, now: Time) {
        while let Some(sending) = self.sending.take_if(|sending| sending.ends <= now) {
            self.put_on_wire(sending.ends, sending.item);
            if let Some((item, bytes)) = self.queue.pop_front() {
                self.queued_bytes -= u64::from(bytes);
                self.begin(sending.ends, item, bytes);
            }
        }
    }

    fn put_on_wire(&mut self, now: Time, item: T) {
        if self.happens(self.config.loss) {
            self.counters.lost += 1;
            return;
        }
        if self.happens(self.config.duplication) {
            self.counters.duplicated += 1;
            self.deliver_later(now, item.clone());
        }
        self.deliver_later(now, item);
    }

    fn deliver_later(&mut self, now: Time, item: T) {
        let extra = match self.config.jitter {
            Duration::ZERO => Duration::ZERO,
            jitter => jitter.mul_f64(self.random.random()),
        };
        let arrival = now + self.config.delay + extra;
        let place = self
            .wire
            .iter()
            .rposition(|(time, _)| *time <= arrival)
            .map_or(0, |before| before + 1);
        self.wire.insert(place, (arrival, item));
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random::<f64>() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds;
    use proptest::prelude::*;

    fn ms(value: u64) -> Time {
        Time::ZERO + Duration::from_millis(value)
    }

    /// Runs until the link is empty; returns what arrived, and when.
    fn drain(link: &mut Link<u32>) -> Vec<(Time, u32)> {
        let mut arrived = Vec::new();
        while let Some(now) = link.next_time() {
            arrived.extend(core::iter::from_fn(|| link.pop_ready(now)).map(|item| (now, item)));
        }
        arrived
    }

    #[test]
    fn a_packet_takes_its_transmission_time_and_the_delay() {
        let rate = Some(Rate::from_bits_per_s(8_000_000));
        let config = LinkConfig {
            rate,
            delay: Duration::from_millis(50),
            ..LinkConfig::default()
        };
        let mut link = Link::new(config, 1);
        link.push(Time::ZERO, 7, 1000).unwrap();
        link.push(Time::ZERO, 8, 1000).unwrap();
        assert_eq!(drain(&mut link), [(ms(51), 7), (ms(52), 8)]);
    }

    #[test]
    fn a_full_queue_drops_the_newcomer() {
        let rate = Some(Rate::from_bits_per_s(8_000));
        let mut link = Link::new(
            LinkConfig {
                rate,
                queue: QueueLimit::Packets(2),
                ..LinkConfig::default()
            },
            1,
        );
        let pushed: Vec<bool> = (0..5)
            .map(|i| link.push(Time::ZERO, i, 100).is_ok())
            .collect();
        assert_eq!(pushed, [true, true, true, false, false]);
        assert_eq!(drain(&mut link).len(), 3);
        link.reconfigure(
            ms(0),
            LinkConfig {
                queue: QueueLimit::Bytes(150),
                ..link.config().clone()
            },
        );
        let pushed: Vec<bool> = (0..3)
            .map(|i| link.push(ms(1000), i, 100).is_ok())
            .collect();
        assert_eq!(pushed, [true, true, false]);
    }

    #[test]
    fn a_million_packets_do_not_drift() {
        // 8000 bits at 3.3 Gbit/s take 2424.24... ns.
        let rate = Some(Rate::from_bits_per_s(3_300_000_000));
        let mut link = Link::new(
            LinkConfig {
                rate,
                ..LinkConfig::default()
            },
            1,
        );
        (0..1_000_000).for_each(|i| link.push(Time::ZERO, i, 1000).unwrap());
        let (last, _) = *drain(&mut link).last().unwrap();
        assert_eq!(last.as_nanos(), 8_000_000_000_000 / 3_300);
    }

    #[test]
    fn a_cut_link_loses_what_it_carries_and_what_comes() {
        let rate = Some(Rate::from_bits_per_s(8_000));
        let mut link = Link::new(
            LinkConfig {
                rate,
                ..LinkConfig::default()
            },
            1,
        );
        (0..3).for_each(|i| link.push(Time::ZERO, i, 100).unwrap());
        link.set_cut(ms(150), true);
        assert_eq!(link.push(ms(160), 4, 100), Err(Dropped));
        link.set_cut(ms(170), false);
        link.push(ms(180), 5, 100).unwrap();
        assert_eq!(drain(&mut link), [(ms(280), 5)]);
        assert_eq!(link.counters().lost, 4);
    }

    proptest! {
        #[test]
        fn every_packet_is_accounted_for(
            seed: u64, loss in 0.0..0.5, duplication in 0.0..0.5, jitter_s in 0.0..0.1,
            gaps in prop::collection::vec(0u64..30, 1..200),
        ) {
            let config = LinkConfig {
                rate: Some(Rate::from_bits_per_s(1_000_000)),
                queue: QueueLimit::Bytes(20_000),
                loss, duplication, jitter: seconds(jitter_s),
                ..LinkConfig::default()
            };
            let mut link = Link::new(config, seed);
            let mut now = Time::ZERO;
            for (i, gap) in gaps.iter().enumerate() {
                now += Duration::from_millis(*gap);
                let _ = link.push(now, i as u32, 1500);
                if i % 3 == 0 { link.pop_ready(now); }
            }
            let balance = |link: &Link<u32>| {
                let c = link.counters();
                (c.pushed + c.duplicated, c.delivered + c.dropped + c.lost + link.carried())
            };
            let (sent, accounted) = balance(&link);
            prop_assert_eq!(sent, accounted);
            drain(&mut link);
            let (sent, accounted) = balance(&link);
            prop_assert_eq!(sent, accounted);
            prop_assert_eq!(link.carried(), 0);
        }
    }
}
