//! WEBRC in scenarios: its parameters, its sessions and its events.

mod events;
mod session;
mod wire;

pub(crate) use session::Webrc;

use std::sync::Arc;

use manyflow_core::Time;
use manyflow_webrc::{
    CciFormat, LossFilter, Receiver, ReceiverConfig, RttRule, Session, SessionConfig, TargetRule,
    Weights,
};
use serde::Deserialize;
pub use wire::TOI;

use super::{ResponseName, set, set_equation};
use manyflow_model::error::Fault;
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, PacketsPerSecond, Seconds};

/// `sessions.webrc`. `docs/scenarios.md` lists the names in RFC 3738.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WebrcTable {
    /// SR: the rate over all channels.
    pub session_rate: BitsPerSecond,
    /// LENP: the size of a packet.
    pub packet: Option<Bits>,
    /// BCR: the rate of the base channel at the beginning of a time slot.
    pub base_rate: Option<PacketsPerSecond>,
    /// TSD: the duration of a time slot.
    pub time_slot: Option<Seconds>,
    /// QD: the minimum time for which a wave channel is quiescent.
    pub quiescence: Option<Seconds>,
    /// P: the factor by which every rate falls over a time slot.
    pub decrease: Option<Number>,
    /// Whether the rate over all channels is constant.
    pub constant_aggregate: Option<bool>,
    /// N: the number of time slots in which a wave is active.
    pub active_slots: Option<Count>,
    /// The format of the CCI.
    pub cci: Option<Cci>,
    /// The number of packets in a train of the base channel; 0 sends them one by one.
    pub packet_trains: Option<Count>,
    /// The receiver whose parameters apply where the following keys say nothing.
    pub receiver: Option<ReceiverName>,
    /// EL: the duration of an epoch.
    pub epoch: Option<Seconds>,
    /// MRR: the maximum reception rate.
    pub maximum_rate: Option<BitsPerSecond>,
    /// Nu: the parameter of the time-based loss filter.
    pub nu: Option<Number>,
    /// Delta: the weight of a loss event in the loss-based filter.
    pub delta: Option<Number>,
    /// Alpha: the smoothing constant of the average round-trip time.
    pub alpha: Option<Number>,
    /// Beta and Zeta during start-up.
    pub start_up_weights: Option<WeightsTable>,
    /// Beta and Zeta in normal operation.
    pub weights: Option<WeightsTable>,
    /// SSMINR: the minimum rate in slow start.
    pub slow_start_minimum: Option<PacketsPerSecond>,
    /// The rule for the target rate.
    pub target_rule: Option<Rule>,
    /// Whether start-up ends if the rate does not follow a join.
    pub shortfall_check: Option<bool>,
    /// Whether a receiver joins no wave before its rate has begun to fall.
    pub falling_rate_check: Option<bool>,
    /// Whether LOSSP is reset when a receiver waits for that.
    pub falling_rate_reset: Option<bool>,
    /// Whether joins depend on the rate that the bottleneck carried when a wave last filled it.
    pub capacity_check: Option<bool>,
    /// Whether a shortfall or a rise of the round-trip time needs a rise of the delay.
    pub delay_check: Option<bool>,
    /// The rule for the average round-trip time.
    pub rtt_rule: Option<RttRuleName>,
    /// The rule of the filters of the loss event probability.
    pub loss_filter: Option<LossFilterName>,
    /// The TCP that the equation describes.
    pub response: Option<ResponseName>,
    /// The minimum RTO of that TCP, for small windows.
    pub minimum_rto: Option<Seconds>,
    /// The factor by which the rate of the TCP equation is multiplied.
    pub equation_factor: Option<Number>,
    /// The duration of a loss event in average round-trip times.
    pub loss_event_rtts: Option<Number>,
    /// The share of the capacity that packet trains show, which is taken whatever is lost.
    pub capacity_share: Option<Number>,
    /// The factor by which the round-trip time has to grow to end start-up.
    pub rtt_increase_factor: Option<Number>,
    /// The number of packets that must follow a gap before it counts as loss.
    pub reorder_packets: Option<Count>,
    /// The time after which a join without a packet is withdrawn.
    pub join_timeout: Option<Seconds>,
    /// The time without a packet that ends the session.
    pub silence_timeout: Option<Seconds>,
    /// The time without a change of the time slot index that ends the session.
    pub slot_timeout: Option<Seconds>,
}

/// The format of WEBRC's CCI field.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cci {
    /// The short format, of 32 bits.
    Short,
    /// The long format, of 64 bits.
    Long,
}

/// The weights of WEBRC's two reception rate filters.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WeightsTable {
    /// Beta: the weight of an epoch's rate in ARR, the anticipated rate.
    pub beta: Number,
    /// Zeta: the weight of an epoch's rate in TRR, the true rate.
    pub zeta: Number,
}

/// The rule by which WEBRC averages the round-trip time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RttRuleName {
    /// The rule of RFC 3738.
    Rfc,
    /// The rule that uses the packet spacing of the wave.
    Spacing,
}

/// The rule of WEBRC's filters of the loss event probability.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossFilterName {
    /// The rule of RFC 3738.
    Rfc,
    /// The rule that settles at the interval of regular losses.
    Balanced,
}

/// A receiver whose parameters others begin with.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiverName {
    /// RFC 3738's receiver.
    Rfc,
    /// The receiver of `manyflow recv`.
    Live,
}

/// The rule for WEBRC's target rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The rule of RFC 3738.
    Rfc,
    /// The rule of the paper's Eq. (5).
    Paper,
}

impl WebrcTable {
    /// Returns the session, which sender and receivers share.
    ///
    /// # Errors
    /// Returns an error if a parameter is out of its range.
    pub(crate) fn session(&self) -> Result<Session, Fault> {
        let mut config = SessionConfig::wan(self.session_rate.rate());
        set(
            &mut config.packet_bytes,
            self.packet.map(|size| size.bytes() as u32),
        );
        set(
            &mut config.base_rate_packets_per_s,
            self.base_rate.map(|rate| rate.0),
        );
        set(&mut config.time_slot, self.time_slot.map(Seconds::duration));
        set(
            &mut config.quiescence,
            self.quiescence.map(Seconds::duration),
        );
        set(&mut config.decrease, self.decrease.map(|number| number.0));
        set(&mut config.constant_aggregate, self.constant_aggregate);
        config.active_slots = self.active_slots.map(Count::get);
        config.cci_format = self.cci.map(|format| match format {
            Cci::Short => CciFormat::Short,
            Cci::Long => CciFormat::Long,
        });
        let trains = self.packet_trains.map(Count::get);
        config.packet_trains = trains.filter(|packets| *packets > 0);
        Session::new(config).map_err(Fault::value)
    }

    /// Checks that the parameters are compatible.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let session = Arc::new(self.session()?);
        let receiver = Receiver::new(session, Arc::new(self.receiver()), 0, Time::ZERO);
        receiver.map(|_| ()).map_err(Fault::value)
    }

    /// Returns the parameters of the receivers.
    pub(crate) fn receiver(&self) -> ReceiverConfig {
        let named = match self.receiver {
            None | Some(ReceiverName::Rfc) => ReceiverConfig::default(),
            Some(ReceiverName::Live) => ReceiverConfig::live(),
        };
        let mut config = ReceiverConfig {
            epoch: self.epoch.map(Seconds::duration),
            maximum_rate: self.maximum_rate.map(BitsPerSecond::rate),
            start_up_weights: self.start_up_weights.map(WeightsTable::weights),
            normal_weights: self.weights.map(WeightsTable::weights),
            slow_start_minimum_packets_per_s: self.slow_start_minimum.map(|rate| rate.0),
            join_timeout: self.join_timeout.map(Seconds::duration),
            silence_timeout: self.silence_timeout.map(Seconds::duration),
            slot_timeout: self.slot_timeout.map(Seconds::duration),
            ..named
        };
        set(&mut config.loss.nu, self.nu.map(|number| number.0));
        set(&mut config.loss.delta, self.delta.map(|number| number.0));
        config.alpha = self.alpha.map(|number| number.0);
        set(&mut config.shortfall_check, self.shortfall_check);
        set(&mut config.falling_rate_check, self.falling_rate_check);
        set(&mut config.falling_rate_reset, self.falling_rate_reset);
        set(&mut config.capacity_check, self.capacity_check);
        set(&mut config.delay_check, self.delay_check);
        set(
            &mut config.equation_factor,
            self.equation_factor.map(|number| Some(number.0)),
        );
        set(
            &mut config.loss.filter,
            self.loss_filter.map(|filter| match filter {
                LossFilterName::Rfc => LossFilter::Rfc,
                LossFilterName::Balanced => LossFilter::Balanced,
            }),
        );
        set_equation(&mut config.equation, self.response, self.minimum_rto);
        set(
            &mut config.loss_event_rtts,
            self.loss_event_rtts.map(|number| number.0),
        );
        set(
            &mut config.capacity_share,
            self.capacity_share.map(|number| number.0),
        );
        set(
            &mut config.rtt_increase_factor,
            self.rtt_increase_factor.map(|number| number.0),
        );
        set(
            &mut config.reorder_packets,
            self.reorder_packets.map(Count::get),
        );
        set(
            &mut config.target_rule,
            self.target_rule.map(|rule| match rule {
                Rule::Rfc => TargetRule::Rfc,
                Rule::Paper => TargetRule::Paper,
            }),
        );
        set(
            &mut config.rtt_rule,
            self.rtt_rule.map(|rule| match rule {
                RttRuleName::Rfc => RttRule::Rfc,
                RttRuleName::Spacing => RttRule::Spacing,
            }),
        );
        config
    }
}

impl WeightsTable {
    fn weights(self) -> Weights {
        Weights {
            beta: self.beta.0,
            zeta: self.zeta.0,
        }
    }
}
