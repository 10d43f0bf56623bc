//! BBR version 3 (draft-ietf-ccwg-bbr, whose sections are given).
//!
//! As version 1, it paces at the rate at which the path delivers. Beyond that it has an upper bound
//! of the data in flight, which losses of more than 2 % in a probe lower (`inflight_longterm`), and
//! short-term bounds, which every round with a loss lowers until the next probe. It probes for
//! bandwidth every two to three seconds, or as often as Reno would on a short path.
//!
//! ```text
//!   Startup --> Drain --> Down --> Cruise --> Refill --> Up --+
//!     ^                     ^                                 |
//!     |                     +---------------------------------+
//!     +-- ProbeRTT: from any state, after 5 s without a lower round-trip time
//! ```
//!
//! Sizes are in segments, rates in segments per second. A name in capitals or with a prefix is the
//! draft's. `cycle.rs` has ProbeBW, `congestion.rs` the answers to losses, `limits.rs` the pacing
//! rate and the window.
//!
//! Deviations and choices:
//!
//! - The draft has no answer to ECN marks (section 3.7), and this file has none.
//! - Nothing is undone after a spurious recovery (section 5.5.11): receivers send no D-SACK, so the
//!   sender does not learn of one.
//! - Startup ends by losses if six acknowledgements of a round have shown some, as in Linux;
//!   section 5.3.1.3 counts ranges.
//! - Segments are paced one by one; the room for bursts in the window is there (section 5.5.8).

mod congestion;
mod cycle;
mod limits;

use manyflow_core::time::{Time, seconds};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::HEADER_BYTES;
use super::aggregation::{ExtraAcked, FullPipe};
use super::control::{Control, Delivery, Lost, Moment};
use super::delivery::Rounds;

/// MinRTTFilterLen in seconds (section 2.16.1).
const MINIMUM_RTT_S: f64 = 10.0;
/// ProbeRTTInterval and ProbeRTTDuration in seconds (section 2.16.2).
const PROBE_RTT_INTERVAL_S: f64 = 5.0;
const PROBE_RTT_S: f64 = 0.2;
/// The number of acknowledgements with losses in a round that end Startup (section 5.3.1.3).
const STARTUP_LOSSES: u32 = 6;
/// The rounds after which Drain ends without a drained queue (section 5.3.2).
const DRAIN_ROUNDS: u32 = 3;
/// ExtraAckedFilterLen in rounds (section 2.12).
const EXTRA_ACKED_ROUNDS: u32 = 10;

/// BBR.state (section 3.3)
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Doubles the rate in each round.
    Startup,
    /// Drains the queue that Startup has left.
    Drain,
    /// ProbeBW: sends a little slower, until there is room for others.
    Down,
    /// ProbeBW: sends at the bandwidth.
    Cruise,
    /// ProbeBW: fills the pipe for a round, before it probes.
    Refill,
    /// ProbeBW: sends faster, to find more bandwidth.
    Up,
    /// Keeps half of the bandwidth-delay product in flight, to measure the round-trip time.
    ProbeRtt,
}

/// BBR.ack_phase: what acknowledgements say about a probe (section 2.14).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum AckPhase {
    /// ACKS_INIT: there is no probe.
    Init,
    /// ACKS_REFILLING: those of Refill.
    Refilling,
    /// ACKS_PROBE_STARTING: the probe has begun; acknowledgements are of segments before it.
    Starting,
    /// ACKS_PROBE_FEEDBACK: those of the probe.
    Feedback,
    /// ACKS_PROBE_STOPPING: the probe has ended; acknowledgements are still of its segments.
    Stopping,
}

/// The control of one connection.
#[derive(Debug)]
pub(super) struct Bbr3 {
    random: Pcg64Mcg,
    state: State,
    rounds: Rounds,
    /// BBR.max_bw_filter: the maximum of the previous cycle of ProbeBW, and of this one.
    max_bw: [f64; 2],
    /// BBR.bw_shortterm and BBR.inflight_shortterm; infinite if not set.
    bw_shortterm: f64,
    inflight_shortterm: f64,
    /// BBR.inflight_longterm; infinite if not set.
    inflight_longterm: f64,
    /// BBR.bw_latest and BBR.inflight_latest
    bw_latest: f64,
    inflight_latest: f64,
    /// BBR.loss_round_delivered and BBR.loss_round_start
    loss_round_end: u64,
    has_loss_round_begun: bool,
    /// BBR.is_loss_in_round
    is_loss_in_round: bool,
    /// The number of acknowledgements of this round that have shown losses.
    losses_in_round: u32,
    /// The round in which the present recovery began.
    recovery_round: Option<u32>,
    /// BBR.min_rtt in seconds, infinite before the first sample, and BBR.min_rtt_stamp.
    min_rtt_s: f64,
    min_rtt_at: Time,
    /// BBR.probe_rtt_min_delay in seconds and BBR.probe_rtt_min_stamp
    probe_rtt_min_s: f64,
    probe_rtt_min_at: Time,
    is_probe_rtt_expired: bool,
    /// BBR.probe_rtt_done_stamp and BBR.probe_rtt_round_done
    probe_rtt_done: Option<Time>,
    is_probe_rtt_round_done: bool,
    is_idle_restart: bool,
    full_pipe: FullPipe,
    /// BBR.full_bw_now and BBR.full_bw_reached
    is_full_now: bool,
    is_full_reached: bool,
    drain_round: u32,
    ack_phase: AckPhase,
    is_probe_sample: bool,
    /// BBR.prev_probe_too_high and BBR.prev_probe_precautionary
    was_probe_too_high: bool,
    was_probe_precautionary: bool,
    /// BBR.bw_probe_up_acked, BBR.probe_up_acked_per_inc and BBR.bw_probe_up_rounds
    probe_up_acked: f64,
    probe_up_acked_per_increase: f64,
    probe_up_rounds: u32,
    rounds_since_probe_up: u32,
    /// BBR.bw_probe_wait in seconds, from BBR.cycle_stamp on.
    probe_wait_s: f64,
    cycle_began: Time,
    extra_acked: ExtraAcked,
    /// C.delivered
    delivered: u64,
    initial_window: f64,
    /// C.cwnd and BBR.prior_cwnd
    window: f64,
    prior_window: f64,
    /// C.pacing_rate
    rate: f64,
    has_rtt: bool,
    is_recovery: bool,
    /// The payload of a segment in bytes, and its bits with headers; 0 before the first delivery.
    segment_bytes: f64,
    packet_bits: f64,
}

impl Bbr3 {
    /// Creates the control of a connection with an initial window in segments (section 5.2.1).
    /// `seed` decides when it probes.
    pub(super) fn new(initial_window: f64, seed: u64) -> Bbr3 {
        Bbr3 {
            random: Pcg64Mcg::seed_from_u64(!seed),
            state: State::Startup,
            rounds: Rounds::default(),
            max_bw: [0.0; 2],
            bw_shortterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            loss_round_end: 0,
            has_loss_round_begun: false,
            is_loss_in_round: false,
            losses_in_round: 0,
            recovery_round: None,
            min_rtt_s: f64::INFINITY,
            min_rtt_at: Time::ZERO,
            probe_rtt_min_s: f64::INFINITY,
            probe_rtt_min_at: Time::ZERO,
            is_probe_rtt_expired: false,
            probe_rtt_done: None,
            is_probe_rtt_round_done: false,
            is_idle_restart: false,
            full_pipe: FullPipe::default(),
            is_full_now: false,
            is_full_reached: false,
            drain_round: 0,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            was_probe_too_high: false,
            was_probe_precautionary: false,
            probe_up_acked: 0.0,
            probe_up_acked_per_increase: f64::INFINITY,
            probe_up_rounds: 0,
            rounds_since_probe_up: 0,
            probe_wait_s: 0.0,
            cycle_began: Time::ZERO,
            extra_acked: ExtraAcked::new(1),
            delivered: 0,
            initial_window,
            window: initial_window,
            prior_window: 0.0,
            rate: limits::initial_rate(initial_window, limits::NOMINAL_RTT_S),
            has_rtt: false,
            is_recovery: false,
            segment_bytes: 0.0,
            packet_bits: 0.0,
        }
    }

    /// Returns BBR.max_bw.
    fn max_bw(&self) -> f64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// Returns BBR.bw (section 5.5.10.3, BoundBWForModel).
    fn bw(&self) -> f64 {
        self.max_bw().min(self.bw_shortterm)
    }

    fn is_in_probe_bw(&self) -> bool {
        use State::{Cruise, Down, Refill, Up};
        matches!(self.state, Down | Cruise | Refill | Up)
    }

    /// Updates the round and BBR.max_bw (sections 5.5.1 and 5.5.5).
    fn update_max_bw(&mut self, delivery: &Delivery) {
        self.rounds.update(delivery);
        if self.rounds.has_begun {
            self.rounds_since_probe_up += 1;
        }
        let sample = delivery.segments_per_s;
        if sample > 0.0 && (sample >= self.max_bw() || !delivery.is_app_limited) {
            self.max_bw[1] = self.max_bw[1].max(sample);
        }
    }

    /// Forgets the maximum of the cycle before the last (section 5.5.6). A cycle without a sample
    /// does not count.
    fn advance_max_bw_filter(&mut self) {
        if self.max_bw[1] > 0.0 {
            self.max_bw = [self.max_bw[1], 0.0];
        }
    }

    fn update_extra_acked(&mut self, now: Time, delivery: &Delivery) {
        if self.is_full_reached {
            self.extra_acked.remember(EXTRA_ACKED_ROUNDS);
        }
        let (bw, round) = (self.bw(), self.rounds.count);
        self.extra_acked
            .update(now, delivery, bw, self.window, round);
    }

    /// Checks whether the bandwidth has stopped growing (section 5.3.1.2).
    fn check_full_pipe(&mut self, delivery: &Delivery) {
        if self.is_full_now || !self.rounds.has_begun || delivery.is_app_limited {
            return;
        }
        self.is_full_now = self.full_pipe.update(delivery.segments_per_s);
        self.is_full_reached |= self.is_full_now;
    }

    fn reset_full_pipe(&mut self, segments_per_s: f64) {
        self.full_pipe = FullPipe::from_baseline(segments_per_s);
        self.is_full_now = false;
    }

    /// Ends Startup when the pipe is full, or losses show it (sections 5.3.1.1 and 5.3.1.3).
    fn check_startup_done(&mut self, delivery: &Delivery) {
        if self.state != State::Startup {
            return;
        }
        let is_long = self
            .recovery_round
            .is_some_and(|round| self.rounds.count > round);
        let has_losses = self.losses_in_round >= STARTUP_LOSSES;
        if !self.is_full_reached && is_long && has_losses && Bbr3::is_too_high(delivery) {
            self.is_full_reached = true;
            self.is_full_now = true;
            self.inflight_longterm = self.product(1.0).max(self.inflight_latest);
        }
        if self.is_full_reached {
            self.state = State::Drain;
            self.drain_round = self.rounds.count;
        }
    }

    /// Ends Drain when the queue is drained, or after three rounds (section 5.3.2).
    fn check_drain_done(&mut self, moment: &Moment) {
        let is_drained = f64::from(moment.in_flight) <= self.inflight(1.0);
        let is_late = self.rounds.count > self.drain_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (is_drained || is_late) {
            self.start_down(moment.now);
        }
    }

    /// Updates both estimates of the round-trip time (section 5.3.4.3).
    fn update_min_rtt(&mut self, now: Time, rtt_s: f64) {
        self.is_probe_rtt_expired = now > self.probe_rtt_min_at + seconds(PROBE_RTT_INTERVAL_S);
        if rtt_s > 0.0 && (rtt_s < self.probe_rtt_min_s || self.is_probe_rtt_expired) {
            self.probe_rtt_min_s = rtt_s;
            self.probe_rtt_min_at = now;
        }
        let is_expired = now > self.min_rtt_at + seconds(MINIMUM_RTT_S);
        if self.probe_rtt_min_s < self.min_rtt_s || is_expired {
            self.min_rtt_s = self.probe_rtt_min_s;
            self.min_rtt_at = self.probe_rtt_min_at;
        }
    }

    /// Enters, holds and leaves ProbeRTT (section 5.3.4.3).
    fn check_probe_rtt(&mut self, moment: &Moment) {
        let is_due = self.is_probe_rtt_expired && !self.is_idle_restart;
        if self.state != State::ProbeRtt && is_due {
            self.save_window();
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::Stopping;
            self.rounds.begin(self.delivered);
        }
        if self.state == State::ProbeRtt {
            self.hold_probe_rtt(moment);
        }
        self.is_idle_restart = false;
    }

    fn hold_probe_rtt(&mut self, moment: &Moment) {
        if self.probe_rtt_done.is_some() {
            self.is_probe_rtt_round_done |= self.rounds.has_begun;
            if self.is_probe_rtt_round_done {
                self.check_probe_rtt_done(moment.now);
            }
        } else if f64::from(moment.in_flight) <= self.probe_rtt_window() {
            self.probe_rtt_done = Some(moment.now + seconds(PROBE_RTT_S));
            self.is_probe_rtt_round_done = false;
            self.rounds.begin(self.delivered);
        }
    }

    /// Leaves ProbeRTT after its time (section 5.3.4.4).
    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.probe_rtt_min_at = now;
        self.restore_window();
        self.reset_short_term_model();
        if self.is_full_reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn save_window(&mut self) {
        self.prior_window = match self.is_recovery || self.state == State::ProbeRtt {
            true => self.prior_window.max(self.window),
            false => self.window,
        };
    }

    fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }
}

impl Control for Bbr3 {
    fn on_ack(&mut self, _moment: &Moment) {}

    fn on_loss(&mut self, _moment: &Moment) {
        self.save_window();
        self.is_recovery = true;
        self.recovery_round = Some(self.rounds.count);
    }

    fn on_timeout(&mut self, _moment: &Moment) {
        self.save_window();
        self.is_recovery = true;
        self.window = 1.0;
    }

    fn on_recovered(&mut self, _moment: &Moment) {
        self.is_recovery = false;
        self.recovery_round = None;
        self.restore_window();
    }

    /// HandleRestartFromIdle (section 5.4.1)
    fn on_restart(&mut self, moment: &Moment) {
        self.is_idle_restart = true;
        self.extra_acked.restart(moment.now);
        if self.is_in_probe_bw() {
            self.set_rate(1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(moment.now);
        }
    }

    fn on_lost_segment(&mut self, moment: &Moment, lost: &Lost) {
        self.handle_lost_segment(moment, lost);
    }

    /// UpdateOnACK (section 5.2.3)
    fn on_delivery(&mut self, moment: &Moment, delivery: &Delivery) {
        let now = moment.now;
        self.delivered = delivery.total;
        self.segment_bytes = moment.segment_bytes.into();
        self.packet_bits = f64::from(8 * (moment.segment_bytes + HEADER_BYTES));
        self.update_latest_signals(delivery);
        self.update_congestion_signals(delivery);
        self.update_extra_acked(now, delivery);
        self.check_full_pipe(delivery);
        self.check_startup_done(delivery);
        self.check_drain_done(moment);
        self.update_cycle(moment, delivery);
        self.update_min_rtt(now, delivery.rtt_s);
        self.check_probe_rtt(moment);
        self.advance_latest_signals(delivery);
        self.set_initial_rate(delivery.rtt_s);
        self.set_rate(self.pacing_gain());
        self.set_window(delivery);
        debug_assert!(
            self.window >= limits::WINDOW_MIN,
            "BBR keeps four segments in flight"
        );
        debug_assert!(
            self.bw() <= self.max_bw(),
            "the short-term model only lowers"
        );
    }

    fn measures_deliveries(&self) -> bool {
        true
    }

    fn holds_back(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn window_segments(&self) -> f64 {
        self.window
    }

    fn rate_bits_per_s(&self) -> Option<f64> {
        (self.packet_bits > 0.0).then_some(self.rate * self.packet_bits)
    }
}

#[cfg(test)]
mod tests;
