//! The parameters of TCP.

use manyflow_core::EndpointId;
use manyflow_tcp::{self as tcp, LossDetection, Recovery, SlowStart, TcpConfig, Variant};
use serde::Deserialize;

use super::set;
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, Count, Seconds};

/// `sessions.tcp`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TcpTable {
    /// The congestion control: `new-reno`, `sack`, `cubic`, `bbr` (version 1), `bbr3`, `dctcp`,
    /// `prague`. `manyflow emulate` has the kernel's for the first four, and runs the others as the
    /// simulator does: see docs/tcp.md.
    ///
    /// Default: `sack`.
    pub variant: Option<TcpVariant>,
    /// How the window of `new-reno`, `sack` and `cubic` grows before the first loss: `standard`
    /// (RFC 5681), `hystart`, which ends slow start when acknowledgements come for half of the
    /// round-trip time or that rises, as in Linux, or `hystart++`, when it rises (RFC 9406).
    ///
    /// Default: `standard`.
    pub slow_start: Option<SlowStartName>,
    /// How losses are detected: `duplicates`, three segments acknowledged above (RFC 6675), or
    /// `rack`, by time, with probes of a flight's tail (RACK-TLP, RFC 8985).
    ///
    /// Default: `duplicates`; `rack` with `bbr`, `bbr3`, `dctcp` and `prague`.
    pub loss_detection: Option<LossDetectionName>,
    /// How many segments are sent while losses are repaired: `window`, as many as the reduced
    /// window permits (RFC 6675), or `prr`, in proportion to those delivered (RFC 6937). BBR
    /// decides itself.
    ///
    /// Default: `window`; `prr` with `dctcp` and `prague`.
    pub recovery: Option<RecoveryName>,
    /// The name of a congestion control of the calling program, which replaces the variant: see
    /// docs/python.md#a-controller-of-your-own.
    ///
    /// Default: none.
    pub control: Option<String>,
    /// The data of a segment; headers are added.
    ///
    /// Default: `1000 B`.
    pub segment: Option<Bits>,
    /// The initial window, in segments.
    ///
    /// Default: 2.
    pub initial_window: Option<Count>,
    /// The receiver's window, in segments.
    ///
    /// Default: 10000.
    pub maximum_window: Option<Count>,
    /// Whether only every second segment is acknowledged.
    ///
    /// Default: false.
    pub delayed_acks: Option<bool>,
    /// Whether routers mark its packets instead of dropping them. With `dctcp` and `prague` they
    /// always do.
    ///
    /// Default: false.
    pub ecn: Option<bool>,
    /// The amount of data to send.
    ///
    /// Default: without end.
    pub transfer: Option<Bits>,
    /// The shortest retransmission time-out.
    ///
    /// Default: `200 ms`.
    pub minimum_rto: Option<Seconds>,
    /// The maximum of a random time that each packet waits at the host. Without a jitter of one
    /// packet time at the bottleneck, flows fall into step and their shares are arbitrary
    /// (scenarios/tcp-2.toml).
    ///
    /// Default: `0 s`.
    pub send_jitter: Option<Seconds>,
}

/// TCP's congestion control.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpVariant {
    /// NewReno (RFC 6582).
    NewReno,
    /// Loss recovery with selective acknowledgements (RFC 6675).
    Sack,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR version 1.
    Bbr,
    /// BBR version 3 (draft-ietf-ccwg-bbr).
    Bbr3,
    /// DCTCP (RFC 8257).
    Dctcp,
    /// Prague (draft-briscoe-iccrg-prague-congestion-control).
    Prague,
}

impl TcpVariant {
    /// Returns whether an emulated run has the kernel's congestion control for it.
    pub fn is_of_kernel(self) -> bool {
        use TcpVariant::{Bbr, Cubic, NewReno, Sack};
        matches!(self, NewReno | Sack | Cubic | Bbr)
    }
}

/// How a window grows before the first loss.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowStartName {
    /// RFC 5681.
    Standard,
    /// Ha and Rhee 2011, as in Linux.
    #[serde(rename = "hystart")]
    HyStart,
    /// RFC 9406.
    #[serde(rename = "hystart++")]
    HyStartPlusPlus,
}

/// How losses are detected.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossDetectionName {
    /// RFC 6675.
    Duplicates,
    /// RFC 8985.
    Rack,
}

/// How many segments are sent while losses are repaired.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryName {
    /// RFC 6675.
    Window,
    /// RFC 6937.
    Prr,
}

impl TcpTable {
    /// Returns the congestion control, if it is given.
    pub fn variant(&self) -> Option<Variant> {
        self.variant.map(|variant| match variant {
            TcpVariant::NewReno => Variant::NewReno,
            TcpVariant::Sack => Variant::Sack,
            TcpVariant::Cubic => Variant::Cubic,
            TcpVariant::Bbr => Variant::Bbr,
            TcpVariant::Bbr3 => Variant::Bbr3,
            TcpVariant::Dctcp => Variant::Dctcp,
            TcpVariant::Prague => Variant::Prague,
        })
    }

    /// Sets how the variant starts, detects losses and repairs them, where it is given.
    fn set_parts(&self, config: &mut TcpConfig) {
        let slow_start = self.slow_start.map(|name| match name {
            SlowStartName::Standard => SlowStart::Standard,
            SlowStartName::HyStart => SlowStart::HyStart,
            SlowStartName::HyStartPlusPlus => SlowStart::HyStartPlusPlus,
        });
        set(&mut config.slow_start, slow_start);
        let detection = self.loss_detection.map(|name| match name {
            LossDetectionName::Duplicates => LossDetection::Duplicates,
            LossDetectionName::Rack => LossDetection::RackTlp,
        });
        set(&mut config.loss_detection, detection);
        let recovery = self.recovery.map(|name| match name {
            RecoveryName::Window => Recovery::Window,
            RecoveryName::Prr => Recovery::Prr,
        });
        set(&mut config.recovery, recovery);
    }

    /// Returns the parameters of a connection. The caller sets start and stop.
    pub fn config(&self) -> TcpConfig {
        let mut config = TcpConfig::of(self.variant().unwrap_or_default());
        self.set_parts(&mut config);
        set(
            &mut config.segment_bytes,
            self.segment.map(|size| size.bytes() as u32),
        );
        set(
            &mut config.initial_window,
            self.initial_window.map(Count::get),
        );
        set(
            &mut config.maximum_window,
            self.maximum_window.map(Count::get),
        );
        set(&mut config.delayed_acks, self.delayed_acks);
        set(&mut config.ecn, self.ecn);
        set(
            &mut config.minimum_rto,
            self.minimum_rto.map(Seconds::duration),
        );
        set(
            &mut config.send_jitter,
            self.send_jitter.map(Seconds::duration),
        );
        let segment_bytes = u64::from(config.segment_bytes.max(1));
        let segments = |size: Bits| size.bytes().div_ceil(segment_bytes) as u32;
        config.transfer = self.transfer.map(segments);
        config
    }

    /// Checks that the parameters are in their ranges.
    pub fn check(&self) -> Result<(), Fault> {
        let receiver = tcp::Receiver::new(self.config(), EndpointId(0));
        receiver.map(|_| ()).map_err(Fault::value)
    }
}
