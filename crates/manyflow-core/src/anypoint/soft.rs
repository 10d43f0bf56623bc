//! Soft flow control: the receive buffer as an XCP queue whose drain rate is found by probing (section IV-A).

use super::config::SoftConfig;
use super::segment::Congestion;
use crate::time::Time;

/// The controller at a receiving host. It keeps no timer: what is due is done when a frame arrives.
#[derive(Debug)]
pub(super) struct SoftFlow {
    _config: SoftConfig,
}

impl SoftFlow {
    /// For a receive buffer of `buffer_bytes`, and frames of `frame_bytes` at most.
    pub(super) fn new(config: SoftConfig, _buffer_bytes: u32, _frame_bytes: u32) -> SoftFlow {
        SoftFlow { _config: config }
    }

    /// A packet of `wire_bytes` arrives while `occupied` bytes of the buffer are taken: lowers its feedback where the application
    /// is slower than the network.
    pub(super) fn on_arrival(
        &mut self,
        _now: Time,
        _congestion: &mut Congestion,
        _wire_bytes: u32,
        _occupied: u32,
    ) {
    }

    /// A frame did not fit the buffer.
    pub(super) fn on_overflow(&mut self, _now: Time) {}

    /// The application took a frame of `bytes`, and left `occupied` bytes in the buffer.
    pub(super) fn on_read(&mut self, _now: Time, _bytes: u32, _occupied: u32) {}
}
