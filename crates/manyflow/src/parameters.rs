//! `--set NAME=VALUE`: sets WEBRC parameters by their names in RFC 3738.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use manyflow_core::estimate::tcp_equation::ResponseFunction;
use manyflow_core::units::parse_duration;
use manyflow_webrc::{
    CciFormat, LossFilter, ReceiverConfig, RttRule, SessionConfig, TargetRule, Weights,
};

/// Applies the assignments of `send --set`.
///
/// # Errors
/// If a name is unknown or a value cannot be parsed. The message lists the names that exist.
pub(crate) fn set_session(config: &mut SessionConfig, assignments: &[String]) -> Result<()> {
    for (name, value) in split(assignments)? {
        match name {
            "TSD" => config.time_slot = time(name, value)?,
            "QD" => config.quiescence = time(name, value)?,
            "BCR" => config.base_rate_packets_per_s = number(name, value)?,
            "P" => config.decrease = number(name, value)?,
            "N" => config.active_slots = Some(value.parse().with_context(|| wrong(name, value))?),
            "constant" => config.constant_aggregate = yes(name, value)?,
            "CCI" => {
                config.cci_format = Some(match value {
                    "short" => CciFormat::Short,
                    "long" => CciFormat::Long,
                    _ => bail!("{}: `short` or `long`", wrong(name, value)),
                });
            }
            _ => bail!(
                "--set {name}: no such parameter; a sender has TSD, QD, BCR, P, N, CCI and constant"
            ),
        }
    }
    Ok(())
}

/// Applies the assignments of `recv --set`.
///
/// # Errors
/// If a name is unknown or a value cannot be parsed. The message lists the names that exist.
pub(crate) fn set_receiver(config: &mut ReceiverConfig, assignments: &[String]) -> Result<()> {
    for (name, value) in split(assignments)? {
        match name {
            "EL" => config.epoch = Some(time(name, value)?),
            "Nu" => config.loss.nu = number(name, value)?,
            "Delta" => config.loss.delta = number(name, value)?,
            "Alpha" => config.alpha = Some(number(name, value)?),
            "SSMINR" => config.slow_start_minimum_packets_per_s = Some(number(name, value)?),
            "weights" => config.normal_weights = Some(weights(name, value)?),
            "start-up-weights" => config.start_up_weights = Some(weights(name, value)?),
            "target" => {
                config.target_rule = match value {
                    "rfc" => TargetRule::Rfc,
                    "paper" => TargetRule::Paper,
                    _ => bail!("{}: `rfc` or `paper`", wrong(name, value)),
                };
            }
            "shortfall-check" => config.shortfall_check = yes(name, value)?,
            "falling-rate-check" => config.falling_rate_check = yes(name, value)?,
            "falling-rate-reset" => config.falling_rate_reset = yes(name, value)?,
            "capacity-check" => config.capacity_check = yes(name, value)?,
            "delay-check" => config.delay_check = yes(name, value)?,
            "rtt" => {
                config.rtt_rule = match value {
                    "rfc" => RttRule::Rfc,
                    "spacing" => RttRule::Spacing,
                    _ => bail!("{}: `rfc` or `spacing`", wrong(name, value)),
                };
            }
            "loss-filter" => {
                config.loss.filter = match value {
                    "rfc" => LossFilter::Rfc,
                    "balanced" => LossFilter::Balanced,
                    _ => bail!("{}: `rfc` or `balanced`", wrong(name, value)),
                };
            }
            "response" => {
                config.equation.response = match value {
                    "reno" => ResponseFunction::Reno,
                    "cubic" => ResponseFunction::Cubic,
                    _ => bail!("{}: `reno` or `cubic`", wrong(name, value)),
                };
            }
            "minimum-rto" => config.equation.minimum_rto_s = time(name, value)?.as_secs_f64(),
            "equation-factor" => {
                config.equation_factor = match value {
                    "mean" => None,
                    _ => Some(number(name, value)?),
                };
            }
            "loss-event-rtts" => config.loss_event_rtts = number(name, value)?,
            "capacity-share" => config.capacity_share = number(name, value)?,
            "rtt-increase-factor" => config.rtt_increase_factor = number(name, value)?,
            "reorder" => {
                config.reorder_packets = value.parse().with_context(|| wrong(name, value))?
            }
            "join-timeout" => config.join_timeout = Some(time(name, value)?),
            "silence-timeout" => config.silence_timeout = Some(time(name, value)?),
            "slot-timeout" => config.slot_timeout = Some(time(name, value)?),
            _ => bail!(
                "--set {name}: no such parameter; a receiver has EL, Nu, Delta, Alpha, SSMINR, weights, start-up-weights, target, \
                 shortfall-check, falling-rate-check, falling-rate-reset, capacity-check, delay-check, rtt, \
                 loss-filter, response, minimum-rto, equation-factor, loss-event-rtts, capacity-share, rtt-increase-factor, reorder, \
                 join-timeout, silence-timeout and slot-timeout"
            ),
        }
    }
    Ok(())
}

fn split(assignments: &[String]) -> Result<Vec<(&str, &str)>> {
    let pair = |text: &'_ String| format!("--set {text}: write it as NAME=VALUE");
    assignments
        .iter()
        .map(|text| text.split_once('=').with_context(|| pair(text)))
        .collect()
}

fn wrong(name: &str, value: &str) -> String {
    format!("--set {name}={value} cannot be read")
}

fn number(name: &str, value: &str) -> Result<f64> {
    value.parse().with_context(|| wrong(name, value))
}

fn time(name: &str, value: &str) -> Result<Duration> {
    parse_duration(value).with_context(|| wrong(name, value))
}

fn yes(name: &str, value: &str) -> Result<bool> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => bail!("{}: `yes` or `no`", wrong(name, value)),
    }
}

/// Parses the weights Beta and Zeta, written as `0.1,0.07`.
fn weights(name: &str, value: &str) -> Result<Weights> {
    let (beta, zeta) = value
        .split_once(',')
        .with_context(|| format!("{}: Beta,Zeta", wrong(name, value)))?;
    Ok(Weights {
        beta: number(name, beta)?,
        zeta: number(name, zeta)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_can_be_set_by_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut session = SessionConfig::lan("10Mbit/s".parse().unwrap());
        set_session(
            &mut session,
            &words("TSD=2s QD=30s BCR=2 P=0.5 N=9 CCI=long constant=no"),
        )
        .unwrap();
        assert_eq!((session.decrease, session.active_slots), (0.5, Some(9)));
        let mut receiver = ReceiverConfig::default();
        let all = "EL=20ms Nu=0.2 Delta=0.1 Alpha=0.5 SSMINR=9 weights=0.1,0.2 start-up-weights=0.3,0.4 target=paper \
                   shortfall-check=no falling-rate-check=no falling-rate-reset=no capacity-check=yes delay-check=yes rtt=spacing loss-filter=balanced response=cubic minimum-rto=1s equation-factor=mean loss-event-rtts=2 capacity-share=0.5 rtt-increase-factor=2 reorder=0 join-timeout=1s \
                   silence-timeout=5s slot-timeout=9s";
        set_receiver(
            &mut receiver,
            &all.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
        .unwrap();
        assert_eq!(
            receiver.normal_weights,
            Some(Weights {
                beta: 0.1,
                zeta: 0.2
            })
        );
        assert_eq!(receiver.target_rule, TargetRule::Paper);
    }

    #[test]
    fn unknown_names_and_values_are_reported() {
        let mut session = SessionConfig::lan("10Mbit/s".parse().unwrap());
        for (text, part) in [
            ("TDS=1s", "TSD"),
            ("TSD", "NAME=VALUE"),
            ("CCI=tiny", "short"),
            ("P=x", "P=x"),
        ] {
            let error = format!(
                "{:#}",
                set_session(&mut session, &[text.to_owned()]).unwrap_err()
            );
            assert!(error.contains(part), "{error}");
        }
    }
}
