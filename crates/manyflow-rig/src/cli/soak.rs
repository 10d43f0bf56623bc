//! The options of `soak`.

use std::time::Duration;

use clap::{Args, Subcommand};
use manyflow_core::units::{Bytes, parse_duration};

/// The long-running tests.
#[derive(Debug, Subcommand)]
pub(crate) enum SoakCommand {
    /// One sender and several receivers of files on this machine, over emulated links
    #[command(after_help = FILES_EXAMPLES)]
    Files(SoakArgs),
    /// Daemons of an overlay with their clients on this machine, over emulated links
    #[command(after_help = OVERLAY_EXAMPLES)]
    Overlay(OverlaySoakArgs),
    /// Daemons of an overlay and members of ordered groups on this machine, over emulated links
    #[command(after_help = ORDER_EXAMPLES)]
    Order(OrderSoakArgs),
    /// A sender of a stream, two relays and receivers on this machine, over emulated links
    #[command(after_help = STREAM_EXAMPLES)]
    Stream(StreamSoakArgs),
}

const FILES_EXAMPLES: &str = "\
Example:
  manyflow-rig soak files --for 30min --seed 7

Links change every few seconds, the sender with its relay is restarted, and receivers leave in the middle of a
transfer and come back. The command fails if a byte is wrong, a transfer does not end, or memory grows.";

const OVERLAY_EXAMPLES: &str = "\
Example:
  manyflow-rig soak overlay --for 30min --seed 7

Daemons are killed and restarted, links break and change their rate, the network is divided, and clients join,
leave, or read slowly. The command fails if a message is lost without an allowed reason, read twice or out of
order, if a sender makes no progress after the faults, or if memory grows.";

const ORDER_EXAMPLES: &str = "\
Example:
  manyflow-rig soak order --for 30min --seed 7

Daemons are killed, stopped and restarted, links break, the network is divided, and members leave and come back. After
each round of faults, all members have to agree on a view and to deliver new messages; then the traces of the round are
checked as by `manyflow check-order`. The command fails if a promise is broken, if there is no progress within a minute,
or if memory grows.";

const STREAM_EXAMPLES: &str = "\
Example:
  manyflow-rig soak stream --for 30min --seed 7

Receivers come, go and stop, relays are killed and restarted, links change their rate, and reports are lost. The
command fails if a prefix is wrong, if a receiver gets no picture after the faults, or if memory grows.";

/// Arguments of `soak stream`.
#[derive(Debug, Args)]
pub(crate) struct StreamSoakArgs {
    /// The time with faults. All faults are repaired after it, and everything must work again
    #[arg(long = "for", value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The seed of the faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of receivers
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(crate) receivers: u8,
}

/// Arguments of `soak files`.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// The duration
    #[arg(long = "for", value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The seed of files, links and faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of receivers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) receivers: u8,
    /// The size of the files
    #[arg(long, default_value = "2MB")]
    pub(crate) size: Bytes,
}

/// Arguments of `soak overlay`.
#[derive(Debug, Args)]
pub(crate) struct OverlaySoakArgs {
    /// The time with faults. All faults are repaired after it, and everything must work again
    #[arg(long = "for", value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The seed of links, clients and faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Arguments of `soak order`.
#[derive(Debug, Args)]
pub(crate) struct OrderSoakArgs {
    /// The time in which rounds begin. The last one ends after it
    #[arg(long = "for", value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// The seed of links, clients and faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}
