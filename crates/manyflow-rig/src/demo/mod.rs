//! `manyflow demo`: the roles at work, to watch on one machine.

mod ensemble;
mod files;
mod options;
mod overlay;
mod stream;

use anyhow::Result;
use manyflow_terminal::Display;

pub use options::{
    DEMO_EXAMPLES, DemoArgs, DemoCommand, EnsembleDemoArgs, FilesDemoArgs, OverlayDemoArgs,
    StreamDemoArgs,
};

/// Runs a demo. The daemons in the demo of overlays are processes of the present program, which has
/// to be `manyflow`.
///
/// # Errors
/// Returns an error if an argument is out of its range, a role fails, or the user interrupts.
pub async fn run(args: DemoArgs, display: &Display) -> Result<()> {
    match args.command {
        Some(DemoCommand::Overlay(args)) => overlay::run(&args, display).await,
        Some(DemoCommand::Ensemble(args)) => ensemble::run(&args, display).await,
        Some(DemoCommand::Stream(args)) => stream::run(&args, display).await,
        None => files::run(args.files, display).await,
    }
}
