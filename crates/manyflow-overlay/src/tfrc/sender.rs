//! A sending daemon's state of a group: a limit for each remote daemon with members, and the
//! minimum of the limits.
//!
//! ```text
//!             first report                     each report, at most twice the limit of a round-trip time ago
//!   no limit -------------> limit: min(reported x (1 - repaired), what it may grow to) <---+
//!       |                     |  nothing heard for max(4 RTT, 3 s/X): halved               |
//!       +---------------------+------------------------------------------------------------+
//! ```

use core::time::Duration;
use std::collections::BTreeMap;

use super::allocation::Allocation;
use super::config::TfrcConfig;
use super::rtt::{Acknowledged, SentLog, averaged};
use crate::message::{DaemonId, Report};
use crate::sequence::OriginSeq;
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
/// The allowed rate is reported when it has changed by this share.
const NOTICEABLE: f64 = 0.01;

/// A group to which local clients send. All rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Group {
    log: SentLog,
    remotes: BTreeMap<DaemonId, Remote>,
    pub(super) allocation: Allocation,
    allowed: f64,
    /// The allowed rate that was last reported as an event.
    announced: f64,
}

/// A remote daemon with members of the group.
#[derive(Debug, Default)]
struct Remote {
    rtt: Option<Duration>,
    /// The correction for the latest round-trip time, if configured (RFC 5348 section 4.5).
    damping: Option<DelayDamping>,
    /// X, as far as this daemon limits it; `None` until the daemon has reported or its report timed
    /// out.
    limit: Option<f64>,
    round: Option<Round>,
    /// The message that was acknowledged when the limit could last grow in slow start.
    mark: Option<Acknowledged>,
    silence: Option<Silence>,
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

/// The inputs that all limits of a group share.
struct Terms<'a> {
    log: &'a SentLog,
    config: &'a TfrcConfig,
    /// The group's allowed rate, at which a new limit starts.
    allowed: f64,
}

/// Returns s / t_mbi, the lowest rate.
fn slowest(log: &SentLog) -> f64 {
    log.message_bytes().max(1.0) / SLOWEST_S
}

impl Remote {
    fn on_report(&mut self, now: Time, report: &Report, terms: &Terms<'_>) -> Option<Acknowledged> {
        let acknowledged = terms.log.acknowledged(now, report);
        if let Some(acknowledged) = acknowledged {
            let history = terms.config.rtt_history;
            self.rtt = Some(averaged(self.rtt, acknowledged.rtt, history));
            if let Some(q2) = terms.config.damping_history {
                let damping = self.damping.get_or_insert_with(|| DelayDamping::new(q2));
                damping.sample(acknowledged.rtt);
            }
        }
        let reported = acceptable(report, terms.config).unwrap_or(f64::INFINITY);
        let grown = self.grown(now, reported, acknowledged, terms);
        self.limit = Some(reported.min(grown).max(slowest(terms.log)));
        self.arm_silence_timer(now, terms);
        acknowledged
    }

    /// Returns the value to which the limit may grow: at most twice the limit of a round-trip time
    /// ago. Before the first loss, this is slow start, which does not exceed twice the rate of
    /// arrivals (RFC 5348 section 4.3), so that an unused limit does not grow.
    fn grown(
        &mut self,
        now: Time,
        reported: f64,
        acknowledged: Option<Acknowledged>,
        terms: &Terms<'_>,
    ) -> f64 {
        let limit = self.limit.unwrap_or(terms.allowed);
        let rtt = self.rtt.unwrap_or(terms.config.initial_rtt);
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
    fn present_limit(&self, slowest: f64) -> Option<f64> {
        let factor = self.damping.as_ref().map_or(1.0, DelayDamping::factor);
        self.limit.map(|limit| (limit * factor).max(slowest))
    }

    /// Handles the expiry of the no-feedback timer (RFC 5348 section 4.4): halves the limit. If
    /// nothing was sent, the limit falls only to the initial rate.
    fn on_silence(&mut self, now: Time, silence: Silence, terms: &Terms<'_>) {
        let limit = self.limit.unwrap_or(terms.allowed);
        let is_idle = silence.total_bytes == terms.log.total_bytes();
        let initial = terms.config.initial_bytes_per_s();
        if is_idle && limit <= initial {
            self.silence = None;
            return;
        }
        let least = if is_idle { initial } else { slowest(terms.log) };
        let limit = (limit / 2.0).max(least);
        self.limit = Some(limit);
        self.round = Some(Round { began: now, limit });
        self.mark = None;
        self.arm_silence_timer(now, terms);
    }

    fn arm_silence_timer(&mut self, now: Time, terms: &Terms<'_>) {
        let rate = self.limit.unwrap_or(terms.allowed).min(terms.allowed);
        let messages = seconds(SILENCE_MESSAGES * terms.log.message_bytes() / rate);
        let span = self.rtt.map_or(SILENCE_AT_FIRST, |rtt| 4 * rtt);
        self.silence = Some(Silence {
            ends: now + span.max(messages),
            total_bytes: terms.log.total_bytes(),
        });
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

impl Group {
    pub(super) fn new(config: &TfrcConfig) -> Group {
        Group {
            log: SentLog::default(),
            remotes: BTreeMap::new(),
            allocation: Allocation::default(),
            allowed: config.initial_bytes_per_s(),
            announced: 0.0,
        }
    }

    /// Returns the sum of the rates at which local clients may send.
    pub(super) fn allowed(&self) -> f64 {
        self.allowed
    }

    /// Returns whether another daemon has members.
    pub(super) fn is_remote(&self) -> bool {
        !self.remotes.is_empty()
    }

    /// Replaces the daemons with members. The state of a daemon that no longer has members is
    /// dropped. A new daemon counts from its first report, or from its time-out.
    pub(super) fn set_members(&mut self, members: impl Iterator<Item = DaemonId>) {
        let mut before = core::mem::take(&mut self.remotes);
        let remote = |daemon| (daemon, before.remove(&daemon).unwrap_or_default());
        self.remotes = members.map(remote).collect();
    }

    pub(super) fn on_sent(
        &mut self,
        now: Time,
        sequence: OriginSeq,
        bytes: u32,
        config: &TfrcConfig,
    ) {
        let before = self.log.total_bytes();
        self.log.on_sent(now, sequence, bytes);
        for remote in self.remotes.values_mut() {
            // This is the first message after an idle time. The timer waits for the report on it.
            let was_idle = remote
                .silence
                .is_none_or(|timer| timer.total_bytes == before);
            if was_idle {
                let terms = Terms {
                    log: &self.log,
                    config,
                    allowed: self.allowed,
                };
                remote.arm_silence_timer(now, &terms);
                remote
                    .silence
                    .iter_mut()
                    .for_each(|timer| timer.total_bytes = before);
            }
        }
    }

    /// Handles a report of a daemon. Returns `None` if the daemon has no members. Otherwise returns
    /// the sample of the round-trip time and the new average, if the report gives a sample.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        from: DaemonId,
        report: &Report,
        config: &TfrcConfig,
    ) -> Option<Option<(Duration, Duration)>> {
        let remote = self.remotes.get_mut(&from)?;
        let terms = Terms {
            log: &self.log,
            config,
            allowed: self.allowed,
        };
        let sample = remote.on_report(now, report, &terms);
        Some(sample.and_then(|sample| Some((sample.rtt, remote.rtt?))))
    }

    /// Halves the limits of daemons whose no-feedback timers have expired.
    pub(super) fn handle_timeout(&mut self, now: Time, config: &TfrcConfig) {
        let terms = Terms {
            log: &self.log,
            config,
            allowed: self.allowed,
        };
        for remote in self.remotes.values_mut() {
            if let Some(silence) = remote.silence.filter(|silence| silence.ends <= now) {
                remote.on_silence(now, silence, &terms);
            }
        }
    }

    /// Updates the allowed rate: the minimum of the limits, or the initial rate without a limit.
    /// Returns the rate if it differs noticeably from the one that was last returned.
    pub(super) fn update_allowed(&mut self, now: Time, config: &TfrcConfig) -> Option<f64> {
        let slowest = slowest(&self.log);
        let remotes = self.remotes.values();
        let limits = remotes.filter_map(|remote| remote.present_limit(slowest));
        let allowed = limits
            .reduce(f64::min)
            .unwrap_or(config.initial_bytes_per_s());
        debug_assert!(allowed > 0.0, "a group's allowed rate is {allowed}");
        if allowed != self.allowed {
            self.allowed = allowed;
            self.allocation.divide_rate(now, allowed);
        }
        let is_noticeable = (allowed - self.announced).abs() > NOTICEABLE * self.announced;
        is_noticeable.then(|| {
            self.announced = allowed;
            allowed
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let silences = self.remotes.values().filter_map(|remote| remote.silence);
        let ends = silences.map(|silence| silence.ends);
        ends.chain(self.allocation.poll_timeout()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::GroupId;

    const NEAR: DaemonId = DaemonId(1);
    const FAR: DaemonId = DaemonId(2);
    /// The default initial rate in bytes per second.
    const INITIAL: f64 = 12_500.0;

    /// A group whose messages of 1000 bytes are sent exactly at the allowed rate, with a round-trip
    /// time of 0.1 s.
    struct Sending {
        group: Group,
        config: TfrcConfig,
        now: Time,
        sequence: u64,
    }

    impl Sending {
        fn new(members: &[DaemonId]) -> Sending {
            let config = TfrcConfig::default();
            let mut group = Group::new(&config);
            group.set_members(members.iter().copied());
            Sending {
                group,
                config,
                now: Time::ZERO,
                sequence: 0,
            }
        }

        fn allowed(&mut self) -> f64 {
            self.group.update_allowed(self.now, &self.config);
            self.group.allowed()
        }

        /// Sends at the allowed rate times `part` for `span_s` seconds, and handles timers.
        fn send(&mut self, span_s: f64, part: f64) {
            let end = self.now + seconds(span_s);
            while self.now < end {
                let rate = part * self.allowed();
                self.now = (self.now + seconds(1000.0 / rate)).min(end);
                self.sequence += 1;
                self.group
                    .on_sent(self.now, OriginSeq::new(self.sequence), 1000, &self.config);
                self.group.handle_timeout(self.now, &self.config);
            }
        }

        /// Handles a report that acknowledges the last message sent at least a round-trip time ago.
        fn report(&mut self, from: DaemonId, rate_bytes_per_s: u32, repaired: u16) {
            let places = 1..=self.sequence;
            let sent = |sequence: &u64| {
                let report = self.build_report(0, 0, *sequence);
                let found = self.group.log.acknowledged(self.now, &report);
                found.is_some_and(|found| found.rtt.as_secs_f64() >= 0.1 - 1e-6)
            };
            let acknowledged = places.rev().find(sent).unwrap_or(0);
            let report = self.build_report(rate_bytes_per_s, repaired, acknowledged);
            self.group.on_report(self.now, from, &report, &self.config);
        }

        fn build_report(&self, rate_bytes_per_s: u32, repaired: u16, acknowledged: u64) -> Report {
            Report {
                group: GroupId(1),
                rate_bytes_per_s,
                loss_event_rate: 0,
                repaired,
                acknowledged: OriginSeq::new(acknowledged),
                held_us: 0,
            }
        }
    }

    #[test]
    fn the_slowest_daemon_limits_until_it_leaves() {
        let mut sending = Sending::new(&[NEAR, FAR]);
        sending.send(1.0, 1.0);
        for _ in 0..10 {
            sending.send(0.2, 1.0);
            sending.report(NEAR, 40_000, 0);
            sending.report(FAR, 9_000, 0);
        }
        assert_eq!(sending.allowed(), 9_000.0);
        sending.group.set_members([NEAR].into_iter());
        assert_eq!(sending.allowed(), 40_000.0);
    }

    #[test]
    fn a_new_daemon_counts_from_its_first_report() {
        let mut sending = Sending::new(&[NEAR]);
        for _ in 0..10 {
            sending.send(0.2, 1.0);
            sending.report(NEAR, 40_000, 0);
        }
        sending.group.set_members([NEAR, FAR].into_iter());
        assert_eq!(sending.allowed(), 40_000.0);
        sending.report(FAR, 5_000, 0);
        assert_eq!(sending.allowed(), 5_000.0);
    }

    #[test]
    fn slow_start_doubles_in_each_round_trip_unless_unused() {
        let mut sending = Sending::new(&[NEAR]);
        assert_eq!(sending.allowed(), INITIAL);
        sending.send(0.2, 1.0);
        for round in 1..=6 {
            sending.report(NEAR, Report::UNLIMITED, 0);
            let rate = sending.allowed() / INITIAL;
            assert!(rate <= f64::from(1 << round), "round {round}: {rate}");
            sending.send(0.12, 1.0);
        }
        let reached = sending.allowed();
        // Arrivals were sent a round-trip time earlier. Once they limit the growth, doubling takes
        // two round-trip times.
        assert!(reached > 8.0 * INITIAL, "{reached}");
        for _ in 0..20 {
            sending.send(0.12, 0.1);
            sending.report(NEAR, Report::UNLIMITED, 0);
        }
        assert!(sending.allowed() <= 2.1 * reached, "{}", sending.allowed());
    }

    #[test]
    fn a_silent_daemon_halves_the_rate_repeatedly() {
        let mut sending = Sending::new(&[NEAR]);
        for _ in 0..10 {
            sending.send(0.2, 1.0);
            sending.report(NEAR, 40_000, 0);
        }
        sending.send(0.5, 1.0);
        assert_eq!(sending.allowed(), 20_000.0);
        sending.send(5.0, 1.0);
        assert!(sending.allowed() < 2_000.0, "{}", sending.allowed());
        sending.send(2000.0, 1.0);
        assert_eq!(
            sending.allowed(),
            1000.0 / 64.0,
            "the rate is not at its minimum"
        );
        // A report only doubles the rate: it does not restore the former rate at once.
        let before = sending.allowed();
        sending.send(100.0, 1.0);
        sending.report(NEAR, 40_000, 0);
        assert_eq!(sending.allowed(), 2.0 * before);
    }

    #[test]
    fn a_reported_rate_applies_at_once_up_to_twice_the_limit_of_a_round_trip_ago() {
        let mut sending = Sending::new(&[NEAR]);
        sending.send(0.2, 1.0);
        sending.report(NEAR, 10_000, 0);
        assert_eq!(sending.allowed(), 10_000.0);
        sending.send(0.2, 1.0);
        sending.report(NEAR, 11_000, 0);
        // A loss event causes an early report.
        sending.now += Duration::from_millis(10);
        sending.report(NEAR, 12_000, 0);
        assert_eq!(sending.allowed(), 12_000.0);
        sending.report(NEAR, 30_000, 0);
        assert_eq!(sending.allowed(), 20_000.0);
    }

    #[test]
    fn a_daemon_that_never_reports_halves_the_rate_after_two_seconds() {
        let mut sending = Sending::new(&[NEAR]);
        sending.send(1.9, 1.0);
        assert_eq!(sending.allowed(), INITIAL);
        sending.send(0.3, 1.0);
        assert_eq!(sending.allowed(), INITIAL / 2.0);
    }

    #[test]
    fn an_idle_sender_returns_to_the_initial_rate_without_a_timer() {
        let mut sending = Sending::new(&[NEAR]);
        for _ in 0..10 {
            sending.send(0.2, 1.0);
            sending.report(NEAR, 40_000, 0);
        }
        for _ in 0..1000 {
            sending.now += Duration::from_millis(100);
            let (now, config) = (sending.now, sending.config.clone());
            sending.group.handle_timeout(now, &config);
        }
        assert_eq!(sending.allowed(), INITIAL);
        assert_eq!(sending.group.poll_timeout(), None);
    }

    #[test]
    fn damping_reduces_the_rate_while_the_round_trip_time_is_above_its_average() {
        let mut sending = Sending::new(&[NEAR]);
        sending.config.damping_history = Some(0.9);
        let (now, config) = (sending.now, sending.config.clone());
        sending.group.on_sent(now, OriginSeq::new(1), 1000, &config);
        let report = sending.build_report(10_000, 0, 1);
        // The same message is acknowledged after 0.1 s, and then after 0.2 s.
        for factor in [1.0, 0.9 / 2f64.sqrt() + 0.1] {
            sending.now += Duration::from_millis(100);
            let (now, config) = (sending.now, sending.config.clone());
            sending.group.on_report(now, NEAR, &report, &config);
            let ratio = sending.allowed() / 10_000.0;
            assert!((ratio - factor).abs() < 1e-9, "{ratio}, not {factor}");
        }
    }

    #[test]
    fn repaired_copies_count_towards_the_rate_if_configured() {
        let report = Sending::new(&[]).build_report(10_000, 65536u32.div_euclid(4) as u16, 0);
        let mut config = TfrcConfig::default();
        assert_eq!(acceptable(&report, &config), Some(7_500.0));
        config.count_repairs = false;
        assert_eq!(acceptable(&report, &config), Some(10_000.0));
    }

    #[test]
    fn reports_of_daemons_without_members_are_ignored() {
        let mut sending = Sending::new(&[NEAR]);
        sending.report(FAR, 1, 0);
        assert_eq!(sending.allowed(), INITIAL);
    }
}
