//! Start-up on a path that loses packets at random. This is not in RFC 3738, and part of the delay
//! check.
//!
//! The first loss ends start-up by the RFC's rules, and REQN is set to the rate at that time. On a
//! path with random loss, this rate is an accident: it may be a hundredth of what the equation
//! allows, and the loss filters take ten time slots to find that out.
//!
//! So losses without a queue do not end start-up. They are counted, LOSSP is the ratio of loss
//! events to packets since start-up began, and start-up ends when the equation forbids the next
//! join.

use super::context::Context;
use super::delay::DELAY_NOISE_S;
use super::running::Running;

/// Loss events that did not end start-up.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct EarlyLosses {
    events: u32,
    /// The packets before start-up began or resumed, received and lost.
    packets_before: u64,
}

impl EarlyLosses {
    /// Begins to count after `packets_before` packets.
    pub(super) fn after(packets_before: u64) -> EarlyLosses {
        EarlyLosses {
            events: 0,
            packets_before,
        }
    }
}

impl Running {
    /// Whether the packets that arrive have waited in no queue, so that a loss in start-up is not
    /// that of a full one. Jumps have their own rule for losses.
    pub(super) fn loses_without_queue(&self, context: &Context) -> bool {
        context.config.delay_check
            && !self.jump_is_open
            && self.delays.above_least_s() <= DELAY_NOISE_S
    }

    /// Counts a loss event that does not end start-up.
    pub(super) fn count_early_loss_event(&mut self, context: &Context) {
        self.early_losses.events += 1;
        let packets = context.packets() - self.early_losses.packets_before;
        let probability = f64::from(self.early_losses.events) / packets as f64;
        self.loss.reset(probability.min(1.0));
    }

    /// Whether the loss events of start-up forbid a rate of `after_join` packets per second.
    pub(super) fn early_losses_forbid(&self, context: &Context, after_join: f64) -> bool {
        let factor = context.config.equation_factor(&context.session);
        self.early_losses.events > 0 && factor * self.equation_rate(&context.config) < after_join
    }
}
