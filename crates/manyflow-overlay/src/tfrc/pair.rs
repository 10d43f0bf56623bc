//! A sending daemon's congestion state of a remote daemon with members: one limit for all groups
//! that go there.
//!
//! ```text
//!             first report                     each report, at most twice the limit of a round-trip time ago
//!   no limit -------------> limit: min(reported x (1 - repaired), what it may grow to) <---+
//!       |                     |  nothing heard for max(4 RTT, 3 s/X): halved               |
//!       +---------------------+------------------------------------------------------------+
//! ```

use core::time::Duration;

use super::config::TfrcConfig;
use super::rtt::{Acknowledged, averaged};
use crate::message::Report;
use manyflow_core::estimate::delay_damping::DelayDamping;
use manyflow_core::time::{Time, seconds};

/// The no-feedback timer while the round-trip time is unknown (RFC 5348 section 4.2).
const SILENCE_AT_FIRST: Duration = Duration::from_secs(2);
/// The number of messages whose sending time without a report counts as silence. RFC 5348 section
/// 4.4 has two. If one message or report is lost, two reports are just that far apart, so that
/// chance would decide whether a single loss halves the rate.
const SILENCE_MESSAGES: f64 = 3.0;
/// t_mbi, in seconds: at least one message is sent in this time (RFC 5348 section 4.3).
const SLOWEST_S: f64 = 64.0;
/// The weight of the past in the average message size, as at a receiver.
const SIZE_HISTORY: f64 = 0.9;

/// A remote daemon with members of groups to which local clients send. All rates are in bytes per
/// second.
#[derive(Debug)]
pub(super) struct Pair {
    rtt: Option<Duration>,
    /// The correction for the latest round-trip time, if configured (RFC 5348 section 4.5).
    damping: Option<DelayDamping>,
    /// X; `None` until the daemon has reported or its report timed out.
    limit: Option<f64>,
    round: Option<Round>,
    /// The message that was acknowledged when the limit could last grow in slow start.
    mark: Option<Acknowledged>,
    silence: Option<Silence>,
    /// The bytes of all messages that were ever sent to the daemon.
    total_bytes: u64,
    /// s: the average size of a message in bytes.
    message_bytes: f64,
    /// The size in bytes of the longest message of the clients that send to the daemon, at the last
    /// division.
    pub(super) longest: f64,
    /// The number of groups with members at the daemon.
    pub(super) groups: usize,
    /// The sum of the rates that these groups are allowed, at which a new limit starts.
    pub(super) carried: f64,
    /// The place among all pairs in the last division.
    pub(super) place: usize,
    /// Whether the limit held back a group in the last division. A limit that did not, and does not
    /// now, changes no rate.
    pub(super) is_full: bool,
}

/// A period of one round-trip time, in which the limit at most doubles.
#[derive(Copy, Clone, Debug)]
struct Round {
    /// The beginning of the period; tld in RFC 5348.
    began: Time,
    /// The limit at the beginning of the period.
    limit: f64,
}

/// The no-feedback timer of a remote daemon.
#[derive(Copy, Clone, Debug)]
struct Silence {
    ends: Time,
    /// The bytes that were sent before the timer was set.
    total_bytes: u64,
}

impl Pair {
    /// Returns the state of a daemon that has not reported yet. `carried` is the rate at which the
    /// first group sends.
    pub(super) fn new(carried: f64) -> Pair {
        Pair {
            rtt: None,
            damping: None,
            limit: None,
            round: None,
            mark: None,
            silence: None,
            total_bytes: 0,
            message_bytes: 0.0,
            longest: 0.0,
            groups: 0,
            carried,
            place: 0,
            is_full: true,
        }
    }

    /// Returns the average round-trip time; `None` before the first sample.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Handles a message to a group with members at the daemon.
    pub(super) fn on_sent(&mut self, now: Time, bytes: u32) {
        let before = self.total_bytes;
        self.total_bytes += u64::from(bytes);
        let bytes = f64::from(bytes);
        if self.message_bytes == 0.0 {
            self.message_bytes = bytes;
        }
        self.message_bytes += (1.0 - SIZE_HISTORY) * (bytes - self.message_bytes);
        // This is the first message after an idle time. The timer waits for the report on it.
        let silence = self.silence;
        if silence.is_none_or(|timer| timer.total_bytes == before) {
            self.arm_silence_timer(now, before);
        }
    }

    /// Handles a report, and the measurements that it gives about the message that it acknowledges.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        report: &Report,
        acknowledged: Option<Acknowledged>,
        config: &TfrcConfig,
    ) {
        if let Some(acknowledged) = acknowledged {
            self.rtt = Some(averaged(self.rtt, acknowledged.rtt, config.rtt_history));
            if let Some(q2) = config.damping_history {
                let damping = self.damping.get_or_insert_with(|| DelayDamping::new(q2));
                damping.sample(acknowledged.rtt);
            }
        }
        let reported = acceptable(report, config).unwrap_or(f64::INFINITY);
        let grown = self.grown(now, reported, acknowledged, config);
        self.limit = Some(reported.min(grown).max(self.slowest()));
        self.arm_silence_timer(now, self.total_bytes);
    }

    /// Returns the value to which the limit may grow: at most twice the limit of a round-trip time
    /// ago. Before the first loss, this is slow start, which does not exceed twice the rate of
    /// arrivals (RFC 5348 section 4.3), so that an unused limit does not grow.
    fn grown(
        &mut self,
        now: Time,
        reported: f64,
        acknowledged: Option<Acknowledged>,
        config: &TfrcConfig,
    ) -> f64 {
        let limit = self.limit.unwrap_or(self.carried);
        let rtt = self.rtt.unwrap_or(config.initial_rtt);
        let present = self.round.filter(|round| now - round.began < rtt);
        let round = present.unwrap_or(Round { began: now, limit });
        self.round = Some(round);
        if reported.is_finite() {
            return 2.0 * round.limit;
        }
        if present.is_some() {
            return limit;
        }
        let Some(arrived) = acknowledged else {
            return limit;
        };
        let before = self.mark.replace(arrived);
        let received = before.map_or(limit, |before| arrived.rate_since(&before));
        (2.0 * limit.min(received)).max(limit)
    }

    /// Returns X_inst: the limit, reduced while queues grow (RFC 5348 section 4.5). `None` if the
    /// daemon does not limit the rate.
    pub(super) fn limit(&self) -> Option<f64> {
        let factor = self.damping.as_ref().map_or(1.0, DelayDamping::factor);
        self.limit.map(|limit| (limit * factor).max(self.slowest()))
    }

    /// Returns whether groups are allowed as much as the limit or more, or there is no limit.
    pub(super) fn is_reached(&self) -> bool {
        self.limit()
            .is_none_or(|limit| limit <= self.carried * (1.0 + 1e-9))
    }

    /// Returns s / t_mbi, the lowest rate. s is the longest message: after short ones, or none at
    /// all, a long one would otherwise take minutes or hours.
    fn slowest(&self) -> f64 {
        self.message_bytes.max(self.longest).max(1.0) / SLOWEST_S
    }

    /// Halves the limit if the no-feedback timer has expired (RFC 5348 section 4.4). If nothing was
    /// sent, the limit falls only to the initial rate. Returns whether the timer had expired.
    pub(super) fn handle_timeout(&mut self, now: Time, config: &TfrcConfig) -> bool {
        let Some(silence) = self.silence.filter(|silence| silence.ends <= now) else {
            return false;
        };
        let limit = self.limit.unwrap_or(self.carried);
        let is_idle = silence.total_bytes == self.total_bytes;
        let initial = config.initial_bytes_per_s();
        if is_idle && limit <= initial {
            self.silence = None;
            return false;
        }
        let least = if is_idle { initial } else { self.slowest() };
        let limit = (limit / 2.0).max(least);
        self.limit = Some(limit);
        self.round = Some(Round { began: now, limit });
        self.mark = None;
        self.arm_silence_timer(now, self.total_bytes);
        true
    }

    fn arm_silence_timer(&mut self, now: Time, total_bytes: u64) {
        debug_assert!(self.carried > 0.0, "groups carry {}", self.carried);
        let rate = self.limit.unwrap_or(self.carried).min(self.carried);
        let messages = seconds(SILENCE_MESSAGES * self.message_bytes / rate);
        let span = self.rtt.map_or(SILENCE_AT_FIRST, |rtt| 4 * rtt);
        self.silence = Some(Silence {
            ends: now + span.max(messages),
            total_bytes,
        });
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.silence.map(|silence| silence.ends)
    }
}

/// Returns the rate at which a report allows new messages; `None` if there is no limit.
pub(super) fn acceptable(report: &Report, config: &TfrcConfig) -> Option<f64> {
    let limited = report.rate_bytes_per_s < Report::UNLIMITED;
    let repaired = f64::from(report.repaired) / 65536.0;
    let new_share = if config.count_repairs {
        1.0 - repaired
    } else {
        1.0
    };
    limited.then(|| f64::from(report.rate_bytes_per_s) * new_share)
}
