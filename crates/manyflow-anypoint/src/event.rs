//! Events that connections and switches report.

use super::Reason;
use super::switch::MemberId;

/// An event of a connection, of the application at its end, or of a switch.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A round-trip time was measured.
    Rtt {
        /// The sample, in seconds.
        sample_s: f64,
        /// The smoothed round-trip time after the sample, in seconds.
        average_s: f64,
    },
    /// Frames were detected as lost; all losses of one round trip are one event.
    LossEvent,
    /// The congestion window has changed by a whole frame or more.
    CongestionWindow {
        /// The window in frames.
        packets: f64,
    },
    /// The retransmission timer expired.
    RetransmissionTimeout,
    /// A frame, or the closing, was sent again.
    Retransmission,
    /// All frames of this end, and its closing, are acknowledged.
    Finished,
    /// The application took a frame from the receive buffer.
    Delivered {
        /// The frame's length in bytes.
        bytes: u32,
        /// The frame's key.
        key: u32,
    },
    /// A frame arrived for which the receive buffer had no room; it was dropped.
    Overflow,
    /// The connection ended before both directions were closed.
    Failed(Reason),
    /// A member of the service failed: it did not answer in time, kept frames without an answer, or
    /// reset the connection.
    MemberFailed(MemberId),
    /// A member of the service is alive, but takes no frames. It gets no new ones.
    MemberStalled(MemberId),
    /// A member that was stalled gets frames again.
    MemberResumed(MemberId),
    /// A frame of the peer was for a member that does not exist or no longer exists; it was
    /// dropped.
    FrameDropped {
        /// The frame's key.
        key: u32,
    },
}
