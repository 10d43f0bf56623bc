//! What a connection is like.

use core::time::Duration;

use super::{HEADER_BYTES, MAX_OPTION_BYTES};
pub use manyflow_core::ConfigError;
use manyflow_core::time::Time;

/// How a sender finds losses and changes its window.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Duplicate acknowledgements and partial ones; the window of RFC 5681 (RFC 6582).
    NewReno,
    /// Selective acknowledgements; the window of RFC 5681 (RFC 6675).
    #[default]
    Sack,
    /// Selective acknowledgements; a window that is a cubic function of time (RFC 9438).
    Cubic,
}

impl Variant {
    /// Whether receivers report the blocks that they hold (RFC 2018).
    pub const fn uses_sack(self) -> bool {
        !matches!(self, Variant::NewReno)
    }
}

/// The parameters of a connection, the same at both ends. The defaults are those of ns-2, except for the maximum window.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// How losses are found and the window changes.
    pub variant: Variant,
    /// Payload of a segment, at least 1 byte; on a link it takes [`HEADER_BYTES`] more.
    pub segment_bytes: u32,
    /// The window to begin with, in segments, at least 1 (RFC 5681 section 3.1; RFC 6928 allows 10).
    pub initial_window: u32,
    /// The receiver's window in segments, at least the initial one: no segment is sent this far beyond what is acknowledged.
    pub maximum_window: u32,
    /// When the sender begins.
    pub start: Time,
    /// When it has no more data; what was sent by then is still delivered.
    pub stop: Option<Time>,
    /// How many segments there are to send, at least 1; `None` is without end (2^32 - 1 segments, to be exact).
    pub transfer: Option<u32>,
    /// The receiver acknowledges every second segment, or after 100 ms (RFC 5681 section 4.2).
    pub delayed_acks: bool,
    /// Packets may be marked instead of dropped (RFC 3168).
    pub ecn: bool,
    /// The retransmission time-out is never below this. RFC 6298 section 2.4 says 1 s, ns-2 and Linux 200 ms.
    pub minimum_rto: Duration,
    /// What the window lets go waits for a random time, uniform up to this, before it goes: ns-2's `overhead_`. Without any,
    /// deterministic sources and drop-tail queues fall into step, and one connection takes all the losses.
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
    /// Where a parameter is outside its range.
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
