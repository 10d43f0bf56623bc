//! The command line: its commands, options and help.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use manyflow_core::units::{Bytes, Rate, parse_duration};
use manyflow_net::multicast::GroupRange;

mod bridge;
mod check_order;
mod daemon;
mod emulate;
mod generate;
mod http;
mod lab;
mod messages;
mod relay;
mod results;
mod router;
mod sim;
mod store;
mod stream;
mod switch;
mod top;
#[cfg(test)]
mod units;

use bridge::BRIDGE_EXAMPLES;
pub(crate) use bridge::BridgeArgs;
use check_order::CHECK_ORDER_EXAMPLES;
pub(crate) use check_order::CheckOrderArgs;
use daemon::DAEMON_EXAMPLES;
pub(crate) use daemon::DaemonArgs;
use emulate::EMULATE_EXAMPLES;
pub(crate) use emulate::EmulateArgs;
use generate::{COMPLETIONS_EXAMPLES, DOCTOR_HELP, MAN_EXAMPLES};
pub(crate) use generate::{CompletionShell, CompletionsArgs, ManArgs};
use http::{GATEWAY_EXAMPLES, MEMBER_EXAMPLES};
pub(crate) use http::{GatewayArgs, MemberArgs};
use lab::LAB_EXAMPLES;
pub(crate) use lab::LabArgs;
pub(crate) use messages::{ClientArgs, PubArgs, PublishRate, SubArgs};
use messages::{PUB_EXAMPLES, SUB_EXAMPLES};
use relay::RELAY_EXAMPLES;
pub(crate) use relay::RelayArgs;
pub(crate) use results::{MergeArgs, ResultsCommand};
use router::ROUTER_EXAMPLES;
pub(crate) use router::RouterArgs;
use sim::{FIGURE_EXAMPLES, SIM_EXAMPLES};
pub(crate) use sim::{FigureArgs, InspectArgs, RunArgs, SimArgs};
pub(crate) use store::{GetArgs, PutArgs, StoreArgs, StoreClientArgs, StoreCommand};
pub(crate) use stream::{StreamCommand, StreamProtocolArg, StreamRecvArgs, StreamSendArgs};
use switch::SWITCH_EXAMPLES;
pub(crate) use switch::{KeyRange, PolicyArg, SwitchArgs};
use top::TOP_EXAMPLES;
pub(crate) use top::TopArgs;

use manyflow_rig::demo::{DEMO_EXAMPLES, DemoArgs};
use manyflow_terminal::OutputArgs;
use manyflow_terminal::events::Table;

/// The objects of `--json`.
pub(crate) const EVENTS: Table = Table::new(include_str!("events.md"));

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: a file, a socket, a disk, a session that cannot continue, an expectation that is not met
  2    the command line, or a file that describes what to do, is invalid or cannot be read
  3    no packets came, the session ended before all files were complete, or nobody answered a request
  130  recv, demo, put, get, pub or sub --count was interrupted by Ctrl-C, SIGTERM or SIGHUP; send, serve, relay,
       stream, daemon, bridge, store, top and sub end in that case and exit with 0
  141  standard output was closed before everything was written to it

Environment:
  MANYFLOW_LOG  levels of the log: error, warn, info, debug or trace, or those of modules, as in RUST_LOG
  NO_COLOR      no colours, if it is not empty";

/// Sends the same bytes to many machines, each at a rate that its own path carries and that is fair
/// to TCP.
#[derive(Debug, Parser)]
#[command(version, after_long_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send files and folders repeatedly until all receivers have them
    #[command(after_help = SEND_EXAMPLES)]
    Send(Box<SendArgs>),
    /// Send several sessions from one process, as a file describes them
    #[command(after_help = SERVE_EXAMPLE)]
    Serve(ServeArgs),
    /// Receive the files of a session
    #[command(after_help = RECV_EXAMPLES)]
    Recv(RecvArgs),
    /// Forward sessions from a sender or another relay to receivers
    #[command(after_help = RELAY_EXAMPLES)]
    Relay(RelayArgs),
    /// Send and receive live data in layers, so that each receiver gets the quality that its path
    /// carries
    #[command(subcommand)]
    Stream(StreamCommand),
    /// Carry group messages between other daemons and NATS clients
    #[command(after_help = DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// Carry subjects and JetStream streams of a nats-server to those of other sites, over daemons
    #[command(after_help = BRIDGE_EXAMPLES)]
    Bridge(BridgeArgs),
    /// Watch daemons: their clients, links and slow members
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Share the frames of each connection among the members of a service
    #[command(after_help = SWITCH_EXAMPLES)]
    Switch(SwitchArgs),
    /// Put a link with an XCP router between two ends, such as the bottleneck of a site
    #[command(after_help = ROUTER_EXAMPLES)]
    Router(RouterArgs),
    #[command(flatten)]
    Store(StoreCommand),
    /// Answer the requests of gateways by an HTTP server, as a member of a service
    #[command(after_help = MEMBER_EXAMPLES)]
    Member(MemberArgs),
    /// Pass the requests of HTTP clients to the members of a service
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(GatewayArgs),
    /// Publish messages to the members of a group
    #[command(after_help = PUB_EXAMPLES)]
    Pub(Box<PubArgs>),
    /// Join groups and print their messages
    #[command(after_help = SUB_EXAMPLES)]
    Sub(SubArgs),
    /// Check traces of members of ordered groups: what was promised, and what they saw
    #[command(after_help = CHECK_ORDER_EXAMPLES)]
    CheckOrder(CheckOrderArgs),
    /// Make a key that signs session descriptions, a shared key, or certificates for the daemons of
    /// an overlay
    #[command(after_help = KEYGEN_EXAMPLES)]
    Keygen(KeygenArgs),
    /// Watch one sender and five receivers behind different links on this machine, or an overlay
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run a scenario file in the simulator
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Run figures of the papers in the simulator and compare them with what the papers show
    #[command(after_help = FIGURE_EXAMPLES)]
    Figure(FigureArgs),
    /// Make results from parts of a scenario
    #[command(subcommand)]
    Results(ResultsCommand),
    /// Run scenarios and watch live roles on a page in the browser
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
    /// Run a command behind an emulated link, or a scenario in real time (root)
    #[command(after_help = EMULATE_EXAMPLES)]
    Emulate(EmulateArgs),
    /// Probe what this machine can do, and say what to change and how
    #[command(after_help = DOCTOR_HELP)]
    Doctor,
    /// Print a script that completes command lines in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write man pages for all commands
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

const SEND_EXAMPLES: &str = "\
Examples:
  # Without multicast: receivers connect to this host
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # On a network with multicast
  manyflow send image.iso docs/ --multicast 232.1.2.0/24 --interface eth0 --publish 0.0.0.0:8080 --for 10min

  # Write the session description to a file instead of serving it over HTTP
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --session image.sdp

  # Stop when 200 receivers have everything
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --until-done 200

  # Continue that session after a restart
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --resume image.sdp

  # Serve the session description over HTTPS
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8443 --tls-cert server.crt --tls-key server.key

  # Let receivers drop packets of other senders (make the key with: openssl rand -base64 32)
  manyflow send image.iso --multicast 232.1.2.0/24 --interface eth0 --group-key group.key

  # Let only members of the group read the files
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --group-key group.key --encrypt

  # Sign the session description with a key of `manyflow keygen`
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --sign builds.key

  # Leave out a folder, and files with some endings
  manyflow send project --exclude .git --exclude '*.{o,tmp}' --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # Keep modes and times of files
  manyflow send project --archive --listen 0.0.0.0:2268 --publish 0.0.0.0:8080

  # Let Prometheus watch the session at http://127.0.0.1:9464/metrics
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --metrics 127.0.0.1:9464";

const SERVE_EXAMPLE: &str = r#"Example:
  manyflow serve /etc/manyflow/sessions.toml

  # sessions.toml
  publish = "0.0.0.0:8080"     # descriptions: http://HOST:8080/firmware.sdp; / lists them
  metrics = "127.0.0.1:9464"   # each sample has the label session="firmware"

  [defaults]                   # options of all sessions that have none of their own
  sign = "builds.key"

  [session.firmware]
  paths = ["/srv/firmware"]
  listen = "0.0.0.0:2268"

  [session.images]
  paths = ["/srv/images"]
  multicast = "232.1.2.0/24"
  interface = "eth0"
  exclude = ["*.tmp", ".git"]
  archive = true

The keys of a session are paths and the long options of `manyflow send`. The options publish, tls-cert, tls-key and
metrics belong above the first table. Relative paths are relative to the file's folder."#;

const RECV_EXAMPLES: &str = "\
Examples:
  manyflow recv http://192.0.2.1:8080/session.sdp
  manyflow recv http://192.0.2.1:8080/session.sdp --output downloads --max-rate 20Mbit/s
  manyflow recv image.sdp --interface eth0

  # Run a command when all files are there
  manyflow recv image.sdp --output downloads --post-receive ./install.sh

  # Over HTTPS, from a server whose certificate a private authority has issued
  manyflow recv https://builds.example.net:8443/session.sdp --ca authority.crt

  # Drop packets that were not sealed with the group's key, and decrypt the others
  manyflow recv image.sdp --interface eth0 --group-key group.key

  # Accept only what the owner of a key has signed
  manyflow recv http://192.0.2.1:8080/session.sdp --trust builds.key.pub";

const KEYGEN_EXAMPLES: &str = "\
Example:
  manyflow keygen builds.key
  manyflow send image.iso --listen 0.0.0.0:2268 --publish 0.0.0.0:8080 --sign builds.key
  manyflow recv http://192.0.2.1:8080/session.sdp --trust builds.key.pub

  # A key that the ends of a service share, to seal their messages
  manyflow keygen --shared-key service.key

  # Certificates for three daemons of an overlay
  manyflow keygen --certificates certificates --daemon a --daemon b --daemon c=c.example.net

Keys of `openssl genpkey -algorithm ed25519` will do, too.";

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Files and folders
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Send only files whose paths match this glob pattern, as receivers see the paths: *.md in any
    /// folder, docs/*.md in docs, docs with all that is in it; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out files and folders that match this glob pattern, even if they are included; can be
    /// repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Send modes (permission bits only) and times of modification, too; receivers set them
    #[arg(long)]
    pub(crate) archive: bool,
    /// The total rate of all channels, which no receiver can exceed
    #[arg(long, default_value = "50Mbit/s")]
    pub(crate) rate: Rate,
    /// Time slots and base rate, for local networks or for wide-area paths
    #[arg(long, value_enum, default_value_t = Profile::Lan)]
    pub(crate) profile: Profile,
    /// Send the base channel in trains of at least this number of packets, 4 to 32, so that
    /// receivers find their rate sooner. Raises the base rate; see docs/webrc.md
    #[arg(long, value_name = "PACKETS", num_args = 0..=1, require_equals = true, default_missing_value = "16", value_parser = clap::value_parser!(u32).range(4..=32))]
    pub(crate) packet_trains: Option<u32>,
    /// Send to consecutive multicast groups from this range
    #[arg(long, value_name = "GROUP[/PREFIX]")]
    pub(crate) multicast: Option<GroupRange>,
    /// The interface for outgoing multicast: its name or address [default: that of the route to
    /// the groups]
    #[arg(long, value_name = "NAME|ADDRESS", requires = "multicast")]
    pub(crate) interface: Option<String>,
    /// The time to live of multicast packets: the maximum number of hops
    #[arg(long, default_value_t = 1, requires = "multicast")]
    pub(crate) ttl: u8,
    /// The UDP port of the multicast groups
    #[arg(long, default_value_t = 5445)]
    pub(crate) port: u16,
    /// Run an AMT relay on this address, for receivers that multicast does not reach
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<2268>)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// The maximum rate of the relay to all receivers together: packets above it are dropped, so
    /// receivers slow down. For example, 200Mbit/s leaves room on a line of 250 Mbit/s
    #[arg(
        long,
        value_name = "RATE",
        default_value = "1Gbit/s",
        requires = "listen"
    )]
    pub(crate) relay_rate_max: Rate,
    /// The maximum number of receivers behind one IPv4 address or in one IPv6 /64; others wait
    #[arg(long, value_name = "NUMBER", default_value_t = 16, requires = "listen")]
    pub(crate) relay_gateways_per_address: usize,
    #[command(flatten)]
    pub(crate) servers: ServerArgs,
    /// Write the session description to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// Continue the session of this description after a crash or a restart: the same files with the
    /// same options. Receivers need no new description
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tsi", "group_key"])]
    pub(crate) resume: Option<String>,
    /// Sign the session description with this private key (Ed25519, PKCS#8 in PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) sign: Option<PathBuf>,
    /// Add a MAC to each packet, with this key that all receivers share: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) group_key: Option<PathBuf>,
    /// Encrypt packets with the group key, names and contents of files included
    #[arg(long, requires = "group_key")]
    pub(crate) encrypt: bool,
    /// The forward error correction scheme
    #[arg(long, value_enum, default_value_t = Fec::Raptorq)]
    pub(crate) fec: Fec,
    /// Length of a packet in bytes, from the LCT header on: the path's MTU minus 28 (minus 48 for
    /// IPv6), and minus another 30 in a tunnel [default: 1400, or what fits the interfaces; with
    /// --listen, what fits any path of 1280]
    #[arg(long, value_parser = clap::value_parser!(u16).range(128..=65_000))]
    pub(crate) packet: Option<u16>,
    /// Send files from begin to end, in portions of 16 MB, again and again. This takes the least
    /// processor time and memory. Receivers below the session's rate then need up to twice as many
    /// packets; by default, all files complete together
    #[arg(long)]
    pub(crate) in_order: bool,
    /// Give the MD5 of each file, besides its SHA-256, for receivers that know FLUTE only
    #[arg(long)]
    pub(crate) content_md5: bool,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "forever")]
    pub(crate) duration: Option<Duration>,
    /// Send until Ctrl-C; this is the default without --for and --until-done
    #[arg(long)]
    pub(crate) forever: bool,
    /// Stop when this number of receivers have reported that they have all files. With --for, send
    /// fails if they have not in that time
    #[arg(long, value_name = "RECEIVERS", conflicts_with = "forever", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) until_done: Option<u32>,
    /// The address and UDP port for these reports
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:5446",
        requires = "until_done", value_parser = crate::address::listen::<5446>)]
    pub(crate) reports: std::net::SocketAddr,
    /// The transport session identifier; random by default
    #[arg(long)]
    pub(crate) tsi: Option<u32>,
    /// Maximum memory for encoded symbols; above it, they are in a temporary file
    #[arg(long, default_value = "256MiB")]
    pub(crate) memory: Bytes,
    /// The number of threads that encode; by default the number of cores
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// The folder for temporary files [default: /var/tmp, or the value of TMPDIR]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Send files of up to this size in bundles, if there are more than a hundred of them; 0B sends
    /// each file alone
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) bundle: Bytes,
    /// A parameter of WEBRC by its name in RFC 3738: TSD=1s, BCR=4, QD=10s, P=0.75, N=20, CCI=long,
    /// constant=no
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
}

/// Options for the HTTP servers of a process that sends one session or several.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Serve the session description over HTTP on this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<8080>)]
    pub(crate) publish: Option<std::net::SocketAddr>,
    /// Serve the session description over HTTPS, with this certificate and those between it and
    /// its authority (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["publish", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve metrics for Prometheus (OpenMetrics text) over HTTP on this address, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The file that describes the sessions, in TOML
    pub(crate) file: PathBuf,
}

/// Arguments of `recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// The session description: an http:// or https:// address, a file, or - for standard input
    pub(crate) session: String,
    /// The folder for received files; a file appears when it is complete
    #[arg(long, default_value = ".")]
    pub(crate) output: PathBuf,
    /// Replace existing files; without this option they are kept, and recv fails at its end
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Receive a session of another program, whose description gives no digest of the table of
    /// files: anyone who can send packets can then choose names and contents of files
    #[arg(long)]
    pub(crate) allow_unverified: bool,
    /// Accept the session description only if this key has signed it: a file with a public key, or
    /// the key itself as keygen prints it; can be repeated
    #[arg(long, value_name = "FILE|KEY")]
    pub(crate) trust: Vec<String>,
    /// Drop packets that were not sealed with this key, which the sender has, too, and decrypt the
    /// others if the session is encrypted
    #[arg(long, value_name = "FILE")]
    pub(crate) group_key: Option<PathBuf>,
    /// Accept HTTPS servers only of the certificate authorities in this file (PEM), instead of
    /// those that this machine trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The maximum rate to receive at
    #[arg(long)]
    pub(crate) max_rate: Option<Rate>,
    /// Control the rate exactly as RFC 3738 does, without the options rtt=spacing, capacity-check,
    /// delay-check, loss-filter=balanced, falling-rate-reset=no, minimum-rto=200ms,
    /// equation-factor=mean and loss-event-rtts=2, which it has otherwise
    #[arg(long)]
    pub(crate) strict_rfc3738: bool,
    /// Receive by multicast on this interface: its name or address. Without it, and without a relay
    /// in the description, the route to the source decides
    #[arg(long, value_name = "NAME|ADDRESS", conflicts_with = "relay")]
    pub(crate) interface: Option<String>,
    /// Receive through the first of these AMT relays that answers, even if the description names
    /// another: --relay one.example.net,two.example.net:2268
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', value_parser = crate::address::connect::<2268>)]
    pub(crate) relay: Vec<String>,
    /// Give up after this time without useful packets
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub(crate) patience: Duration,
    /// Maximum memory for tables of files and the bookkeeping of symbols. Symbols of incomplete
    /// files are in the output folder
    #[arg(long, default_value = "256MiB")]
    pub(crate) memory: Bytes,
    /// The number of threads that decode; by default the number of cores
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Run this command with `sh -c` when all files are stored. MANYFLOW_OUTPUT is the folder,
    /// MANYFLOW_FILES and MANYFLOW_BYTES are the number and length of the files that this run
    /// stored. If the command fails, recv exits with 1
    #[arg(long, value_name = "COMMAND")]
    pub(crate) post_receive: Option<String>,
    /// Do not report to the sender that all files are here, even if it counts its receivers
    #[arg(long)]
    pub(crate) no_report: bool,
    /// Serve metrics for Prometheus (OpenMetrics text) over HTTP on this address, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// A parameter of WEBRC by its name in RFC 3738: EL=50ms, Nu=0.3, Delta=0.3, Alpha=0.25,
    /// target=paper, ...
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
}

/// Arguments of `keygen`.
#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The file for the private key, which only its owner may read; the public key goes to
    /// FILE.pub. Existing files are never replaced
    #[arg(required_unless_present_any = ["certificates", "shared_key"])]
    pub(crate) file: Option<PathBuf>,
    /// Write a random key of 32 bytes in base64 to this file, which only its owner may read,
    /// instead of a pair of keys: a group key, or the shared key of a service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "certificates"])]
    pub(crate) shared_key: Option<PathBuf>,
    /// Make certificates for the daemons of an overlay in this folder, instead of a key: NAME.crt
    /// and NAME.key for each, and an authority in ca.crt and ca.key unless the folder has one
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "file",
        requires = "daemon"
    )]
    pub(crate) certificates: Option<PathBuf>,
    /// A daemon that gets a certificate, and the hosts at which clients connect to it by TLS; can
    /// be repeated
    #[arg(long, value_name = "NAME[=HOST,...]", requires = "certificates")]
    pub(crate) daemon: Vec<String>,
}

/// Returns the number of threads that the user allows: by default one for each core.
pub(crate) fn threads(allowed: Option<NonZeroUsize>) -> usize {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    allowed.unwrap_or_else(cores).get()
}

/// Profiles: ready-made session parameters.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Slots of 1 s and a base rate of 4 packets/s: reaches 200 Mbit/s in seconds.
    Lan,
    /// The paper's values: slots of 10 s and a base rate of 1 packet/s.
    Wan,
}

/// Forward error correction schemes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fec {
    /// RaptorQ (RFC 6330): any packets will do, hardly more than the file has.
    Raptorq,
    /// No code: every single packet is needed.
    None,
}
