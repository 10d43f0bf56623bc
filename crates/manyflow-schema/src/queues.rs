//! `codel`, `fq-codel`, `cake`, `pie` and `dualpi2` of `[[links]]`: active queue management.

use manyflow_core::link::{
    Aqm, CakeConfig, CoDelConfig, DualPi2Config, FqCoDelConfig, Isolation, Multicast, PieConfig,
};
use manyflow_model::quantity::{Bits, Count, Number, Seconds};
use serde::Deserialize;

/// `codel`: controlled delay (RFC 8289).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CoDelTable {
    /// The time in the queue that is tolerated for longer than an interval.
    ///
    /// Default: `5 ms`.
    pub target: Option<Seconds>,
    /// A worst-case round-trip time of the connections.
    ///
    /// Default: `100 ms`.
    pub interval: Option<Seconds>,
    /// Whether packets that support ECN are marked instead of dropped.
    ///
    /// Default: true.
    pub ecn: Option<bool>,
}

/// `fq-codel`: fair queueing of flows with CoDel (RFC 8290).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FqCoDelTable {
    /// As in `codel`, for each flow.
    ///
    /// Default: `5 ms`.
    pub target: Option<Seconds>,
    /// As in `codel`, for each flow.
    ///
    /// Default: `100 ms`.
    pub interval: Option<Seconds>,
    /// As in `codel`.
    ///
    /// Default: true.
    pub ecn: Option<bool>,
    /// The number of queues, at most 65536. Flows that a salted hash gives the same number share
    /// one.
    ///
    /// Default: 1024.
    pub flows: Option<Count>,
    /// The size of what a flow may send in each round.
    ///
    /// Default: `1514 B`.
    pub quantum: Option<Bits>,
    /// The flows of a multicast session: each of its `channels`, or the whole `session`, as if a
    /// tunnel (AMT) carried it.
    ///
    /// Default: `channels`.
    #[serde(default)]
    pub multicast: MulticastName,
}

/// The flows of multicast sessions in `fq-codel`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MulticastName {
    /// One for each channel.
    #[default]
    Channels,
    /// One.
    Session,
}

/// `cake`: the core of CAKE: fair queueing of hosts and of their flows, with CoDel.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CakeTable {
    /// As in `codel`, for each flow.
    ///
    /// Default: `5 ms`.
    pub target: Option<Seconds>,
    /// As in `codel`, for each flow.
    ///
    /// Default: `100 ms`.
    pub interval: Option<Seconds>,
    /// As in `codel`.
    ///
    /// Default: true.
    pub ecn: Option<bool>,
    /// The hosts that share the link equally: `triple` for sources and destinations, `sources`,
    /// `destinations`, or `flows` for none.
    ///
    /// Default: `triple`.
    #[serde(default)]
    pub isolation: IsolationName,
    /// The size of what a flow may send in each round if its hosts have no other flow.
    ///
    /// Default: `1514 B`.
    pub quantum: Option<Bits>,
}

/// The hosts that share a link equally.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationName {
    /// Sources and destinations.
    #[default]
    Triple,
    /// Sources.
    Sources,
    /// Destinations.
    Destinations,
    /// None: flows share the link equally.
    Flows,
}

/// `pie`: proportional integral controller enhanced (RFC 8033).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PieTable {
    /// The delay that the controller aims at.
    ///
    /// Default: `15 ms`.
    pub target: Option<Seconds>,
    /// The length of a burst that passes without a drop.
    ///
    /// Default: `150 ms`.
    pub burst: Option<Seconds>,
    /// Whether packets that support ECN are marked instead of dropped, up to a probability of 0.1.
    ///
    /// Default: true.
    pub ecn: Option<bool>,
}

/// `dualpi2`: the coupled dual queue for L4S (RFC 9332).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DualPi2Table {
    /// The delay of the classic queue that the controller aims at.
    ///
    /// Default: `15 ms`.
    pub target: Option<Seconds>,
    /// The worst-case round-trip time of the connections, RTT_max, from which the gains follow.
    ///
    /// Default: `100 ms`.
    pub rtt_max: Option<Seconds>,
    /// The coupling factor k: scalable packets are marked with k times the probability whose square
    /// is that of classic packets.
    ///
    /// Default: 2.
    pub coupling: Option<Number>,
    /// The delay of the L4S queue at which its own marks begin.
    ///
    /// Default: `800 us`.
    pub threshold: Option<Seconds>,
    /// The range above the threshold in which the probability of these marks grows to 1; `0 s` for
    /// a step.
    ///
    /// Default: `400 us`.
    pub ramp: Option<Seconds>,
    /// Whether classic packets that support ECN are marked instead of dropped.
    ///
    /// Default: true.
    pub ecn: Option<bool>,
}

fn codel(target: Option<Seconds>, interval: Option<Seconds>, ecn: Option<bool>) -> CoDelConfig {
    let default = CoDelConfig::default();
    CoDelConfig {
        target: target.map_or(default.target, Seconds::duration),
        interval: interval.map_or(default.interval, Seconds::duration),
        ecn: ecn.unwrap_or(default.ecn),
    }
}

fn bytes(size: Option<Bits>, otherwise: u32) -> u32 {
    size.map_or(otherwise, |size| size.bytes().min(u32::MAX.into()) as u32)
}

impl CoDelTable {
    pub(super) fn aqm(self) -> Aqm {
        Aqm::CoDel(codel(self.target, self.interval, self.ecn))
    }
}

impl FqCoDelTable {
    pub(super) fn aqm(self) -> Aqm {
        let default = FqCoDelConfig::default();
        Aqm::FqCoDel(FqCoDelConfig {
            codel: codel(self.target, self.interval, self.ecn),
            flows: self.flows.map_or(default.flows, Count::get),
            quantum_bytes: bytes(self.quantum, default.quantum_bytes),
            multicast: match self.multicast {
                MulticastName::Channels => Multicast::Channels,
                MulticastName::Session => Multicast::Session,
            },
        })
    }
}

impl CakeTable {
    pub(super) fn aqm(self) -> Aqm {
        Aqm::Cake(CakeConfig {
            codel: codel(self.target, self.interval, self.ecn),
            isolation: match self.isolation {
                IsolationName::Triple => Isolation::Triple,
                IsolationName::Sources => Isolation::Sources,
                IsolationName::Destinations => Isolation::Destinations,
                IsolationName::Flows => Isolation::Flows,
            },
            quantum_bytes: bytes(self.quantum, CakeConfig::default().quantum_bytes),
        })
    }
}

impl PieTable {
    pub(super) fn aqm(self) -> Aqm {
        let default = PieConfig::default();
        Aqm::Pie(PieConfig {
            target: self.target.map_or(default.target, Seconds::duration),
            burst: self.burst.map_or(default.burst, Seconds::duration),
            ecn: self.ecn.unwrap_or(default.ecn),
        })
    }
}

impl DualPi2Table {
    pub(super) fn aqm(self) -> Aqm {
        let default = DualPi2Config::default();
        Aqm::DualPi2(DualPi2Config {
            target: self.target.map_or(default.target, Seconds::duration),
            rtt_max: self.rtt_max.map_or(default.rtt_max, Seconds::duration),
            coupling: self.coupling.map_or(default.coupling, |k| k.0),
            threshold: self.threshold.map_or(default.threshold, Seconds::duration),
            ramp: self.ramp.map_or(default.ramp, Seconds::duration),
            ecn: self.ecn.unwrap_or(default.ecn),
        })
    }
}

/// Checks the parameters of a queue.
///
/// # Errors
/// Returns the reason if no queue can have them.
pub(super) fn check(aqm: &Aqm) -> Result<(), &'static str> {
    match *aqm {
        Aqm::FqCoDel(config) if !(1..=65536).contains(&config.flows) => {
            Err("`fq-codel.flows` is from 1 to 65536")
        }
        Aqm::FqCoDel(FqCoDelConfig {
            quantum_bytes: 0, ..
        })
        | Aqm::Cake(CakeConfig {
            quantum_bytes: 0, ..
        }) => Err("a `quantum` is at least `1 B`"),
        Aqm::DualPi2(config) if config.target.is_zero() || config.rtt_max.is_zero() => {
            Err("`dualpi2.target` and `dualpi2.rtt-max` are above `0 s`")
        }
        Aqm::DualPi2(config) if !(config.coupling > 0.0 && config.coupling <= 1000.0) => {
            Err("`dualpi2.coupling` is above 0 and at most 1000")
        }
        _ => Ok(()),
    }
}
