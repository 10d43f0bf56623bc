//! XCP's header, as it travels in a packet.

/// XCP's header (section IV): what the sender tells routers, and what they tell it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// The sender's congestion window in bytes, headers of packets included.
    pub cwnd: u32,
    /// The round-trip time that the sender knows, in microseconds; 0 where it knows none, or where it does not follow XCP.
    pub rtt_us: u32,
    /// By how much the window may change for this packet: what the sender wants, which routers can only lower.
    pub feedback: Feedback,
}

/// A change of a congestion window in units of 1/256 byte, so that the sum over a window's packets keeps small changes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Feedback(pub i32);

impl Feedback {
    /// The most that a header can ask for: some 8 MB for each packet.
    pub const MAX: Feedback = Feedback(i32::MAX);

    /// Rounded, and limited to what a header can carry.
    pub fn from_bytes(bytes: f64) -> Feedback {
        Feedback(libm::round(bytes * 256.0) as i32)
    }

    /// In bytes.
    pub fn bytes(self) -> f64 {
        f64::from(self.0) / 256.0
    }
}
