//! The state of a connection as a whole, and its one timer.

use core::time::Duration;

use super::SwitchConfig;
use manyflow_core::time::Time;

/// The time for which a finished connection answers repeated Closes, as an end does: an end repeats
/// its Close until the Close is acknowledged.
const LINGER: Duration = Duration::from_secs(30);

/// The state of a connection, and the time at which its timer is due.
#[derive(Debug)]
pub(super) struct Lifecycle {
    /// The service has only ever had one member: every segment passes unchanged and is only
    /// watched.
    is_pass_through: bool,
    /// The switch has sent the peer an Accept, or passed one on.
    is_accepted: bool,
    /// Nothing is left to do for the connection.
    is_over: bool,
    /// When both directions were closed and acknowledged.
    finished: Option<Time>,
    /// The time at which the timer is due.
    due: Time,
    interval: Duration,
}

impl Lifecycle {
    /// Creates the state of a connection that the peer opens at `now`.
    ///
    /// The switch does not know its members' round-trip times. Its timer fires at least four times
    /// before a member is given up.
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

    /// Returns when the timer is due. A connection that passes everything unchanged has no timer:
    /// its ends have theirs.
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

    /// Notes that the connection is accepted towards the peer. Returns false if it was before.
    pub(super) fn accept(&mut self) -> bool {
        !core::mem::replace(&mut self.is_accepted, true)
    }

    /// Ends pass-through: frames are renumbered from now on. Returns false if they were already.
    pub(super) fn leave_pass_through(&mut self, now: Time) -> bool {
        let passed = core::mem::replace(&mut self.is_pass_through, false);
        if passed {
            self.due = now + self.interval;
        }
        passed
    }

    /// Notes that both directions are closed and acknowledged.
    pub(super) fn finish(&mut self, now: Time) {
        let since = *self.finished.get_or_insert(now);
        debug_assert!(since <= now, "time never goes back");
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_over || self.finished.is_some()
    }

    /// Ends the connection if it has lingered for long enough.
    pub(super) fn expire(&mut self, now: Time) {
        self.is_over |= self.finished.is_some_and(|since| now - since >= LINGER);
    }

    /// Ends the connection at once.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }
}
