//! The pacing rate and the window (draft-ietf-ccwg-bbr section 5.6).

use super::{Bbr3, State};
use crate::control::Delivery;

/// StartupPacingGain, 4 ln 2: the rate doubles in each round (section 2.5).
const STARTUP_PACING_GAIN: f64 = 2.77;
/// The share of BBR.bw that remains of it after PacingMarginPercent (section 5.6.2).
const PACING_MARGIN: f64 = 0.99;
/// MinPipeCwnd in segments (section 2.8).
pub(super) const WINDOW_MIN: f64 = 4.0;
/// ProbeRTTCwndGain (section 2.16.2).
const PROBE_RTT_GAIN: f64 = 0.5;
/// Headroom: the share of `inflight_longterm` that is left to others (section 2.8).
const HEADROOM: f64 = 0.15;
/// The round-trip time that is assumed before the first sample, in seconds (section 5.6.2).
pub(super) const NOMINAL_RTT_S: f64 = 0.001;
/// The longest burst: its time in seconds, and its bytes (section 5.6.3).
const QUANTUM_S: f64 = 0.001;
const QUANTUM_BYTES: f64 = 65_536.0;

/// Returns the pacing rate for an initial window (section 5.6.2, InitPacingRate).
pub(super) fn initial_rate(window: f64, rtt_s: f64) -> f64 {
    STARTUP_PACING_GAIN * window / rtt_s
}

impl Bbr3 {
    /// Returns BBR.pacing_gain (section 5.6.1).
    pub(super) fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => 0.5,
            State::Down => 0.9,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
            State::Up => 1.25,
        }
    }

    /// Returns BBR.cwnd_gain (section 5.6.1).
    fn window_gain(&self) -> f64 {
        match self.state {
            State::Startup | State::Drain | State::Down | State::Cruise | State::Refill => 2.0,
            State::Up => 2.25,
            State::ProbeRtt => PROBE_RTT_GAIN,
        }
    }

    /// Replaces the nominal round-trip time by the first sample.
    pub(super) fn set_initial_rate(&mut self, rtt_s: f64) {
        if !self.has_rtt && rtt_s > 0.0 {
            self.has_rtt = true;
            self.rate = initial_rate(self.initial_window, rtt_s);
        }
    }

    /// SetPacingRateWithGain (section 5.6.2)
    pub(super) fn set_rate(&mut self, gain: f64) {
        let rate = gain * self.bw() * PACING_MARGIN;
        if rate > 0.0 && (self.is_full_reached || rate > self.rate) {
            self.rate = rate;
        }
    }

    /// BDPMultiple (section 5.6.4.2)
    pub(super) fn product(&self, gain: f64) -> f64 {
        self.product_of(self.bw(), gain)
    }

    fn product_of(&self, bw: f64, gain: f64) -> f64 {
        match self.min_rtt_s.is_finite() {
            true => gain * bw * self.min_rtt_s,
            false => self.initial_window,
        }
    }

    /// Inflight (section 5.6.4.2)
    pub(super) fn inflight(&self, gain: f64) -> f64 {
        self.with_quanta(self.product(gain))
    }

    /// Inflight with BBR.max_bw (section 5.3.3.9, IsTimeToCruise)
    pub(super) fn max_bw_inflight(&self) -> f64 {
        self.with_quanta(self.product_of(self.max_bw(), 1.0))
    }

    /// QuantizationBudget, with the offload budget of TCP (sections 5.6.4.2 and 5.5.8.1)
    fn with_quanta(&self, segments: f64) -> f64 {
        let largest = QUANTUM_BYTES / self.segment_bytes.max(1.0);
        let quantum = (self.rate * QUANTUM_S).min(largest).max(2.0);
        let segments = segments.max(3.0 * quantum).max(WINDOW_MIN);
        match self.state {
            State::Up => segments + 2.0,
            _ => segments,
        }
    }

    /// ProbeRTTCwnd (section 5.6.4.5)
    pub(super) fn probe_rtt_window(&self) -> f64 {
        self.product(PROBE_RTT_GAIN).max(WINDOW_MIN)
    }

    /// InflightWithHeadroom (section 5.3.3.9)
    pub(super) fn inflight_with_headroom(&self) -> f64 {
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        let headroom = (HEADROOM * self.inflight_longterm).max(1.0);
        (self.inflight_longterm - headroom).max(WINDOW_MIN)
    }

    /// SetCwnd (section 5.6.4.6)
    pub(super) fn set_window(&mut self, delivery: &Delivery) {
        let acked = f64::from(delivery.segments);
        let target = self.product(self.window_gain()) + self.extra_acked.segments();
        let target = self.with_quanta(target);
        if self.is_full_reached {
            self.window = (self.window + acked).min(target);
        } else if self.window < target || (delivery.total as f64) < self.initial_window {
            self.window += acked;
        }
        self.window = self.window.max(WINDOW_MIN);
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        self.bound_window();
    }

    /// BoundCwndForModel (section 5.6.4.7)
    fn bound_window(&mut self) {
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::ProbeRtt | State::Cruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => f64::INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(WINDOW_MIN);
        self.window = self.window.min(cap);
    }
}
