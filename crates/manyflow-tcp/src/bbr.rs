//! BBR version 1: sends at the rate at which the path delivers, and keeps twice the
//! bandwidth-delay product in flight at most.
//!
//! Sources: Cardwell and others, "BBR: Congestion-Based Congestion Control" (2016), and
//! draft-cardwell-iccrg-bbr-congestion-control-00, whose sections are given; what Linux has added
//! since is named. Sizes are in segments, rates in segments per second.
//!
//! ```text
//!   Startup ----> Drain ----> ProbeBW: 1.25, 0.75, then six times 1
//!      ^                       ^   |
//!      +------ ProbeRTT -------+<--+  after 10 s without a lower round-trip time
//! ```
//!
//! Deviations and choices:
//!
//! - Linux's model of token bucket policers (`lt_bw`) is left out: it answers to losses of a fifth
//!   or more.
//! - Segments are paced one by one. Linux sends up to a millisecond's worth at once; the room in
//!   the window for that is there (section 4.2.3, as Linux computes it).
//! - The window is reduced during recovery as in Linux: one segment out for each delivered, in the
//!   first round.

use manyflow_core::time::{Time, seconds};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::HEADER_BYTES;
use super::aggregation::{ExtraAcked, FullPipe};
use super::control::{Control, Delivery, Moment};
use super::delivery::Rounds;
use super::filter::WindowedMaximum;

/// BBRHighGain, 2/ln 2: the smallest gain with which the rate doubles in each round (section
/// 4.3.2).
const HIGH_GAIN: f64 = 2.885;
/// The gains of ProbeBW's phases (section 4.3.4).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The gain of the window in ProbeBW: room for acknowledgements that are delayed (section 4.2.3).
const WINDOW_GAIN: f64 = 2.0;
/// BtlBwFilterLen in rounds (section 4.1.1).
const BANDWIDTH_ROUNDS: u32 = 10;
/// RTpropFilterLen in seconds (section 4.1.2).
const MINIMUM_RTT_S: f64 = 10.0;
/// ProbeRTTDuration in seconds (section 4.3.5).
const PROBE_RTT_S: f64 = 0.2;
/// BBRMinPipeCwnd in segments (section 4.2.3).
const WINDOW_MIN: f64 = 4.0;
/// The share of the bandwidth that is paced at, so that queues drain on average (Linux).
const PACING_MARGIN: f64 = 0.99;
/// The round-trip time that is assumed before the first sample, in seconds (section 4.2.1).
const NOMINAL_RTT_S: f64 = 0.001;
/// The time whose bunched acknowledgements may enlarge the window, in seconds (Linux).
const EXTRA_ACKED_S: f64 = 0.1;
/// The rounds over which bunched acknowledgements are remembered (Linux: 5 to 10).
const EXTRA_ACKED_ROUNDS: u32 = 10;
/// The rate in bits per second below which segments are not sent in pairs (Linux).
const PAIRS_BITS_PER_S: f64 = 1.2e6;

/// The state of the connection (section 4.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Doubles the rate in each round, until the bandwidth stops growing.
    Startup,
    /// Drains the queue that Startup has left.
    Drain,
    /// Cycles through gains. `phase` is the place in [`CYCLE`].
    ProbeBw { phase: usize },
    /// Keeps four segments in flight, so that the queue drains and the round-trip time shows.
    ProbeRtt,
}

/// The control of one connection.
#[derive(Debug)]
pub(super) struct Bbr {
    random: Pcg64Mcg,
    state: State,
    rounds: Rounds,
    /// BtlBw
    bandwidth: WindowedMaximum,
    /// RTprop in seconds, and the time at which it was measured; infinite before the first sample.
    minimum_rtt_s: f64,
    minimum_rtt_at: Time,
    full_pipe: FullPipe,
    is_pipe_full: bool,
    extra_acked: ExtraAcked,
    /// The beginning of ProbeBW's phase.
    phase_began: Time,
    /// The end of ProbeRTT, once four segments are in flight.
    probe_rtt_done: Option<Time>,
    is_probe_rtt_round_done: bool,
    is_idle_restart: bool,
    initial_window: f64,
    window: f64,
    /// The window before ProbeRTT or a recovery.
    prior_window: f64,
    was_recovery: bool,
    /// Whether only one segment is sent for each delivered: the first round of a recovery.
    is_conserving: bool,
    /// The rate of pacing.
    rate: f64,
    has_rtt: bool,
    /// The bits of a segment with its headers.
    packet_bits: f64,
}

impl Bbr {
    /// Creates the control of a connection with an initial window in segments. `seed` decides in
    /// which phases its cycles begin.
    pub(super) fn new(initial_window: f64, seed: u64) -> Bbr {
        Bbr {
            random: Pcg64Mcg::seed_from_u64(!seed),
            state: State::Startup,
            rounds: Rounds::default(),
            bandwidth: WindowedMaximum::new(BANDWIDTH_ROUNDS),
            minimum_rtt_s: f64::INFINITY,
            minimum_rtt_at: Time::ZERO,
            full_pipe: FullPipe::default(),
            is_pipe_full: false,
            extra_acked: ExtraAcked::new(EXTRA_ACKED_ROUNDS),
            phase_began: Time::ZERO,
            probe_rtt_done: None,
            is_probe_rtt_round_done: false,
            is_idle_restart: false,
            initial_window,
            window: initial_window,
            prior_window: 0.0,
            was_recovery: false,
            is_conserving: false,
            rate: HIGH_GAIN * initial_window / NOMINAL_RTT_S,
            has_rtt: false,
            packet_bits: 0.0,
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => HIGH_GAIN,
            State::Drain => 1.0 / HIGH_GAIN,
            State::ProbeBw { phase } => CYCLE[phase],
            State::ProbeRtt => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.state {
            State::Startup | State::Drain => HIGH_GAIN,
            State::ProbeBw { .. } => WINDOW_GAIN,
            State::ProbeRtt => 1.0,
        }
    }

    /// Returns `gain` times the bandwidth-delay product, with room for bursts (section 4.2.3).
    fn inflight(&self, gain: f64) -> f64 {
        self.with_quanta(self.product(gain))
    }

    fn product(&self, gain: f64) -> f64 {
        match self.minimum_rtt_s.is_finite() {
            true => libm::ceil(gain * self.bandwidth.maximum() * self.minimum_rtt_s),
            false => self.initial_window,
        }
    }

    /// Adds room for three bursts, one in each of the sending host's queue, its interface and the
    /// receiving host (Linux: `bbr_quantization_budget`).
    fn with_quanta(&self, segments: f64) -> f64 {
        let pair = match self.rate * self.packet_bits < PAIRS_BITS_PER_S {
            true => 1.0,
            false => 2.0,
        };
        let burst = libm::floor(self.rate / 1024.0).clamp(pair, 127.0);
        let even = 2.0 * libm::ceil((segments + 3.0 * burst) / 2.0);
        match self.state {
            State::ProbeBw { phase: 0 } => even + 2.0,
            _ => even,
        }
    }

    /// Updates BtlBw (section 4.1.1).
    fn update_bandwidth(&mut self, delivery: &Delivery) {
        self.rounds.update(delivery);
        if self.rounds.has_begun {
            self.is_conserving = false;
        }
        let sample = delivery.segments_per_s;
        if sample > 0.0 && (!delivery.is_app_limited || sample >= self.bandwidth.maximum()) {
            self.bandwidth.add(self.rounds.count, sample);
        }
    }

    /// Advances ProbeBW's cycle (section 4.3.4).
    fn update_phase(&mut self, now: Time, delivery: &Delivery) {
        let State::ProbeBw { phase } = self.state else {
            return;
        };
        let is_long = (now - self.phase_began).as_secs_f64() > self.minimum_rtt_s;
        let in_flight = f64::from(delivery.in_flight_before);
        let gain = CYCLE[phase];
        let is_over = if gain > 1.0 {
            is_long && (delivery.newly_lost > 0 || in_flight >= self.inflight(gain))
        } else if gain < 1.0 {
            is_long || in_flight <= self.inflight(1.0)
        } else {
            is_long
        };
        if is_over {
            self.begin_phase(now, (phase + 1) % CYCLE.len());
        }
    }

    fn begin_phase(&mut self, now: Time, phase: usize) {
        self.state = State::ProbeBw { phase };
        self.phase_began = now;
    }

    /// Enters ProbeBW in a random phase, except that of the lower rate (section 4.3.4).
    fn enter_probe_bw(&mut self, now: Time) {
        let back = self.random.random_range(0..CYCLE.len() - 1);
        self.begin_phase(now, (CYCLE.len() - back) % CYCLE.len());
    }

    fn check_pipe(&mut self, now: Time, moment: &Moment, delivery: &Delivery) {
        if !self.is_pipe_full && self.rounds.has_begun && !delivery.is_app_limited {
            self.is_pipe_full = self.full_pipe.update(self.bandwidth.maximum());
        }
        if self.state == State::Startup && self.is_pipe_full {
            self.state = State::Drain;
        }
        if self.state == State::Drain && f64::from(moment.in_flight) <= self.inflight(1.0) {
            self.enter_probe_bw(now);
        }
    }

    /// Updates RTprop, and enters ProbeRTT when it has expired (sections 4.1.2 and 4.3.5).
    fn update_minimum_rtt(&mut self, now: Time, delivery: &Delivery) {
        let is_expired = now > self.minimum_rtt_at + seconds(MINIMUM_RTT_S);
        if delivery.rtt_s > 0.0 && (delivery.rtt_s <= self.minimum_rtt_s || is_expired) {
            self.minimum_rtt_s = delivery.rtt_s;
            self.minimum_rtt_at = now;
        }
        if is_expired && !self.is_idle_restart && self.state != State::ProbeRtt {
            self.state = State::ProbeRtt;
            self.save_window();
            self.probe_rtt_done = None;
        }
        self.is_idle_restart = false;
    }

    fn hold_probe_rtt(&mut self, now: Time, moment: &Moment, delivery: &Delivery) {
        if self.state != State::ProbeRtt {
            return;
        }
        if self.probe_rtt_done.is_some() {
            self.is_probe_rtt_round_done |= self.rounds.has_begun;
            if self.is_probe_rtt_round_done {
                self.check_probe_rtt_done(now);
            }
        } else if f64::from(moment.in_flight) <= WINDOW_MIN {
            self.probe_rtt_done = Some(now + seconds(PROBE_RTT_S));
            self.is_probe_rtt_round_done = false;
            self.rounds.begin(delivery.total);
        }
    }

    fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.minimum_rtt_at = now;
        self.window = self.window.max(self.prior_window);
        match self.is_pipe_full {
            true => self.enter_probe_bw(now),
            false => self.state = State::Startup,
        }
    }

    fn save_window(&mut self) {
        self.prior_window = match self.was_recovery || self.state == State::ProbeRtt {
            true => self.prior_window.max(self.window),
            false => self.window,
        };
    }

    /// Sets the rate of pacing (section 4.2.1).
    fn set_rate(&mut self, gain: f64, rtt_s: f64) {
        if !self.has_rtt && rtt_s > 0.0 {
            self.has_rtt = true;
            self.rate = PACING_MARGIN * HIGH_GAIN * self.initial_window / rtt_s;
        }
        let rate = gain * self.bandwidth.maximum() * PACING_MARGIN;
        if self.is_pipe_full || rate > self.rate {
            self.rate = rate;
        }
    }

    /// Sets the window (section 4.2.3).
    fn set_window(&mut self, moment: &Moment, delivery: &Delivery) {
        let acked = f64::from(delivery.segments);
        if !self.is_recovering(moment, delivery) {
            let extra = match self.is_pipe_full {
                true => {
                    let limit = self.bandwidth.maximum() * EXTRA_ACKED_S;
                    self.extra_acked.segments().min(limit)
                }
                false => 0.0,
            };
            let target = self.with_quanta(self.product(self.window_gain()) + extra);
            if self.is_pipe_full {
                self.window = (self.window + acked).min(target);
            } else if self.window < target || (delivery.total as f64) < self.initial_window {
                self.window += acked;
            }
            self.window = self.window.max(WINDOW_MIN);
        }
        if self.state == State::ProbeRtt {
            self.window = self.window.min(WINDOW_MIN);
        }
    }

    /// Modulates the window for a recovery (section 4.2.3). Returns whether segments are conserved.
    fn is_recovering(&mut self, moment: &Moment, delivery: &Delivery) -> bool {
        let conserved = f64::from(moment.in_flight + delivery.segments);
        self.window = (self.window - f64::from(delivery.newly_lost)).max(1.0);
        if delivery.is_recovery && !self.was_recovery {
            self.is_conserving = true;
            self.rounds.begin(delivery.total);
            self.window = conserved;
        } else if self.was_recovery && !delivery.is_recovery {
            self.is_conserving = false;
            self.window = self.window.max(self.prior_window);
        }
        self.was_recovery = delivery.is_recovery;
        if self.is_conserving {
            self.window = self.window.max(conserved);
        }
        self.is_conserving
    }
}

impl Control for Bbr {
    fn on_ack(&mut self, _moment: &Moment) {}

    fn on_loss(&mut self, _moment: &Moment) {
        self.save_window();
    }

    fn on_timeout(&mut self, _moment: &Moment) {
        self.save_window();
        self.was_recovery = true;
        self.is_conserving = false;
        self.full_pipe = FullPipe::default();
        self.window = 1.0;
    }

    fn on_restart(&mut self, moment: &Moment) {
        self.is_idle_restart = true;
        self.extra_acked.restart(moment.now);
        match self.state {
            State::ProbeBw { .. } => self.set_rate(1.0, 0.0),
            State::ProbeRtt => self.check_probe_rtt_done(moment.now),
            State::Startup | State::Drain => {}
        }
    }

    fn on_delivery(&mut self, moment: &Moment, delivery: &Delivery) {
        let now = moment.now;
        self.packet_bits = f64::from(8 * (moment.segment_bytes + HEADER_BYTES));
        self.update_bandwidth(delivery);
        let (rate, round) = (self.bandwidth.maximum(), self.rounds.count);
        self.extra_acked
            .update(now, delivery, rate, self.window, round);
        self.update_phase(now, delivery);
        self.check_pipe(now, moment, delivery);
        self.update_minimum_rtt(now, delivery);
        self.hold_probe_rtt(now, moment, delivery);
        self.set_rate(self.pacing_gain(), delivery.rtt_s);
        self.set_window(moment, delivery);
        debug_assert!(self.window >= 1.0, "BBR always sends");
        debug_assert!(self.rate > 0.0, "BBR always paces");
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
mod tests {
    use super::*;
    use crate::delivery::rounds::Path;

    /// A path of 50 ms, and the control of a connection on it that has found 1000 segments/s.
    fn in_drain() -> (Bbr, Path) {
        let mut bbr = Bbr::new(10.0, 1);
        let mut path = Path {
            rtt_s: 0.05,
            in_flight: 500,
            ..Path::default()
        };
        for rate in [250.0, 500.0, 1000.0, 1000.0, 1000.0] {
            path.round(&mut bbr, rate);
            assert_eq!(bbr.state, State::Startup);
        }
        path.round(&mut bbr, 1000.0);
        (bbr, path)
    }

    #[test]
    fn startup_ends_after_three_rounds_without_growth_and_drain_with_an_empty_queue() {
        let (mut bbr, mut path) = in_drain();
        assert_eq!(
            (bbr.state, bbr.pacing_gain()),
            (State::Drain, 1.0 / HIGH_GAIN)
        );
        path.round(&mut bbr, 1000.0);
        assert_eq!(bbr.state, State::Drain);
        // The bandwidth-delay product is 50; three bursts of two segments are added.
        path.in_flight = 56;
        path.round(&mut bbr, 1000.0);
        assert!(matches!(bbr.state, State::ProbeBw { .. }), "{bbr:?}");
    }

    #[test]
    fn probe_bw_cycles_through_its_gains_one_round_trip_each() {
        let (mut bbr, mut path) = in_drain();
        path.in_flight = 56;
        path.round(&mut bbr, 1000.0);
        let mut gains = Vec::new();
        for _ in 0..20 {
            // In the phase that probes, what is in flight reaches 1.25 times the product.
            path.in_flight = if bbr.pacing_gain() > 1.0 { 72 } else { 56 };
            path.rtt_s = 0.0501;
            path.round(&mut bbr, 1000.0);
            gains.push(bbr.pacing_gain());
        }
        let first = gains.iter().position(|gain| *gain == 1.25).unwrap();
        let expected: Vec<f64> = CYCLE.iter().copied().cycle().take(20 - first).collect();
        assert_eq!(gains[first..], expected);
        // Twice the product, a round's bunch of acknowledgements, and three bursts of two.
        assert!((bbr.window - 156.0).abs() < 4.0, "{}", bbr.window);
        assert!(
            (bbr.rate - 0.99 * gains[19] * 1000.0).abs() < 1.0,
            "{}",
            bbr.rate
        );
    }

    #[test]
    fn probe_rtt_comes_after_ten_seconds_and_holds_four_segments_for_a_fifth_of_a_second() {
        let (mut bbr, mut path) = in_drain();
        path.rtt_s = 0.06;
        path.in_flight = 56;
        while bbr.state != State::ProbeRtt {
            path.round(&mut bbr, 1000.0);
            assert!(path.now_s < 11.0, "{bbr:?}");
        }
        assert!(path.now_s > 10.0, "{}", path.now_s);
        assert_eq!(bbr.window, 4.0);
        assert!(bbr.holds_back());
        let before = bbr.prior_window;
        path.in_flight = 4;
        let began_s = path.now_s + path.rtt_s;
        while bbr.state == State::ProbeRtt {
            path.round(&mut bbr, 60.0);
        }
        assert!(path.now_s - began_s > PROBE_RTT_S && path.now_s - began_s < 0.32);
        assert!(matches!(bbr.state, State::ProbeBw { .. }));
        assert!(bbr.window >= before.min(100.0), "{} {before}", bbr.window);
    }

    #[test]
    fn after_a_time_out_the_window_grows_from_one_segment_back_to_its_target() {
        let (mut bbr, mut path) = in_drain();
        path.in_flight = 56;
        path.round(&mut bbr, 1000.0);
        bbr.on_timeout(&path.moment());
        assert_eq!(bbr.window, 1.0);
        path.in_flight = 1;
        path.round(&mut bbr, 20.0);
        assert!(bbr.window >= WINDOW_MIN, "{}", bbr.window);
    }
}
