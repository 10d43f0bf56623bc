//! When a receiver sends feedback (RFC 4654 section 4.5).

use core::time::Duration;

use manyflow_core::Time;

use super::timer::FeedbackTimer;
use crate::config::ROUND_RTTS;
use crate::header::{Data, ReceiverId};
use crate::number::{RateCode, RttCode, Stamp};

/// The data packet with the highest sequence number so far.
#[derive(Copy, Clone, Debug)]
struct Newest {
    sequence: u32,
    /// ts_i.
    sent: Stamp,
    /// tr_i.
    arrived: Time,
    round: u8,
    rtt_max: RttCode,
    suppression: RateCode,
}

impl Newest {
    fn of(now: Time, data: &Data) -> Newest {
        Newest {
            sequence: data.sequence,
            sent: data.sent,
            arrived: now,
            round: data.round,
            rtt_max: data.rtt_max,
            suppression: data.suppression,
        }
    }
}

/// The receiver's present rate and round-trip time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Estimate {
    /// X_r in bits per second, if known.
    pub(super) rate_bps: Option<f64>,
    /// R, if it was measured.
    pub(super) rtt: Option<Duration>,
}

/// How a data packet affects the feedback of this round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The packet changes nothing.
    Continue,
    /// A feedback round of this duration began; its timer is to be started.
    RoundBegan(Duration),
    /// The packet suppressed this round's report.
    Suppressed,
}

/// A receiver's part in the feedback rounds.
#[derive(Debug)]
pub(super) struct Reporting {
    newest: Newest,
    /// Never runs while this receiver is the limiting one.
    timer: FeedbackTimer,
    /// X_fbr: the calculated rate at the beginning of the round, if known then.
    rate_at_round: Option<f64>,
    is_clr: bool,
    reported_at: Option<Time>,
    /// Whether data arrived since the last report.
    has_news: bool,
}

impl Reporting {
    /// Starts with the first packet. The caller starts the timer.
    pub(super) fn new(now: Time, data: &Data) -> Reporting {
        Reporting {
            newest: Newest::of(now, data),
            timer: FeedbackTimer::default(),
            rate_at_round: None,
            is_clr: false,
            reported_at: None,
            has_news: true,
        }
    }

    /// T: the duration of the present round.
    pub(super) fn round_span(&self) -> Duration {
        ROUND_RTTS * self.newest.rtt_max.duration()
    }

    /// Whether the receiver knows itself as the limiting receiver.
    pub(super) fn is_clr(&self) -> bool {
        self.is_clr
    }

    /// Whether the last report is less than T ago. The sender may make this receiver the limiting
    /// one.
    pub(super) fn has_reported_lately(&self, now: Time) -> bool {
        let until = self.reported_at.map(|at| at + self.round_span());
        until.is_some_and(|until| now < until)
    }

    /// fb_nr and ts_i' for a report sent now (section 2.2.2).
    pub(super) fn echo(&self, now: Time) -> (u8, Stamp) {
        let held = now - self.newest.arrived;
        (self.newest.round, self.newest.sent.plus(held))
    }

    /// Handles a data packet. `estimate` is called only if the result matters.
    ///
    /// Packets that a newer one has overtaken are ignored. In a newer packet, any other value of
    /// the round counter begins a round: neither a wrap of the counter nor a long silence can make
    /// a new round look like an old one.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        data: &Data,
        me: ReceiverId,
        estimate: impl FnOnce() -> Estimate,
    ) -> Verdict {
        self.has_news = true;
        if data.sequence.wrapping_sub(self.newest.sequence) as i32 <= 0 {
            return Verdict::Continue;
        }
        self.adjust_timer(now, data.rtt_max.duration());
        let is_new_round = data.round != self.newest.round;
        self.newest = Newest::of(now, data);
        self.learn_clr(data, me);
        if is_new_round {
            self.rate_at_round = estimate().rate_bps;
            self.timer.cancel();
            return Verdict::RoundBegan(self.round_span());
        }
        if self.timer.due().is_some() && self.is_suppressed(estimate()) {
            self.timer.cancel();
            return Verdict::Suppressed;
        }
        Verdict::Continue
    }

    /// Adjusts the timer to a time without data, and to a new maximum round-trip time.
    fn adjust_timer(&mut self, now: Time, rtt_max: Duration) {
        let before = self.newest.rtt_max.duration();
        let silence = now - self.newest.arrived;
        self.timer.postpone(silence - silence.min(before));
        if before != rtt_max {
            self.timer.rescale(now, before, rtt_max);
        }
    }

    fn learn_clr(&mut self, data: &Data, me: ReceiverId) {
        match data.echo {
            Some(echo) if echo.receiver == me => self.is_clr = echo.is_clr,
            Some(echo) if echo.is_clr => self.is_clr = false,
            _ => {}
        }
        if self.is_clr {
            self.timer.cancel();
        }
    }

    /// Whether X_supp is below the present rate or below X_fbr. A receiver whose measured
    /// round-trip time exceeds R_max is never suppressed.
    fn is_suppressed(&self, estimate: Estimate) -> bool {
        let limit = self.newest.suppression;
        let is_within = estimate
            .rtt
            .is_none_or(|rtt| rtt <= self.newest.rtt_max.duration());
        let is_above = |rate: Option<f64>| rate.is_none_or(|rate| limit.bits_per_s() < rate);
        let is_higher =
            is_above(estimate.rate_bps) || self.rate_at_round.is_some_and(|r| is_above(Some(r)));
        limit != RateCode::HIGHEST && is_within && is_higher
    }

    /// Starts the timer of this round, unless this receiver is the limiting one.
    pub(super) fn start_timer(&mut self, now: Time, t: Duration) {
        if !self.is_clr {
            self.timer.start(now, t);
        }
    }

    /// Cancels this round's report.
    pub(super) fn cancel_timer(&mut self) {
        self.timer.cancel();
    }

    /// The time at which the next report is due. The limiting receiver reports once per round-trip
    /// time while data arrives.
    pub(super) fn due(&self, rtt: Duration) -> Option<Time> {
        debug_assert!(
            !self.is_clr || self.timer.due().is_none(),
            "the limiting receiver has no timer"
        );
        if self.is_clr {
            let next = self.reported_at.map_or(Time::ZERO, |at| at + rtt);
            return self.has_news.then_some(next);
        }
        // While no data arrives the timer stands still: see `adjust_timer`.
        let frozen = self.newest.arrived + self.newest.rtt_max.duration();
        self.timer.due().filter(|due| *due <= frozen)
    }

    /// Notes that a report was sent, or was due but impossible.
    pub(super) fn on_report(&mut self, now: Time, is_sent: bool) {
        self.timer.cancel();
        self.has_news = false;
        if is_sent {
            self.reported_at = Some(now);
        }
    }
}
