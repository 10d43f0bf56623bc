//! ProbeBW: the cycle of probes for bandwidth (draft-ietf-ccwg-bbr section 5.3.3).

use manyflow_core::time::{Time, seconds};
use rand::RngExt;

use super::{AckPhase, Bbr3, State};
use crate::control::{Delivery, Moment};

/// The bound of the rounds between two probes, beside flows like Reno (section 5.3.3.8.3).
const ROUNDS_MAX: f64 = 63.0;
/// The shortest time between two probes in seconds, to which up to a second is added.
const WAIT_S: f64 = 2.0;
/// The bound of BBR.bw_probe_up_rounds.
const UP_ROUNDS_MAX: u32 = 30;

impl Bbr3 {
    /// UpdateProbeBWCyclePhase (section 5.3.3.9)
    pub(super) fn update_cycle(&mut self, moment: &Moment, delivery: &Delivery) {
        if !self.is_full_reached || self.adapt_long_term_model(delivery) {
            return;
        }
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(moment.now) => {
                self.start_refill();
            }
            State::Down if self.is_time_to_cruise(moment) => self.state = State::Cruise,
            State::Refill if self.rounds.has_begun => {
                self.is_probe_sample = true;
                self.start_up(delivery);
            }
            State::Up => self.watch_probe(moment, delivery),
            _ => {}
        }
    }

    /// Ends a probe when it is time.
    fn watch_probe(&mut self, moment: &Moment, delivery: &Delivery) {
        if self.is_time_to_go_down(moment, delivery) {
            self.was_probe_too_high = false;
            self.start_down(moment.now);
        }
    }

    /// StartProbeBW_DOWN
    pub(super) fn start_down(&mut self, now: Time) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_increase = f64::INFINITY;
        self.pick_wait();
        self.cycle_began = now;
        self.ack_phase = AckPhase::Stopping;
        self.rounds.begin(self.delivered);
        self.state = State::Down;
    }

    /// StartProbeBW_REFILL
    fn start_refill(&mut self) {
        self.reset_short_term_model();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0.0;
        self.was_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.rounds.begin(self.delivered);
        self.state = State::Refill;
    }

    /// StartProbeBW_UP
    fn start_up(&mut self, delivery: &Delivery) {
        self.ack_phase = AckPhase::Starting;
        self.rounds.begin(self.delivered);
        self.reset_full_pipe(delivery.segments_per_s);
        self.state = State::Up;
        self.raise_slope();
    }

    /// PickProbeWait (section 5.3.3.8.3)
    fn pick_wait(&mut self) {
        self.rounds_since_probe_up = self.random.random_range(0..=1);
        self.probe_wait_s = WAIT_S + self.random.random::<f64>();
    }

    /// IsTimeToProbeBW, by the clock, or as often as Reno would (section 5.3.3.8.3)
    fn is_time_to_probe(&self, now: Time) -> bool {
        let rounds = self.target_inflight().min(ROUNDS_MAX);
        now > self.cycle_began + seconds(self.probe_wait_s)
            || f64::from(self.rounds_since_probe_up) >= rounds
    }

    /// IsTimeToCruise
    fn is_time_to_cruise(&self, moment: &Moment) -> bool {
        let in_flight = f64::from(moment.in_flight);
        in_flight <= self.inflight_with_headroom() && in_flight <= self.max_bw_inflight()
    }

    /// IsTimeToGoDown
    fn is_time_to_go_down(&mut self, moment: &Moment, delivery: &Delivery) -> bool {
        let in_flight = f64::from(moment.in_flight);
        if self.was_probe_too_high && in_flight >= self.inflight_longterm {
            self.was_probe_precautionary = true;
            return true;
        }
        if self.rounds.is_window_limited() && self.window >= self.inflight_longterm {
            self.reset_full_pipe(delivery.segments_per_s);
            return false;
        }
        self.is_full_now
    }

    /// RaiseInflightLongtermSlope
    fn raise_slope(&mut self) {
        let growth = f64::from(1u32 << self.probe_up_rounds);
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(UP_ROUNDS_MAX);
        self.probe_up_acked_per_increase = (self.window / growth).max(1.0);
    }

    /// ProbeInflightLongtermUpward
    fn raise_inflight_longterm(&mut self, delivery: &Delivery) {
        if !self.rounds.is_window_limited() || self.window < self.inflight_longterm {
            return;
        }
        self.probe_up_acked += f64::from(delivery.segments);
        if self.probe_up_acked >= self.probe_up_acked_per_increase {
            let steps = libm::floor(self.probe_up_acked / self.probe_up_acked_per_increase);
            self.probe_up_acked -= steps * self.probe_up_acked_per_increase;
            self.inflight_longterm += steps;
        }
        if self.rounds.has_begun {
            self.raise_slope();
        }
    }

    /// AdaptLongTermModel. Returns whether it has changed the state.
    fn adapt_long_term_model(&mut self, delivery: &Delivery) -> bool {
        if self.ack_phase == AckPhase::Starting && self.rounds.has_begun {
            self.ack_phase = AckPhase::Feedback;
        }
        if self.ack_phase == AckPhase::Stopping && self.rounds.has_begun {
            self.is_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_in_probe_bw() {
                if !delivery.is_app_limited {
                    self.advance_max_bw_filter();
                }
                if self.was_probe_precautionary && !self.was_probe_too_high {
                    self.start_refill();
                    return true;
                }
            }
        }
        if !Bbr3::is_too_high(delivery) && self.inflight_longterm.is_finite() {
            let in_flight = f64::from(delivery.in_flight_at_send);
            self.inflight_longterm = self.inflight_longterm.max(in_flight);
            if self.state == State::Up {
                self.raise_inflight_longterm(delivery);
            }
        }
        false
    }
}
