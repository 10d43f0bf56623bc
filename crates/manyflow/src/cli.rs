//! The command line: its commands, options and help.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Parser, Subcommand};

mod audience;
mod bridge;
mod check_order;
mod daemon;
mod emulate;
mod follow;
mod generate;
mod http;
mod imaging;
mod keygen;
mod lab;
mod messages;
mod recv;
mod relay;
mod results;
mod router;
mod send;
mod sim;
mod store;
mod stream;
mod switch;
mod top;
#[cfg(test)]
mod units;

pub(crate) use audience::{AudienceArgs, IdentityArgs};
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
pub(crate) use imaging::{ImageRecvArgs, ImageSendArgs};
use keygen::KEYGEN_EXAMPLES;
pub(crate) use keygen::KeygenArgs;
use lab::LAB_EXAMPLES;
pub(crate) use lab::LabArgs;
pub(crate) use messages::{ClientArgs, PubArgs, PublishRate, SubArgs};
use messages::{PUB_EXAMPLES, SUB_EXAMPLES};
use recv::RECV_EXAMPLES;
pub(crate) use recv::RecvArgs;
use relay::RELAY_EXAMPLES;
pub(crate) use relay::RelayArgs;
pub(crate) use results::{MergeArgs, ResultsCommand};
pub(crate) use router::RouterArgs;
use router::{ROUTER_EXAMPLES, ROUTER_USAGE};
pub(crate) use send::{Fec, Profile, SendArgs, ServeArgs, ServerArgs};
use send::{SEND_EXAMPLES, SERVE_EXAMPLE};
use sim::{EVALUATE_EXAMPLES, FIGURE_EXAMPLES, SIM_EXAMPLES};
pub(crate) use sim::{EvaluateArgs, FigureArgs, InspectArgs, RunArgs, SimArgs};
use store::STORE_EXAMPLES;
pub(crate) use store::{StoreArgs, StoreMemberArgs};
pub(crate) use stream::{StreamCommand, StreamProtocolArg, StreamRecvArgs, StreamSendArgs};
use switch::SWITCH_EXAMPLES;
pub(crate) use switch::{KeyRange, PolicyArg, SwitchArgs};
use top::TOP_EXAMPLES;
pub(crate) use top::TopArgs;

use manyflow_rig::demo::{DEMO_EXAMPLES, DemoArgs};
use manyflow_storage::FileCommand;
use manyflow_terminal::OutputArgs;
use manyflow_terminal::events::Table;
use manyflow_terminal::help::Groups;

/// The objects of `--json`.
pub(crate) const EVENTS: Table = Table::new(include_str!("events.md"));

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 invalid command line or file, 3 no packets, no answer or not all files, 130 \
interrupted, 141 output closed (docs/operating.md).
Environment: MANYFLOW_LOG has levels of the log, as RUST_LOG; NO_COLOR turns colours off. `manyflow COMMAND -h` has \
options and examples.";

/// The groups of commands in help.
pub(crate) const GROUPS: Groups = &[
    ("Files", &["send", "recv", "relay", "serve"]),
    ("Streams", &["stream"]),
    (
        "Messages",
        &["daemon", "pub", "sub", "bridge", "top", "check-order"],
    ),
    (
        "Ensembles",
        &[
            "switch", "router", "gateway", "member", "store", "put", "get", "ls", "rm",
        ],
    ),
    (
        "Research",
        &["sim", "figure", "evaluate", "results", "lab", "emulate"],
    ),
    ("Tools", &["demo", "doctor", "keygen", "completions", "man"]),
];

/// Sends the same bytes to many machines, each at a rate that its own path carries and that is fair
/// to TCP.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
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
    /// Send and receive live data, at the quality that each path carries
    #[command(subcommand)]
    Stream(StreamCommand),
    /// Carry group messages between other daemons and NATS clients
    #[command(after_help = DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// Carry subjects and streams of a nats-server to other sites
    #[command(after_help = BRIDGE_EXAMPLES)]
    Bridge(BridgeArgs),
    /// Watch daemons and other roles: clients, links, slow members, figures
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Share each connection's frames among the members of a service
    #[command(after_help = SWITCH_EXAMPLES)]
    Switch(SwitchArgs),
    /// Put an XCP router between two ends, as at a site's bottleneck
    #[command(after_help = ROUTER_EXAMPLES, override_usage = ROUTER_USAGE)]
    Router(RouterArgs),
    /// Keep chunks of files as a member, or do a task of operators
    #[command(after_help = STORE_EXAMPLES)]
    Store(StoreArgs),
    #[command(flatten)]
    Files(FileCommand),
    /// Answer gateways' requests by an HTTP server, as a member
    #[command(after_help = MEMBER_EXAMPLES)]
    Member(MemberArgs),
    /// Pass requests or TCP streams of clients to a service's members
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(GatewayArgs),
    /// Publish messages to the members of a group
    #[command(after_help = PUB_EXAMPLES)]
    Pub(Box<PubArgs>),
    /// Join groups and print their messages
    #[command(after_help = SUB_EXAMPLES)]
    Sub(SubArgs),
    /// Check traces of ordered groups against what was promised
    #[command(after_help = CHECK_ORDER_EXAMPLES)]
    CheckOrder(CheckOrderArgs),
    /// Make keys for signing and encryption, and daemons' certificates
    #[command(after_help = KEYGEN_EXAMPLES)]
    Keygen(KeygenArgs),
    /// Watch a transfer, an overlay, a service or a stream in action
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run a scenario in the simulator, or begin one from a template
    #[command(after_help = SIM_EXAMPLES)]
    Sim(SimArgs),
    /// Run figures of the papers, and compare them with the papers
    #[command(after_help = FIGURE_EXAMPLES)]
    Figure(FigureArgs),
    /// Evaluate a congestion control by the criteria of RFC 9743
    #[command(after_help = EVALUATE_EXAMPLES)]
    Evaluate(EvaluateArgs),
    /// Make results from parts of a scenario
    #[command(subcommand)]
    Results(ResultsCommand),
    /// Run scenarios and watch live roles on a page in the browser
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
    /// Run a command or scenario over emulated links in real time (root)
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

/// Returns the number of threads that the user allows: by default one for each core.
pub(crate) fn threads(allowed: Option<NonZeroUsize>) -> usize {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    allowed.unwrap_or_else(cores).get()
}

/// Parses the path of a folder. An address of an object store would become folders with its parts
/// as names.
fn folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.to_string_lossy().contains("://") {
        true => Err("name a folder of this machine; its files can be copied to or from a store, and `manyflow.sweep` of Python uses one directly"),
        false => Ok(path),
    })
}
