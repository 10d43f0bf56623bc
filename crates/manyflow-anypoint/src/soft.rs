//! Soft flow control: the receive buffer as an XCP queue, whose drain rate is not known (section
//! IV-A).
//!
//! The receiver lowers the feedback of each frame that arrives, as a router does, so that the
//! sender's window fits both the application and the buffer. There are two laws, of which
//! [`SoftConfig::follow_drain`] chooses one:
//!
//! | law | file | how it finds the drain rate |
//! |---|---|---|
//! | probing | `soft/probe.rs` | the paper's: five cases, an additive increase and a multiplicative decrease |
//! | following | `soft/follow.rs` | measures it while frames wait, and keeps frames in flight and in the buffer together constant |
//!
//! Probing gains two segments in a round trip, so a faster application waits for tens of them. The
//! paper reports as much: "less agile" than credit. Following reaches the new rate in two round
//! trips; that is why it is the default.

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

/// The controller at a receiving host. It keeps no timer: what is due is done when a frame arrives.
#[derive(Debug)]
pub(super) enum SoftFlow {
    Probe(Probe),
    Follow(Follow),
}

impl SoftFlow {
    /// For a receive buffer of `buffer_bytes`, and frames of `frame_bytes` at most.
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

    /// A packet of `wire_bytes` arrives while `occupied` bytes of the buffer are taken: lowers its
    /// feedback where the application is slower than the network. `occupied` does not count the
    /// frame itself, which is going to be taken.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        congestion: &mut Congestion,
        wire_bytes: u32,
        occupied: u32,
    ) {
        if congestion.rtt_us == 0 {
            congestion.feedback = WindowChange::default();
            return;
        }
        match self {
            SoftFlow::Probe(probe) => probe.on_arrival(now, congestion, wire_bytes, occupied),
            SoftFlow::Follow(follow) => follow.on_arrival(now, congestion, wire_bytes, occupied),
        }
    }

    /// A frame did not fit the buffer, and was dropped instead of arriving.
    pub(super) fn on_overflow(&mut self, now: Time) {
        match self {
            SoftFlow::Probe(probe) => probe.on_overflow(),
            SoftFlow::Follow(follow) => follow.on_overflow(now),
        }
    }

    /// The application took a frame of `bytes`, and left `occupied` bytes in the buffer.
    pub(super) fn on_read(&mut self, now: Time, bytes: u32, occupied: u32) {
        match self {
            SoftFlow::Probe(probe) => probe.on_read(bytes),
            SoftFlow::Follow(follow) => follow.on_read(now, bytes, occupied),
        }
    }
}

/// What both laws know of the buffer, in bytes of frames.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    bytes: f64,
    increase_below: f64,
    decrease_above: f64,
    /// What a frame takes in a congestion window besides.
    header_bytes: u32,
}

impl Buffer {
    /// Bytes of a window for each byte of frames in it, of packets as long as this.
    fn wire_factor(&self, wire_bytes: u32) -> f64 {
        let frame_bytes = wire_bytes.saturating_sub(self.header_bytes).max(1);
        f64::from(wire_bytes) / f64::from(frame_bytes)
    }
}
