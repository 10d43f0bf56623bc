//! The answers to losses (draft-ietf-ccwg-bbr section 5.5.10).

use super::{Bbr3, State};
use crate::control::{Delivery, Lost, Moment};

/// LossThresh: the largest share of losses that a probe tolerates (section 2.8).
const LOSS_MAX: f64 = 0.02;
/// Beta: the share that remains after a decrease (section 2.8).
const BETA: f64 = 0.7;

impl Bbr3 {
    /// IsInflightTooHigh (section 5.5.10.2)
    pub(super) fn is_too_high(delivery: &Delivery) -> bool {
        delivery.lost_since_send as f64 > f64::from(delivery.in_flight_at_send) * LOSS_MAX
    }

    /// UpdateLatestDeliverySignals (section 5.5.10.3)
    pub(super) fn update_latest_signals(&mut self, delivery: &Delivery) {
        let delivered = (delivery.total - delivery.total_at_send) as f64;
        self.bw_latest = self.bw_latest.max(delivery.segments_per_s);
        self.inflight_latest = self.inflight_latest.max(delivered);
        self.has_loss_round_begun = delivery.total_at_send >= self.loss_round_end;
        if self.has_loss_round_begun {
            self.loss_round_end = delivery.total;
        }
        self.losses_in_round += u32::from(delivery.newly_lost > 0);
    }

    /// AdvanceLatestDeliverySignals (section 5.5.10.3)
    pub(super) fn advance_latest_signals(&mut self, delivery: &Delivery) {
        if self.has_loss_round_begun {
            self.bw_latest = delivery.segments_per_s;
            self.inflight_latest = (delivery.total - delivery.total_at_send) as f64;
            self.losses_in_round = 0;
        }
    }

    /// ResetCongestionSignals (section 5.5.10.3)
    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    /// UpdateCongestionSignals, once in each round (section 5.5.10.3)
    pub(super) fn update_congestion_signals(&mut self, delivery: &Delivery) {
        self.update_max_bw(delivery);
        if !self.has_loss_round_begun {
            return;
        }
        let is_probing = matches!(self.state, State::Startup | State::Refill | State::Up);
        if self.is_loss_in_round && !is_probing {
            self.lower_short_term_bounds();
        }
        self.is_loss_in_round = false;
    }

    /// InitLowerBounds and LossLowerBounds (section 5.5.10.3)
    fn lower_short_term_bounds(&mut self) {
        if self.bw_shortterm.is_infinite() {
            self.bw_shortterm = self.max_bw();
        }
        if self.inflight_shortterm.is_infinite() {
            self.inflight_shortterm = self.window;
        }
        self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
        self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
    }

    /// ResetShortTermModel (section 5.5.10.3)
    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    /// HandleLostPacket (section 5.5.10.2)
    pub(super) fn handle_lost_segment(&mut self, moment: &Moment, lost: &Lost) {
        self.delivered = lost.total;
        if !self.is_loss_in_round {
            self.loss_round_end = lost.total;
            self.is_loss_in_round = true;
        }
        let (in_flight, losses) = (
            f64::from(lost.in_flight_at_send),
            lost.lost_since_send as f64,
        );
        if self.is_probe_sample && losses > in_flight * LOSS_MAX {
            let safe = inflight_at_loss(in_flight, losses);
            self.handle_inflight_too_high(moment, safe, lost.is_app_limited);
        }
    }

    /// HandleInflightTooHigh (section 5.5.10.2)
    fn handle_inflight_too_high(&mut self, moment: &Moment, in_flight: f64, is_app_limited: bool) {
        self.was_probe_too_high = true;
        self.is_probe_sample = false;
        if !is_app_limited {
            self.inflight_longterm = in_flight.max(BETA * self.target_inflight());
        }
        if self.state == State::Up {
            self.start_down(moment.now);
        }
    }

    /// TargetInflight (section 5.3.3.8.3)
    pub(super) fn target_inflight(&self) -> f64 {
        self.product(1.0).min(self.window)
    }
}

/// Returns how much was in flight when losses became too many: InflightAtLoss for a packet of one
/// segment (section 5.5.10.2).
fn inflight_at_loss(in_flight: f64, losses: f64) -> f64 {
    let (before, lost_before) = (in_flight - 1.0, losses - 1.0);
    let prefix = (LOSS_MAX * before - lost_before) / (1.0 - LOSS_MAX);
    before + prefix.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_become_too_many_within_the_segment_that_was_lost() {
        // One of 40 is more than 2 %, and 40 in flight were too many.
        let safe = inflight_at_loss(40.0, 1.0);
        assert!((39.0..40.0).contains(&safe), "{safe}");
        // Three of 100: the third was too many, and 99 were before it.
        assert_eq!(inflight_at_loss(100.0, 3.0), 99.0);
    }
}
