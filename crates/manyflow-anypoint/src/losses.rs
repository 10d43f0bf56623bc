//! The window that follows losses, in bytes on the wire: of an end, and of a switch for all of its
//! members together.

use manyflow_core::cubic::Cubic;
use manyflow_core::time::Time;

/// cwnd and ssthresh of TCP Reno (RFC 5681) or of CUBIC (RFC 9438).
#[derive(Clone, Debug)]
pub(crate) struct LossWindow {
    /// cwnd.
    pub(crate) bytes: f64,
    /// ssthresh: the window at which slow start ends.
    pub(super) threshold: f64,
    /// CUBIC's state; `None` for Reno.
    cubic: Option<Cubic>,
}

/// The path of a window: what its growth depends on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Path {
    /// The present time.
    pub(crate) now: Time,
    /// The average round-trip time in seconds.
    pub(crate) rtt_s: f64,
    /// The longest frame in bytes on the wire: a segment of TCP.
    pub(crate) frame: f64,
}

impl LossWindow {
    /// Creates Reno's window of `bytes` in slow start.
    pub(crate) fn reno(bytes: f64) -> LossWindow {
        LossWindow {
            bytes,
            threshold: f64::INFINITY,
            cubic: None,
        }
    }

    /// Creates CUBIC's window of `bytes` in slow start.
    pub(crate) fn cubic(bytes: f64) -> LossWindow {
        LossWindow {
            cubic: Some(Cubic::default()),
            ..LossWindow::reno(bytes)
        }
    }

    /// Returns whether the window doubles in a round trip.
    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.bytes < self.threshold
    }

    /// Ends slow start at the present window.
    pub(crate) fn end_slow_start(&mut self) {
        self.threshold = self.bytes;
    }

    /// Returns the increase that `frames` acknowledged frames allow: as much in slow start (RFC
    /// 5681 section 3.1), later a frame in each round trip, or CUBIC's curve.
    pub(crate) fn growth(&mut self, path: Path, frames: f64) -> f64 {
        let Path { now, rtt_s, frame } = path;
        if self.is_in_slow_start() {
            return frames * frame;
        }
        let window = self.bytes / frame;
        match &mut self.cubic {
            Some(cubic) => (cubic.grown(now, window, frames, rtt_s) - window) * frame,
            None => frames * frame / window,
        }
    }

    /// Notes that the window does not limit the sender, or that something else limits its growth.
    /// Such time does not count for CUBIC (RFC 9438 section 5.8).
    pub(crate) fn stand(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.stand();
        }
    }

    /// Begins to follow losses from the present window on, after a time in which it followed
    /// something else or nothing was sent.
    pub(crate) fn restart(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.end_epoch();
        }
    }

    /// Handles the first loss in a round trip: reduces the window to half, CUBIC's to seven tenths,
    /// but to no less than two frames (RFC 5681 Eq. (4), RFC 9438 section 4.6). Returns the part
    /// that remains without that limit.
    pub(crate) fn on_loss(&mut self, frame: f64) -> f64 {
        let kept = match &mut self.cubic {
            Some(cubic) => cubic.on_congestion(self.bytes / frame) * frame,
            None => self.bytes / 2.0,
        };
        self.threshold = kept.max(2.0 * frame);
        self.bytes = self.threshold;
        kept
    }

    /// Handles a retransmission time-out: the window becomes one frame. `again`: nothing was
    /// acknowledged since the last time-out, so the threshold remains.
    pub(crate) fn on_timeout(&mut self, frame: f64, again: bool) {
        if !again {
            self.on_loss(frame);
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.on_timeout();
        }
        self.bytes = frame;
    }
}
