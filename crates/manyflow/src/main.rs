//! `manyflow`: sends the same bytes to many machines, each at the rate of its own path.
#![forbid(unsafe_code)]

mod address;
mod bench;
mod cli;
mod cost;
mod daemon;
mod demo;
mod doctor;
mod emulate;
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
mod sim;
mod soak;
mod store;
mod stream;
mod stream_lab;
mod switch;
mod top;

use std::process::ExitCode;

use cli::{BenchCommand, Cli, Command, DemoCommand, EVENTS, ResultsCommand, SoakCommand};
use manyflow_terminal::failure::INTERRUPTED;
use manyflow_terminal::{Display, Program};
use post_receive::PostReceiveError;

fn main() -> ExitCode {
    let program = Program {
        events: EVENTS,
        elsewhere: &[],
        exit_code,
    };
    program.run(|cli: &Cli| &cli.output, run)
}

async fn run(cli: Cli, display: Display) -> anyhow::Result<()> {
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

/// Returns the exit code of an error that no library has.
fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if let Some(PostReceiveError::Interrupted(_)) = error.downcast_ref() {
        return Some(INTERRUPTED);
    }
    if error.is::<messages::Interrupted>() {
        return Some(INTERRUPTED);
    }
    emulate::exit_code(error).or_else(|| store::exit_code(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_table_of_objects_has_every_command() {
        EVENTS.check_commands(&Cli::command()).unwrap();
    }

    #[test]
    fn the_manual_has_the_table_of_objects() {
        let manual = include_str!("../../../docs/output.md");
        let table = include_str!("events.md").trim_end();
        assert!(
            manual.contains(table),
            "copy src/events.md into docs/output.md"
        );
    }
}
