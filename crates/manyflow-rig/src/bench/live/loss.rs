//! `manyflow-rig bench loss`: two receivers with the same round-trip time, of which one loses
//! packets at random.
//!
//! Sender and receivers are programs of their own on loopback. Each receiver is behind a
//! [`LastMile`], which delays and loses packets. The receiver without loss also receives the file
//! alone, so that the effect of its neighbour shows. How long start-up takes depends on the time in
//! the sender's time slot at which a receiver starts. So each run has a time of its own, spread
//! over a slot, and both transfers of a run have the same.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::sdp::SessionDescription;
use manyflow_net::last_mile::LastMile;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::median;
use super::process::{Running, wait_for_all};
use super::round_trip::RoundTrips;
use crate::bench::write_random;
use crate::cli::LossArgs;
use manyflow_terminal::Display;

/// The part of the packets that the link to one receiver loses.
const LOSS: f64 = 0.01;
/// The delay of each direction of a link. The timers of links add to it.
const ONE_WAY: Duration = Duration::from_millis(10);
/// Minimum goodput of the receiver with loss, as a multiple of the TCP equation's rate.
const SHARE_BOUND: f64 = 0.9;
/// Maximum time of the receiver without loss beside the other one, as a multiple of its time alone.
const SLOWDOWN_BOUND: f64 = 1.05;

/// Compares the receiver with loss with the TCP equation, and the other one with itself alone.
pub(crate) async fn run(args: &LossArgs, display: &Display) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    write_random(&file, args.size.0)?;
    display.print_line(&format!(
        "{} in a session of {}, over links with a delay of {} ms in each direction",
        args.size,
        args.rate,
        ONE_WAY.as_millis()
    ))?;
    let mut runs = Vec::new();
    for run in 0..args.runs {
        let start = Start {
            seed: 100 * u64::from(run),
            slots: f64::from(run) / f64::from(args.runs),
        };
        let alone = Transfer::run(args.rate, &file, &[0.0], start).await?;
        let round_trips = RoundTrips::start(link(0.0)).await?;
        let both = Transfer::run(args.rate, &file, &[0.0, LOSS], start).await?;
        runs.push(Run {
            alone,
            both,
            round_trip_s: round_trips.median_s()?,
        });
    }
    let summary = Summary::of(&runs, args.size);
    for line in summary.table() {
        display.print_line(&line)?;
    }
    display.print_json(&summary.to_json())?;
    let missed = summary.missed();
    ensure!(missed.is_empty(), "missed: {}", missed.join("; "));
    Ok(())
}

/// One transfer to the receiver without loss alone, and one to both.
#[derive(Clone, Debug)]
struct Run {
    alone: Transfer,
    /// To the receiver without loss first.
    both: Transfer,
    /// The round-trip time of links like the receivers', measured during the transfer to both.
    round_trip_s: f64,
}

/// The beginning of a transfer.
#[derive(Copy, Clone, Debug)]
struct Start {
    /// The seed of losses. Links of one transfer have consecutive seeds.
    seed: u64,
    /// The time at which receivers start after their sender, in time slots.
    slots: f64,
}

/// A transfer of the file.
#[derive(Clone, Debug)]
struct Transfer {
    /// The length of a packet, as the session's rate control counts it.
    packet_bytes: u32,
    receivers: Vec<Received>,
}

impl Transfer {
    /// Transfers `file` to one receiver for each value in `losses`, whose link loses this part of
    /// the packets.
    async fn run(rate: Rate, file: &Path, losses: &[f64], start: Start) -> Result<Transfer> {
        let sender = block_in_place(|| Sender::start(rate, file))?;
        let relay = sender.description.amt_relay.as_ref();
        let relay = relay.context("the sender has a relay")?.authority();
        let relay = relay.parse().context("the relay's address")?;
        let folder = tempfile::tempdir()?;
        let mut last_miles = Vec::new();
        for (number, &loss) in (0..).zip(losses) {
            let seed = start.seed + 2 * number;
            last_miles.push(LastMile::start(relay, link(loss), link(0.0), seed).await?);
        }
        tokio::time::sleep(sender.time_slot().mul_f64(start.slots)).await;
        let (start, mut receivers, mut late_s) = (Instant::now(), Vec::new(), Vec::new());
        for (number, last_mile) in last_miles.iter().enumerate() {
            let output = folder.path().join(number.to_string());
            late_s.push(start.elapsed().as_secs_f64());
            receivers.push(sender.start_receiver(last_mile, &output)?);
        }
        let received = block_in_place(|| {
            let seconds = wait_for_all(&mut receivers, start, |_| Ok(()))?;
            let seconds = seconds.into_iter().zip(late_s);
            let received = receivers.iter_mut().zip(seconds);
            received
                .map(|(receiver, (seconds, late_s))| Received::read(receiver, seconds - late_s))
                .collect::<Result<Vec<_>>>()
        })?;
        Ok(Transfer {
            packet_bytes: sender.description.webrc.packet_bytes.into(),
            receivers: received,
        })
    }
}

/// One direction of a link, which loses this part of the packets.
fn link(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: ONE_WAY,
        loss: LossModel::Bernoulli(loss),
        ..LinkConfig::default()
    }
}

/// A running `manyflow send` with a relay, which is killed on drop.
struct Sender {
    url: String,
    description: SessionDescription,
    _process: Running,
}

impl Sender {
    fn start(rate: Rate, file: &Path) -> Result<Sender> {
        let mut command = manyflow()?;
        command.args(["send", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--publish", "127.0.0.1:0", "--rate"]);
        command.arg(format!("{}bit/s", rate.bits_per_s())).arg(file);
        let mut process = Running::start(command)?;
        let published = process.event("published")?;
        let started = process.event("started")?;
        let text = started["session"].as_str().context("a description")?;
        Ok(Sender {
            url: published["url"].as_str().context("a URL")?.to_owned(),
            description: SessionDescription::parse(text)?,
            _process: process,
        })
    }

    fn time_slot(&self) -> Duration {
        Duration::from_secs_f64(self.description.webrc.time_slot_s)
    }

    fn start_receiver(&self, last_mile: &LastMile, output: &Path) -> Result<Running> {
        let mut command = manyflow()?;
        command.args(["recv", "--json", &self.url, "--relay"]);
        command.arg(last_mile.address().to_string());
        command.arg("--output").arg(output);
        Running::start(command)
    }
}

fn manyflow() -> Result<Command> {
    let program = crate::program::manyflow()?;
    Ok(Command::new(program))
}

/// The measurements of a receiver. Those of its rate control are medians over the time after
/// start-up, and `None` if start-up took all the time.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Received {
    /// Time from the start to the complete file, in seconds.
    seconds: f64,
    /// The part of the packets that the receiver missed.
    loss: f64,
    /// ARTT, the average multicast round-trip time, in seconds.
    rtt_s: Option<f64>,
    /// LOSSP, the loss event probability.
    loss_probability: Option<f64>,
    /// REQN, the rate of the TCP equation for these two, in bits per second.
    equation: Option<f64>,
}

impl Received {
    /// Reads the output of a receiver that took `seconds`.
    fn read(receiver: &mut Running, seconds: f64) -> Result<Received> {
        let progress = receiver.events("progress")?;
        Ok(Received::of(&progress, seconds))
    }

    fn of(progress: &[Value], seconds: f64) -> Received {
        let last = progress.last();
        let count = |key: &str| last.and_then(|last| last[key].as_f64()).unwrap_or(0.0);
        let (received, lost) = (count("packets_received"), count("packets_lost"));
        let after_start_up = |event: &&Value| event["equation_bits_per_s"].is_u64();
        let typical = |key: &str| {
            let events = progress.iter().filter(after_start_up);
            median_of_some(events.map(|event| event[key].as_f64()))
        };
        Received {
            seconds,
            loss: lost / (received + lost).max(1.0),
            rtt_s: typical("rtt_s"),
            loss_probability: typical("loss_probability"),
            equation: typical("equation_bits_per_s"),
        }
    }

    /// Returns the medians over runs, of which there is at least one.
    fn median_of(runs: &[Received]) -> Received {
        let always = |value: fn(&Received) -> f64| median(runs.iter().map(value));
        let of = |value: fn(&Received) -> Option<f64>| median_of_some(runs.iter().map(value));
        Received {
            seconds: always(|run| run.seconds),
            loss: always(|run| run.loss),
            rtt_s: of(|run| run.rtt_s),
            loss_probability: of(|run| run.loss_probability),
            equation: of(|run| run.equation),
        }
    }

    fn to_json(self, goodput: f64) -> Value {
        json!({
            "seconds": self.seconds, "goodput_bits_per_s": goodput, "loss": self.loss, "rtt_s": self.rtt_s,
            "loss_probability": self.loss_probability, "equation_bits_per_s": self.equation,
        })
    }
}

/// Returns the median of the values that there are.
fn median_of_some(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<_> = values.flatten().collect();
    (!values.is_empty()).then(|| median(values.into_iter()))
}

/// The medians over all runs.
#[derive(Clone, Debug, PartialEq)]
struct Summary {
    size: Bytes,
    /// The measured round-trip time of the links.
    round_trip_s: f64,
    /// The rate of the TCP equation with the loss and the round-trip time of the path.
    equation: Rate,
    lossy: Received,
    beside: Received,
    alone: Received,
    /// The time of the receiver without loss beside the other one, over its time alone.
    slowdown: f64,
}

impl Summary {
    /// Summarises runs, of which there is at least one.
    fn of(runs: &[Run], size: Bytes) -> Summary {
        let of = |receiver: fn(&Run) -> Received| {
            let received: Vec<_> = runs.iter().map(receiver).collect();
            Received::median_of(&received)
        };
        let round_trip_s = median(runs.iter().map(|run| run.round_trip_s));
        let equation = TcpEquation::RENO.rate_packets_per_s(round_trip_s, LOSS);
        let slowdown = |run: &Run| run.both.receivers[0].seconds / run.alone.receivers[0].seconds;
        Summary {
            size,
            round_trip_s,
            equation: Rate::from_packets_per_s(equation, runs[0].both.packet_bytes),
            lossy: of(|run| run.both.receivers[1]),
            beside: of(|run| run.both.receivers[0]),
            alone: of(|run| run.alone.receivers[0]),
            slowdown: median(runs.iter().map(slowdown)),
        }
    }

    /// Returns the bits of the file per second of a receiver's time.
    fn goodput(&self, receiver: &Received) -> f64 {
        self.size.0 as f64 * 8.0 / receiver.seconds
    }

    /// Returns the goodput of the receiver with loss as a multiple of the equation's rate.
    fn share(&self) -> f64 {
        self.goodput(&self.lossy) / self.equation.bits_per_s() as f64
    }

    fn table(&self) -> Vec<String> {
        let head = format!(
            "{:<24} {:>8} {:>8} {:>8} {:>9} {:>10} {:>15}",
            "receiver", "seconds", "Mbit/s", "loss, %", "ARTT, ms", "LOSSP, %", "REQN, Mbit/s"
        );
        vec![
            head,
            self.row(&format!("{} % loss", LOSS * 100.0), &self.lossy),
            self.row("no loss", &self.beside),
            self.row("no loss, alone", &self.alone),
            format!(
                "{} % loss: {:.2} times the rate of the TCP equation, {} at the measured round-trip time of {:.1} ms \
                 (bound {SHARE_BOUND})",
                LOSS * 100.0,
                self.share(),
                self.equation,
                self.round_trip_s * 1e3,
            ),
            format!(
                "no loss: {:.2} times the time of the receiver alone (bound {SLOWDOWN_BOUND})",
                self.slowdown,
            ),
        ]
    }

    fn row(&self, name: &str, receiver: &Received) -> String {
        let cell = |value: Option<f64>, scale: f64, digits: usize| {
            value.map_or("-".to_owned(), |value| {
                format!("{:.digits$}", value * scale)
            })
        };
        format!(
            "{name:<24} {:>8.1} {:>8.2} {:>8.2} {:>9} {:>10} {:>15}",
            receiver.seconds,
            self.goodput(receiver) / 1e6,
            receiver.loss * 100.0,
            cell(receiver.rtt_s, 1e3, 1),
            cell(receiver.loss_probability, 100.0, 3),
            cell(receiver.equation, 1e-6, 2),
        )
    }

    fn to_json(&self) -> Value {
        let json = |receiver: &Received| receiver.to_json(self.goodput(receiver));
        json!({
            "event": "loss", "round_trip_s": self.round_trip_s,
            "tcp_equation_bits_per_s": self.equation.bits_per_s(),
            "share_of_equation": self.share(), "slowdown": self.slowdown,
            "lossy": json(&self.lossy), "beside": json(&self.beside), "alone": json(&self.alone),
        })
    }

    /// Returns a message for each missed bound.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.share() < SHARE_BOUND {
            missed.push(format!(
                "the receiver with loss gets less than {SHARE_BOUND} times the TCP equation's rate"
            ));
        }
        if self.slowdown > SLOWDOWN_BOUND {
            missed.push(format!(
                "the receiver without loss takes more than {SLOWDOWN_BOUND} times its time alone"
            ));
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes(20_000_000);

    fn transfer(seconds: &[f64]) -> Transfer {
        let received = |&seconds: &f64| Received {
            seconds,
            ..Received::default()
        };
        Transfer {
            packet_bytes: 1400,
            receivers: seconds.iter().map(received).collect(),
        }
    }

    /// A run with these times of the receiver with loss, of the other one, and of that one alone.
    fn run(lossy_s: f64, beside_s: f64, alone_s: f64) -> Run {
        Run {
            alone: transfer(&[alone_s]),
            both: transfer(&[beside_s, lossy_s]),
            round_trip_s: 0.02,
        }
    }

    #[test]
    fn the_share_is_of_the_equation_with_1_percent_loss_and_the_measured_round_trip_time() {
        // 1 / (0.02 sqrt(0.01) (0.816 + 7.35 0.01 (1 + 32 0.0001))) packets/s of 1400 bytes.
        let summary = Summary::of(&[run(20.0, 5.0, 5.0)], SIZE);
        assert!((summary.equation.bits_per_s() as f64 / 6.293e6 - 1.0).abs() < 1e-3);
        assert!((summary.share() - 8.0 / 6.293).abs() < 2e-3);
        assert!(summary.missed().is_empty());
        let slower = Run {
            round_trip_s: 0.025,
            ..run(20.0, 5.0, 5.0)
        };
        let summary = Summary::of(&[slower], SIZE);
        assert!((summary.share() - 8.0 / 6.293 * 1.25).abs() < 2e-3);
    }

    #[test]
    fn the_slowdown_is_the_median_of_runs() {
        let runs = [
            run(20.0, 5.0, 5.0),
            run(20.0, 9.0, 6.0),
            run(20.0, 6.0, 5.0),
        ];
        let summary = Summary::of(&runs, SIZE);
        assert!((summary.slowdown - 1.2).abs() < 1e-9);
        let missed = summary.missed();
        assert_eq!(missed.len(), 1);
        assert!(missed[0].contains("more than 1.05 times"), "{missed:?}");
    }

    #[test]
    fn a_receiver_below_the_equation_misses_its_bound() {
        let missed = Summary::of(&[run(30.0, 5.0, 5.0)], SIZE).missed();
        assert_eq!(missed.len(), 1);
        assert!(missed[0].contains("TCP equation"), "{missed:?}");
    }

    #[test]
    fn the_table_has_a_row_for_each_receiver_and_a_dash_for_unknown_values() {
        let table = Summary::of(&[run(20.0, 5.0, 4.0)], SIZE).table();
        let cells = |line: usize| table[line].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(cells(1), "1 % loss 20.0 8.00 0.00 - - -");
        assert_eq!(cells(2), "no loss 5.0 32.00 0.00 - - -");
        assert_eq!(cells(3), "no loss, alone 4.0 40.00 0.00 - - -");
    }

    #[test]
    fn the_rate_control_counts_after_start_up() {
        let progress = |rtt_s: f64, equation: Option<u64>, lost: u64| {
            json!({
                "rtt_s": rtt_s, "loss_probability": 0.01, "equation_bits_per_s": equation,
                "packets_received": 99, "packets_lost": lost,
            })
        };
        let in_start_up = progress(0.9, None, 0);
        let events = [
            in_start_up.clone(),
            progress(0.02, Some(5), 0),
            progress(0.03, Some(7), 0),
            progress(0.04, Some(6), 1),
        ];
        let received = Received::of(&events, 2.0);
        assert_eq!((received.rtt_s, received.equation), (Some(0.03), Some(6.0)));
        assert_eq!((received.loss, received.seconds), (0.01, 2.0));
        assert_eq!(Received::of(&[in_start_up], 2.0).rtt_s, None);
    }
}
