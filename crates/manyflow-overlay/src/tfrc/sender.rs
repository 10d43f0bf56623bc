//! What a sending daemon knows of a group: a limit for each remote daemon with members, and their
//! minimum.
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
use manyflow_core::time::{Time, seconds};

/// The no-feedback timer before there is a round-trip time (RFC 5348 section 4.2).
const SILENCE_AT_FIRST: Duration = Duration::from_secs(2);
/// The time of so many messages is silence. RFC 5348 section 4.4 has two: between two answers lies
/// as much where one message or report was lost, so that chance decides whether the rate is halved
/// for a single loss.
const SILENCE_MESSAGES: f64 = 3.0;
/// t_mbi: a message in so many seconds is sent whatever happens (RFC 5348 section 4.3).
const SLOWEST_S: f64 = 64.0;
/// The share by which the allowed rate must change to be told.
const NOTICEABLE: f64 = 0.01;

/// A group that local clients send to. Rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Group {
    log: SentLog,
    remotes: BTreeMap<DaemonId, Remote>,
    pub(super) allocation: Allocation,
    allowed: f64,
    /// The allowed rate that was told last.
    told: f64,
}

/// A remote daemon with members.
#[derive(Debug, Default)]
struct Remote {
    rtt: Option<Duration>,
    /// X, as far as this daemon goes; `None` until it has reported.
    limit: Option<f64>,
    round: Option<Round>,
    /// What had arrived when the limit could last grow in slow start.
    mark: Option<Acknowledged>,
    silence: Option<Silence>,
}

/// A round-trip time, in which the limit at most doubles.
#[derive(Copy, Clone, Debug)]
struct Round {
    /// tld in RFC 5348.
    began: Time,
    /// The limit at its beginning.
    limit: f64,
}

/// The no-feedback timer.
#[derive(Copy, Clone, Debug)]
struct Silence {
    ends: Time,
    /// Bytes sent before it was set.
    total_bytes: u64,
}

/// What all limits of a group depend on.
struct Terms<'a> {
    log: &'a SentLog,
    config: &'a TfrcConfig,
    /// The group's allowed rate, where a limit begins.
    allowed: f64,
}

impl Terms<'_> {
    /// s / t_mbi.
    fn slowest(&self) -> f64 {
        self.log.message_bytes().max(1.0) / SLOWEST_S
    }
}

impl Remote {
    fn on_report(&mut self, now: Time, report: &Report, terms: &Terms<'_>) -> Option<Acknowledged> {
        let acknowledged = terms.log.acknowledged(now, report);
        if let Some(acknowledged) = acknowledged {
            let history = terms.config.rtt_history;
            self.rtt = Some(averaged(self.rtt, acknowledged.rtt, history));
        }
        let reported = acceptable(report, terms.config).unwrap_or(f64::INFINITY);
        let grown = self.grown(now, reported, acknowledged, terms);
        self.limit = Some(reported.min(grown).max(terms.slowest()));
        self.arm(now, terms);
        acknowledged
    }

    /// What the limit may grow to: twice as much in each round-trip time. While no loss was ever
    /// seen that is slow start, which does not go beyond twice what has arrived (RFC 5348 section
    /// 4.3), so that what is not used does not grow.
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

    /// Nothing was heard of it for too long (RFC 5348 section 4.4): half the rate. Where nothing
    /// was sent, the rate falls to the initial one.
    fn on_silence(&mut self, now: Time, silence: Silence, terms: &Terms<'_>) {
        let limit = self.limit.unwrap_or(terms.allowed);
        let is_idle = silence.total_bytes == terms.log.total_bytes();
        let initial = terms.config.initial_bytes_per_s();
        if is_idle && limit <= initial {
            self.silence = None;
            return;
        }
        let least = if is_idle { initial } else { terms.slowest() };
        let limit = (limit / 2.0).max(least);
        self.limit = Some(limit);
        self.round = Some(Round { began: now, limit });
        self.mark = None;
        self.arm(now, terms);
    }

    fn arm(&mut self, now: Time, terms: &Terms<'_>) {
        let rate = self.limit.unwrap_or(terms.allowed).min(terms.allowed);
        let messages = seconds(SILENCE_MESSAGES * terms.log.message_bytes() / rate);
        let span = self.rtt.map_or(SILENCE_AT_FIRST, |rtt| 4 * rtt);
        self.silence = Some(Silence {
            ends: now + span.max(messages),
            total_bytes: terms.log.total_bytes(),
        });
    }
}

/// What a report allows to be sent anew; `None` where there is no limit.
pub(super) fn acceptable(report: &Report, config: &TfrcConfig) -> Option<f64> {
    let limited = report.rate_bytes_per_s < Report::UNLIMITED;
    let repaired = f64::from(report.repaired) / 65536.0;
    let anew = if config.count_repairs {
        1.0 - repaired
    } else {
        1.0
    };
    limited.then(|| f64::from(report.rate_bytes_per_s) * anew)
}

impl Group {
    pub(super) fn new(config: &TfrcConfig) -> Group {
        Group {
            log: SentLog::default(),
            remotes: BTreeMap::new(),
            allocation: Allocation::default(),
            allowed: config.initial_bytes_per_s(),
            told: 0.0,
        }
    }

    /// The rate at which local clients may send, all together.
    pub(super) fn allowed(&self) -> f64 {
        self.allowed
    }

    /// Whether a daemon elsewhere has members.
    pub(super) fn is_remote(&self) -> bool {
        !self.remotes.is_empty()
    }

    /// These daemons have members now. One that is gone counts no more; one that is new counts from
    /// its first report on.
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
            // The first message after a time without any: the answer to it is what the timer waits
            // for.
            let was_idle = remote
                .silence
                .is_none_or(|timer| timer.total_bytes == before);
            if was_idle {
                let terms = Terms {
                    log: &self.log,
                    config,
                    allowed: self.allowed,
                };
                remote.arm(now, &terms);
                remote
                    .silence
                    .iter_mut()
                    .for_each(|timer| timer.total_bytes = before);
            }
        }
    }

    /// A daemon has reported; returns the sample of the round-trip time that this gave, and the
    /// average. `None` within where the report gave none, `None` where the daemon has no members.
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

    /// Halves the rate for those that were silent for too long.
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

    /// The allowed rate anew: the minimum of the limits. Where none counts, it is the initial rate.
    /// Returns it where that is news.
    pub(super) fn settle(&mut self, now: Time, config: &TfrcConfig) -> Option<f64> {
        let limits = self.remotes.values().filter_map(|remote| remote.limit);
        let allowed = limits
            .reduce(f64::min)
            .unwrap_or(config.initial_bytes_per_s());
        if allowed != self.allowed {
            self.allowed = allowed;
            self.allocation.divide(now, allowed);
        }
        let is_news = (allowed - self.told).abs() > NOTICEABLE * self.told;
        is_news.then(|| {
            self.told = allowed;
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
    /// The initial rate in bytes per second.
    const INITIAL: f64 = 12_500.0;

    /// A group whose messages of 1000 bytes are sent exactly as they may, with a round-trip time of
    /// 0.1 s.
    struct Sending {
        group: Group,
        config: TfrcConfig,
        now: Time,
        sequence: u32,
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
            self.group.settle(self.now, &self.config);
            self.group.allowed()
        }

        /// Sends for so long, at the allowed rate times `part`; timers run.
        fn send(&mut self, span_s: f64, part: f64) {
            let end = self.now + seconds(span_s);
            while self.now < end {
                let rate = part * self.allowed();
                self.now = (self.now + seconds(1000.0 / rate)).min(end);
                self.sequence += 1;
                self.group
                    .on_sent(self.now, OriginSeq(self.sequence), 1000, &self.config);
                self.group.handle_timeout(self.now, &self.config);
            }
        }

        /// The last message but those of a round-trip time is acknowledged.
        fn report(&mut self, from: DaemonId, rate_bytes_per_s: u32, repaired: u16) {
            let places = 1..=self.sequence;
            let sent = |sequence: &u32| {
                let report = self.told(0, 0, *sequence);
                let found = self.group.log.acknowledged(self.now, &report);
                found.is_some_and(|found| found.rtt.as_secs_f64() >= 0.1 - 1e-6)
            };
            let acknowledged = places.rev().find(sent).unwrap_or(0);
            let report = self.told(rate_bytes_per_s, repaired, acknowledged);
            self.group.on_report(self.now, from, &report, &self.config);
        }

        fn told(&self, rate_bytes_per_s: u32, repaired: u16, acknowledged: u32) -> Report {
            Report {
                group: GroupId(1),
                rate_bytes_per_s,
                loss_event_rate: 0,
                repaired,
                acknowledged: OriginSeq(acknowledged),
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
    fn a_daemon_that_joins_counts_from_its_first_report_on() {
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
    fn slow_start_doubles_in_each_round_trip_but_not_what_is_not_used() {
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
        // What arrives is what was sent a round trip before: once that counts, it takes two of them
        // to double.
        assert!(reached > 8.0 * INITIAL, "{reached}");
        for _ in 0..20 {
            sending.send(0.12, 0.1);
            sending.report(NEAR, Report::UNLIMITED, 0);
        }
        assert!(sending.allowed() <= 2.1 * reached, "{}", sending.allowed());
    }

    #[test]
    fn a_daemon_that_falls_silent_halves_the_rate_again_and_again() {
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
        assert_eq!(sending.allowed(), 1000.0 / 64.0, "and not below");
        // It is heard again: from there it doubles, and does not jump.
        let before = sending.allowed();
        sending.send(100.0, 1.0);
        sending.report(NEAR, 40_000, 0);
        assert_eq!(sending.allowed(), 2.0 * before);
    }

    #[test]
    fn a_reported_rate_is_followed_at_once_up_to_twice_that_of_a_round_trip_time_ago() {
        let mut sending = Sending::new(&[NEAR]);
        sending.send(0.2, 1.0);
        sending.report(NEAR, 10_000, 0);
        assert_eq!(sending.allowed(), 10_000.0);
        sending.send(0.2, 1.0);
        sending.report(NEAR, 11_000, 0);
        // Losses make reports come early.
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
    fn who_sends_nothing_falls_back_to_the_initial_rate_and_then_has_no_timer() {
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
    fn repaired_copies_count_towards_the_rate_unless_they_are_not_to() {
        let report = Sending::new(&[]).told(10_000, 65536u32.div_euclid(4) as u16, 0);
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
