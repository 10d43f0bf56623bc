//! The rounds of the receivers that share requests: those of the session, or those with one top
//! group.

use core::time::Duration;

use super::base_rtt::BaseRtt;
use super::config::{Edition, SenderConfig};
use super::round::Round;
use crate::Feedback;
use manyflow_core::time::{Time, seconds};

/// The number of rounds in a row without any report after which the next receivers can have another
/// round-trip time than the last ones.
const SILENT_ROUNDS: u32 = 5;

/// The range of round-trip times.
const RTT_MIN: Duration = Duration::from_millis(1);
const RTT_MAX: Duration = Duration::from_secs(10);

/// The rounds of receivers that share requests, one after the other.
#[derive(Debug)]
pub(super) struct Cycle {
    pub(super) round: Round,
    /// When the round began.
    since: Time,
    /// Whether the reports of the round have been acted on.
    pub(super) is_adjusted: bool,
    /// Whether an early report has lowered the lowest group in the round. Those that follow are
    /// from before the decrease took effect, also if other reports have been acted on meanwhile.
    pub(super) has_early: bool,
    /// The number of rounds in a row without reports.
    silent: u32,
    /// The longest round-trip time to the receivers.
    rtt: Duration,
    /// The minimum of the longest round-trip time, in which the second edition counts.
    base_rtt: BaseRtt,
    /// The lowest and the highest received rate in the last round with reports; `None` after rounds
    /// without.
    pub(super) received: Option<(u32, u32)>,
    /// Whether these are the rounds of one group.
    is_of_group: bool,
    edition: Edition,
    initial_rtt: Duration,
    rtt_growth_max: f64,
}

impl Cycle {
    pub(super) fn new(config: &SenderConfig, start: Time) -> Cycle {
        Cycle {
            round: Round::new(),
            since: start,
            is_adjusted: false,
            has_early: false,
            silent: 0,
            rtt: config.initial_rtt,
            base_rtt: BaseRtt::new(start, config.initial_rtt),
            received: None,
            is_of_group: config.group_rounds,
            edition: config.edition,
            initial_rtt: config.initial_rtt,
            rtt_growth_max: config.rtt_growth_max,
        }
    }

    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Returns the round-trip time in which intervals are counted.
    pub(super) fn interval_rtt(&self) -> Duration {
        match self.edition {
            Edition::Paper => self.rtt,
            Edition::Second => self.base_rtt.get(),
        }
    }

    /// Begins the next round.
    pub(super) fn begin(&mut self, now: Time) {
        let request = self.round.request().wrapping_add(1).max(1);
        self.round.begin(request, None);
        (self.since, self.is_adjusted, self.has_early) = (now, false, false);
    }

    /// Returns the end of the round: two round-trip times after its start, or four while answers
    /// are missing. Without known receivers, the round-trip time is that of the next one, which is
    /// not known, and counts from the packet that carries the request; so it does in rounds of one
    /// group, whose packets can be rarer than rounds. `next` is the time of the next packet.
    pub(super) fn due(&self, next: Time) -> Time {
        let asked = self.round.opened().unwrap_or(next).max(self.since);
        if self.round.is_childless() {
            return asked + 2 * self.rtt.max(self.initial_rtt);
        }
        let length = match self.is_adjusted {
            true => 2 * self.interval_rtt(),
            false => 4 * self.rtt,
        };
        let since = if self.is_of_group { asked } else { self.since };
        since + length
    }

    /// Adds a report. Returns whether the round is complete, and can be acted on.
    pub(super) fn add(&mut self, now: Time, feedback: &Feedback) -> bool {
        self.round.add(now, feedback);
        !self.is_adjusted && self.round.is_complete() && self.round.has_reports()
    }

    /// Handles a round without reports. The next receiver can have another round-trip time than
    /// those that have left: a longer one than that of the session, and one that is not known in a
    /// group. Returns whether several such rounds have followed each other.
    pub(super) fn on_silent_round(&mut self, now: Time) -> bool {
        self.silent = self.silent.saturating_add(1);
        let is_silent = self.silent >= SILENT_ROUNDS;
        if is_silent {
            self.rtt = match self.is_of_group {
                true => self.initial_rtt,
                false => self.rtt.max(self.initial_rtt),
            };
            self.base_rtt = BaseRtt::new(now, self.rtt);
            self.received = None;
        }
        is_silent
    }

    /// Handles the reports of a round with these lowest and highest received rates. Learns the
    /// longest round-trip time of all receivers: adopts a longer one at once, up to the maximum
    /// growth of a round, and approaches a shorter one slowly, unless these are the first receivers
    /// of a group.
    pub(super) fn on_reports(&mut self, now: Time, received: (u32, u32)) {
        let is_first = self.is_of_group && self.received.is_none();
        self.silent = 0;
        self.received = Some(received);
        self.learn_rtt(is_first);
        self.base_rtt.add(now, self.rtt);
    }

    fn learn_rtt(&mut self, is_first: bool) {
        let limit = self.rtt.as_secs_f64() * self.rtt_growth_max;
        let longest = self.round.longest_rtt().min(seconds(limit));
        if longest.is_zero() {
            return;
        }
        let smoothed = if longest > self.rtt || is_first {
            longest
        } else {
            self.rtt - (self.rtt - longest) / if self.is_of_group { 2 } else { 8 }
        };
        self.rtt = smoothed.clamp(RTT_MIN, RTT_MAX);
    }
}
