//! TCP in scenarios: its parameters, and what is recorded of it.

mod events;
mod session;
mod wire;

pub(crate) use session::Tcp;

use manyflow_core::EndpointId;
use manyflow_tcp::{self as tcp, TcpConfig, Variant};
use serde::Deserialize;

use super::set;
use crate::error::Fault;
use crate::quantity::{Bits, Count, Seconds};

/// `sessions.tcp`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TcpTable {
    /// The congestion control.
    pub variant: Option<TcpVariant>,
    /// Bytes of data in a segment.
    pub segment: Option<Bits>,
    /// The first window, in segments.
    pub initial_window: Option<Count>,
    /// The receiver's window, in segments.
    pub maximum_window: Option<Count>,
    /// Whether every second segment is acknowledged instead of each.
    pub delayed_acks: Option<bool>,
    /// Whether it reacts to marks instead of drops.
    pub ecn: Option<bool>,
    /// How much data there is; without it there is no end.
    pub transfer: Option<Bits>,
    /// The shortest retransmission time-out.
    pub minimum_rto: Option<Seconds>,
    /// Each segment waits at the host for up to so long, uniformly: against the lockstep of a
    /// simulation.
    pub send_jitter: Option<Seconds>,
}

/// TCP's congestion control.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpVariant {
    /// RFC 6582.
    NewReno,
    /// RFC 6675.
    Sack,
    /// RFC 9438.
    Cubic,
}

impl TcpTable {
    /// A connection's parameters; start and stop are the caller's.
    pub(crate) fn config(&self) -> TcpConfig {
        let mut config = TcpConfig::default();
        set(
            &mut config.variant,
            self.variant.map(|variant| match variant {
                TcpVariant::NewReno => Variant::NewReno,
                TcpVariant::Sack => Variant::Sack,
                TcpVariant::Cubic => Variant::Cubic,
            }),
        );
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

    /// Whether the parameters are in their ranges.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let receiver = tcp::Receiver::new(self.config(), EndpointId(0));
        receiver.map(|_| ()).map_err(Fault::value)
    }
}
