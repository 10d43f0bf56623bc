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
    /// The rate over all channels.
    ///
    /// Name: SR.
    pub session_rate: BitsPerSecond,
    /// The length of a packet on a link, headers included.
    ///
    /// Default: `1024 B`. Name: LENP.
    pub packet: Option<Bits>,
    /// The rate of the base channel at the beginning of a time slot.
    ///
    /// Default: `1 packets/s`. Name: BCR.
    pub base_rate: Option<PacketsPerSecond>,
    /// The duration of a time slot.
    ///
    /// Default: `10 s`. Name: TSD.
    pub time_slot: Option<Seconds>,
    /// The minimum time for which a wave channel is quiescent.
    ///
    /// Default: `300 s`. Name: QD.
    pub quiescence: Option<Seconds>,
    /// The factor by which every rate falls in a time slot.
    ///
    /// Default: 0.75. Name: P.
    pub decrease: Option<Number>,
    /// Whether the total rate of all channels is constant.
    ///
    /// Default: true.
    pub constant_aggregate: Option<bool>,
    /// The number of time slots in which a wave is active.
    ///
    /// Default: Eq. (3). Name: N.
    pub active_slots: Option<Count>,
    /// The format of the CCI: `short` or `long`.
    ///
    /// Default: the shorter that fits.
    pub cci: Option<Cci>,
    /// The minimum number of packets in a train of the base channel, 4 to 32, which shows receivers
    /// the capacity of their path; 0 sends packets one by one (docs/webrc.md#packet-trains).
    ///
    /// Default: 0.
    pub packet_trains: Option<Count>,
    /// The receiver whose parameters apply where the following keys say nothing. `live`: the
    /// parameters of `manyflow recv`, where the following keys say nothing.
    ///
    /// Default: `rfc`.
    pub receiver: Option<ReceiverName>,
    /// The time between decisions to join.
    ///
    /// Default: TSD / 20. Name: EL.
    pub epoch: Option<Seconds>,
    /// The maximum rate that a receiver wants.
    ///
    /// Default: none. Name: MRR.
    pub maximum_rate: Option<BitsPerSecond>,
    /// The first filter of the loss event probability.
    ///
    /// Default: RFC 3738's. Name: Nu.
    pub nu: Option<Number>,
    /// The second filter of the loss event probability.
    ///
    /// Default: RFC 3738's. Name: Delta.
    pub delta: Option<Number>,
    /// The weight of a sample in the averaged round-trip time.
    ///
    /// Default: 0.25; 0.1 with `spacing`. Name: Alpha.
    pub alpha: Option<Number>,
    /// The weights of the reception rates during start-up: `{ beta, zeta }`.
    ///
    /// Default: RFC 3738's. Name: Beta, Zeta.
    pub start_up_weights: Option<WeightsTable>,
    /// The weights of the reception rates after start-up.
    ///
    /// Default: RFC 3738's. Name: Beta, Zeta.
    pub weights: Option<WeightsTable>,
    /// The minimum rate in slow start.
    ///
    /// Default: RFC 3738's. Name: SSMINR.
    pub slow_start_minimum: Option<PacketsPerSecond>,
    /// The rule for the target rate. `paper`: also limits the target to Eq. (5)'s multiple of the
    /// reception rate.
    ///
    /// Default: `rfc`.
    pub target_rule: Option<Rule>,
    /// Start-up ends if the reception rate does not follow a join.
    ///
    /// Default: true.
    pub shortfall_check: Option<bool>,
    /// The receiver does not join before its rate has begun to fall.
    ///
    /// Default: true.
    pub falling_rate_check: Option<bool>,
    /// The loss event probability is reset while the receiver waits for that.
    ///
    /// Default: true.
    pub falling_rate_reset: Option<bool>,
    /// Joins are limited by the capacity that the bottleneck had when a wave last filled it.
    ///
    /// Default: false.
    pub capacity_check: Option<bool>,
    /// A shortfall, or a rise of the round-trip time, counts only if packets are also later behind
    /// the sender's schedule.
    ///
    /// Default: false.
    pub delay_check: Option<bool>,
    /// The rule for the average round-trip time. `spacing`: corrects and weights the round-trip
    /// time by the spacing of each wave.
    ///
    /// Default: `rfc`.
    pub rtt_rule: Option<RttRuleName>,
    /// The rule of the filters of the loss event probability. `balanced`: the loss event
    /// probability of regular losses is not overestimated
    /// (docs/choices.md#options-of-webrc-that-are-not-in-the-papers).
    ///
    /// Default: `rfc`.
    pub loss_filter: Option<LossFilterName>,
    /// The TCP that the equation describes: `reno`, as in the RFC, or `cubic`, the larger of Reno's
    /// and CUBIC's average windows.
    ///
    /// Default: `reno`.
    pub response: Option<ResponseName>,
    /// The minimum RTO of that TCP, up to 60 s: for windows of less than three packets, and the
    /// less the larger the window; docs/choices.md#options-of-webrc-that-are-not-in-the-papers.
    ///
    /// Default: `0 s`.
    pub minimum_rto: Option<Seconds>,
    /// Multiplies the equation's rate; ln(1/P)/(1-P) = 1.15 makes the mean follow the equation
    /// instead of the peaks.
    ///
    /// Default: 1.
    pub equation_factor: Option<Number>,
    /// The duration of a loss event in average round-trip times.
    ///
    /// Default: 1.
    pub loss_event_rtts: Option<Number>,
    /// The share of the capacity that packet trains show, below 1, which the receiver takes
    /// whatever it loses; for links whose owner wants that (docs/beside-tcp.md#bbr).
    ///
    /// Default: 0.
    pub capacity_share: Option<Number>,
    /// The rise of the round-trip time that ends start-up, in units of RFC 3738's threshold.
    ///
    /// Default: 1.
    pub rtt_increase_factor: Option<Number>,
    /// The number of packets that must follow a gap before it counts as loss.
    ///
    /// Default: 3.
    pub reorder_packets: Option<Count>,
    /// The time after which a join without a packet is withdrawn.
    ///
    /// Default: RFC 3738's.
    pub join_timeout: Option<Seconds>,
    /// The time without a packet that ends the session.
    ///
    /// Default: RFC 3738's.
    pub silence_timeout: Option<Seconds>,
    /// The time without a change of the time slot index that ends the session.
    ///
    /// Default: RFC 3738's.
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
    /// The weight of an epoch's rate in ARR, the anticipated rate.
    pub beta: Number,
    /// The weight of an epoch's rate in TRR, the true rate.
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
