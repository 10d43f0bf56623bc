//! The parameters of sources without congestion control.

use manyflow_core::{Destination, EndpointId, Time};
use manyflow_tcp::cbr::{Pattern, Periods, Source, SourceConfig};
use serde::Deserialize;

use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, BitsPerSecond, Seconds};

/// `sessions.cbr`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CbrTable {
    /// The rate, including headers.
    pub rate: BitsPerSecond,
    /// The length of a packet, including headers.
    ///
    /// Default: `1000 B`.
    pub packet: Option<Bits>,
    /// The spacing of packets in time: `constant`, `on-off` or `poisson`.
    ///
    /// Default: `constant`.
    #[serde(default)]
    pub pattern: CbrPattern,
    /// For `on-off`: the time for which it sends.
    ///
    /// Default: required with `on-off`.
    #[serde(default)]
    pub on: Seconds,
    /// For `on-off`: the time for which it is silent.
    ///
    /// Default: required with `on-off`.
    #[serde(default)]
    pub off: Seconds,
    /// Whether the periods are exponentially distributed. For `on-off`.
    #[serde(default)]
    pub random_periods: bool,
}

/// The spacing of the packets of a CBR source in time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CbrPattern {
    /// Sends packets at equal intervals.
    #[default]
    Constant,
    /// Sends packets at equal intervals in on-periods, and none in off-periods.
    OnOff,
    /// Sends packets at exponentially distributed intervals.
    Poisson,
}

impl CbrTable {
    /// Returns the parameters of a source. The caller sets start and stop.
    pub fn config(&self, destination: Destination) -> SourceConfig {
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

    /// Checks that the parameters are in their ranges.
    pub fn check(&self) -> Result<(), Fault> {
        let config = self.config(Destination::Endpoint(EndpointId(0)));
        Source::new(config, 0).map(|_| ()).map_err(Fault::value)
    }
}
