//! The parameters of layered multicast: SIM and RLM.

mod events;
mod session;
mod wire;

pub(crate) use session::{Rlm, Sim};

use manyflow_core::{EndpointId, Time};
use manyflow_layered::{rlm, sim};
use serde::Deserialize;

use super::set;
use crate::schema::OneOrMany;
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, Probability, Seconds};

/// `sessions.sim`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SimTable {
    /// n_g: the number of groups.
    pub groups: Option<Count>,
    /// The size of a packet, including headers.
    pub packet: Option<Bits>,
    /// The initial rate of each group.
    pub initial_rate: Option<BitsPerSecond>,
    /// The minimum rate of each group.
    pub minimum_rate: Option<BitsPerSecond>,
    /// The maximum rate of all groups together.
    pub maximum_rate: Option<BitsPerSecond>,
    /// The additive increase: the packets per round-trip time by which a rate grows in each
    /// round-trip time.
    pub increase: Option<Number>,
    /// The largest increase of a round, as a share of the rate.
    pub step_max: Option<Number>,
    /// The factor by which a rate grows in each round until its first congestion.
    pub start_factor: Option<Number>,
    /// Whether each group's rate is adjusted as a TCP on the path of its receivers would.
    pub tcp_fair: Option<bool>,
    /// The factor of the multiplicative decrease.
    pub decrease: Option<Number>,
    /// The smallest factor of a decrease to the rate that receivers get.
    pub decrease_min: Option<Number>,
    /// The longest round-trip time, until feedback reports it.
    pub initial_rtt: Option<Seconds>,
    /// The menu adaptation interval, in longest round-trip times.
    pub menu_rtts: Option<Count>,
    /// The selection interval, in longest round-trip times.
    pub selection_rtts: Option<Count>,
    /// The weight of the received rate of a round in its average.
    pub rate_weight: Option<Number>,
    /// The share of congested rounds up to which a receiver counts as not congested.
    pub calm_share: Option<Probability>,
    /// The share of lost packets above which a round is lossy.
    pub loss_max: Option<Probability>,
    /// The maximum number of failed trials of a group that lengthen the wait for the next.
    pub backoffs: Option<Count>,
    /// The nodes that aggregate feedback, or `all`.
    pub aggregators: Option<OneOrMany>,
    /// The outage of an aggregator.
    pub outage: Option<OutageTable>,
}

/// `sessions.sim.outage`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OutageTable {
    /// The node of the aggregator.
    pub node: String,
    /// The time at which the aggregator crashes.
    pub from: Seconds,
    /// The time at which the aggregator restarts, without its state.
    pub to: Seconds,
}

/// `sessions.rlm`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RlmTable {
    /// The rate that each group adds.
    pub rates: Vec<BitsPerSecond>,
    /// The size of a packet, including headers.
    pub packet: Option<Bits>,
    /// The minimum of T_J, the interval between join experiments.
    pub join_timer_min: Option<Seconds>,
    /// The maximum of T_J, the interval between join experiments.
    pub join_timer_max: Option<Seconds>,
    /// Alpha: the factor by which T_J grows.
    pub backoff: Option<Number>,
    /// Beta: the factor by which T_J shrinks.
    pub relaxation: Option<Number>,
    /// D, the detection time, until it has been measured.
    pub detection_time: Option<Seconds>,
    /// Sigma, the deviation of the detection time, until it has been measured.
    pub detection_deviation: Option<Seconds>,
    /// The weight of D in T_D.
    pub k1: Option<Number>,
    /// The weight of sigma in T_D.
    pub k2: Option<Number>,
    /// The weight of a measurement in D.
    pub g1: Option<Number>,
    /// The weight of a measurement in sigma.
    pub g2: Option<Number>,
    /// The share of lost packets above which a measurement leads to a drop.
    pub loss_threshold: Option<Probability>,
    /// The number of packets that must arrive before a measurement is judged.
    pub measured_packets: Option<Count>,
}

impl SimTable {
    /// Returns the parameters of the sender.
    ///
    /// # Errors
    /// Returns an error if there are more groups than a session can have.
    pub(crate) fn sender(&self) -> Result<sim::SenderConfig, Fault> {
        let mut config = sim::SenderConfig::default();
        set(&mut config.groups, self.groups.map(groups).transpose()?);
        set(&mut config.packet_bytes, self.packet.map(packet_bytes));
        let rates = [
            (&mut config.initial_rate, self.initial_rate),
            (&mut config.minimum_rate, self.minimum_rate),
            (&mut config.maximum_rate, self.maximum_rate),
        ];
        for (rate, given) in rates {
            set(rate, given.map(BitsPerSecond::rate));
        }
        set(&mut config.increase, self.increase.map(|x| x.0));
        set(&mut config.step_max, self.step_max.map(|x| x.0));
        set(&mut config.start_factor, self.start_factor.map(|x| x.0));
        set(&mut config.tcp_fair, self.tcp_fair);
        set(&mut config.decrease, self.decrease.map(|x| x.0));
        set(&mut config.decrease_min, self.decrease_min.map(|x| x.0));
        set(
            &mut config.initial_rtt,
            self.initial_rtt.map(Seconds::duration),
        );
        set(&mut config.menu_rtts, self.menu_rtts.map(Count::get));
        Ok(config)
    }

    /// Returns the parameters of the receivers.
    pub(crate) fn receiver(&self) -> sim::ReceiverConfig {
        let mut config = sim::ReceiverConfig::default();
        set(
            &mut config.selection_rtts,
            self.selection_rtts.map(Count::get),
        );
        set(&mut config.rate_weight, self.rate_weight.map(|x| x.0));
        set(&mut config.calm_share, self.calm_share.map(|p| p.0));
        set(&mut config.loss_max, self.loss_max.map(|p| p.0));
        set(&mut config.backoffs, self.backoffs.map(Count::get));
        config
    }

    /// Checks that the parameters are in their ranges.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let config = self.sender()?;
        let groups = config.groups;
        sim::Sender::new(config, 0, Time::ZERO, None).map_err(Fault::value)?;
        let parent = EndpointId(0);
        let receiver = sim::Receiver::new(self.receiver(), groups, 0, 0, parent, Time::ZERO, None);
        receiver.map(|_| ()).map_err(Fault::value)
    }
}

impl RlmTable {
    /// Returns the parameters of the sender.
    pub(crate) fn sender(&self) -> rlm::SenderConfig {
        rlm::SenderConfig {
            rates: self.rates.iter().map(|rate| rate.rate()).collect(),
            packet_bytes: self.packet.map_or(1000, packet_bytes),
        }
    }

    /// Returns the number of groups.
    ///
    /// # Errors
    /// Returns an error if there are more groups than a session can have.
    pub(crate) fn groups(&self) -> Result<u8, Fault> {
        groups(Count(self.rates.len() as f64))
    }

    /// Returns the parameters of the receivers.
    pub(crate) fn receiver(&self) -> rlm::ReceiverConfig {
        let mut config = rlm::ReceiverConfig::default();
        let times = [
            (&mut config.join_timer_min, self.join_timer_min),
            (&mut config.join_timer_max, self.join_timer_max),
            (&mut config.detection_time, self.detection_time),
            (&mut config.detection_deviation, self.detection_deviation),
        ];
        for (time, given) in times {
            set(time, given.map(Seconds::duration));
        }
        let numbers = [
            (&mut config.backoff, self.backoff),
            (&mut config.relaxation, self.relaxation),
            (&mut config.k1, self.k1),
            (&mut config.k2, self.k2),
            (&mut config.g1, self.g1),
            (&mut config.g2, self.g2),
        ];
        for (number, given) in numbers {
            set(number, given.map(|x| x.0));
        }
        set(&mut config.loss_threshold, self.loss_threshold.map(|p| p.0));
        set(
            &mut config.measured_packets,
            self.measured_packets.map(Count::get),
        );
        config
    }

    /// Checks that the parameters are in their ranges.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        rlm::Sender::new(self.sender(), 0, Time::ZERO, None).map_err(Fault::value)?;
        let (config, groups) = (self.receiver(), self.groups()?);
        let receiver = rlm::Receiver::new(config, groups, 0, EndpointId(0), 0, Time::ZERO, None);
        receiver.map(|_| ()).map_err(Fault::value)
    }
}

fn groups(count: Count) -> Result<u8, Fault> {
    u8::try_from(count.get()).map_err(|_| Fault::value("a session has at most 32 groups"))
}

fn packet_bytes(size: Bits) -> u32 {
    size.bytes() as u32
}
