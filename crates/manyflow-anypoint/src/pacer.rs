//! When frames leave: their spacing, and how many leave together.
//!
//! Where XCP routers answer, single frames leave at the rate that their headers state. In fallback,
//! they leave as the segments of a TCP whose receiver acknowledges every second one (RFC 5681
//! section 4.2): two when the window has room for two, and one more by which it has grown. A full
//! drop-tail queue has room for what has just left it, so the first frame of a burst is kept and
//! the others are lost. A flow of single frames would therefore lose less than TCP, and had up to
//! 3.4 times the rate of the kernel's CUBIC on a path without jitter (docs/anypoint.md).

use core::time::Duration;

use super::window::Window;
use manyflow_core::time::Time;

/// The most frames that leave together in fallback. After an acknowledgement of many frames, the
/// others follow at the paced rate.
const TOGETHER_MAX: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// The time before which no frame is sent while others are in flight.
    until: Time,
    /// A frame waits only for `until`.
    is_waiting: bool,
    /// The frames that have left together so far, if the next one may follow them at once.
    together: u32,
}

impl Pacer {
    /// Returns when a frame may leave that waits only for its turn.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.is_waiting.then_some(self.until)
    }

    /// Notes that no frame is there to be sent.
    pub(super) fn rest(&mut self) {
        self.is_waiting = false;
        self.together = 0;
    }

    /// Returns the bytes for which the window is to have room beyond a frame of `wire_bytes` that
    /// others can follow.
    pub(super) fn reserve(&self, window: &Window, wire_bytes: u32) -> u64 {
        match self.together == 0 && window.sends_pairs() {
            true => wire_bytes.into(),
            false => 0,
        }
    }

    /// Returns whether a frame may leave now. Others are `in_flight`, and the window `has_room`.
    ///
    /// With nothing in flight, frames are not paced: the round-trip time may have changed since it
    /// was measured.
    pub(super) fn permits(
        &mut self,
        now: Time,
        window: &Window,
        in_flight: bool,
        has_room: bool,
    ) -> bool {
        let is_early = self.together == 0 && now + window.burst() < self.until;
        self.is_waiting = has_room && in_flight && is_early;
        if !has_room {
            self.together = 0;
        }
        has_room && !self.is_waiting
    }

    /// Notes that a frame leaves, which takes `spacing` at the paced rate. A world whose timers are
    /// late may catch up.
    pub(super) fn note(&mut self, now: Time, window: &Window, spacing: Duration) {
        let is_late = now > self.until + window.lateness(spacing);
        let due = if is_late { now } else { self.until };
        self.until = due + spacing;
        self.is_waiting = false;
        self.together = match window.sends_pairs() {
            true => (self.together + 1) % TOGETHER_MAX,
            false => 0,
        };
    }
}
