//! DualPI2, the coupled dual-queue AQM for L4S (RFC 9332, appendix A).
//!
//! Packets of scalable congestion controls have a queue of their own with a delay below a
//! millisecond, and classic ones a queue of 15 ms. One controller serves both: its output p' marks
//! scalable packets with the probability k p' and drops or marks classic ones with p'², so that
//! flows of both kinds get the same rate.
//!
//! | RFC 9332 | here |
//! |---|---|
//! | 2.3, A.1: packets with ECT(1) or CE go to the L queue | [`Waiting::is_l4s`] |
//! | A.1: the PI controller with α = 0.1 T / RTT², β = 0.3 / RTT, every T = min(target, RTT / 3) | `DualPi2::update` |
//! | A.1: `recur`: marks at even distances instead of at random | `Recurrence` |
//! | A.1: the ramp from 800 µs to 1,200 µs of the L queue; a ramp without a range is a step; none while no other packet waits in the L queue (`Th_len`) | `DualPi2::native` |
//! | A.2: overload: from k p' = 1 on, classic packets are dropped whether they support ECN or not, and scalable ones with p'², too | `DualPi2::serve_l4s` |
//! | 4.2.2: a weighted round robin protects the C queue from starvation | `DualPi2::is_l4s_turn` |
//!
//! The weight of the C queue is that of Linux's `sch_dualpi2`, 10 %.

use core::time::Duration;

use super::waiting::{Fifo, Store, Waiting};
use super::{Dropped, Item};
use crate::time::Time;

/// The weight of the C queue, of `WEIGHTS` in all.
const CLASSIC_WEIGHT: i64 = 10;
const WEIGHTS: i64 = 100;
/// The credit of the C queue when both queues have become empty: that of a packet of 1500 bytes,
/// for which the L queue comes first.
const START_CREDIT: i64 = 1500 * (2 * CLASSIC_WEIGHT - WEIGHTS);

/// The configuration of DualPI2 (RFC 9332).
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct DualPi2Config {
    /// The delay of the C queue that the controller aims at, above zero. Default: 15 ms.
    pub target: Duration,
    /// RTT_max: the worst-case round-trip time of the connections, above zero. Default: 100 ms.
    pub rtt_max: Duration,
    /// k: how many times as often scalable packets are marked, in relation to p'. Default: 2.
    pub coupling: f64,
    /// minTh: the delay of the L queue at which its own marks begin. Default: 800 µs.
    pub threshold: Duration,
    /// The range of delays above the threshold in which the probability of such a mark grows to 1;
    /// zero for a step. Default: 400 µs.
    pub ramp: Duration,
    /// Whether classic packets that support ECN are marked instead of dropped. Default: true.
    pub ecn: bool,
}

impl Default for DualPi2Config {
    fn default() -> DualPi2Config {
        DualPi2Config {
            target: Duration::from_millis(15),
            rtt_max: Duration::from_millis(100),
            coupling: 2.0,
            threshold: Duration::from_micros(800),
            ramp: Duration::from_micros(400),
            ecn: true,
        }
    }
}

/// `recur`: turns a probability into events at even distances.
#[derive(Copy, Clone, Debug, Default)]
struct Recurrence(f64);

impl Recurrence {
    fn occurs(&mut self, probability: f64) -> bool {
        self.0 += probability;
        let occurs = self.0 > 1.0;
        if occurs {
            self.0 -= 1.0;
        }
        occurs
    }
}

/// The state of DualPI2.
#[derive(Debug)]
pub(super) struct DualPi2 {
    config: DualPi2Config,
    l4s: Fifo,
    classic: Fifo,
    l4s_marks: Recurrence,
    l4s_drops: Recurrence,
    classic_hits: Recurrence,
    /// p': the output of the controller, 0 to 1.
    base: f64,
    /// The delay at the last update.
    old_delay: Duration,
    next_update: Time,
    /// The C queue is served while this is positive.
    credit: i64,
}

impl DualPi2 {
    pub(super) fn new(config: DualPi2Config, now: Time) -> DualPi2 {
        let mut queue = DualPi2 {
            config,
            l4s: Fifo::default(),
            classic: Fifo::default(),
            l4s_marks: Recurrence::default(),
            l4s_drops: Recurrence::default(),
            classic_hits: Recurrence::default(),
            base: 0.0,
            old_delay: Duration::ZERO,
            next_update: now,
            credit: START_CREDIT,
        };
        queue.next_update += queue.period();
        queue
    }

    /// T: the time between two updates, at least 1 µs.
    fn period(&self) -> Duration {
        let period = self.config.target.min(self.config.rtt_max / 3);
        period.max(Duration::from_micros(1))
    }

    pub(super) fn enqueue<T: Item>(&mut self, now: Time, packet: Waiting<T>, store: &mut Store<T>) {
        self.update_until(now, store);
        if store.packets() == 0 {
            self.credit = START_CREDIT;
        }
        let fifo = match packet.is_l4s {
            true => &mut self.l4s,
            false => &mut self.classic,
        };
        store.push(fifo, packet);
    }

    pub(super) fn dequeue<T: Item>(
        &mut self,
        now: Time,
        store: &mut Store<T>,
    ) -> Option<Waiting<T>> {
        self.update_until(now, store);
        while store.packets() > 0 {
            let packet = match self.is_l4s_turn() {
                true => self.serve_l4s(now, store),
                false => self.serve_classic(now, store),
            };
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    /// Removes and returns any packet that no other of its flow precedes.
    pub(super) fn take<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        store
            .pop(now, &mut self.l4s)
            .or_else(|| store.pop(now, &mut self.classic))
    }

    /// Returns whether the L queue is served. It comes first, except that the C queue gets its
    /// weight.
    fn is_l4s_turn(&self) -> bool {
        self.l4s.packets > 0 && (self.classic.packets == 0 || self.credit <= 0)
    }

    fn serve_l4s<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        let mut packet = store.pop(now, &mut self.l4s)?;
        if self.classic.packets > 0 {
            self.credit += CLASSIC_WEIGHT * i64::from(packet.bytes);
        }
        let coupled = self.config.coupling * self.base;
        let is_marked = if coupled < 1.0 {
            let probability = self.native(packet.sojourn(now)).max(coupled);
            self.l4s_marks.occurs(probability)
        } else {
            if self.l4s_drops.occurs(self.base * self.base) {
                store.drop(packet, Dropped::Early);
                return None;
            }
            true
        };
        if is_marked {
            store.mark(&mut packet);
        }
        Some(packet)
    }

    fn serve_classic<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        let mut packet = store.pop(now, &mut self.classic)?;
        if self.l4s.packets > 0 {
            self.credit -= (WEIGHTS - CLASSIC_WEIGHT) * i64::from(packet.bytes);
        }
        if self.classic_hits.occurs(self.base * self.base) {
            let is_overload = self.config.coupling * self.base >= 1.0;
            if !self.config.ecn || !packet.is_ecn_capable || is_overload {
                store.drop(packet, Dropped::Early);
                return None;
            }
            store.mark(&mut packet);
        }
        Some(packet)
    }

    /// `laqm`: the probability of a mark that follows from the delay in the L queue.
    fn native(&self, delay: Duration) -> f64 {
        if self.l4s.packets == 0 || delay <= self.config.threshold {
            return 0.0;
        }
        let above = delay - self.config.threshold;
        if above >= self.config.ramp {
            return 1.0;
        }
        above.as_secs_f64() / self.config.ramp.as_secs_f64()
    }

    /// Makes the updates that are due by `now`. Nothing has arrived or left since the last call, so
    /// each finds the queues as they were then.
    fn update_until<T: Item>(&mut self, now: Time, store: &Store<T>) {
        let period = self.period();
        while self.next_update <= now {
            if store.packets() == 0 && self.base == 0.0 && self.old_delay.is_zero() {
                // Further updates would change nothing.
                let missed = (now - self.next_update).as_nanos() / period.as_nanos() + 1;
                self.next_update +=
                    period.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
                continue;
            }
            self.update(self.next_update, store);
            self.next_update += period;
        }
    }

    /// `dualpi2_update`: the delay is that of the packet that has waited longest.
    fn update<T: Item>(&mut self, now: Time, store: &Store<T>) {
        let oldest = [&self.l4s, &self.classic].map(|fifo| store.front(fifo));
        let delays = oldest.into_iter().flatten().map(|first| first.sojourn(now));
        let delay = delays.max().unwrap_or_default();
        let rtt_s = self.config.rtt_max.as_secs_f64().max(1e-6);
        let (alpha, beta) = (
            0.1 * self.period().as_secs_f64() / (rtt_s * rtt_s),
            0.3 / rtt_s,
        );
        let [delay_s, old_s, target_s] =
            [delay, self.old_delay, self.config.target].map(|span| span.as_secs_f64());
        let change = alpha * (delay_s - target_s) + beta * (delay_s - old_s);
        self.base = (self.base + change).clamp(0.0, 1.0);
        self.old_delay = delay;
    }
}
