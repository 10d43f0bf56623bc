//! Start-up goes on after losses that had nothing to do with the receiver's rate. This is not in
//! RFC 3738, and part of the delay check.
//!
//! The first loss ends start-up. If it was not a loss of a full queue, the rate is then far below
//! the path's. Examples are random loss, and a bridge that floods other sessions' packets until it
//! has heard a query. By the RFC's rules, the receiver comes back as fast as its loss filters
//! forget.
//!
//! So start-up resumes if a whole time slot passes without a loss event, and packets then take no
//! longer than the fastest took: there is no queue. Start-up resumes only once, because a second
//! end by loss makes the first one credible.

use super::context::Context;
use super::delay::DELAY_NOISE_S;
use super::lossy::EarlyLosses;
use super::running::Running;
use crate::Event;
use manyflow_core::time::Time;

/// Whether start-up may resume.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Resumption {
    /// Start-up has not ended for the first time.
    NotEnded,
    /// Start-up has ended by loss, and may resume.
    Possible,
    /// Start-up has resumed, or ended for another reason than loss.
    Over,
}

impl Running {
    /// Resumes start-up if the losses that ended it were not those of a full queue.
    pub(super) fn resume_start_up_if_due(&mut self, context: &mut Context, now: Time) {
        let time_slot = context.session.config().time_slot;
        if self.resumption != Resumption::Possible
            || now < self.loss_event_until + time_slot
            || self.delays.above_least_s() > DELAY_NOISE_S
        {
            return;
        }
        self.resumption = Resumption::Over;
        self.slow_start_rate = f64::INFINITY;
        self.early_losses = EarlyLosses::after(context.packets());
        context.events.push_back(Event::SlowStartResumed);
    }

    /// Decides at an end of start-up whether it may resume.
    pub(super) fn allow_resumption(&mut self, context: &Context, by_loss: bool) {
        let is_first = self.resumption == Resumption::NotEnded;
        self.resumption = match is_first && by_loss && context.config.delay_check {
            true => Resumption::Possible,
            false => Resumption::Over,
        };
    }
}
