//! Sources without congestion control in scenarios: their parameters, and what is recorded of them.

mod events;
mod session;
mod wire;

pub(crate) use session::Cbr;

use manyflow_core::{Destination, EndpointId, Time};
use manyflow_tcp::cbr::{Pattern, Periods, Source, SourceConfig};
use serde::Deserialize;

use crate::error::Fault;
use crate::quantity::{Bits, BitsPerSecond, Seconds};

/// `sessions.cbr`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CbrTable {
    /// The rate, headers counted.
    pub rate: BitsPerSecond,
    /// Bytes of a packet, headers counted.
    pub packet: Option<Bits>,
    /// How packets are spread in time.
    #[serde(default)]
    pub pattern: CbrPattern,
    /// For `on-off`: how long it sends, or the mean of it.
    #[serde(default)]
    pub on: Seconds,
    /// For `on-off`: how long it is silent, or the mean of it.
    #[serde(default)]
    pub off: Seconds,
    /// For `on-off`: whether these times are exponentially distributed.
    #[serde(default)]
    pub random_periods: bool,
}

/// How the packets of a constant bit rate are spread in time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CbrPattern {
    /// At equal intervals.
    #[default]
    Constant,
    /// At equal intervals while on.
    OnOff,
    /// At exponentially distributed intervals.
    Poisson,
}

impl CbrTable {
    /// A source's parameters; destination, start and stop are the caller's.
    pub(crate) fn config(&self, destination: Destination) -> SourceConfig {
        let periods = match self.random_periods {
            true => Periods::Exponential,
            false => Periods::Fixed,
        };
        SourceConfig {
            destination,
            rate: self.rate.rate(),
            packet_bytes: self.packet.map_or(1000, |size| size.bytes() as u32),
            pattern: match self.pattern {
                CbrPattern::Constant => Pattern::Constant,
                CbrPattern::Poisson => Pattern::Poisson,
                CbrPattern::OnOff => Pattern::OnOff {
                    on: self.on.duration(),
                    off: self.off.duration(),
                    periods,
                },
            },
            start: Time::ZERO,
            stop: None,
        }
    }

    /// Whether the parameters are in their ranges.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let config = self.config(Destination::Endpoint(EndpointId(0)));
        Source::new(config, 0).map(|_| ()).map_err(Fault::value)
    }
}
