//! The protocols' parameters, with the papers' values as defaults.

mod acp;
mod layered;
mod overlay;

use std::sync::Arc;

use manyflow_core::cbr::{Pattern, Periods, Source, SourceConfig};
use manyflow_core::tcp::{self, TcpConfig, Variant};
use manyflow_core::webrc::{
    CciFormat, Receiver, ReceiverConfig, RttRule, Session, SessionConfig, TargetRule, Weights,
};
use manyflow_core::{Destination, EndpointId, Time};
use serde::Deserialize;

use super::error::Fault;
use super::quantity::{Bits, BitsPerSecond, Count, Number, PacketsPerSecond, Seconds};
pub use acp::{AcpTable, RuleTable, SoftTable, SquareTable, SwitchTable};
pub(crate) use acp::{Direction, PolicyName};
pub use layered::{OutageTable, RlmTable, SimTable};
pub use overlay::{
    ControllerName, CostBenefitTable, OverlayLinkEntry, OverlayLinkTable, OverlaySessionTable,
    OverlayTable, TfrcTable,
};

/// Which protocol a session speaks.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Wave and equation based rate control, RFC 3738.
    Webrc,
    /// TCP, one connection to each receiver.
    Tcp,
    /// A constant bit rate to each receiver, without congestion control.
    Cbr,
    /// Layered multicast with marks, feedback and a menu (Gorinsky, Ramakrishnan and Vin).
    Sim,
    /// Receiver-driven layered multicast (McCanne, Jacobson and Vetterli).
    Rlm,
    /// Anypoint's transport of frames, point to point or between a peer and an ensemble (Yocum and Chase).
    Acp,
    /// Messages to a group of an overlay.
    Overlay,
}

impl Protocol {
    /// Whether its packets go to channels that receivers join.
    pub(crate) fn is_multicast(self) -> bool {
        match self {
            Protocol::Webrc | Protocol::Sim | Protocol::Rlm => true,
            Protocol::Tcp | Protocol::Cbr | Protocol::Acp | Protocol::Overlay => false,
        }
    }
}

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
    /// Each segment waits at the host for up to so long, uniformly: against the lockstep of a simulation.
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

/// Puts a value that is given in the place of a default.
fn set<T>(target: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *target = value;
    }
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

impl WeightsTable {
    fn weights(self) -> Weights {
        Weights {
            beta: self.beta.0,
            zeta: self.zeta.0,
        }
    }
}
