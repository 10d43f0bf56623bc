//! The command line: what can be said, with its help.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use manyflow_core::units::{Bytes, Rate, parse_duration};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    it failed: a file, a socket, a disk, a session that cannot go on
  2    the command line or the session description makes no sense
  3    the session was silent, or ended before all files were complete
  130  recv or demo: interrupted by Ctrl-C or SIGTERM; send ends its session then, and exits with 0
  141  standard output was closed before all was written to it";

/// Sends the same bytes to many machines, each at the rate of its own path, fair to TCP there.
#[derive(Debug, Parser)]
#[command(version, after_long_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON object a line on standard output instead of bars and tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send files and folders, over and over, until all receivers have them
    #[command(after_help = SEND_EXAMPLES)]
    Send(SendArgs),
    /// Receive a session's files
    #[command(after_help = RECV_EXAMPLES)]
    Recv(RecvArgs),
    /// Watch one sender and five receivers behind different links, here on this machine
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run a scenario file in the simulator
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Run figures of the papers in the simulator, and hold them against what the papers show
    #[command(after_help = FIGURE_EXAMPLES)]
    Figure(FigureArgs),
    /// Measure
    #[command(subcommand)]
    Bench(BenchCommand),
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// The simulator, beside ns-2 where that is installed; fails where a ratio is below its bound
    Sim,
    /// What simulating WEBRC takes with 1 to 1,000,000 receivers: time, and memory for each of them (some minutes, 2 GB)
    Scale,
}

const SEND_EXAMPLES: &str = "\
Examples:
  # Where there is no multicast: receivers connect to this host
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # On a network with multicast
  manyflow send image.iso docs/ --multicast 232.1.2.0/24 --interface eth0 --publish 0.0.0.0:8080 --for 10min

  # Description to a file instead of a web address
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --session image.sdp";

const RECV_EXAMPLES: &str = "\
Examples:
  manyflow recv http://192.0.2.1:8080/session.sdp
  manyflow recv http://192.0.2.1:8080/session.sdp --output downloads --max-rate 20Mbit/s
  manyflow recv image.sdp --interface eth0";

const DEMO_EXAMPLES: &str = "\
Example:
  manyflow demo --size 1.5MB

The links are emulated in user space, on loopback; nothing leaves this machine, and root is not needed.";

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Files and folders
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The rate over all channels: no receiver can be faster
    #[arg(long, default_value = "50Mbit/s")]
    pub(crate) rate: Rate,
    /// Time slots and base rate: for local networks or for wide-area paths
    #[arg(long, value_enum, default_value_t = Profile::Lan)]
    pub(crate) profile: Profile,
    /// Send to consecutive groups from this range
    #[arg(long, value_name = "GROUP[/PREFIX]")]
    pub(crate) multicast: Option<GroupRange>,
    /// The interface that multicast leaves by: its name or address
    #[arg(long, value_name = "NAME|ADDRESS", requires = "multicast")]
    pub(crate) interface: Option<String>,
    /// How many hops multicast travels
    #[arg(long, default_value_t = 1, requires = "multicast")]
    pub(crate) ttl: u8,
    /// The UDP port of the groups
    #[arg(long, default_value_t = 5445)]
    pub(crate) port: u16,
    /// Embed an AMT relay here, for receivers that multicast does not reach
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Serve the session description over HTTP here
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) publish: Option<std::net::SocketAddr>,
    /// Write the session description to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// Forward error correction
    #[arg(long, value_enum, default_value_t = Fec::Raptorq)]
    pub(crate) fec: Fec,
    /// Bytes of a packet, from the LCT header on: 28 less (IPv6: 48 less) than the path's MTU, 30 less again in a tunnel
    #[arg(long, default_value_t = 1400, value_parser = clap::value_parser!(u16).range(128..=65_000))]
    pub(crate) packet: u16,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "forever")]
    pub(crate) duration: Option<Duration>,
    /// Send until Ctrl-C, which is also what happens without --for
    #[arg(long)]
    pub(crate) forever: bool,
    /// The transport session identifier; random if not given
    #[arg(long)]
    pub(crate) tsi: Option<u32>,
    /// Most memory for encoding
    #[arg(long, default_value = "4GiB")]
    pub(crate) memory: Bytes,
    /// A parameter of WEBRC by its name in RFC 3738: TSD=1s, BCR=4, QD=10s, P=0.75, N=20, CCI=long, constant=no
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
}

/// Arguments of `recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// The session description: an http:// address, a file, or - for standard input
    pub(crate) session: String,
    /// The folder in which files appear, once they are complete
    #[arg(long, default_value = ".")]
    pub(crate) output: PathBuf,
    /// Receive no faster than this
    #[arg(long)]
    pub(crate) max_rate: Option<Rate>,
    /// Receive by multicast on this interface: its name or address
    #[arg(long, value_name = "NAME|ADDRESS", conflicts_with = "relay")]
    pub(crate) interface: Option<String>,
    /// Receive by this AMT relay, whatever the description says
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) relay: Option<String>,
    /// Give a silent session up after this time
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) patience: Duration,
    /// Most memory for files that are not complete
    #[arg(long, default_value = "2GiB")]
    pub(crate) memory: Bytes,
    /// A parameter of WEBRC by its name in RFC 3738: EL=50ms, Nu=0.3, Delta=0.3, Alpha=0.25, target=paper, ...
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The size of the file that is sent
    #[arg(long, default_value = "1.5MB")]
    pub(crate) size: Bytes,
    /// The seed of the file's content and of the links' faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

const SIM_EXAMPLES: &str = "\
Examples:
  manyflow sim scenarios/webrc-4.toml
  manyflow sim scenarios/webrc-5.toml --cell 17 --seed 3

  # What crossed the bottleneck in the first run, for Wireshark
  manyflow sim scenarios/webrc-9.toml --pcap webrc-9.pcap
  tshark -r webrc-9.pcap -d udp.port==5445,alc

  # Every packet that a link dropped in the run with seed 3
  manyflow sim scenarios/webrc-8.toml --seed 3 --trace webrc-8.jsonl
  jq -c 'select(.event == \"drop\")' webrc-8.jsonl

--pcap and --trace look into one run: the first that --cell and --seed leave.";

const FIGURE_EXAMPLES: &str = "\
Examples:
  manyflow figure --list
  manyflow figure webrc-4 webrc-7
  manyflow figure --all --fast --out results";

/// Arguments of `sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The scenario file; docs/scenarios.md has all that can stand in it
    pub(crate) file: PathBuf,
    /// Only this cell of the sweep, as a failed run names it
    #[arg(long)]
    pub(crate) cell: Option<usize>,
    /// Only this seed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) inspect: InspectArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What is written of one run.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Write the packets that cross a link to this capture file, in pcap format; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// The link to capture: A-B for one direction, a name from the scenario for both; can be repeated [default: the only
    /// link with a limited rate]
    #[arg(long, value_name = "LINK", requires = "pcap")]
    pub(crate) pcap_link: Vec<String>,
    /// Write the events of protocols and links to this file, one JSON object a line; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// Arguments of `figure`.
#[derive(Debug, Args)]
pub(crate) struct FigureArgs {
    /// Which figures, by their ids
    pub(crate) ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Only say which there are
    #[arg(long)]
    pub(crate) list: bool,
    /// The folder of the scenario files
    #[arg(long, default_value = "scenarios")]
    pub(crate) scenarios: PathBuf,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// How scenarios are run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Fewer seeds, shorter runs, coarser sweeps, and wider expectations
    #[arg(long)]
    pub(crate) fast: bool,
    /// The folder for results: a folder for each scenario, with index.html, summary.json, CSV and SVG
    #[arg(long, default_value = "results")]
    pub(crate) out: PathBuf,
    /// Threads; all cores if not given. The results are the same
    #[arg(long)]
    pub(crate) threads: Option<usize>,
}

/// Ready-made parameters.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Slots of 1 s, a base of 4 packets/s: reaches 200 Mbit/s in seconds.
    Lan,
    /// The papers' values: slots of 10 s, a base of 1 packet/s.
    Wan,
}

/// Forward error correction.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fec {
    /// RaptorQ (RFC 6330): any packets do, hardly more than the file's.
    Raptorq,
    /// No code: every single packet is needed.
    None,
}

/// A range of multicast groups, `232.1.2.0/24` or only its first group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupRange {
    /// The first group.
    pub(crate) first: IpAddr,
    /// How many bits the groups of the range share.
    pub(crate) prefix: Option<u8>,
}

impl GroupRange {
    /// How many groups there are; `None` where no prefix limits them.
    pub(crate) fn size(&self) -> Option<u128> {
        let bits = if self.first.is_ipv4() { 32 } else { 128 };
        self.prefix.map(|prefix| {
            1u128
                .checked_shl(bits - u32::from(prefix))
                .unwrap_or(u128::MAX)
        })
    }
}

impl FromStr for GroupRange {
    type Err = String;

    fn from_str(text: &str) -> Result<GroupRange, String> {
        let wrong = || {
            format!(
                "`{text}` is not a multicast group or range such as 232.1.2.0/24 or ff3e::8000:0/112"
            )
        };
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, p)| (a, Some(p)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix: Option<u8> = prefix.map(str::parse).transpose().map_err(|_| wrong())?;
        if !first.is_multicast() || prefix.is_some_and(|prefix| prefix > bits) {
            return Err(wrong());
        }
        Ok(GroupRange { first, prefix })
    }
}
