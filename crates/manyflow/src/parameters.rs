//! `--set NAME=VALUE`: sets WEBRC parameters by their names in RFC 3738.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use manyflow_core::units::parse_duration;
use manyflow_webrc::{CciFormat, Parameter, ReceiverConfig, SessionConfig};

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
            "trains" => set_trains(config, value).with_context(|| wrong(name, value))?,
            "constant" => config.constant_aggregate = yes(name, value)?,
            "CCI" => {
                config.cci_format = Some(match value {
                    "short" => CciFormat::Short,
                    "long" => CciFormat::Long,
                    _ => bail!("{}: `short` or `long`", wrong(name, value)),
                });
            }
            _ => bail!(
                "--set {name}: no such parameter; a sender has TSD, QD, BCR, P, N, CCI, constant and trains"
            ),
        }
    }
    Ok(())
}

/// Sets the packets of a train on the base channel, for which the base rate may have to rise.
fn set_trains(config: &mut SessionConfig, value: &str) -> Result<()> {
    match value.parse()? {
        0 => config.packet_trains = None,
        packets @ 4..=32 => *config = config.clone().with_packet_trains(packets),
        _ => bail!("use 4 to 32 packets, or 0 for none"),
    }
    Ok(())
}

/// Applies the assignments of `recv --set`.
///
/// # Errors
/// If a name is unknown or a value cannot be parsed. The message lists the names that exist.
pub(crate) fn set_receiver(config: &mut ReceiverConfig, assignments: &[String]) -> Result<()> {
    for (name, value) in split(assignments)? {
        let parameter = Parameter::all().iter().find(|it| it.name() == name);
        let parameter = parameter.with_context(|| unknown(name))?;
        let set = parameter.set(config, value);
        set.map_err(|reason| anyhow!("{}: {reason}", wrong(name, value)))?;
    }
    Ok(())
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = Parameter::all().iter().map(Parameter::name).collect();
    let (last, first) = names.split_last().expect("a receiver has parameters");
    let first = first.join(", ");
    format!("--set {name}: no such parameter; a receiver has {first} and {last}")
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

#[cfg(test)]
mod tests {
    use manyflow_webrc::{TargetRule, Weights};

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
        let mut receiver = ReceiverConfig::default();
        for (text, expected) in [
            ("rtt=x", "--set rtt=x cannot be read: `rfc` or `spacing`"),
            ("EL=2", "--set EL=2 cannot be read: `2` is not a time"),
            ("TSD=2s", "no such parameter; a receiver has EL, Nu, "),
            ("TSD=2s", ", silence-timeout and slot-timeout"),
        ] {
            let error = set_receiver(&mut receiver, &[text.to_owned()]).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
