//! XCP's header, as it travels in a packet.

/// XCP's header: what a sender reports to the routers on its path, and what they grant it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// The sender's congestion window in bytes, headers of packets included.
    pub cwnd: u32,
    /// The sender's round-trip time in microseconds; 0 if it is unknown, or if the sender does not
    /// follow XCP.
    pub rtt_us: u32,
    /// By how much the window may change for this packet: the sender writes what it wants, and
    /// routers can only lower it.
    pub feedback: WindowChange,
}

/// A change of a congestion window in units of 1/256 byte.
///
/// The unit is small so that the sum over the packets of a window keeps small changes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowChange(pub i32);

impl WindowChange {
    /// The largest increase that a header can carry: about 8 MB.
    pub const MAX: WindowChange = WindowChange(i32::MAX);

    /// The change nearest to `bytes`, saturating at what a header can carry.
    pub fn from_bytes(bytes: f64) -> WindowChange {
        WindowChange(libm::round(bytes * 256.0) as i32)
    }

    /// The change in bytes.
    pub fn bytes(self) -> f64 {
        f64::from(self.0) / 256.0
    }
}
