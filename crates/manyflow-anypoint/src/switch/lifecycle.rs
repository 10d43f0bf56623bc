//! The life of a connection as a whole, and its one timer.

use core::time::Duration;

use super::SwitchConfig;
use manyflow_core::time::Time;

/// A finished connection answers repeated Closes for this long, as an end does: one that has not
/// heard that its Close arrived repeats it.
const LINGER: Duration = Duration::from_secs(30);

/// How far a connection has come, and when its timer is due.
#[derive(Debug)]
pub(super) struct Lifecycle {
    /// There has only been one member: every segment passes unchanged, and is only watched.
    is_pass_through: bool,
    /// The peer was told that the connection is open.
    is_accepted: bool,
    /// Nothing is left to do for the connection.
    is_over: bool,
    /// When both directions were closed and acknowledged.
    finished: Option<Time>,
    /// When the timer is due.
    due: Time,
    interval: Duration,
}

impl Lifecycle {
    /// A connection that the peer opens at `now`.
    ///
    /// The switch does not know its members' round-trip times: its timer fires four times before a
    /// member is given up.
    pub(super) fn new(now: Time, is_pass_through: bool, config: &SwitchConfig) -> Lifecycle {
        let interval = (config.failure_timeout / 4).min(config.keep_alive);
        Lifecycle {
            is_pass_through,
            is_accepted: false,
            is_over: false,
            finished: None,
            due: now + interval,
            interval,
        }
    }

    pub(super) fn is_pass_through(&self) -> bool {
        self.is_pass_through
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the timer is due. While everything passes unchanged there is none: the ends have
    /// theirs.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        (!self.is_pass_through && !self.is_over).then_some(self.due)
    }

    /// Restarts the timer if it is due, and returns whether it was.
    pub(super) fn take_timeout(&mut self, now: Time) -> bool {
        let is_due = self.poll_timeout().is_some_and(|due| now >= due);
        if is_due {
            self.due = now + self.interval;
        }
        is_due
    }

    /// The peer is told that the connection is open. Returns false if it was told before.
    pub(super) fn accept(&mut self) -> bool {
        !core::mem::replace(&mut self.is_accepted, true)
    }

    /// Frames are renumbered from now on. Returns false if they were already.
    pub(super) fn leave_pass_through(&mut self, now: Time) -> bool {
        let passed = core::mem::replace(&mut self.is_pass_through, false);
        if passed {
            self.due = now + self.interval;
        }
        passed
    }

    /// Both directions are closed and acknowledged.
    pub(super) fn finish(&mut self, now: Time) {
        let since = *self.finished.get_or_insert(now);
        debug_assert!(since <= now, "time never goes back");
    }

    /// The connection is over if it has lingered for long enough.
    pub(super) fn expire(&mut self, now: Time) {
        self.is_over |= self.finished.is_some_and(|since| now - since >= LINGER);
    }

    /// The connection is over at once.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }
}
