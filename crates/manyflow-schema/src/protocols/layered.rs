//! The parameters of layered multicast: SIM, RLM, RLC and FLID-DL.

use manyflow_core::{EndpointId, Time};
use manyflow_layered::{Membership, flid, rlc, rlm, sim};
use serde::Deserialize;

use super::set;
use crate::OneOrMany;
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, Probability, Seconds};

/// `sessions.sim`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SimTable {
    /// The rules of the session: the paper's, or those of the second edition, which has no menu
    /// interval. `docs/layered.md` compares them.
    ///
    /// Default: `paper`.
    pub edition: Option<SimEdition>,
    /// The number of groups, n_g, at most 32.
    ///
    /// Default: 5.
    pub groups: Option<Count>,
    /// The length of a packet, including headers.
    ///
    /// Default: `1000 B`.
    pub packet: Option<Bits>,
    /// The rate that each group adds at the beginning.
    ///
    /// Default: `100 kbit/s`.
    pub initial_rate: Option<BitsPerSecond>,
    /// The minimum rate that each group adds.
    ///
    /// Default: `32 kbit/s`.
    pub minimum_rate: Option<BitsPerSecond>,
    /// The maximum rate of all groups together.
    ///
    /// Default: `10 Gbit/s`.
    pub maximum_rate: Option<BitsPerSecond>,
    /// The additive increase, in packets per round-trip time for each round-trip time.
    ///
    /// Default: 1.
    pub increase: Option<Number>,
    /// The largest increase of a round, as a share of the group's cumulative rate; above 0. A large
    /// value such as 1000 is the paper's rule.
    ///
    /// Default: 0.0625.
    pub step_max: Option<Number>,
    /// The factor by which a group's rate grows in each round until its first congestion; the paper
    /// has 1.
    ///
    /// Default: 1.25.
    pub start_factor: Option<Number>,
    /// The same factor until any group of the session is congested for the first time, if it is
    /// above `start-factor`; at most 4.
    ///
    /// Default: 1.
    pub first_factor: Option<Number>,
    /// Whether each group gets the rate of a TCP on the path of its receivers: `increase` then
    /// applies to their round-trip time instead of the session's, and the decrease follows from
    /// TCP's equation. An aggregator of a scenario has joined the lowest group only, so it cannot
    /// time the receivers of higher groups: use `aggregators = []`.
    ///
    /// Default: false.
    pub tcp_fair: Option<bool>,
    /// The multiplicative decrease: the share of a rate that remains.
    ///
    /// Default: 0.9375.
    pub decrease: Option<Number>,
    /// The smallest share that remains if receivers get less than `decrease` of the rate; above 0
    /// to 1. From `decrease` up it is the paper's rule.
    ///
    /// Default: 0.25.
    pub decrease_min: Option<Number>,
    /// The longest round-trip time until feedback states one.
    ///
    /// Default: `100 ms`.
    pub initial_rtt: Option<Seconds>,
    /// The menu adaptation interval, in longest round-trip times.
    ///
    /// Default: 50.
    pub menu_rtts: Option<Count>,
    /// The selection interval, in longest round-trip times.
    ///
    /// Default: 20.
    pub selection_rtts: Option<Count>,
    /// The weight of a round's received rate in its average, above 0 to 1.
    ///
    /// Default: 1.
    pub rate_weight: Option<Number>,
    /// The share of congested rounds in a selection interval up to which a receiver counts as not
    /// congested, up to 0.9.
    ///
    /// Default: 0.
    pub calm_share: Option<Probability>,
    /// A receiver drops its top group after three rounds in a row in which it lost more than this
    /// share and the group's rate did not fall; 1 is the paper's rule, without such drops.
    ///
    /// Default: 1.
    pub loss_max: Option<Probability>,
    /// The maximum number of failed trials of a group that double the wait for the next, up to 16;
    /// with 0, as in the paper, there is no wait.
    ///
    /// Default: 3.
    pub backoffs: Option<Count>,
    /// Nodes and groups at which feedback is aggregated; `all` means the sender's node and every
    /// node between it and the receivers. Receivers and aggregators report to the next aggregator
    /// on the way to the sender, or to the sender.
    ///
    /// Default: `all`.
    pub aggregators: Option<OneOrMany>,
    /// The outage of an aggregator.
    ///
    /// Default: none.
    pub outage: Option<OutageTable>,
}

/// The rules of SIM.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimEdition {
    /// Those of the paper.
    Paper,
    /// Those of the second edition.
    Second,
}

impl SimEdition {
    fn rules(self) -> sim::Edition {
        match self {
            SimEdition::Paper => sim::Edition::Paper,
            SimEdition::Second => sim::Edition::Second,
        }
    }
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
    /// The rate of each group by itself, from the lowest: a list.
    pub rates: Vec<BitsPerSecond>,
    /// The length of a packet, including headers.
    ///
    /// Default: `1000 B`.
    pub packet: Option<Bits>,
    /// The minimum of T_J, the interval between join experiments.
    ///
    /// Default: `5 s`. Name: T_J.
    pub join_timer_min: Option<Seconds>,
    /// The maximum of T_J, the interval between join experiments.
    ///
    /// Default: `600 s`. Name: T_J.
    pub join_timer_max: Option<Seconds>,
    /// The factor of the interval after a failure.
    ///
    /// Default: 2. Name: alpha.
    pub backoff: Option<Number>,
    /// The factor of the interval after T_D without loss.
    ///
    /// Default: 2/3. Name: beta.
    pub relaxation: Option<Number>,
    /// The mean detection time before any is measured.
    ///
    /// Default: `5 s`. Name: D.
    pub detection_time: Option<Seconds>,
    /// The deviation of the detection time before any is measured.
    ///
    /// Default: `2 s`. Name: sigma.
    pub detection_deviation: Option<Seconds>,
    /// The weight of D in T_D.
    ///
    /// Default: 1. Name: k1.
    pub k1: Option<Number>,
    /// The weight of sigma in T_D.
    ///
    /// Default: 2. Name: k2.
    pub k2: Option<Number>,
    /// The weight of a measurement in D.
    ///
    /// Default: 0.25. Name: g1.
    pub g1: Option<Number>,
    /// The weight of a measurement in sigma.
    ///
    /// Default: 0.25. Name: g2.
    pub g2: Option<Number>,
    /// The loss rate above which a measurement ends with a drop.
    ///
    /// Default: 25 %.
    pub loss_threshold: Option<Probability>,
    /// The number of packets that must have arrived before a measurement is judged.
    ///
    /// Default: 10.
    pub measured_packets: Option<Count>,
}

/// `sessions.rlc`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RlcTable {
    /// The number of groups, at most 32.
    ///
    /// Default: 5.
    pub groups: Option<Count>,
    /// The rate of the lowest group. The rate of all groups up to each doubles from one to the
    /// next.
    ///
    /// Default: `250 kbit/s`.
    pub rate: Option<BitsPerSecond>,
    /// The length of a packet, including headers.
    ///
    /// Default: `1000 B`.
    pub packet: Option<Bits>,
    /// The time between two synchronisation points of the lowest group; it doubles from one group
    /// to the next.
    ///
    /// Default: `500 ms`.
    pub point_interval: Option<Seconds>,
    /// The duration of the burst before a synchronisation point, and of the silence after the
    /// burst.
    ///
    /// Default: `125 ms`.
    pub burst: Option<Seconds>,
    /// The time after a drop of a group in which losses have no consequence.
    ///
    /// Default: `1 s`.
    pub deaf_time: Option<Seconds>,
}

/// `sessions.flid`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FlidTable {
    /// The number of layers above the base. With the quiet slots it is at most 31.
    ///
    /// Default: 13.
    pub layers: Option<Count>,
    /// The rate of the base.
    ///
    /// Default: `250 kbit/s`. Name: B_0.
    pub rate: Option<BitsPerSecond>,
    /// The ratio of the rates of successive levels, 1.01 to 2.
    ///
    /// Default: 1.3. Name: c.
    pub factor: Option<Number>,
    /// The length of a packet, including headers.
    ///
    /// Default: `1000 B`.
    pub packet: Option<Bits>,
    /// The length of a time slot, at the end of which receivers change their level.
    ///
    /// Default: `500 ms`. Name: T.
    pub slot: Option<Seconds>,
    /// The round-trip time of the TCP to which the increase signals are fair.
    ///
    /// Default: `100 ms`. Name: R.
    pub rtt: Option<Seconds>,
    /// The number of slots for which a channel is quiet, so that receivers have time to leave it.
    ///
    /// Default: 4.
    pub quiet_slots: Option<Count>,
}

impl SimTable {
    fn edition(&self) -> sim::Edition {
        self.edition.map(SimEdition::rules).unwrap_or_default()
    }

    /// Returns the parameters of the sender.
    ///
    /// # Errors
    /// Returns an error if there are more groups than a session can have.
    pub fn sender(&self) -> Result<sim::SenderConfig, Fault> {
        let mut config = sim::SenderConfig::of(self.edition());
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
        set(&mut config.first_factor, self.first_factor.map(|x| x.0));
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
    pub fn receiver(&self) -> sim::ReceiverConfig {
        let mut config = sim::ReceiverConfig::of(self.edition());
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
    pub fn check(&self) -> Result<(), Fault> {
        let config = self.sender()?;
        let groups = config.groups;
        sim::Sender::new(config, 0, Time::ZERO, None).map_err(Fault::value)?;
        let membership = Membership::new(0, groups);
        let receiver = sim::Receiver::new(self.receiver(), membership, 0, EndpointId(0));
        receiver.map(|_| ()).map_err(Fault::value)
    }
}

impl RlmTable {
    /// Returns the parameters of the sender.
    pub fn sender(&self) -> rlm::SenderConfig {
        rlm::SenderConfig {
            rates: self.rates.iter().map(|rate| rate.rate()).collect(),
            packet_bytes: self.packet.map_or(1000, packet_bytes),
        }
    }

    /// Returns the number of groups.
    ///
    /// # Errors
    /// Returns an error if there are more groups than a session can have.
    pub fn groups(&self) -> Result<u8, Fault> {
        groups(Count(self.rates.len() as f64))
    }

    /// Returns the parameters of the receivers.
    pub fn receiver(&self) -> rlm::ReceiverConfig {
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
    pub fn check(&self) -> Result<(), Fault> {
        rlm::Sender::new(self.sender(), 0, Time::ZERO, None).map_err(Fault::value)?;
        let (config, groups) = (self.receiver(), self.groups()?);
        let receiver = rlm::Receiver::new(config, Membership::new(0, groups), EndpointId(0), 0);
        receiver.map(|_| ()).map_err(Fault::value)
    }
}

impl RlcTable {
    /// Returns the parameters of the sender.
    ///
    /// # Errors
    /// Returns an error if there are more groups than a session can have.
    pub fn sender(&self) -> Result<rlc::SenderConfig, Fault> {
        let mut config = rlc::SenderConfig::default();
        set(&mut config.groups, self.groups.map(groups).transpose()?);
        set(&mut config.rate, self.rate.map(BitsPerSecond::rate));
        set(&mut config.packet_bytes, self.packet.map(packet_bytes));
        let point_interval = self.point_interval.map(Seconds::duration);
        set(&mut config.point_interval, point_interval);
        set(&mut config.burst, self.burst.map(Seconds::duration));
        Ok(config)
    }

    /// Returns the parameters of the receivers.
    pub fn receiver(&self) -> rlc::ReceiverConfig {
        let mut config = rlc::ReceiverConfig::default();
        set(&mut config.deaf_time, self.deaf_time.map(Seconds::duration));
        config
    }

    /// Checks that the parameters are in their ranges.
    pub fn check(&self) -> Result<(), Fault> {
        let config = self.sender()?;
        let groups = config.groups;
        rlc::Sender::new(config, 0, Time::ZERO, None).map_err(Fault::value)?;
        let receiver = rlc::Receiver::new(self.receiver(), Membership::new(0, groups));
        receiver.map(|_| ()).map_err(Fault::value)
    }
}

impl FlidTable {
    /// Returns the parameters of the sender.
    ///
    /// # Errors
    /// Returns an error if there are more layers or quiet slots than a session can have.
    pub fn sender(&self) -> Result<flid::SenderConfig, Fault> {
        let mut config = flid::SenderConfig::default();
        set(&mut config.layers, self.layers.map(groups).transpose()?);
        set(&mut config.rate, self.rate.map(BitsPerSecond::rate));
        set(&mut config.factor, self.factor.map(|x| x.0));
        set(&mut config.packet_bytes, self.packet.map(packet_bytes));
        set(&mut config.slot, self.slot.map(Seconds::duration));
        set(&mut config.rtt, self.rtt.map(Seconds::duration));
        let quiet_slots = self.quiet_slots.map(groups).transpose()?;
        set(&mut config.quiet_slots, quiet_slots);
        Ok(config)
    }

    /// Checks that the parameters are in their ranges.
    pub fn check(&self) -> Result<(), Fault> {
        let sender = flid::Sender::new(self.sender()?, 0, Time::ZERO, None);
        sender.map(|_| ()).map_err(Fault::value)
    }
}

fn groups(count: Count) -> Result<u8, Fault> {
    u8::try_from(count.get()).map_err(|_| Fault::value("a session has at most 32 groups"))
}

fn packet_bytes(size: Bits) -> u32 {
    size.bytes() as u32
}
