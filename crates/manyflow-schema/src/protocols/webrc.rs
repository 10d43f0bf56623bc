//! The parameters of WEBRC.

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::estimate::tcp_equation::ResponseFunction;
use manyflow_core::{Ecn, Time};
use manyflow_webrc::{
    CciFormat, LossFilter, Receiver, ReceiverConfig, RttRule, Session, SessionConfig, TargetRule,
    Weights,
};
use serde::Deserialize;

use super::{ResponseName, set};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, PacketsPerSecond, Seconds};

/// The type of a key in a scenario, by the kind of a receiver's parameter.
mod key {
    pub(super) use super::{Count, Number};
    use super::{LossFilterName, PacketsPerSecond, ResponseName, RttRuleName, Rule};
    use super::{Seconds, WeightsTable};

    pub(super) type Flag = bool;
    pub(super) type OptionalNumber = Number;
    pub(super) type NumberOrMean = Number;
    pub(super) type PacketRate = PacketsPerSecond;
    pub(super) type Time = Seconds;
    pub(super) type TimeInSeconds = Seconds;
    pub(super) type Weights = WeightsTable;
    pub(super) type TargetRule = Rule;
    pub(super) type RttRule = RttRuleName;
    pub(super) type LossFilter = LossFilterName;
    pub(super) type ResponseFunction = ResponseName;
}

/// Defines the table with the keys of the session that are given, and those of a receiver's
/// parameters.
macro_rules! webrc_table {
    (
        { $($session:tt)* }
        $($(#[$doc:meta])* $name:literal, $key:ident: $kind:ident, [$($field:ident).+];)*
    ) => {
        /// `sessions.webrc`. `docs/scenarios.md` lists the names in RFC 3738.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        pub struct WebrcTable {
            $($session)*
            $($(#[$doc])* pub $key: Option<key::$kind>,)*
        }

        impl WebrcTable {
            /// Sets the parameters of a receiver that are given.
            fn set_receiver(&self, config: &mut ReceiverConfig) {
                $(set(&mut config.$($field).+, self.$key.map(Given::value));)*
                set(&mut config.maximum_rate, self.maximum_rate.map(|rate| Some(rate.rate())));
            }
        }
    };
}

manyflow_webrc::receiver_parameters!(webrc_table! {
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
    /// Whether routers may mark packets instead of dropping them: ECT(0). A mark counts as a loss
    /// (docs/webrc.md#ecn).
    ///
    /// Default: false; true with `l4s`.
    pub ecn: Option<bool>,
    /// Whether packets carry ECT(1), and receivers follow the share of marked packets as scalable
    /// congestion controls do.
    ///
    /// Default: false.
    pub l4s: Option<bool>,
    /// The receiver whose parameters apply where the following keys say nothing: RFC 3738's, or
    /// with `live` that of `manyflow recv`.
    ///
    /// Default: `rfc`.
    pub receiver: Option<ReceiverName>,
    /// The maximum rate that a receiver wants.
    ///
    /// Default: none. Name: MRR.
    pub maximum_rate: Option<BitsPerSecond>,
});

/// A value in a scenario that stands for one of a receiver's fields.
trait Given<T> {
    fn value(self) -> T;
}

/// Implements [`Given`] for a type of values and a type of fields.
macro_rules! given {
    ($($from:ty => $to:ty: $value:expr;)*) => {$(
        impl Given<$to> for $from {
            fn value(self) -> $to {
                let value: fn($from) -> $to = $value;
                value(self)
            }
        }
    )*};
}

given! {
    bool => bool: |is_on| is_on;
    Number => f64: |number| number.0;
    Number => Option<f64>: |number| Some(number.0);
    Count => u32: Count::get;
    PacketsPerSecond => Option<f64>: |rate| Some(rate.0);
    Seconds => Option<Duration>: |time| Some(time.duration());
    Seconds => f64: |time| time.0;
    WeightsTable => Option<Weights>: |both| Some(Weights { beta: both.beta.0, zeta: both.zeta.0 });
    Rule => TargetRule: |rule| match rule {
        Rule::Rfc => TargetRule::Rfc,
        Rule::Paper => TargetRule::Paper,
    };
    RttRuleName => RttRule: |rule| match rule {
        RttRuleName::Rfc => RttRule::Rfc,
        RttRuleName::Spacing => RttRule::Spacing,
    };
    LossFilterName => LossFilter: |filter| match filter {
        LossFilterName::Rfc => LossFilter::Rfc,
        LossFilterName::Balanced => LossFilter::Balanced,
        LossFilterName::Measured => LossFilter::Measured,
    };
    ResponseName => ResponseFunction: ResponseName::function;
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
    /// The same, without the value that the end of start-up sets.
    Measured,
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
    pub fn session(&self) -> Result<Session, Fault> {
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
        config.ecn = match (self.ecn, self.l4s.unwrap_or(false)) {
            (Some(false), true) => {
                let message = "packets with `l4s` are those of ECN: leave `ecn = false` out";
                return Err(Fault::at(&["ecn"], Problem::Value(message.to_owned())));
            }
            (_, true) => Ecn::L4s,
            (ecn, false) if ecn.unwrap_or(false) => Ecn::Capable,
            _ => Ecn::NotCapable,
        };
        Session::new(config).map_err(Fault::value)
    }

    /// Checks that the parameters are compatible.
    pub fn check(&self) -> Result<(), Fault> {
        let session = Arc::new(self.session()?);
        let receiver = Receiver::new(session, Arc::new(self.receiver()), 0, Time::ZERO);
        receiver.map(|_| ()).map_err(Fault::value)
    }

    /// Returns the parameters of the receivers.
    pub fn receiver(&self) -> ReceiverConfig {
        let mut config = match self.receiver {
            None | Some(ReceiverName::Rfc) => ReceiverConfig::default(),
            Some(ReceiverName::Live) => ReceiverConfig::live(),
        };
        self.set_receiver(&mut config);
        config
    }
}
