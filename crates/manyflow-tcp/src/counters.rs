//! The counters of a sender.

/// Counts what a sender has done so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent, including retransmissions.
    pub sent: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// How often fast recovery began.
    pub fast_recoveries: u64,
    /// How often the retransmission timer expired.
    pub timeouts: u64,
    /// Series of time-outs: consecutive time-outs of one segment count once.
    pub timeout_series: u64,
    /// How often a mark reduced the window.
    pub marks_heeded: u64,
    /// Segments sent to probe a closed window. `sent` does not include them.
    pub probes: u64,
}
