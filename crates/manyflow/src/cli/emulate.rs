//! The options of `emulate`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use manyflow_core::link::{LinkConfig, LossModel, Pace, QueueLimit, RateTrace};
use manyflow_core::units::{Bytes, Rate, parse_duration};
use manyflow_terminal::completion::scenarios;

use super::InspectArgs;

pub(super) const EMULATE_EXAMPLES: &str = "\
Examples:
  # A server on this host, and a client behind 20 Mbit/s and 40 ms in each direction
  iperf3 --server --one-off &
  sudo manyflow emulate --rate 20Mbit/s --delay 40ms --queue 100packets -- sh -c 'iperf3 --client $MANYFLOW_GATEWAY'

  # Pings over a path that loses 1 % of the packets in each direction
  sudo manyflow emulate --delay 25ms --loss 1% -- sh -c 'ping -c 100 -i 0.1 $MANYFLOW_GATEWAY'

  # A scenario in real time, with the kernel's TCP: two flows, 300 s
  sudo manyflow emulate tcp-2 --fast --cell 1 --seed 1

  # The same, and its measures beside those of the simulator
  sudo manyflow emulate tcp-2 --fast --cell 1 --seed 1 --agree

The command runs in a network namespace. Its only way out is the emulated link to a gateway, which is an address of
the calling host: servers that listen on all addresses are reached there. MANYFLOW_GATEWAY has this address, and
MANYFLOW_ADDRESS the command's own; MANYFLOW_GATEWAY6 and MANYFLOW_ADDRESS6 have the IPv6 ones. The exit code is that of the command, or 128 and the signal's number.";

/// Arguments of `emulate`.
#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    /// A scenario file, or the id of a figure, to run in real time
    #[arg(value_name = "FILE|ID", required_unless_present = "command", add = scenarios())]
    pub(crate) scenario: Option<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// The seed of the losses, or of the only run of a scenario
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The command and its arguments
    #[arg(last = true, conflicts_with = "scenario")]
    pub(crate) command: Vec<OsString>,
    /// Run only this cell of the scenario's sweep
    #[arg(long, requires = "scenario")]
    pub(crate) cell: Option<usize>,
    /// Replace a value of the scenario, as in 'links.bottleneck.rate=5 Mbit/s'; can be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "scenario")]
    pub(crate) set: Vec<String>,
    /// Use the scenario's shortened form: fewer seeds and shorter runs
    #[arg(long, requires = "scenario")]
    pub(crate) fast: bool,
    /// Simulate the same runs, too, and print their measures beside the emulated ones
    #[arg(long, requires = "scenario")]
    pub(crate) agree: bool,
    /// The duration of each run, instead of the scenario's. The steady state begins after half of
    /// it, and expectations are not judged
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, requires = "scenario")]
    pub(crate) duration: Option<Duration>,
    /// Run WEBRC in this process, as the simulator does, instead of as `manyflow send` and `recv`
    #[arg(long, requires = "scenario")]
    pub(crate) in_process: bool,
    /// The folder for results, as in `sim`
    #[arg(long, default_value = "results-emulated", value_parser = super::folder())]
    pub(crate) out: PathBuf,
    /// The folder in which ids of figures are looked up [default: ./scenarios if it exists, else
    /// the scenarios that the program holds]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scenarios: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) inspect: InspectArgs,
}

/// The link of a command.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The rate of the link in each direction [default: no limit]
    #[arg(long, conflicts_with = "scenario")]
    pub(crate) rate: Option<Rate>,
    /// A trace of the rate in Mahimahi's format, as of mm-link, for each direction
    #[arg(long, value_name = "FILE", value_parser = read_trace, conflicts_with_all = ["scenario", "rate"])]
    pub(crate) rate_trace: Option<Arc<RateTrace>>,
    /// The delay of each direction; the round-trip time is twice as long [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "scenario")]
    pub(crate) delay: Option<Duration>,
    /// The size of each direction's queue, in packets or bytes: 100packets, 64kB [default: no
    /// limit]
    #[arg(long, conflicts_with = "scenario")]
    pub(crate) queue: Option<Queue>,
    /// The share of packets that each direction loses at random: 1%, 0.01
    #[arg(long, value_name = "SHARE", value_parser = parse_share, conflicts_with = "scenario")]
    pub(crate) loss: Option<f64>,
}

impl LinkArgs {
    /// Returns the link of each direction.
    pub(crate) fn config(&self) -> LinkConfig {
        LinkConfig {
            rate: self.rate,
            pace: self.rate_trace.clone().map(Pace::Trace),
            delay: self.delay.unwrap_or_default(),
            queue: self
                .queue
                .map_or(QueueLimit::Unlimited, |Queue(limit)| limit),
            loss: self.loss.map_or(LossModel::None, LossModel::Bernoulli),
            ..LinkConfig::default()
        }
    }
}

fn read_trace(path: &str) -> Result<Arc<RateTrace>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let trace = text.parse::<RateTrace>();
    trace.map(Arc::new).map_err(|error| error.in_file(path))
}

/// The size of a queue.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Queue(pub(crate) QueueLimit);

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Queue, String> {
        let packets = text.strip_suffix("packets").map(str::trim);
        let limit = match packets {
            Some(number) => number.parse().ok().map(QueueLimit::Packets),
            None => text
                .parse()
                .ok()
                .map(|Bytes(bytes)| QueueLimit::Bytes(bytes)),
        };
        let expected = || format!("`{text}` is not a queue such as `100packets` or `64kB`");
        limit.map(Queue).ok_or_else(expected)
    }
}

/// Parses a share below one: `1%` or `0.01`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|share| share * scale);
    let share = share.filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a share such as `1%` or `0.01`, below 100 %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_packets_or_bytes() {
        let queue = |text: &str| text.parse::<Queue>().map(|Queue(limit)| limit);
        assert_eq!(queue("100packets"), Ok(QueueLimit::Packets(100)));
        assert_eq!(queue("7 packets"), Ok(QueueLimit::Packets(7)));
        assert_eq!(queue("64kB"), Ok(QueueLimit::Bytes(64_000)));
        assert!(queue("100").is_err() && queue("-1packets").is_err());
    }

    #[test]
    fn shares_are_percentages_or_fractions() {
        assert_eq!(parse_share("1%"), Ok(0.01));
        assert_eq!(parse_share("0.25"), Ok(0.25));
        assert!(parse_share("100%").is_err() && parse_share("x").is_err());
    }
}
