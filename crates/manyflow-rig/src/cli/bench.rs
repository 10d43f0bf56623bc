//! The benchmarks' commands and options.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use manyflow_core::units::{Bytes, Rate, parse_duration};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare with ns-2 if it is installed; fail if a ratio is below its bound
    Sim,
    /// Compare the rate of transfers with UFTP's, if it is installed; fail below the bounds (root)
    #[command(after_help = LIVE_EXAMPLES)]
    Live(LiveArgs),
    /// Compare transfers to fast receivers and a slow one with UFTP's TFMCC; fail above the bounds
    /// (root)
    #[command(after_help = HETEROGENEITY_EXAMPLES)]
    Heterogeneity(HeterogeneityArgs),
    /// Compare a file for eight receivers behind one link with eight downloads by HTTP; fail beyond
    /// the bounds (root)
    #[command(after_help = DOWNLOADS_EXAMPLES)]
    Downloads(DownloadsArgs),
    /// Compare the goodput behind 1 % random loss and 20 ms with the TCP equation, beside a
    /// receiver without loss; fail below the bounds
    #[command(after_help = LOSS_EXAMPLES)]
    Loss(LossArgs),
    /// Measure the processor time and memory of a relay on loopback; fail below the bounds
    #[command(after_help = RELAY_EXAMPLES)]
    Relay(RelayBenchArgs),
    /// Measure streams to receivers behind 0.3, 1, 3 and 10 Mbit/s, with SIM and RLM; fail below
    /// the bounds
    #[command(after_help = STREAM_EXAMPLES)]
    Stream(StreamBenchArgs),
    /// Count the reports to the sender of a stream with 4 and with 400 receivers; fail if they
    /// differ
    Audience(AudienceArgs),
    /// Measure a switch on loopback, beside HAProxy if it is installed; fail below the bounds
    #[command(after_help = SWITCH_EXAMPLES)]
    Switch(SwitchBenchArgs),
    /// Measure group messages over three daemons, beside nats-server if it is installed
    #[command(after_help = GROUP_EXAMPLES)]
    Group(GroupArgs),
    /// Measure messages in one order among three members, beside Corosync, Spread and JGroups if
    /// they are installed (root)
    #[command(after_help = ORDER_EXAMPLES)]
    Order(OrderArgs),
    /// Measure how exactly the emulator keeps to its links, and its speed (root, 2 minutes); fail
    /// beyond the bounds
    Emulator,
    /// Measure time and memory of WEBRC simulations with 1 to 1,000,000 receivers (some minutes, 2
    /// GB)
    Scale,
}

const LIVE_EXAMPLES: &str = "\
Example:
  sudo manyflow-rig bench live --receivers 4
  sudo manyflow-rig bench live --multicast --runs 1
  sudo manyflow-rig bench live --relays --receivers 4
  sudo manyflow-rig bench live --runs 1 --profile

Times begin with the sender. One receiver has to get 1.5 times UFTP's rate, more of them UFTP's rate, as over relays.
Processor time for a packet may be 3 us at the sender, and 4 us at a receiver. With --relays, two routers that forward
only unicast are between sender and receivers; each runs a relay, or one of UFTP's proxies. With --profile, one more
transfer shows the shares of the code in the processor time of the sender and of a receiver (needs perf).
The hosts are network namespaces on a bridge; no packet leaves this machine.";

const DOWNLOADS_EXAMPLES: &str = "\
Example:
  sudo manyflow-rig bench downloads --size 200MB --runs 3

The sender's link has 1 Gbit/s, and a switch is behind it. Each receiver downloads the file from Python's HTTP server
with curl; then manyflow sends it by multicast, through the sender's own relay, and through a relay behind the link.
The session has nine tenths of the link's rate, as on an interface that shows its speed. By multicast and through the
relay behind the link, the link may carry 1.15 times the file, headers included, and the last receiver may take a
quarter of the time of the downloads.
The hosts are network namespaces on a bridge; no packet leaves this machine.";

const HETEROGENEITY_EXAMPLES: &str = "\
Example:
  sudo manyflow-rig bench heterogeneity --runs 3

The bounds are those of 100 MB, with the slow receiver behind 20 Mbit/s. The fast receivers may take 5 s, and
their links may carry 1.15 times the file, headers included, until their receivers are done. The slow receiver
may take 44.5 s, 1.05 times what its link needs.

The hosts are network namespaces on a bridge; no packet leaves this machine.";

/// Options of `manyflow send` in benchmarks.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Args)]
pub(crate) struct SendOptions {
    /// Send by multicast instead of through the sender's relay
    #[arg(long)]
    pub(crate) multicast: bool,
    /// Send with this `--rate`
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
}

/// Arguments of `bench live`.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// The size of the file
    #[arg(long, default_value = "1GB")]
    pub(crate) size: Bytes,
    #[command(flatten)]
    pub(crate) options: SendOptions,
    /// The number of receivers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) receivers: u8,
    /// Put two relays in a chain between sender and receivers, on routers that forward no multicast
    #[arg(long, conflicts_with = "multicast")]
    pub(crate) relays: bool,
    /// Show where processor time goes, in one more transfer
    #[arg(long)]
    pub(crate) profile: bool,
    /// The number of transfers of each program, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
}

/// Arguments of `bench downloads`.
#[derive(Debug, Args)]
pub(crate) struct DownloadsArgs {
    /// The size of the file
    #[arg(long, default_value = "200MB")]
    pub(crate) size: Bytes,
    /// The rate of the sender's link
    #[arg(long, default_value = "1Gbit/s")]
    pub(crate) link: Rate,
    /// The number of receivers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) receivers: u8,
    /// The number of transfers in each way, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
}

/// Arguments of `bench heterogeneity`.
#[derive(Debug, Args)]
pub(crate) struct HeterogeneityArgs {
    /// The size of the file
    #[arg(long, default_value = "100MB")]
    pub(crate) size: Bytes,
    #[command(flatten)]
    pub(crate) options: SendOptions,
    /// The rate of the slow receiver's link
    #[arg(long, default_value = "20Mbit/s")]
    pub(crate) slow: Rate,
    /// The number of transfers of each program, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
}

const LOSS_EXAMPLES: &str = "\
Example:
  manyflow-rig bench loss --runs 1

Each run transfers the file to a receiver without loss alone, then to it and to the receiver with loss. That one
has to get 0.9 times the rate of the TCP equation for its loss and measured round-trip time over the whole transfer, start-up included.
The other one may take 1.05 times its time alone. The links are in user space; no packet leaves this machine.";

/// Arguments of `bench loss`.
#[derive(Debug, Args)]
pub(crate) struct LossArgs {
    /// The size of the file
    #[arg(long, default_value = "20MB")]
    pub(crate) size: Bytes,
    /// The rate of our session
    #[arg(long, default_value = "50Mbit/s")]
    pub(crate) rate: Rate,
    /// The number of runs, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
}

const RELAY_EXAMPLES: &str = "\
Example:
  manyflow-rig bench relay --gateways 8 --rate 200Mbit/s
  manyflow-rig bench relay --stream

The relay is a process of its own; no packet leaves this machine. Each tunnel needs a file descriptor.";

/// Arguments of `bench relay`.
#[derive(Debug, Args)]
pub(crate) struct RelayBenchArgs {
    /// Measure the layered flows of a stream, through hops, instead of those of files
    #[arg(long)]
    pub(crate) stream: bool,
    /// The number of gateways that receive everything
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) gateways: u32,
    /// The rate of the packets that come from upstream
    #[arg(long, default_value = "200Mbit/s")]
    pub(crate) rate: Rate,
    /// The time to send for
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The number of idle tunnels
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tunnels: u32,
}

const STREAM_EXAMPLES: &str = "\
Examples:
  manyflow-rig bench stream
  manyflow-rig bench stream --protocol sim --for 120s --json

The run has four quarters. The first one is not measured. In the second one each receiver must get 85 % of its link
in useful bytes. In the third one the link of 3 Mbit/s has 1 Mbit/s, and in the last one 3 Mbit/s again. RLM runs
afterwards for comparison. The links are in user space; no packet leaves this machine.";

/// Arguments of `bench stream`.
#[derive(Debug, Args)]
pub(crate) struct StreamBenchArgs {
    /// The rate control
    #[arg(long, value_enum, default_value_t = StreamBenchProtocol::Both)]
    pub(crate) protocol: StreamBenchProtocol,
    /// Measure the faults of relays, receivers and reports instead, with SIM
    #[arg(long)]
    pub(crate) faults: bool,
    /// Measure receivers that lie about congestion instead, with SIM
    #[arg(long)]
    pub(crate) liars: bool,
    /// The time for each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
}

/// The rate controls of a stream to measure.
#[derive(Debug, Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamBenchProtocol {
    /// The rates of groups follow the receivers' reports
    Sim,
    /// Groups have fixed rates, and receivers try them
    Rlm,
    /// SIM, and then RLM
    Both,
}

/// Arguments of `bench audience`.
#[derive(Debug, Args)]
pub(crate) struct AudienceArgs {
    /// The time for which reports are counted, for each audience
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
}

const SWITCH_EXAMPLES: &str = "\
Example:
  manyflow-rig bench switch --for 3s --connections 1000

The switch is a process of its own; the peers and four members are in this process. Everything is on loopback.
HAProxy forwards TCP connections between the same number of peers and servers.";

/// Arguments of `bench switch`.
#[derive(Debug, Args)]
pub(crate) struct SwitchBenchArgs {
    /// The time of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The number of idle connections whose memory is measured
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) connections: u32,
}

const GROUP_EXAMPLES: &str = "\
Examples:
  manyflow-rig bench group
  manyflow-rig bench group --layout mesh --program manyflow --runs 1
  manyflow-rig bench group --count 100000 --json
  manyflow-rig bench group --program manyflow --runs 1 --profile

Three senders and three members, one pair at each daemon, exchange messages of one group: first as many as the
daemons carry, then 1,000 messages/s of 100 B for the latency. The same senders and members then use one nats-server,
and a cluster of three. The command fails if a member of our daemons misses a message, or gets one twice or out of
order. With --profile, one more run shows the shares of the code in the processor time of our daemons (needs perf).
Everything is on loopback.";

/// Arguments of `bench group`.
#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// The payload of a message, at least 20 B
    #[arg(long, default_value = "1KiB")]
    pub(crate) size: Bytes,
    /// The time that each load is measured for
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// End the first load when each sender has sent this number of messages
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The links between our daemons
    #[arg(long, value_enum, default_value_t = GroupLayout::Line)]
    pub(crate) layout: GroupLayout,
    /// The flow control of our daemons
    #[arg(long, value_enum, default_value_t = GroupController::CostBenefit)]
    pub(crate) controller: GroupController,
    /// Measure only this program; can be repeated
    #[arg(long, value_enum)]
    pub(crate) program: Option<Vec<GroupProgram>>,
    /// Show where the processor time of our daemons goes, in one more run of the first load
    #[arg(long)]
    pub(crate) profile: bool,
    /// The number of runs of each program, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
}

/// The flow control of three daemons.
#[derive(Debug, Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupController {
    /// Prices of links
    CostBenefit,
    /// The rate of TCP to the slowest member, over links of datagrams
    Tfrc,
    /// Back-pressure only
    None,
}

/// The links between three daemons.
#[derive(Debug, Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupLayout {
    /// The first and the last daemon are linked with the second
    Line,
    /// Each daemon is linked with each other
    Mesh,
}

/// The programs that carry group messages in a benchmark.
#[derive(Debug, Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupProgram {
    /// Three of our daemons
    Manyflow,
    /// The same, with agreed messages: one order for all members
    Agreed,
    /// The same, with safe messages: delivered when all daemons have them
    Safe,
    /// One nats-server
    NatsServer,
    /// A cluster of three nats-servers
    NatsCluster,
}

const ORDER_EXAMPLES: &str = "\
Examples:
  sudo manyflow-rig bench order
  sudo manyflow-rig bench order --program manyflow --program corosync --runs 1 --json

Three hosts, which are network namespaces on a bridge, have a daemon and a member of one group each. The members send as
many messages as the daemons carry, and then 1,000 messages/s of 100 B for the latency. The members of other programs
are compiled by gcc and javac when the command runs. Members of Spread have 250 messages under way, because its daemon
disconnects a member that is 1,000 messages behind; the other programs limit their senders themselves. JGroups has no
daemons: its processor time is that of the members. The last column shows whether all members got all messages in one
order. The command fails if a member of our daemons misses a message, or gets one twice or out of order.";

/// Arguments of `bench order`.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// The payload of a message under full load, at least 24 B
    #[arg(long, default_value = "1KiB")]
    pub(crate) size: Bytes,
    /// The time that each load is measured for
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Measure only this program; can be repeated
    #[arg(long, value_enum)]
    pub(crate) program: Option<Vec<OrderProgram>>,
    /// The number of runs of each program, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
}

/// The programs that order messages in a benchmark.
#[derive(Debug, Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderProgram {
    /// Three of our daemons, with agreed and with safe messages
    Manyflow,
    /// Corosync's process groups (CPG), with agreed messages
    Corosync,
    /// Three daemons of the Spread Toolkit, with agreed and with safe messages
    Spread,
    /// JGroups with a sequencer, and without one order
    Jgroups,
}
