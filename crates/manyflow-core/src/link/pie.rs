//! PIE, proportional integral controller enhanced (RFC 8033): drops or marks packets at random when
//! they arrive, with a probability that a controller adapts to the delay of the queue.
//!
//! | RFC 8033 | here |
//! |---|---|
//! | 4.1: no drop while the delay was below half the target and the probability is below 0.2, or while two packets or fewer wait | `Pie::is_spared` |
//! | 4.2: the probability every 15 ms, with α = 1/8 and β = 1 1/4 per second, scaled by its own size; it decays by 2 % while the queue is empty | `Pie::update` |
//! | 4.3, 5.2: the delay is that of the last packet that left | `Pie::dequeue` |
//! | 4.4: no drop in the first 150 ms of a burst | [`PieConfig::burst`] |
//! | 5.1: packets that support ECN are marked while the probability is below 0.1 | [`PieConfig::ecn`] |
//! | 5.4: a drop when the sum of probabilities since the last one reaches 8.5, none before 0.85 | `Pie::is_hit` |
//! | 5.5: the probability grows by at most 0.02 at once when it is above 0.1 | `Pie::update` |
//!
//! Not included: 5.3, by which PIE is off while the queue is short.

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::waiting::{Fifo, Store, Waiting};
use super::{Dropped, Item};
use crate::time::Time;

/// T_UPDATE: the time between two updates of the probability.
const UPDATE: Duration = Duration::from_millis(15);
/// MARK_ECNTH: packets are dropped, whether they support ECN or not, from this probability on.
const MARK_MAX: f64 = 0.1;
/// α and β: the gains in 1/s.
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// MEAN_PKTSIZE in bytes.
const TYPICAL_BYTES: u64 = 1500;

/// The configuration of PIE (RFC 8033).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PieConfig {
    /// QDELAY_REF: the delay that the controller aims at. Default: 15 ms.
    pub target: Duration,
    /// MAX_BURST: how long a burst passes without a drop. Default: 150 ms.
    pub burst: Duration,
    /// Whether packets that support ECN are marked instead of dropped, up to a probability of 0.1.
    /// Default: true.
    pub ecn: bool,
}

impl Default for PieConfig {
    fn default() -> PieConfig {
        PieConfig {
            target: Duration::from_millis(15),
            burst: Duration::from_millis(150),
            ecn: true,
        }
    }
}

/// The state of PIE.
#[derive(Debug)]
pub(super) struct Pie {
    config: PieConfig,
    fifo: Fifo,
    probability: f64,
    /// The sum of the probabilities since the last drop.
    accumulated: f64,
    /// The delay of the packet that left last.
    delay: Duration,
    /// The delay at the update before.
    old_delay: Duration,
    burst_allowance: Duration,
    next_update: Time,
}

impl Pie {
    pub(super) fn new(config: PieConfig, now: Time) -> Pie {
        Pie {
            config,
            fifo: Fifo::default(),
            probability: 0.0,
            accumulated: 0.0,
            delay: Duration::ZERO,
            old_delay: Duration::ZERO,
            burst_allowance: config.burst,
            next_update: now + UPDATE,
        }
    }

    /// Queues a packet, marks it or drops it.
    pub(super) fn enqueue<T: Item>(
        &mut self,
        now: Time,
        mut packet: Waiting<T>,
        store: &mut Store<T>,
        random: &mut Pcg64Mcg,
    ) -> Result<(), Dropped> {
        self.update_until(now);
        if self.burst_allowance.is_zero() && !self.is_spared() && self.is_hit(random) {
            if !self.config.ecn || !packet.is_ecn_capable || self.probability >= MARK_MAX {
                return Err(Dropped::Early);
            }
            store.mark(&mut packet);
        }
        store.push(&mut self.fifo, packet);
        Ok(())
    }

    pub(super) fn dequeue<T: Item>(
        &mut self,
        now: Time,
        store: &mut Store<T>,
    ) -> Option<Waiting<T>> {
        self.update_until(now);
        let packet = store.pop(now, &mut self.fifo)?;
        self.delay = packet.sojourn(now);
        Some(packet)
    }

    /// Removes and returns any packet that no other of its flow precedes.
    pub(super) fn take<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        store.pop(now, &mut self.fifo)
    }

    fn is_spared(&self) -> bool {
        let was_short = self.old_delay < self.config.target / 2 && self.probability < 0.2;
        was_short || self.fifo.bytes <= 2 * TYPICAL_BYTES
    }

    /// Draws whether a packet is dropped or marked. Drops are spaced more evenly than at random.
    fn is_hit(&mut self, random: &mut Pcg64Mcg) -> bool {
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.probability;
        let is_hit = match self.accumulated {
            ..0.85 => false,
            8.5.. => true,
            _ => random.random::<f64>() < self.probability,
        };
        if is_hit {
            self.accumulated = 0.0;
        }
        is_hit
    }

    /// Makes the updates that are due by `now`. Nothing has arrived or left since the last call, so
    /// each finds the queue as it was then.
    fn update_until(&mut self, now: Time) {
        while self.next_update <= now {
            let is_settled = self.fifo.packets == 0
                && self.probability == 0.0
                && self.old_delay.is_zero()
                && self.burst_allowance == self.config.burst;
            if is_settled {
                // Further updates would change nothing.
                let missed = (now - self.next_update).as_nanos() / UPDATE.as_nanos() + 1;
                self.next_update +=
                    UPDATE.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
                continue;
            }
            self.update();
            self.next_update += UPDATE;
        }
    }

    /// `calculate_drop_prob`.
    fn update(&mut self) {
        if self.fifo.packets == 0 {
            self.delay = Duration::ZERO;
        }
        let (delay, old, target) = (self.delay, self.old_delay, self.config.target);
        let [delay_s, old_s, target_s] = [delay, old, target].map(|span| span.as_secs_f64());
        let mut change = ALPHA * (delay_s - target_s) + BETA * (delay_s - old_s);
        change *= match self.probability {
            ..0.000_001 => 1.0 / 2048.0,
            ..0.000_01 => 1.0 / 512.0,
            ..0.000_1 => 1.0 / 128.0,
            ..0.001 => 1.0 / 32.0,
            ..0.01 => 1.0 / 8.0,
            ..0.1 => 1.0 / 2.0,
            _ => 1.0,
        };
        if self.probability >= 0.1 {
            change = change.min(0.02);
        }
        self.probability += change;
        if delay.is_zero() && old.is_zero() {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_allowance = self.burst_allowance.saturating_sub(UPDATE);
        let is_calm = delay < target / 2 && old < target / 2;
        if self.probability == 0.0 && is_calm {
            self.burst_allowance = self.config.burst;
        }
        self.old_delay = delay;
        debug_assert!((0.0..=1.0).contains(&self.probability));
    }
}
