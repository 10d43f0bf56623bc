//! Events that a TCP connection reports.

/// An event at one end of a connection.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A round-trip time was measured.
    Rtt {
        /// The sample, in seconds.
        sample_s: f64,
        /// The smoothed round-trip time after the sample, in seconds (RFC 6298 section 2).
        average_s: f64,
    },
    /// Fast recovery began, or the window was reduced for an ECN mark.
    LossEvent,
    /// The congestion window has changed by a whole packet or more.
    CongestionWindow {
        /// The window in packets.
        packets: f64,
    },
    /// The retransmission timer ran out (RFC 6298 section 5).
    RetransmissionTimeout,
    /// A segment was sent again, after a loss or a time-out.
    Retransmission,
    /// All data of a limited transfer was acknowledged.
    Finished,
}
