//! `manyflow-rig`: measures manyflow, and runs it for a long time with faults. For those who work
//! on manyflow: it is not installed.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod program;
mod soak;

use std::process::ExitCode;

use anyhow::Result;
use cli::{BenchCommand, Cli, Command, EVENTS, SoakCommand};
use manyflow_terminal::{Display, Program};

fn main() -> ExitCode {
    let program = Program {
        events: EVENTS,
        groups: &[],
        elsewhere: &[],
        exit_code: |_| None,
    };
    program.run(|cli: &Cli| &cli.output, run)
}

async fn run(cli: Cli, display: Display) -> Result<()> {
    match cli.command {
        Command::Bench(command) => run_bench(command, &display).await,
        Command::Soak(SoakCommand::Files(args)) => soak::files::run(args, &display).await,
        Command::Soak(SoakCommand::Overlay(args)) => soak::overlay::run(args, &display).await,
        Command::Soak(SoakCommand::Order(args)) => soak::order::run(args, &display).await,
        Command::Soak(SoakCommand::Stream(args)) => soak::stream::run(&args, &display).await,
    }
}

/// Runs a benchmark.
async fn run_bench(command: BenchCommand, display: &Display) -> Result<()> {
    match command {
        BenchCommand::Sim => bench::run(display),
        BenchCommand::Live(args) => bench::live::run(&args, display),
        BenchCommand::Heterogeneity(args) => bench::live::heterogeneity(&args, display),
        BenchCommand::Downloads(args) => bench::live::downloads(&args, display),
        BenchCommand::Loss(args) => bench::live::loss(&args, display).await,
        BenchCommand::Relay(args) => bench::relay::run(&args, display).await,
        BenchCommand::Audience(args) => bench::audience::run(&args, display).await,
        BenchCommand::Stream(args) => bench::stream::run(&args, display).await,
        BenchCommand::Switch(args) => bench::switch::run(&args, display).await,
        BenchCommand::Group(args) => {
            tokio::task::block_in_place(|| bench::group::run(&args, display))
        }
        BenchCommand::Order(args) => {
            tokio::task::block_in_place(|| bench::order::run(&args, display))
        }
        BenchCommand::Emulator => tokio::task::block_in_place(|| bench::emulator::run(display)),
        BenchCommand::Scale => bench::scale::run(display),
    }
}
