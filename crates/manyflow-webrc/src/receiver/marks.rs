//! Marks of routers (ECN), of which RFC 3738 says nothing.
//!
//! The sender's packets carry ECT(0) or ECT(1), and a router marks them as CE instead of dropping
//! them. A receiver finds out by the packets which of the two laws holds:
//!
//! - ECT(0) (RFC 3168 section 5): a mark has the effect of a loss. It begins a loss event, unless
//!   one lasts, ends start-up, and never counts as a loss without a queue. The marked packet itself
//!   counts as received.
//! - ECT(1) (RFC 9331 section 4.1): routers mark often. The receiver follows the share `p` of
//!   marked packets by the law of scalable congestion controls, `2 / p` packets in each round-trip
//!   time (RFC 9332 section 2.1). From the first loss on, the equation limits the rate, too
//!   (RFC 9331 section 4.3).
//!
//! The share is an exponential average over one time slot, because the rate falls and rises again
//! in each slot. Round-trip times below [`RTT_MIN_S`] count as that, as with TCP Prague, so that
//! the rate does not depend on them.
//!
//! A train of the base channel makes a queue by itself. Its packets therefore count neither as
//! marked nor as unmarked, and its losses do not count.

use super::context::Context;
use super::running::Running;
use crate::SlowStartEnd;
use manyflow_core::Ecn;
use manyflow_core::time::Time;

/// The lowest round-trip time in the scalable law, in seconds: that of TCP Prague
/// (draft-briscoe-iccrg-prague-congestion-control).
const RTT_MIN_S: f64 = 0.025;

/// The number of marked packets in each round-trip time of a scalable congestion control (RFC 9332
/// section 2.1).
const MARKS_PER_ROUND_TRIP: f64 = 2.0;

/// The marks that a receiver has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// Marked packets since the beginning.
    total: u64,
    /// Whether packets carry ECT(1).
    is_l4s: bool,
    /// Whether the equation limits the rate besides the law: a packet was lost, or start-up ended
    /// for another reason than a mark.
    heeds_equation: bool,
    /// Packets, and marked ones among them, with weights that fall by e in each time slot.
    packets: f64,
    marked: f64,
}

impl Marks {
    /// Returns the number of marked packets.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Counts a packet with this ECN field.
    fn count(&mut self, ecn: Ecn) {
        self.packets += 1.0;
        match ecn {
            Ecn::L4s => self.is_l4s = true,
            Ecn::Marked => {
                self.total += 1;
                self.marked += 1.0;
            }
            Ecn::NotCapable | Ecn::Capable => {}
        }
    }

    /// Ends an epoch of `epoch_slots` time slots (EL / TSD).
    pub(super) fn on_epoch(&mut self, epoch_slots: f64) {
        let weight = libm::exp(-epoch_slots);
        self.packets *= weight;
        self.marked *= weight;
        debug_assert!(self.marked <= self.packets, "marked packets are packets");
    }

    /// Ends start-up at `rate` packets per second. If a mark is the reason, the share begins with
    /// the value that gives this rate, and the weight of a time slot.
    pub(super) fn end_start_up(&mut self, by_mark: bool, rate: f64, rtt_s: f64, slot_s: f64) {
        self.heeds_equation = !by_mark;
        if by_mark {
            self.packets = rate * slot_s;
            let share = MARKS_PER_ROUND_TRIP / (rate * rtt_s.max(RTT_MIN_S));
            self.marked = share.min(1.0) * self.packets;
        }
    }

    /// Returns the rate of the scalable law in packets per second; infinite without marks.
    fn scalable_rate(&self, rtt_s: f64) -> f64 {
        match self.marked > 0.0 {
            true => MARKS_PER_ROUND_TRIP * self.packets / self.marked / rtt_s.max(RTT_MIN_S),
            false => f64::INFINITY,
        }
    }
}

impl Running {
    /// Handles the ECN field of a packet that routers may mark.
    pub(super) fn on_ecn_field(&mut self, context: &mut Context, now: Time) {
        let ecn = context.ecn;
        let marks = context.marks.get_or_insert_default();
        marks.count(ecn);
        if ecn != Ecn::Marked {
            return;
        }
        if !marks.is_l4s {
            self.begin_loss_event(context, now, SlowStartEnd::Mark);
        } else if self.in_start_up() {
            self.end_start_up(context, SlowStartEnd::Mark);
        } else {
            self.lower_slow_start_rate(context);
        }
    }

    /// Lets the equation limit the rate after the first loss of an L4S session, from the rate on
    /// that a loss leaves.
    pub(super) fn heed_first_loss(&mut self, context: &mut Context) {
        if let Some(marks) = &mut context.marks
            && marks.is_l4s
            && !marks.heeds_equation
        {
            marks.heeds_equation = true;
            let rate = context.session.decrease() * self.rates.trr;
            self.expect_rate(&context.config, rate);
        }
    }

    /// Returns the rate in packets per second that is fair to others: REQN, or in an L4S session
    /// the rate of the scalable law.
    pub(super) fn fair_rate(&self, context: &Context) -> f64 {
        let equation = || self.equation_rate(&context.config);
        match &context.marks {
            Some(marks) if marks.is_l4s => {
                let scalable = marks.scalable_rate(self.rtt.average_s());
                match marks.heeds_equation {
                    true => scalable.min(equation()),
                    false => scalable,
                }
            }
            _ => equation(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts packets of which each `interval`th is marked, in epochs of a twentieth of a slot.
    fn count(marks: &mut Marks, interval: u64, packets: u64) {
        for packet in 1..=packets {
            marks.count(match packet % interval {
                0 => Ecn::Marked,
                _ => Ecn::L4s,
            });
            if packet % 50 == 0 {
                marks.on_epoch(0.05);
            }
        }
    }

    #[test]
    fn the_rate_is_two_marks_in_each_round_trip_time() {
        let mut marks = Marks::default();
        count(&mut marks, 10, 10_000);
        assert_eq!(marks.total(), 1000);
        // 20 packets in 50 ms.
        let rate = marks.scalable_rate(0.05);
        assert!((rate / 400.0 - 1.0).abs() < 0.02, "{rate}");
        assert_eq!(marks.scalable_rate(0.001), marks.scalable_rate(RTT_MIN_S));
    }

    #[test]
    fn start_up_ends_at_its_rate_and_the_share_of_later_marks_takes_over() {
        let mut marks = Marks::default();
        marks.end_start_up(true, 1000.0, 0.05, 1.0);
        let rate = marks.scalable_rate(0.05);
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
        assert!(!marks.heeds_equation);
        // Five time slots with a share of a tenth.
        count(&mut marks, 10, 5000);
        let rate = marks.scalable_rate(0.05);
        assert!((rate / 400.0 - 1.0).abs() < 0.05, "{rate}");
    }

    #[test]
    fn without_marks_nothing_but_the_equation_limits_the_rate() {
        let mut marks = Marks::default();
        marks.count(Ecn::L4s);
        marks.end_start_up(false, 1000.0, 0.05, 1.0);
        assert!(marks.heeds_equation && marks.scalable_rate(0.05) == f64::INFINITY);
    }
}
