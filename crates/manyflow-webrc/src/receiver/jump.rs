//! Jumps: in start-up, a receiver joins several waves at once, up to half of the rate that packet
//! trains have shown. An option that is not in RFC 3738 (`trains.rs`).
//!
//! A train shows the capacity even if a TCP uses all of it. So the first jump goes to an eighth of
//! the rate shown, each further one at most doubles the rate, and none follows a jump that made a
//! queue grow.
//!
//! A jump is one join for the rules of start-up. The first packet of its highest wave is that of
//! the join and gives the round-trip time, since the highest wave has the shortest packet spacing.
//! Until a full epoch has passed after that packet, the average rate TRR says nothing about the
//! jump. Start-up waits for that epoch, and TRR then starts from its rate.
//!
//! The trains may have shown too much. A loss before the epoch is over ends start-up and leaves the
//! waves above half of the jump's rate. A shortfall leaves the waves above the rate that arrives.

use super::context::Context;
use super::delay::DELAY_NOISE_S;
use super::running::Running;
use crate::SlowStartEnd;
use manyflow_core::time::Time;

/// The part of the rate shown to which a receiver jumps first.
const FIRST_PART: f64 = 0.125;
/// The part of the rate shown up to which a receiver jumps. It leaves room for what hosts and token
/// buckets make the trains show in excess.
const LAST_PART: f64 = 0.5;
/// The factor by which a jump raises the rate, except the first.
const GROWTH_MAX: f64 = 2.0;
/// The number of waves at the top that a jump does not join: their rates are shaped, so that the
/// first packet of the highest may take most of a slot (`wave.rs`).
const SHAPED_WAVES: u32 = 2;

impl Running {
    /// Registers a packet of the base channel, which may complete a train.
    pub(super) fn on_train_packet(&mut self, context: &mut Context, psn: u32) {
        let arrived = context.arrived;
        let shown = self.dispersion.on_packet(arrived, psn, &context.session);
        if let Some(packets_per_s) = shown {
            context.report_train(packets_per_s);
        }
    }

    /// Returns the number of waves to which the receiver may jump, and the rate at which it then
    /// receives; `None` if it may join only the next wave.
    pub(super) fn jump_target(&self, context: &Context, now: Time) -> Option<(u32, f64)> {
        let session = &context.session;
        let may_jump = self.in_start_up() && !self.jumps_are_over;
        let shown = self.dispersion.lowest().filter(|_| may_jump)?;
        let phase = self.timeline.position(now, session).clamp(0.0, 1.0);
        let joined = self.waves.len() as u32;
        let limit = (GROWTH_MAX * session.subscribed_rate(joined, phase))
            .max(FIRST_PART * shown)
            .min(LAST_PART * shown)
            .min(context.maximum_rate())
            .min(session.session_rate());
        let highest = session.active_slots().saturating_sub(SHAPED_WAVES);
        (joined + 2..=highest)
            .rev()
            .map(|waves| (waves, session.subscribed_rate(waves, phase)))
            .find(|(_, rate)| *rate <= limit)
    }

    /// Joins the waves up to `waves`, which together have this rate, in packets per second.
    pub(super) fn jump(&mut self, context: &mut Context, now: Time, waves: u32, rate: f64) {
        while (self.waves.len() as u32) < waves {
            self.join(context, now);
        }
        // The base channel arrives in bursts, so multiples of its measured rate would be far off.
        self.rates.arr = rate;
        self.jump_is_open = true;
    }

    /// Whether the rate of a jump has not been measured yet.
    pub(super) fn waits_for_jump(&self) -> bool {
        self.jump_is_open && (self.joining.is_some() || self.epochs_since_first < 2)
    }

    /// Starts TRR from the rate of the first full epoch after a jump. Allows no more jumps if
    /// packets are later than before it, by more than two packets take at the rate shown.
    pub(super) fn measure_jump(&mut self) {
        if !self.jump_is_open || self.waits_for_jump() {
            return;
        }
        self.rates.trr = self.rates.rr;
        let two_packets_s = self.dispersion.lowest().map_or(0.0, |shown| 2.0 / shown);
        if self.delays.rise_s() > DELAY_NOISE_S.max(two_packets_s) {
            self.jumps_are_over = true;
        }
    }

    /// Leaves the waves of an open jump that are too much for the path, as start-up ends.
    pub(super) fn leave_jump(&mut self, context: &mut Context, why: SlowStartEnd) {
        let is_measured = !self.waits_for_jump();
        self.jump_is_open = false;
        let limit = match (why, is_measured) {
            (SlowStartEnd::MaximumRate, _) => return,
            (_, true) => self.rates.trr,
            (_, false) => self.rates.arr / 2.0,
        };
        while self.rates.arr > limit
            && let Some(number) = self.drop_highest_wave(&context.session)
        {
            context.leave(number);
        }
        if !is_measured {
            self.rates.trr = self.rates.arr;
        }
    }
}
