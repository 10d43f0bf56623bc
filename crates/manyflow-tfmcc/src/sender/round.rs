//! Feedback rounds, the suppression rate and the maximum round-trip time (RFC 4654 sections 3.2 and
//! 3.4).

use core::time::Duration;

use manyflow_core::Time;

use crate::config::{ROUND_RTTS, RTT_LIMIT, RTT_MIN};
use crate::event::Event;
use crate::header::Feedback;
use crate::number::RateCode;

/// The factor by which R_max may fall in a round.
const RTT_MAX_DECAY: f64 = 0.9;

/// The present feedback round.
#[derive(Debug)]
pub(super) struct Round {
    /// fb_nr.
    number: u8,
    since: Time,
    /// Reports of receivers other than the limiting one.
    reports: u32,
    limiting_reports: u32,
    /// X_supp.
    suppression: RateCode,
    /// R_max.
    rtt_max: Duration,
    /// R_peak: the longest round-trip time of the round; `None` before the first report.
    rtt_peak: Option<Duration>,
    /// Whether R_max was raised in this round.
    is_raised: bool,
}

impl Round {
    /// Round 0 begins at `start` (section 3.1).
    pub(super) fn new(start: Time, rtt_max: Duration) -> Round {
        Round {
            number: 0,
            since: start,
            reports: 0,
            limiting_reports: 0,
            suppression: RateCode::HIGHEST,
            rtt_max,
            rtt_peak: None,
            is_raised: false,
        }
    }

    /// fb_nr.
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// X_supp.
    pub(super) fn suppression(&self) -> RateCode {
        self.suppression
    }

    /// R_max.
    pub(super) fn rtt_max(&self) -> Duration {
        self.rtt_max
    }

    /// T.
    pub(super) fn span(&self) -> Duration {
        ROUND_RTTS * self.rtt_max
    }

    /// Whether half of T has passed.
    pub(super) fn is_half_over(&self, now: Time) -> bool {
        now >= self.since + self.span() / 2
    }

    /// Takes a report with the round-trip time R_r. Reports of the limiting receiver and of leaving
    /// receivers suppress nobody; for all others:
    ///
    /// `X_supp = (1 - g) * X_r`, if X_supp > X_r
    pub(super) fn on_report(&mut self, feedback: &Feedback, rtt: Duration, is_clr: bool, g: f64) {
        if rtt > self.rtt_max {
            (self.rtt_max, self.is_raised) = (rtt, true);
        }
        self.rtt_peak = self.rtt_peak.max(Some(rtt));
        if is_clr {
            self.limiting_reports = self.limiting_reports.saturating_add(1);
            return;
        }
        self.reports = self.reports.saturating_add(1);
        let counts = feedback.round == self.number && !feedback.leaving;
        if counts && self.suppression > feedback.rate {
            self.suppression = RateCode::nearest((1.0 - g) * feedback.rate.bits_per_s());
        }
        debug_assert!(self.suppression <= feedback.rate || !counts);
    }

    /// The end of the round: after T if there was a report, else with the first report or after 2T.
    pub(super) fn deadline(&self) -> Time {
        let rounds = if self.reports > 0 { 1 } else { 2 };
        self.since + rounds * self.span()
    }

    /// Ends the round and begins the next. Unless R_max was raised, or nobody reported:
    ///
    /// `R_max = max(R_max * 0.9, R_peak)`
    pub(super) fn end(&mut self, now: Time) -> Event {
        debug_assert!(now >= self.deadline(), "a round is not cut short");
        if let (Some(peak), false) = (self.rtt_peak, self.is_raised) {
            self.rtt_max = self.rtt_max.mul_f64(RTT_MAX_DECAY).max(peak);
        }
        let event = Event::RoundEnded {
            round: self.number,
            reports: self.reports,
            limiting_reports: self.limiting_reports,
            rtt_max: self.rtt_max,
        };
        *self = Round {
            number: self.number.wrapping_add(1),
            ..Round::new(now, self.rtt_max)
        };
        event
    }

    /// Raises R_max to the packet spacing: `R_max = max(R_max, 8s/X + ts_gran)`.
    pub(super) fn cover_spacing(&mut self, spacing: Duration) {
        self.rtt_max = self.rtt_max.max(spacing).clamp(RTT_MIN, RTT_LIMIT);
    }
}
