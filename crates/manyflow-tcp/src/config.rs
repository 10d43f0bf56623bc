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
    /// BBR version 1, which paces at the measured delivery rate (Cardwell and others, "BBR:
    /// Congestion-Based Congestion Control", 2016; draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr3,
    /// DCTCP: the window shrinks by the share of marked segments (RFC 8257).
    Dctcp,
    /// Prague: DCTCP for the Internet, with ECT(1), pacing, and less dependence on the round-trip
    /// time (draft-briscoe-iccrg-prague-congestion-control).
    Prague,
}

/// How a window grows before the first loss.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowStart {
    /// By a segment for each acknowledgement, until a loss (RFC 5681).
    #[default]
    Standard,
    /// HyStart ends it when the acknowledgements of a window last for half of the round-trip time,
    /// or that rises, as in Linux (Ha and Rhee 2011).
    HyStart,
    /// HyStart++ ends it when the round-trip time rises (RFC 9406).
    HyStartPlusPlus,
}

/// How losses are detected with selective acknowledgements.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossDetection {
    /// By three SACKed segments above (RFC 6675).
    #[default]
    Duplicates,
    /// By the time since a segment was sent, with probes of the flight's tail (RFC 8985).
    RackTlp,
}

/// How many segments are sent while losses are repaired.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// As many as the reduced window permits (RFC 6675).
    #[default]
    Window,
    /// In proportion to the segments delivered: Proportional Rate Reduction (RFC 6937).
    Prr,
}

impl Variant {
    /// Returns whether receivers report the blocks that they hold (RFC 2018).
    pub const fn uses_sack(self) -> bool {
        !matches!(self, Variant::NewReno)
    }

    /// Returns whether receivers report the exact number of marked packets (RFC 9768), which a
    /// control in proportion to it needs.
    pub const fn counts_marks(self) -> bool {
        matches!(self, Variant::Dctcp | Variant::Prague)
    }
}

/// The parameters of a connection, the same at both ends. The defaults are those of ns-2, except
/// for the maximum window.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// How losses are detected and the window changes.
    pub variant: Variant,
    /// How NewReno's, SACK's or CUBIC's window grows before the first loss.
    pub slow_start: SlowStart,
    /// How losses are detected; NewReno has only duplicates.
    pub loss_detection: LossDetection,
    /// How many segments are sent while losses are repaired. BBR decides itself, and NewReno has
    /// only its window.
    pub recovery: Recovery,
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
    /// Whether routers may mark packets instead of dropping them (RFC 3168). With DCTCP and Prague
    /// they always may.
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
            slow_start: SlowStart::default(),
            loss_detection: LossDetection::default(),
            recovery: Recovery::default(),
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
    /// Returns the defaults for a variant: those of today's stacks for the variants that came after
    /// CUBIC, which are RACK-TLP and, where the control does not decide itself, Proportional Rate
    /// Reduction.
    pub fn of(variant: Variant) -> TcpConfig {
        let (loss_detection, recovery) = match variant {
            Variant::NewReno | Variant::Sack | Variant::Cubic => Default::default(),
            Variant::Bbr | Variant::Bbr3 => (LossDetection::RackTlp, Recovery::Window),
            Variant::Dctcp | Variant::Prague => (LossDetection::RackTlp, Recovery::Prr),
        };
        TcpConfig {
            variant,
            loss_detection,
            recovery,
            ..TcpConfig::default()
        }
    }

    /// Returns whether routers may mark the connection's packets.
    pub(super) fn is_ecn_capable(&self) -> bool {
        self.ecn || self.variant.counts_marks()
    }

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
                "loss detection by RACK-TLP",
                "used with selective acknowledgements, which `new-reno` has not",
                self.variant.uses_sack() || self.loss_detection == LossDetection::Duplicates,
            ),
            (
                "recovery by PRR",
                "used with selective acknowledgements, which `new-reno` has not",
                self.variant.uses_sack() || self.recovery == Recovery::Window,
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
