//! A congestion control of one's own, in place of those of [`Variant`](crate::Variant).

use core::fmt::Debug;

use manyflow_core::Time;

/// The state of a connection when its control is called.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Moment {
    /// The present time.
    pub now: Time,
    /// The number of segments that the acknowledgement covers for the first time; 0 for losses and
    /// time-outs.
    pub acknowledged: u32,
    /// The payload of a segment in bytes.
    pub segment_bytes: u32,
    /// The number of segments that are assumed to be in the network.
    pub in_flight: u32,
    /// The smoothed round-trip time in seconds, 0 before the first sample (RFC 6298).
    pub rtt_s: f64,
    /// The latest sample of the round-trip time in seconds, 0 before the first. One segment per
    /// round trip is timed.
    pub rtt_sample_s: f64,
    /// Whether a router's mark stands for the loss (RFC 3168).
    pub is_mark: bool,
}

/// Decides how fast a [`Sender`](crate::Sender) sends. The sender detects losses by selective
/// acknowledgements, and retransmits lost segments, within the window and the rate that the control
/// gives.
pub trait Control: Debug + Send {
    /// Handles an acknowledgement of new segments.
    fn on_ack(&mut self, moment: &Moment);

    /// Handles losses or a mark: once for each window of data, however many segments are lost.
    fn on_loss(&mut self, moment: &Moment);

    /// Handles the expiry of the retransmission timer: all segments in flight count as lost.
    fn on_timeout(&mut self, moment: &Moment);

    /// Returns the congestion window in segments. Values below 1, and those that are not numbers,
    /// count as 1, and the maximum is the receiver's window.
    fn window_segments(&self) -> f64;

    /// Returns the maximum rate in bits per second, headers included, which spaces segments evenly,
    /// or `None` if only the window limits the sender. Rates that are not positive numbers count as
    /// none.
    fn rate_bits_per_s(&self) -> Option<f64> {
        None
    }
}
