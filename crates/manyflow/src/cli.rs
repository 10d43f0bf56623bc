//! The command line: its commands, options and help.

use std::num::NonZeroUsize;

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
use router::ROUTER_EXAMPLES;
pub(crate) use router::RouterArgs;
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

/// The objects of `--json`.
pub(crate) const EVENTS: Table = Table::new(include_str!("events.md"));

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: a file, a socket, a disk, a session that cannot continue, an expectation that is not met; send --expect
       also if receivers of the list are missing at its end
  2    the command line, or a file that describes what to do, is invalid or cannot be read
  3    no packets came, the session ended before all files were complete, or nobody answered a request
  130  recv, demo, put, get, a task of store, pub or sub --count was interrupted by Ctrl-C, SIGTERM or SIGHUP; send, serve, relay,
       stream, daemon, bridge, store, top, sub and recv --follow end in that case and exit with 0
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
    /// Keep chunks of files on disk, as a member of a service behind a switch; or do a task of the
    /// service's operators
    #[command(after_help = STORE_EXAMPLES)]
    Store(StoreArgs),
    #[command(flatten)]
    Files(FileCommand),
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
    /// Evaluate a congestion control by the criteria of RFC 9743 in the simulator
    #[command(after_help = EVALUATE_EXAMPLES)]
    Evaluate(EvaluateArgs),
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

/// Returns the number of threads that the user allows: by default one for each core.
pub(crate) fn threads(allowed: Option<NonZeroUsize>) -> usize {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    allowed.unwrap_or_else(cores).get()
}
