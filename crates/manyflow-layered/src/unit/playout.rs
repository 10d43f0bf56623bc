//! The deadlines of units, from the times of their pieces.
//!
//! # Rule
//!
//! The *transit* of a piece is its arrival on the receiver's clock, less its unit's time on the
//! sender's clock. It contains the unknown difference of the two clocks. The *base* is the lowest
//! transit so far. It increases by 200 ppm of the time that passes, so that it follows a clock that
//! drifts. The *delay* of a piece is its transit less the base. A unit's deadline is
//!
//! ```text
//!   deadline = time of the unit + base + latency
//! ```
//!
//! A fixed latency is that of the configuration. The adaptive latency begins at its minimum, and
//! changes in two ways, between its minimum and its maximum:
//!
//! - It increases at once: a piece that is late by the present latency raises the latency to the
//!   delay of this piece and a margin of 5 ms.
//! - It decreases slowly: after each unit it approaches the 95th percentile of the delays of the
//!   last 128 units, and the margin, with a time constant of 10 s. The delay of a unit is that of
//!   its last piece. For 30 s after a repair ([`repair`](crate::repair)) it leaves room for the
//!   95th percentile of the delays of the last 32 repairs, too, however few units need one.
//!
//! A group sends its share of a unit within one interval between units, so the delay of a unit is
//! about one interval and the queueing on the path. When a receiver joins a further group, the
//! group's pieces may come later than those of the groups below. The first late piece raises the
//! latency, and later units wait for this group. A unit is delivered before its deadline only if
//! all bytes of all groups are there, so no group is left out because the groups below are faster.

use core::time::Duration;

use manyflow_core::Time;

/// The drift of clocks that the base follows: 1 / 200 ppm.
const DRIFT_DIVISOR: i64 = 5_000;
/// The latency beyond the delays that it is to cover, in nanoseconds.
const MARGIN_NS: i64 = 5_000_000;
/// The time constant with which the latency decreases, in nanoseconds.
const DECREASE_NS: i64 = 10_000_000_000;
/// The number of units whose delays are kept.
const DELAYS: usize = 128;
/// The number of repairs whose delays are kept, and the time for which they count.
const REPAIRS: usize = 32;
const REPAIRS_NS: i64 = 30_000_000_000;
/// A transit that differs from the base by more belongs to another clock: the sender has restarted.
const TRANSIT_MAX_NS: i64 = 10_000_000_000;

/// The time that units wait for their pieces, beyond the shortest transit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Latency {
    /// The same time for all units.
    Fixed(Duration),
    /// A time that covers the delays of nearly all pieces, between two bounds.
    Adaptive {
        /// The lower bound, with which a session begins.
        min: Duration,
        /// The upper bound. Pieces with a longer delay are late.
        max: Duration,
    },
}

/// The receiver's view of the sender's clock, and the present latency.
#[derive(Debug)]
pub(super) struct Playout {
    min_ns: i64,
    max_ns: i64,
    latency_ns: i64,
    clock: Option<Clock>,
    units: Delays<DELAYS>,
    repairs: Delays<REPAIRS>,
    /// When the last repair came.
    repaired: Option<Time>,
    /// When the latency last decreased, or could have.
    decreased: Time,
}

#[derive(Debug)]
struct Clock {
    /// The lowest transit, at the time `updated`.
    base_ns: i64,
    updated: Time,
    /// The latest unit's time, unwrapped, in microseconds.
    latest_us: i64,
}

impl Clock {
    /// Unwraps a time of 32 bits to the value nearest to the latest one.
    fn unwrap_us(&self, time_us: u32) -> i64 {
        let ahead = time_us.wrapping_sub(self.latest_us as u32) as i32;
        self.latest_us + i64::from(ahead)
    }

    fn base_ns(&self, now: Time) -> i64 {
        self.base_ns + nanos(now - self.updated) / DRIFT_DIVISOR
    }
}

impl Playout {
    pub(super) fn new(latency: Latency) -> Playout {
        let (min, max) = match latency {
            Latency::Fixed(fixed) => (fixed, fixed),
            Latency::Adaptive { min, max } => (min, max.max(min)),
        };
        Playout {
            min_ns: nanos(min),
            max_ns: nanos(max),
            latency_ns: nanos(min),
            clock: None,
            units: Delays::default(),
            repairs: Delays::default(),
            repaired: None,
            decreased: Time::ZERO,
        }
    }

    /// Returns whether a piece with this time can belong to the present clock of the sender.
    pub(super) fn is_plausible(&self, now: Time, time_us: u32) -> bool {
        self.clock.as_ref().is_none_or(|clock| {
            let transit = transit_ns(now, clock.unwrap_us(time_us));
            (transit - clock.base_ns(now)).abs() <= TRANSIT_MAX_NS
        })
    }

    /// Forgets the sender's clock, as that of another sender follows. Keeps the latency.
    pub(super) fn forget_clock(&mut self) {
        self.clock = None;
    }

    /// Notes the arrival of a piece. Returns its unit's time, unwrapped, and the piece's delay.
    pub(super) fn note_arrival(&mut self, now: Time, time_us: u32) -> (i64, Duration) {
        let clock = self.clock.get_or_insert(Clock {
            base_ns: i64::MAX / 2,
            updated: now,
            latest_us: i64::from(time_us),
        });
        let unit_us = clock.unwrap_us(time_us);
        let transit = transit_ns(now, unit_us);
        clock.base_ns = clock.base_ns(now).min(transit);
        clock.updated = now;
        clock.latest_us = clock.latest_us.max(unit_us);
        let delay = transit - clock.base_ns;
        debug_assert!(delay >= 0, "the base is the lowest transit");
        if delay > self.latency_ns {
            self.latency_ns = (delay + MARGIN_NS).clamp(self.min_ns, self.max_ns);
        }
        (unit_us, Duration::from_nanos(delay as u64))
    }

    /// Notes the delay of a unit's last piece, and decreases the latency by what has passed since
    /// the last unit.
    pub(super) fn note_unit(&mut self, now: Time, delay: Duration) {
        self.units.note(delay);
        let elapsed = nanos(now - self.decreased).min(DECREASE_NS);
        self.decreased = now;
        let surplus = self.latency_ns - self.wanted_ns(now);
        if surplus > 0 {
            let share = elapsed as f64 / DECREASE_NS as f64;
            self.latency_ns -= (surplus as f64 * share) as i64;
        }
        debug_assert!((self.min_ns..=self.max_ns).contains(&self.latency_ns));
    }

    /// Notes the delay of a repaired piece.
    pub(super) fn note_repair(&mut self, now: Time, delay: Duration) {
        self.repairs.note(delay);
        self.repaired = Some(now);
    }

    /// The latency that covers 95 % of the last units, and of the last repairs if there are any.
    fn wanted_ns(&self, now: Time) -> i64 {
        let repaired = self.repaired;
        let are_recent = repaired.is_some_and(|last| nanos(now - last) < REPAIRS_NS);
        let repairs = if are_recent {
            self.repairs.percentile_ns()
        } else {
            0
        };
        let covered = self.units.percentile_ns().max(repairs);
        (covered + MARGIN_NS).clamp(self.min_ns, self.max_ns)
    }

    /// Returns the deadline of a unit with this unwrapped time.
    pub(super) fn deadline(&self, unit_us: i64) -> Time {
        let base_ns = self.clock.as_ref().map_or(0, |clock| clock.base_ns);
        let deadline = unit_us * 1_000 + base_ns + self.latency_ns;
        Time::from_nanos(u64::try_from(deadline).unwrap_or(0))
    }

    /// Returns the present latency.
    pub(super) fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency_ns as u64)
    }
}

/// The last `N` delays.
#[derive(Debug)]
struct Delays<const N: usize> {
    /// The delays; the oldest is at `next` once all places are used.
    delays_ns: Vec<i64>,
    next: usize,
}

impl<const N: usize> Default for Delays<N> {
    fn default() -> Delays<N> {
        Delays {
            delays_ns: Vec::new(),
            next: 0,
        }
    }
}

impl<const N: usize> Delays<N> {
    fn note(&mut self, delay: Duration) {
        if self.delays_ns.len() < N {
            self.delays_ns.push(nanos(delay));
        } else {
            self.delays_ns[self.next] = nanos(delay);
            self.next = (self.next + 1) % N;
        }
    }

    /// The 95th percentile; 0 without delays.
    fn percentile_ns(&self) -> i64 {
        let mut sorted = [0; N];
        let sorted = &mut sorted[..self.delays_ns.len()];
        sorted.copy_from_slice(&self.delays_ns);
        sorted.sort_unstable();
        sorted.get(sorted.len() * 95 / 100).copied().unwrap_or(0)
    }
}

fn transit_ns(now: Time, unit_us: i64) -> i64 {
    nanos(now - Time::ZERO) - unit_us * 1_000
}

/// A span in nanoseconds; at most half of the range, so that sums do not overflow.
fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).map_or(i64::MAX / 2, |nanos| nanos.min(i64::MAX / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::time::seconds;

    const ADAPTIVE: Latency = Latency::Adaptive {
        min: Duration::from_millis(20),
        max: Duration::from_millis(500),
    };

    /// Units at 10 per second from `first`, each with one piece that arrives after `transit_s`.
    fn arrivals(playout: &mut Playout, first: u32, count: u32, transit_s: impl Fn(u32) -> f64) {
        for number in first..first + count {
            let now = Time::from_secs_f64(100.0 + f64::from(number) * 0.1 + transit_s(number));
            let (_, delay) = playout.note_arrival(now, number.wrapping_mul(100_000));
            playout.note_unit(now, delay);
        }
    }

    #[test]
    fn the_deadline_is_the_shortest_transit_and_the_latency_after_the_units_time() {
        let mut playout = Playout::new(Latency::Fixed(seconds(0.3)));
        arrivals(&mut playout, 0, 3, |number| 0.05 - 0.01 * f64::from(number));
        let deadline = playout.deadline(1_000_000).as_secs_f64();
        assert!((deadline - 101.33).abs() < 1e-6, "{deadline}");
        assert_eq!(playout.latency(), seconds(0.3));
    }

    #[test]
    fn a_late_piece_raises_the_latency_at_once_up_to_the_maximum() {
        let mut playout = Playout::new(ADAPTIVE);
        arrivals(&mut playout, 0, 10, |_| 0.0);
        assert_eq!(playout.latency(), seconds(0.02));
        let late = |number| if number == 10 { 0.1 } else { 5.0 };
        arrivals(&mut playout, 10, 1, late);
        let raised = playout.latency().as_secs_f64();
        assert!((raised - 0.105).abs() < 0.002, "{raised}");
        playout.note_arrival(Time::from_secs_f64(106.1), 1_100_000);
        assert_eq!(playout.latency(), seconds(0.5));
    }

    #[test]
    fn the_latency_decreases_slowly_to_the_delays_of_nearly_all_units() {
        let mut playout = Playout::new(ADAPTIVE);
        arrivals(
            &mut playout,
            0,
            20,
            |number| {
                if number == 19 { 0.4 } else { 0.0 }
            },
        );
        assert!(playout.latency() > seconds(0.39));
        let jitter = |number| if number % 2 == 0 { 0.1 } else { 0.0 };
        arrivals(&mut playout, 20, 50, jitter);
        let after_5_s = playout.latency().as_secs_f64();
        assert!((0.25..0.35).contains(&after_5_s), "{after_5_s}");
        arrivals(&mut playout, 70, 600, jitter);
        let after_65_s = playout.latency().as_secs_f64();
        assert!((0.1..0.11).contains(&after_65_s), "{after_65_s}");
    }

    #[test]
    fn the_latency_leaves_room_for_repairs_while_some_are_needed() {
        let mut playout = Playout::new(ADAPTIVE);
        // One unit in fifty needs a repair, which the percentile of all units does not show.
        for number in 0..1_500_u32 {
            let is_repaired = number % 50 == 0 && number < 1_000;
            let transit_s = if is_repaired { 0.08 } else { 0.0 };
            let now = Time::from_secs_f64(100.0 + f64::from(number) * 0.1 + transit_s);
            let (_, delay) = playout.note_arrival(now, number.wrapping_mul(100_000));
            if is_repaired {
                playout.note_repair(now, delay);
            }
            playout.note_unit(now, delay);
            if (500..1_200).contains(&number) {
                assert!(playout.latency() >= delay.max(seconds(0.08)), "{number}");
            }
        }
        assert!(playout.latency() < seconds(0.04), "{:?}", playout.latency());
    }

    #[test]
    fn the_base_follows_a_clock_that_drifts() {
        let mut playout = Playout::new(Latency::Fixed(seconds(0.1)));
        // The receiver's clock is faster by 100 ppm, for 1,000 s.
        let drift = |number| f64::from(number) * 0.1 * 1e-4;
        arrivals(&mut playout, 0, 10_000, drift);
        let deadline = playout.deadline(1_000_000_000).as_secs_f64();
        assert!((deadline - 1_100.2).abs() < 1e-3, "{deadline}");
    }

    #[test]
    fn times_wrap_around() {
        let mut playout = Playout::new(Latency::Fixed(seconds(0.1)));
        let (before, _) = playout.note_arrival(Time::from_secs_f64(1.0), u32::MAX - 999);
        let now = Time::from_secs_f64(1.1);
        assert!(playout.is_plausible(now, 99_000));
        assert!(!playout.is_plausible(now, 99_000 + 11_000_000));
        let (after, delay) = playout.note_arrival(now, 99_000);
        assert_eq!(after - before, 100_000);
        assert!(delay <= Duration::from_micros(20), "{delay:?}");
    }
}
