//! The window of TCP Reno (RFC 5681), in bytes on the wire: of an end, and of a switch for all of
//! its members together.

/// cwnd and ssthresh.
#[derive(Debug)]
pub(crate) struct Reno {
    /// cwnd.
    pub(crate) bytes: f64,
    /// ssthresh: the window at which slow start ends.
    pub(super) threshold: f64,
}

impl Reno {
    /// Creates a window of `bytes` in slow start.
    pub(crate) fn new(bytes: f64) -> Reno {
        Reno {
            bytes,
            threshold: f64::INFINITY,
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

    /// Returns the increase that one acknowledged frame allows: a frame in slow start, else a frame
    /// in each round trip (RFC 5681 section 3.1). Frames have `frame` bytes.
    pub(crate) fn growth(&self, frame: f64) -> f64 {
        if self.is_in_slow_start() {
            frame
        } else {
            frame * frame / self.bytes
        }
    }

    /// Handles the first loss in a round trip: halves the window, to at least two frames (RFC 5681
    /// Eq. (4)).
    pub(crate) fn on_loss(&mut self, frame: f64) {
        self.threshold = (self.bytes / 2.0).max(2.0 * frame);
        self.bytes = self.threshold;
    }
}
