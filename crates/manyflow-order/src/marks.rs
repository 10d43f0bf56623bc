//! When a daemon marks the end of a round in its stream.
//!
//! A mark is wanted at once if a client waits: the daemon has sent an ordered message in its open
//! round, another daemon has closed a round that this one has not, or a message waits until it is
//! safe and this daemon has not said that it has it. It is wanted after a while if it only frees
//! memory. An overlay without messages has no marks.
//!
//! Marks keep a distance, the *pace*, from each other: an eighth of the time that a round takes, so
//! that messages wait little and busy daemons send one mark for many of them. Those by which
//! messages become safe keep it, too: at once, they would double the marks of busy daemons, which
//! fill thin links when there are many daemons.

use core::time::Duration;

use manyflow_core::time::Time;

use crate::config::OrderConfig;
use crate::present::Present;

/// The number of marks in a row that close no round.
const UNCLOSED_MAX: u32 = 16;

/// The number of records of a stream that are kept although no client waits for them.
const RECORDS_MAX: usize = 48;

/// The marks of this daemon in the present view.
#[derive(Debug)]
pub(crate) struct Marks {
    config: OrderConfig,
    /// The last round that this daemon has closed by a mark that it has sent.
    closed: u64,
    /// The last round that this daemon has said to have received.
    received: u64,
    /// The number of marks since the last one that closed a round: they are kept until another one
    /// does.
    unclosed: u32,
    /// When the last mark was sent.
    last: Option<Time>,
    /// Since when a mark that only frees memory is wanted.
    idle_since: Option<Time>,
    /// A round that is being measured, and when this daemon closed it.
    measured: Option<(u64, Time)>,
    round_time: Option<Duration>,
    /// Whether an ordered message has entered since the last mark.
    pub(crate) has_sent: bool,
}

/// How soon a mark is wanted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Want {
    Nothing,
    Idle,
    Now,
}

impl Marks {
    pub(crate) fn new(config: OrderConfig) -> Marks {
        Marks {
            config,
            closed: 0,
            received: 0,
            unclosed: 0,
            last: None,
            idle_since: None,
            measured: None,
            round_time: None,
            has_sent: false,
        }
    }

    /// Begins a view. The time of rounds that was measured remains.
    pub(crate) fn begin_view(&mut self) {
        (self.closed, self.received, self.unclosed) = (0, 0, 0);
        (self.idle_since, self.measured) = (None, None);
        self.has_sent = false;
    }

    /// Returns the next mark, as the round that it closes and the last one received, if it is due.
    pub(crate) fn poll(&mut self, now: Time, present: &Present) -> Option<(u64, u64)> {
        self.measure(now, present);
        let due = self.due(now, present)?;
        if due > now {
            return None;
        }
        let own = &present.streams[present.own];
        let has_open = self.has_sent || (own.closed == self.closed && own.holds_open());
        let is_long = own.closed == self.closed && own.len() > RECORDS_MAX;
        let must_close = has_open || is_long || self.unclosed >= UNCLOSED_MAX;
        let next = self.closed.saturating_add(u64::from(must_close));
        let closed = next.max(present.highest_closed());
        self.unclosed = match closed > self.closed {
            true => 0,
            false => self.unclosed + 1,
        };
        self.closed = closed;
        self.received = present.complete_with(self.closed);
        (self.last, self.idle_since) = (Some(now), None);
        self.has_sent = false;
        self.measured = self.measured.or(Some((self.closed, now)));
        Some((self.closed, self.received))
    }

    /// Returns when the next mark is due, as far as it is known at `now`.
    pub(crate) fn due(&mut self, now: Time, present: &Present) -> Option<Time> {
        let paced = self.last.map_or(now, |last| last + self.pace());
        match self.want(present) {
            Want::Nothing => {
                self.idle_since = None;
                None
            }
            Want::Now => Some(paced),
            Want::Idle => {
                let since = *self.idle_since.get_or_insert(now);
                Some(paced.max(since + self.config.idle))
            }
        }
    }

    fn want(&self, present: &Present) -> Want {
        if present.is_alone() {
            return Want::Nothing;
        }
        let can_acknowledge = present.complete_with(self.closed) > self.received;
        let delays_safety = present.awaits_safety() && can_acknowledge;
        if self.has_sent || present.highest_closed() > self.closed || delays_safety {
            return Want::Now;
        }
        let own = &present.streams[present.own];
        let is_long = own.len() > RECORDS_MAX;
        let holds =
            (present.holds_messages() || present.is_longer_than(RECORDS_MAX)) && can_acknowledge;
        match holds || (own.closed == self.closed && (own.holds_open() || is_long)) {
            true => Want::Idle,
            false => Want::Nothing,
        }
    }

    fn measure(&mut self, now: Time, present: &Present) {
        if let Some((round, begin)) = self.measured
            && present.complete() >= round
        {
            let sample = now - begin;
            let time = self.round_time;
            self.round_time = Some(time.map_or(sample, |time| (time * 7 + sample) / 8));
            self.measured = None;
        }
    }

    fn pace(&self) -> Duration {
        let time = self.round_time.unwrap_or_default() / 8;
        time.clamp(self.config.pace_min, self.config.pace_max)
    }
}
