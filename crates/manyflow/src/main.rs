//! `manyflow`: sends the same bytes to many machines, each at the rate of its own path.
#![forbid(unsafe_code)]

mod bridge;
mod check_order;
mod cli;
mod cost;
mod daemon;
mod doctor;
mod emulate;
mod figures;
mod follow;
mod generate;
mod http;
mod imaging;
mod inspect;
mod keygen;
mod lab;
mod messages;
mod parameters;
mod post_receive;
mod progress;
mod recv;
mod relay;
mod router;
mod runs;
mod send;
mod serve;
mod shard;
mod sim;
mod store;
mod stream;
mod switch;
mod top;

use std::process::ExitCode;

use cli::{Cli, Command, EVENTS, GROUPS, ResultsCommand};
use manyflow_terminal::failure::INTERRUPTED;
use manyflow_terminal::{Display, Program, address, metrics};
use post_receive::PostReceiveError;

/// The allocator of static programs. That of musl maps and unmaps memory while bytes pass.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Says where the benchmarks and long tests are.
const IN_RIG: &str = "`bench` and `soak` are commands of manyflow-rig, which is not installed with manyflow: \
                      in the sources, run `cargo build --release -p manyflow -p manyflow-rig`, and then \
                      target/release/manyflow-rig";

fn main() -> ExitCode {
    let program = Program {
        events: EVENTS,
        groups: GROUPS,
        elsewhere: &[("bench", IN_RIG), ("soak", IN_RIG)],
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
        Command::Bridge(args) => bridge::run(args, &display).await,
        Command::Top(args) => top::run(&args, &display).await,
        Command::Switch(args) => switch::run(args, &display).await,
        Command::Router(args) => router::run(&args, &display).await,
        Command::Store(args) => store::run(args, &display).await,
        Command::Files(command) => manyflow_storage::run(command, &display).await,
        Command::Member(args) => http::run_member(args, &display).await,
        Command::Gateway(args) => http::run_gateway(args, &display).await,
        Command::Pub(args) => messages::publish(&args, &display).await,
        Command::Sub(args) => messages::subscribe(&args, &display).await,
        Command::CheckOrder(args) => check_order::run(&args, &display),
        Command::Keygen(args) => keygen::run(&args, &display),
        Command::Demo(args) => manyflow_rig::demo::run(args, &display).await,
        Command::Sim(args) => sim::sim(&args, &display),
        Command::Figure(args) => sim::figure(&args, &display),
        Command::Evaluate(args) => sim::evaluate(&args, &display),
        Command::Results(ResultsCommand::Merge(args)) => shard::merge_results(&args, &display),
        Command::Lab(args) => lab::run(args, &display).await,
        Command::Emulate(args) => emulate::run(args, &display).await,
        Command::Completions(args) => generate::completions(&args, &display),
        Command::Man(args) => generate::man(&args, &display),
        Command::Doctor => doctor::run(&display).await,
    }
}

/// Returns the exit code of an error that no library has.
fn exit_code(error: &anyhow::Error) -> Option<u8> {
    if let Some(PostReceiveError::Interrupted(_)) = error.downcast_ref() {
        return Some(INTERRUPTED);
    }
    emulate::exit_code(error).or_else(|| manyflow_storage::exit_code(error))
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
    fn every_command_is_in_one_group_of_the_help() {
        let cli = Cli::command();
        let mut commands: Vec<_> = cli.get_subcommands().map(clap::Command::get_name).collect();
        let mut listed: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(commands, listed);
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
