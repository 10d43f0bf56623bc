//! `manyflow`: sends the same bytes to many machines, each at the rate of its own path.
#![forbid(unsafe_code)]

mod address;
mod bench;
mod cli;
mod command_line;
mod cost;
mod daemon;
mod demo;
mod display;
mod doctor;
mod emulate;
mod events;
mod figures;
mod generate;
mod http;
mod inspect;
mod keygen;
mod lab;
mod messages;
mod metrics;
mod overlay_lab;
mod parameters;
mod post_receive;
mod progress;
mod recv;
mod relay;
mod router;
mod send;
mod serve;
mod shard;
mod shown;
mod signals;
mod sim;
mod soak;
mod store;
mod stream;
mod stream_lab;
mod switch;
mod top;

use std::process::ExitCode;

use manyflow_files::session::{DecoderError, ReceiveError};
use manyflow_messages::ClientError;
use manyflow_net::description::DescriptionError;
use manyflow_net::description::load::LoadError;
use manyflow_net::inlet::TransportError;
use manyflow_net::tls::TlsError;
use manyflow_streams::StreamReceiveError;

use cli::{BenchCommand, Command, DemoCommand, ResultsCommand, SoakCommand};
use display::{Display, OutputError};
use emulate::CommandFailed;
use post_receive::PostReceiveError;
use serde_json::json;

fn main() -> ExitCode {
    let (cli, command) = match command_line::parse() {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let display = Display::new(&cli.output, command);
    if let Err(error) = display.start_log() {
        return fail(&error, &display);
    }
    tracing::debug!("manyflow {} runs", env!("CARGO_PKG_VERSION"));
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            display.fail(&format!("no runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Send(args) => send::run(*args, &display).await,
            Command::Serve(args) => serve::run(args, &display).await,
            Command::Recv(args) => recv::run(args, &display).await,
            Command::Relay(args) => relay::run(args, &display).await,
            Command::Stream(command) => stream::run(command, &display).await,
            Command::Daemon(args) => daemon::run(args, &display).await,
            Command::Top(args) => top::run(&args, &display).await,
            Command::Switch(args) => switch::run(args, &display).await,
            Command::Router(args) => router::run(&args, &display).await,
            Command::Store(command) => store::run(command, &display).await,
            Command::Member(args) => http::run_member(args, &display).await,
            Command::Gateway(args) => http::run_gateway(args, &display).await,
            Command::Pub(args) => messages::publish(&args, &display).await,
            Command::Sub(args) => messages::subscribe(&args, &display).await,
            Command::Keygen(args) => keygen::run(&args, &display),
            Command::Demo(args) => match args.command {
                Some(DemoCommand::Overlay(args)) => demo::overlay::run(&args, &display).await,
                Some(DemoCommand::Ensemble(args)) => demo::ensemble::run(&args, &display).await,
                Some(DemoCommand::Stream(args)) => demo::stream::run(&args, &display).await,
                None => demo::files::run(args.files, &display).await,
            },
            Command::Sim(args) => sim::sim(&args, &display),
            Command::Figure(args) => sim::figure(&args, &display),
            Command::Results(ResultsCommand::Merge(args)) => shard::merge_results(&args, &display),
            Command::Lab(args) => lab::run(args, &display).await,
            Command::Emulate(args) => emulate::run(args, &display).await,
            Command::Soak(SoakCommand::Files(args)) => soak::files::run(args, &display).await,
            Command::Soak(SoakCommand::Overlay(args)) => soak::overlay::run(args, &display).await,
            Command::Soak(SoakCommand::Stream(args)) => soak::stream::run(&args, &display).await,
            Command::Completions(args) => generate::completions(&args, &display),
            Command::Man(args) => generate::man(&args, &display),
            Command::Doctor => doctor::run(&display).await,
            Command::Bench(command) => run_bench(command, &display).await,
        }
    });
    // A thread that blocks on standard input would keep the runtime from shutting down.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_output(&error) => ExitCode::from(CLOSED_OUTPUT),
        Err(error) if error.is::<CommandFailed>() => ExitCode::from(exit_code(&error)),
        Err(error) => fail(&error, &display),
    }
}

/// Prints the reason for which a command fails, and returns its exit code.
fn fail(error: &anyhow::Error, display: &Display) -> ExitCode {
    let code = exit_code(error);
    let message = format!("{error:#}");
    // If standard output is what failed, the message still goes to standard error.
    let _ = display.print_json(&json!({"event": "failed", "error": message, "exit_code": code}));
    display.fail(&message);
    ExitCode::from(code)
}

/// Runs a benchmark.
async fn run_bench(command: BenchCommand, display: &Display) -> anyhow::Result<()> {
    match command {
        BenchCommand::Sim => bench::run(display),
        BenchCommand::Live(args) => bench::live::run(&args, display),
        BenchCommand::Heterogeneity(args) => bench::live::heterogeneity(&args, display),
        BenchCommand::Loss(args) => bench::live::loss(&args, display).await,
        BenchCommand::Relay(args) => bench::relay::run(&args, display).await,
        BenchCommand::Audience(args) => bench::audience::run(&args, display).await,
        BenchCommand::Stream(args) => bench::stream::run(&args, display).await,
        BenchCommand::Switch(args) => bench::switch::run(&args, display).await,
        BenchCommand::Group(args) => {
            tokio::task::block_in_place(|| bench::group::run(&args, display))
        }
        BenchCommand::Emulator => tokio::task::block_in_place(|| bench::emulator::run(display)),
        BenchCommand::Scale => bench::scale::run(display),
    }
}

/// The exit code for what may succeed at a later attempt.
const FAILURE: u8 = 1;
/// The exit code for an invalid command line.
const USAGE: u8 = 2;
/// The exit code that a shell reports for a program ended by SIGPIPE: 128 + 13.
const CLOSED_OUTPUT: u8 = 141;

/// Whether the reader of standard output has closed it, so that the command has nothing left to do.
fn is_closed_output(error: &anyhow::Error) -> bool {
    let output = error.downcast_ref::<OutputError>();
    output.is_some_and(OutputError::is_closed)
}

/// Reads a file that describes what to do: a scenario, a daemon, a service.
///
/// # Errors
/// Returns a [`Usage`] error that names the file.
fn read_description(path: &std::path::Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| {
        let path = path.display();
        usage(format!(
            "cannot read {path}: {error}; check the path and its mode"
        ))
    })
}

/// The command line or the session description is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// A [`Usage`] error with this message.
fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Returns the exit code that `--help` lists for this error.
fn exit_code(error: &anyhow::Error) -> u8 {
    use ReceiveError::{
        Config, Decoder, NoGroupKey, NoMac, Session, Silent, Stopped, Transport, Unverified,
    };
    if error.is::<Usage>() {
        return USAGE;
    }
    if let Some(code) = emulate::exit_code(error).or_else(|| store::exit_code(error)) {
        return code;
    }
    if let Some(PostReceiveError::Interrupted(_)) = error.downcast_ref() {
        return 130;
    }
    if error.is::<messages::Interrupted>() {
        return 130;
    }
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return match error {
            ClientError::InvalidSubject { .. } | ClientError::InvalidHeader { .. } => 2,
            ClientError::NoResponders { .. } | ClientError::Unanswered { .. } => 3,
            _ => 1,
        };
    }
    if let Some(error) = error.downcast_ref::<LoadError>() {
        return if error.may_pass() { 1 } else { 2 };
    }
    if let Some(error) = error.downcast_ref::<DescriptionError>() {
        return if error.may_pass() { 1 } else { 2 };
    }
    if error.is::<TlsError>() {
        return 2;
    }
    if let Some(error) = error.downcast_ref::<StreamReceiveError>() {
        return match error {
            StreamReceiveError::Silent { .. } => 3,
            StreamReceiveError::NoKey | StreamReceiveError::Config(_) => 2,
            StreamReceiveError::Transport(TransportError::Multicast(error))
                if !error.may_pass() =>
            {
                2
            }
            _ => 1,
        };
    }
    match error.downcast_ref::<ReceiveError>() {
        Some(Stopped) => 130,
        Some(
            Silent { .. } | Transport(TransportError::Silent(_)) | Decoder(DecoderError::Closed),
        ) => 3,
        Some(Transport(TransportError::Multicast(error))) if !error.may_pass() => 2,
        Some(Session(_) | Config(_) | Unverified | NoMac | NoGroupKey) => 2,
        _ => 1,
    }
}
