//! The parameters of TCP.

use manyflow_core::EndpointId;
use manyflow_tcp::{self as tcp, TcpConfig, Variant};
use serde::Deserialize;

use super::set;
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, Count, Seconds};

/// `sessions.tcp`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TcpTable {
    /// The congestion control: `new-reno`, `sack`, `cubic`; `bbr` is the kernel's and runs only
    /// with `manyflow emulate`.
    ///
    /// Default: `sack`.
    pub variant: Option<TcpVariant>,
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
    /// Whether routers mark its packets instead of dropping them.
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
    /// BBR of the kernel, in emulated runs only.
    Bbr,
}

impl TcpTable {
    /// Returns the congestion control, if it is given.
    pub fn variant(&self) -> Option<Variant> {
        self.variant.map(|variant| match variant {
            TcpVariant::NewReno => Variant::NewReno,
            TcpVariant::Sack => Variant::Sack,
            // The simulator refuses BBR when the connection is added.
            TcpVariant::Cubic | TcpVariant::Bbr => Variant::Cubic,
        })
    }

    /// Returns the parameters of a connection. The caller sets start and stop.
    pub fn config(&self) -> TcpConfig {
        let mut config = TcpConfig::default();
        set(&mut config.variant, self.variant());
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
