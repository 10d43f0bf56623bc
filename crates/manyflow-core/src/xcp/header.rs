//! XCP's header in a packet.

/// XCP's header: a sender's report to the routers on its path, and the window change that they
/// grant.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// The sender's congestion window in bytes, headers of packets included.
    pub cwnd: u32,
    /// The sender's round-trip time in microseconds; 0 if it is unknown, or if the sender does not
    /// follow XCP.
    pub rtt_us: u32,
    /// The change of the window for this packet. The sender writes the change that it wants, and
    /// routers can only lower it.
    pub feedback: WindowChange,
    /// Whether an XCP router on the path has handled the packet. The sender writes false.
    pub answered: bool,
}

/// The answer to a packet's [`Congestion`] header, which its acknowledgement carries to the sender.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// The change of the window that the routers and the receiver left.
    pub change: WindowChange,
    /// Whether an XCP router on the path has handled the packet. Otherwise only the receiver can
    /// have lowered the change.
    pub answered: bool,
    /// Whether a switch has averaged the change over several packets.
    pub averaged: bool,
}

/// A change of a congestion window in units of 1/256 byte.
///
/// The unit is small so that the sum over the packets of a window keeps small changes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowChange(pub i32);

impl WindowChange {
    /// The largest increase that a header can carry: about 8 MB.
    pub const MAX: WindowChange = WindowChange(i32::MAX);

    /// Returns the change nearest to `bytes`. Saturates at the limits of a header.
    pub fn from_bytes(bytes: f64) -> WindowChange {
        WindowChange(libm::round(bytes * 256.0) as i32)
    }

    /// Returns the change in bytes.
    pub fn bytes(self) -> f64 {
        f64::from(self.0) / 256.0
    }
}
