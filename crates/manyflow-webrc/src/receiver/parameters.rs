//! The names of a receiver's parameters: those of commands, and those of scenario files.

use core::str::FromStr;
use core::time::Duration;

use super::{ReceiverConfig, TargetRule, Weights};
use crate::{LossFilter, RttRule};
use manyflow_core::estimate::tcp_equation::ResponseFunction;
use manyflow_core::units::parse_duration;

/// Calls the macro `$then` with the tokens after it in braces, and then with the parameters of a
/// receiver that have names. The maximum rate has none: commands count it without headers.
///
/// A parameter is its documentation, its name in commands (the RFC's, if it has one), its key in
/// scenario files, the kind of its value, and its field in [`ReceiverConfig`]. Defaults stand in
/// that structure, and ranges in its check.
#[doc(hidden)]
#[macro_export]
macro_rules! receiver_parameters {
    ($then:ident! { $($first:tt)* }) => {
        $then! {
            { $($first)* }
            /// The time between decisions to join.
            ///
            /// Default: TSD / 20. Name: EL.
            "EL", epoch: Time, [epoch];
            /// The first filter of the loss event probability.
            ///
            /// Default: RFC 3738's. Name: Nu.
            "Nu", nu: Number, [loss.nu];
            /// The second filter of the loss event probability.
            ///
            /// Default: RFC 3738's. Name: Delta.
            "Delta", delta: Number, [loss.delta];
            /// The weight of a sample in the averaged round-trip time.
            ///
            /// Default: 0.25; 0.1 with `spacing`. Name: Alpha.
            "Alpha", alpha: OptionalNumber, [alpha];
            /// The minimum rate in slow start.
            ///
            /// Default: RFC 3738's. Name: SSMINR.
            "SSMINR", slow_start_minimum: PacketRate, [slow_start_minimum_packets_per_s];
            /// The weights of the reception rates after start-up.
            ///
            /// Default: RFC 3738's. Name: Beta, Zeta.
            "weights", weights: Weights, [normal_weights];
            /// The weights of the reception rates during start-up: `{ beta, zeta }`.
            ///
            /// Default: RFC 3738's. Name: Beta, Zeta.
            "start-up-weights", start_up_weights: Weights, [start_up_weights];
            /// The rule for the target rate. `paper`: also limits the target to Eq. (5)'s multiple
            /// of the reception rate.
            ///
            /// Default: `rfc`.
            "target", target_rule: TargetRule, [target_rule];
            /// Start-up ends if the reception rate does not follow a join.
            ///
            /// Default: true.
            "shortfall-check", shortfall_check: Flag, [shortfall_check];
            /// The receiver does not join before its rate has begun to fall.
            ///
            /// Default: true.
            "falling-rate-check", falling_rate_check: Flag, [falling_rate_check];
            /// The loss event probability is reset while the receiver waits for that.
            ///
            /// Default: true.
            "falling-rate-reset", falling_rate_reset: Flag, [falling_rate_reset];
            /// Joins are limited by the capacity that the bottleneck had when a wave last filled
            /// it.
            ///
            /// Default: false.
            "capacity-check", capacity_check: Flag, [capacity_check];
            /// A shortfall, or a rise of the round-trip time, counts only if packets are also later
            /// behind the sender's schedule.
            ///
            /// Default: false.
            "delay-check", delay_check: Flag, [delay_check];
            /// The rule for the average round-trip time. `spacing`: corrects and weights the
            /// round-trip time by the spacing of each wave.
            ///
            /// Default: `rfc`.
            "rtt", rtt_rule: RttRule, [rtt_rule];
            /// The rule of the filters of the loss event probability. `balanced`: the loss event
            /// probability of regular losses is not overestimated. `measured`: as `balanced`, and
            /// the rate at the end of start-up has less weight if it was far below the fair rate
            /// (docs/choices.md#options-of-webrc-that-are-not-in-the-papers).
            ///
            /// Default: `rfc`.
            "loss-filter", loss_filter: LossFilter, [loss.filter];
            /// The TCP that the equation describes: `reno`, as in the RFC, or `cubic`, the larger
            /// of Reno's and CUBIC's average windows.
            ///
            /// Default: `reno`.
            "response", response: ResponseFunction, [equation.response];
            /// The minimum RTO of that TCP, up to 60 s: for windows of less than three packets, and
            /// the less the larger the window;
            /// docs/choices.md#options-of-webrc-that-are-not-in-the-papers.
            ///
            /// Default: `0 s`.
            "minimum-rto", minimum_rto: TimeInSeconds, [equation.minimum_rto_s];
            /// Multiplies the equation's rate; ln(1/P)/(1-P) = 1.15 makes the mean follow the
            /// equation instead of the peaks.
            ///
            /// Default: 1.
            "equation-factor", equation_factor: NumberOrMean, [equation_factor];
            /// The duration of a loss event in average round-trip times.
            ///
            /// Default: 1.
            "loss-event-rtts", loss_event_rtts: Number, [loss_event_rtts];
            /// The share of the capacity that packet trains show, below 1, which the receiver takes
            /// whatever it loses; for links whose owner wants that (docs/beside-tcp.md#bbr).
            ///
            /// Default: 0.
            "capacity-share", capacity_share: Number, [capacity_share];
            /// The rise of the round-trip time that ends start-up, in units of RFC 3738's
            /// threshold.
            ///
            /// Default: 1.
            "rtt-increase-factor", rtt_increase_factor: Number, [rtt_increase_factor];
            /// The number of packets that must follow a gap before it counts as loss.
            ///
            /// Default: 3.
            "reorder", reorder_packets: Count, [reorder_packets];
            /// The time after which a join without a packet is withdrawn.
            ///
            /// Default: RFC 3738's.
            "join-timeout", join_timeout: Time, [join_timeout];
            /// The time without a packet that ends the session.
            ///
            /// Default: RFC 3738's.
            "silence-timeout", silence_timeout: Time, [silence_timeout];
            /// The time without a change of the time slot index that ends the session.
            ///
            /// Default: RFC 3738's.
            "slot-timeout", slot_timeout: Time, [slot_timeout];
        }
    };
}

/// A parameter of a receiver that commands can set by its name.
#[derive(Copy, Clone, Debug)]
pub struct Parameter {
    name: &'static str,
    parse: fn(&mut ReceiverConfig, &str) -> Result<(), String>,
    print: fn(&ReceiverConfig) -> Option<String>,
}

macro_rules! list {
    ({} $($(#[$doc:meta])* $name:literal, $key:ident: $kind:ident, [$($field:ident).+];)*) => {
        const PARAMETERS: &[Parameter] = &[$(
            Parameter {
                name: $name,
                parse: |config, text| {
                    config.$($field).+ = (kind::$kind::PARSE)(text)?;
                    Ok(())
                },
                print: |config| (kind::$kind::PRINT)(config.$($field).+),
            },
        )*];
    };
}

receiver_parameters!(list! {});

impl Parameter {
    /// Returns all parameters.
    pub fn all() -> &'static [Parameter] {
        PARAMETERS
    }

    /// Returns the name in commands: RFC 3738's, if it has one.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Sets the parameter. Its range is checked when a receiver is made.
    ///
    /// # Errors
    /// If the text is not of the parameter's kind. The error says what it has to be.
    pub fn set(&self, config: &mut ReceiverConfig, text: &str) -> Result<(), String> {
        (self.parse)(config, text)
    }

    /// Returns the value as [`set`](Parameter::set) takes it; `None` if the receiver computes it.
    pub fn value(&self, config: &ReceiverConfig) -> Option<String> {
        (self.print)(config)
    }
}

/// The kinds of values, and how they are written.
mod kind {
    use super::*;

    fn parse<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
        text.parse().map_err(|error: T::Err| error.to_string())
    }

    fn parse_time(text: &str) -> Result<Duration, String> {
        parse_duration(text).map_err(|error| error.to_string())
    }

    /// A type for each kind, with the functions that read and write its values.
    macro_rules! kinds {
        ($($(#[$doc:meta])* $name:ident: $value:ty, $parse:expr, $print:expr;)*) => {$(
            $(#[$doc])*
            pub(super) struct $name;

            impl $name {
                pub(super) const PARSE: fn(&str) -> Result<$value, String> = $parse;
                pub(super) const PRINT: fn($value) -> Option<String> = $print;
            }
        )*};
    }

    kinds! {
        /// `yes` or `no`.
        Flag: bool,
            |text| choose(text, &[("yes", true), ("no", false)]),
            |is_on| Some(if is_on { "yes" } else { "no" }.to_owned());
        Number: f64, parse, |number| Some(number.to_string());
        Count: u32, parse, |count| Some(count.to_string());
        OptionalNumber: Option<f64>,
            |text| parse(text).map(Some),
            |number| number.map(|number| number.to_string());
        /// Packets per second.
        PacketRate: Option<f64>, OptionalNumber::PARSE, OptionalNumber::PRINT;
        /// A number, or `mean` for a value that the receiver computes.
        NumberOrMean: Option<f64>,
            |text| match text {
                "mean" => Ok(None),
                _ => parse(text).map(Some),
            },
            |number| Some(number.map_or("mean".to_owned(), |number| number.to_string()));
        Time: Option<Duration>,
            |text| parse_time(text).map(Some),
            |time| time.map(|time| format!("{}ns", time.as_nanos()));
        /// A time with a unit, which is stored as a number of seconds.
        TimeInSeconds: f64,
            |text| parse_time(text).map(|time| time.as_secs_f64()),
            |seconds| Some(format!("{seconds} s"));
        /// Beta and Zeta, such as `0.1,0.07`.
        Weights: Option<super::Weights>,
            parse_weights,
            |both| both.map(|both| format!("{},{}", both.beta, both.zeta));
        TargetRule: super::TargetRule,
            |text| choose(text, TARGET_RULES), |rule| name_of(&rule, TARGET_RULES);
        RttRule: super::RttRule,
            |text| choose(text, RTT_RULES), |rule| name_of(&rule, RTT_RULES);
        LossFilter: super::LossFilter,
            |text| choose(text, LOSS_FILTERS), |filter| name_of(&filter, LOSS_FILTERS);
        ResponseFunction: super::ResponseFunction,
            |text| choose(text, RESPONSES), |response| name_of(&response, RESPONSES);
    }

    const TARGET_RULES: &[(&str, super::TargetRule)] = &[
        ("rfc", super::TargetRule::Rfc),
        ("paper", super::TargetRule::Paper),
    ];
    const RTT_RULES: &[(&str, super::RttRule)] = &[
        ("rfc", super::RttRule::Rfc),
        ("spacing", super::RttRule::Spacing),
    ];
    const LOSS_FILTERS: &[(&str, super::LossFilter)] = &[
        ("rfc", super::LossFilter::Rfc),
        ("balanced", super::LossFilter::Balanced),
        ("measured", super::LossFilter::Measured),
    ];
    const RESPONSES: &[(&str, super::ResponseFunction)] = &[
        ("reno", super::ResponseFunction::Reno),
        ("cubic", super::ResponseFunction::Cubic),
    ];

    fn choose<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let chosen = choices.iter().find(|(name, _)| *name == text);
        let names = || choices.iter().map(|(name, _)| format!("`{name}`"));
        let names = || names().collect::<Vec<_>>().join(" or ");
        chosen.map(|(_, value)| *value).ok_or_else(names)
    }

    fn name_of<T: PartialEq>(value: &T, choices: &[(&str, T)]) -> Option<String> {
        let named = choices.iter().find(|(_, choice)| choice == value);
        debug_assert!(named.is_some(), "every choice has a name");
        named.map(|(name, _)| (*name).to_owned())
    }

    fn parse_weights(text: &str) -> Result<Option<super::Weights>, String> {
        let (beta, zeta) = text.split_once(',').ok_or("Beta,Zeta")?;
        let (beta, zeta) = (parse(beta)?, parse(zeta)?);
        Ok(Some(super::Weights { beta, zeta }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_with_the_printed_values_of_another_is_the_same() {
        let given = ReceiverConfig {
            epoch: Some(Duration::from_millis(20)),
            alpha: Some(0.1),
            normal_weights: Some(Weights {
                beta: 0.1,
                zeta: 0.07,
            }),
            target_rule: TargetRule::Paper,
            reorder_packets: 9,
            ..ReceiverConfig::live()
        };
        let mut copy = ReceiverConfig::default();
        for parameter in Parameter::all() {
            if let Some(value) = parameter.value(&given) {
                assert_eq!(parameter.set(&mut copy, &value), Ok(()), "{parameter:?}");
            }
        }
        assert_eq!(copy, given);
    }

    #[test]
    fn a_value_of_another_kind_is_refused_and_changes_nothing() {
        for parameter in Parameter::all() {
            let mut config = ReceiverConfig::live();
            let error = parameter.set(&mut config, "-").unwrap_err();
            assert!(!error.is_empty(), "{parameter:?}");
            assert_eq!(config, ReceiverConfig::live());
        }
    }
}
