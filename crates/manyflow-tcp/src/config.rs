//! The configuration of a connection.

use core::time::Duration;

use super::{HEADER_BYTES, MAX_OPTION_BYTES};
pub use manyflow_core::ConfigError;
use manyflow_core::time::Time;

/// How a sender detects losses and changes its window.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// Duplicate and partial acknowledgements show losses; the window follows RFC 5681 (RFC 6582).
    NewReno,
    /// Selective acknowledgements show losses; the window follows RFC 5681 (RFC 6675).
    #[default]
    Sack,
    /// Selective acknowledgements show losses; the window is a cubic function of time (RFC 9438).
    Cubic,
}

impl Variant {
    /// Returns whether receivers report the blocks that they hold (RFC 2018).
    pub const fn uses_sack(self) -> bool {
        !matches!(self, Variant::NewReno)
    }
}

/// The parameters of a connection, the same at both ends. The defaults are those of ns-2, except
/// for the maximum window.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// How losses are detected and the window changes.
    pub variant: Variant,
    /// The payload of a segment in bytes, at least 1. On a link a segment takes [`HEADER_BYTES`]
    /// more.
    pub segment_bytes: u32,
    /// The initial window in segments, at least 1 (RFC 5681 section 3.1; RFC 6928 allows 10).
    pub initial_window: u32,
    /// The receiver's window in segments, at least the initial window. The sender never sends a
    /// segment this far beyond the acknowledged ones.
    pub maximum_window: u32,
    /// The time at which the sender begins.
    pub start: Time,
    /// The time at which the sender has no more data. Segments that it has sent by then are still
    /// delivered.
    pub stop: Option<Time>,
    /// The number of segments to send, at least 1; `None` for no end (in fact, 2^32 - 1 segments).
    pub transfer: Option<u32>,
    /// Whether the receiver acknowledges only every second segment, or after 100 ms (RFC 5681
    /// section 4.2).
    pub delayed_acks: bool,
    /// Whether routers may mark packets instead of dropping them (RFC 3168).
    pub ecn: bool,
    /// The minimum of the retransmission time-out. RFC 6298 section 2.4 says 1 s, ns-2 and Linux
    /// use 200 ms.
    pub minimum_rto: Duration,
    /// The maximum of a random delay, uniformly distributed, between the time at which the window
    /// permits a segment and its transmission: ns-2's `overhead_`. Without such jitter,
    /// deterministic sources and drop-tail queues fall into step, and one connection takes all the
    /// losses.
    pub send_jitter: Duration,
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig {
            variant: Variant::default(),
            segment_bytes: 1000,
            initial_window: 2,
            maximum_window: 10_000,
            start: Time::ZERO,
            stop: None,
            transfer: None,
            delayed_acks: false,
            ecn: false,
            minimum_rto: Duration::from_millis(200),
            send_jitter: Duration::ZERO,
        }
    }
}

impl TcpConfig {
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let largest = u32::from(u16::MAX) - HEADER_BYTES - MAX_OPTION_BYTES;
        let checks = [
            (
                "the segment's payload",
                "1 to 65,467 bytes",
                (1..=largest).contains(&self.segment_bytes),
            ),
            (
                "the initial window",
                "at least one segment",
                self.initial_window >= 1,
            ),
            (
                "the maximum window",
                "at least the initial one, and at most 2^20 segments",
                (self.initial_window..=1 << 20).contains(&self.maximum_window),
            ),
            (
                "the transfer",
                "at least one segment",
                self.transfer != Some(0),
            ),
            (
                "the minimum retransmission time-out",
                "1 ms to 60 s",
                (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&self.minimum_rto),
            ),
        ];
        ConfigError::first_of(checks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_outside_its_range_is_refused_by_name() {
        let config = TcpConfig {
            initial_window: 20,
            maximum_window: 10,
            ..TcpConfig::default()
        };
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with("the maximum window must be"), "{error}");
        assert_eq!(TcpConfig::default().check(), Ok(()));
    }
}
