//! Soft flow control: the receive buffer is treated as an XCP queue whose drain rate is unknown
//! (section IV-A).
//!
//! The receiver lowers the feedback of each arriving frame, as a router does, so that the sender's
//! window fits both the application and the buffer. [`SoftConfig::follow_drain`] chooses one of two
//! laws:
//!
//! | law | file | how it finds the drain rate |
//! |---|---|---|
//! | probing | `soft/probe.rs` | the paper's law: five cases, additive increase and multiplicative decrease |
//! | following | `soft/follow.rs` | measures it while frames wait, and keeps the sum of frames in flight and in the buffer constant |
//!
//! Probing gains two segments in each round trip, so it needs tens of round trips to reach the rate
//! of a faster application; the paper calls it "less agile" than credit. Following reaches the new
//! rate in two round trips, and is the default for that reason.

mod follow;
mod probe;
#[cfg(test)]
mod tests;

use super::config::SoftConfig;
use super::frame::frame_header_bytes;
use follow::Follow;
use manyflow_core::time::Time;
use manyflow_core::xcp::{Congestion, WindowChange};
use probe::Probe;

/// The controller at a receiving end. It has no timer: each arrival of a frame does the work that
/// is due.
#[derive(Debug)]
pub(super) enum SoftFlow {
    Probe(Probe),
    Follow(Follow),
}

impl SoftFlow {
    /// Creates a controller for a receive buffer of `buffer_bytes` and frames of at most
    /// `frame_bytes`.
    pub(super) fn new(config: SoftConfig, buffer_bytes: u32, frame_bytes: u32) -> SoftFlow {
        let buffer = Buffer {
            bytes: buffer_bytes.into(),
            increase_below: config.increase_below * f64::from(buffer_bytes),
            decrease_above: config.decrease_above * f64::from(buffer_bytes),
            header_bytes: frame_header_bytes(),
        };
        match config.follow_drain {
            true => SoftFlow::Follow(Follow::new(buffer)),
            false => SoftFlow::Probe(Probe::new(config, buffer, frame_bytes)),
        }
    }

    /// Handles an arriving packet of `wire_bytes`: lowers its feedback where the application is
    /// slower than the network. `occupied` is the number of bytes in the buffer before this frame
    /// is added. `is_readable`: no earlier frame is missing, so that only the application can delay
    /// the frame.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        congestion: &mut Congestion,
        wire_bytes: u32,
        occupied: u32,
        is_readable: bool,
    ) {
        if congestion.rtt_us == 0 {
            congestion.feedback = WindowChange::default();
            return;
        }
        match self {
            SoftFlow::Probe(probe) => probe.on_arrival(now, congestion, wire_bytes, occupied),
            SoftFlow::Follow(follow) => {
                follow.on_arrival(now, congestion, wire_bytes, occupied, is_readable);
            }
        }
    }

    /// Handles a frame that was dropped because it did not fit the buffer.
    pub(super) fn on_overflow(&mut self, now: Time) {
        match self {
            SoftFlow::Probe(probe) => probe.on_overflow(),
            SoftFlow::Follow(follow) => follow.on_overflow(now),
        }
    }

    /// Handles a read: the application took a frame of `bytes` and left `readable` bytes that it
    /// can read. Frames beyond a gap do not count: they wait for the network.
    pub(super) fn on_read(&mut self, now: Time, bytes: u32, readable: u32) {
        match self {
            SoftFlow::Probe(probe) => probe.on_read(bytes),
            SoftFlow::Follow(follow) => follow.on_read(now, bytes, readable),
        }
    }
}

/// The receive buffer, as both laws see it; sizes are in bytes of frames.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    bytes: f64,
    increase_below: f64,
    decrease_above: f64,
    /// Bytes of headers that each frame adds to a congestion window.
    header_bytes: u32,
}

impl Buffer {
    /// Returns the ratio of window bytes to frame bytes, for packets of `wire_bytes`.
    fn wire_factor(&self, wire_bytes: u32) -> f64 {
        let frame_bytes = wire_bytes.saturating_sub(self.header_bytes).max(1);
        f64::from(wire_bytes) / f64::from(frame_bytes)
    }
}
