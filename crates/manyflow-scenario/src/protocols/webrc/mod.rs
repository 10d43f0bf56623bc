//! WEBRC in scenarios: its parameters, and what is recorded of it.

mod events;
mod session;
mod wire;

pub(crate) use session::Webrc;

use std::sync::Arc;

use manyflow_core::Time;
use manyflow_webrc::{
    CciFormat, Receiver, ReceiverConfig, RttRule, Session, SessionConfig, TargetRule, Weights,
};
use serde::Deserialize;
#[cfg(test)]
pub(crate) use wire::TOI;

use super::set;
use crate::error::Fault;
use crate::quantity::{Bits, BitsPerSecond, Count, Number, PacketsPerSecond, Seconds};

/// `sessions.webrc`: RFC 3738's names stand in `docs/scenarios.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WebrcTable {
    /// SR: the rate over all channels.
    pub session_rate: BitsPerSecond,
    /// LENP: bytes of a packet.
    pub packet: Option<Bits>,
    /// BCR: the base channel's rate at the beginning of a time slot.
    pub base_rate: Option<PacketsPerSecond>,
    /// TSD.
    pub time_slot: Option<Seconds>,
    /// QD.
    pub quiescence: Option<Seconds>,
    /// P.
    pub decrease: Option<Number>,
    /// Whether the rate over all channels is constant.
    pub constant_aggregate: Option<bool>,
    /// N.
    pub active_slots: Option<Count>,
    /// The format of the CCI.
    pub cci: Option<Cci>,
    /// EL.
    pub epoch: Option<Seconds>,
    /// MRR.
    pub maximum_rate: Option<BitsPerSecond>,
    /// Nu.
    pub nu: Option<Number>,
    /// Delta.
    pub delta: Option<Number>,
    /// Alpha.
    pub alpha: Option<Number>,
    /// Beta and Zeta in start-up.
    pub start_up_weights: Option<WeightsTable>,
    /// Beta and Zeta in normal operation.
    pub weights: Option<WeightsTable>,
    /// SSMINR.
    pub slow_start_minimum: Option<PacketsPerSecond>,
    /// The rule for the target rate.
    pub target_rule: Option<Rule>,
    /// Whether start-up ends where the rate does not follow a join.
    pub shortfall_check: Option<bool>,
    /// Whether no wave is joined before the rate has begun to fall.
    pub falling_rate_check: Option<bool>,
    /// Whether joins go by what the bottleneck carried when a wave last filled it.
    pub capacity_check: Option<bool>,
    /// How the round-trip time is averaged.
    pub rtt_rule: Option<RttRuleName>,
    /// What the equation's rate is multiplied by.
    pub equation_factor: Option<Number>,
    /// The rise of the round-trip time that ends start-up.
    pub rtt_increase_factor: Option<Number>,
    /// Packets that must follow a gap before it counts as loss.
    pub reorder_packets: Option<Count>,
    /// When a join without a packet is withdrawn.
    pub join_timeout: Option<Seconds>,
    /// When silence ends the session.
    pub silence_timeout: Option<Seconds>,
    /// When a standing time slot index ends the session.
    pub slot_timeout: Option<Seconds>,
}

/// The format of WEBRC's CCI field.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cci {
    /// 32 bits.
    Short,
    /// 64 bits.
    Long,
}

/// The weights of WEBRC's two reception rate filters.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WeightsTable {
    /// Beta.
    pub beta: Number,
    /// Zeta.
    pub zeta: Number,
}

/// How WEBRC averages the round-trip time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RttRuleName {
    /// RFC 3738's.
    Rfc,
    /// By the spacing of the wave.
    Spacing,
}

/// The rule for WEBRC's target rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// RFC 3738's.
    Rfc,
    /// The paper's Eq. (5).
    Paper,
}

impl WebrcTable {
    /// The session that sender and receivers share.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
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
        Session::new(config).map_err(Fault::value)
    }

    /// Whether the parameters fit together.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let session = Arc::new(self.session()?);
        let receiver = Receiver::new(session, Arc::new(self.receiver()), 0, Time::ZERO);
        receiver.map(|_| ()).map_err(Fault::value)
    }

    /// How its receivers behave.
    pub(crate) fn receiver(&self) -> ReceiverConfig {
        let mut config = ReceiverConfig {
            epoch: self.epoch.map(Seconds::duration),
            maximum_rate: self.maximum_rate.map(BitsPerSecond::rate),
            start_up_weights: self.start_up_weights.map(WeightsTable::weights),
            normal_weights: self.weights.map(WeightsTable::weights),
            slow_start_minimum_packets_per_s: self.slow_start_minimum.map(|rate| rate.0),
            join_timeout: self.join_timeout.map(Seconds::duration),
            silence_timeout: self.silence_timeout.map(Seconds::duration),
            slot_timeout: self.slot_timeout.map(Seconds::duration),
            ..ReceiverConfig::default()
        };
        set(&mut config.loss.nu, self.nu.map(|number| number.0));
        set(&mut config.loss.delta, self.delta.map(|number| number.0));
        config.alpha = self.alpha.map(|number| number.0);
        set(&mut config.shortfall_check, self.shortfall_check);
        set(&mut config.falling_rate_check, self.falling_rate_check);
        set(&mut config.capacity_check, self.capacity_check);
        set(
            &mut config.equation_factor,
            self.equation_factor.map(|number| number.0),
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
