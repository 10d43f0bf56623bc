//! The options of `router`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use manyflow_core::units::{Rate, parse_duration};

/// clap's own usage is one long line.
pub(super) const ROUTER_USAGE: &str = "\
manyflow router [OPTIONS] --listen <ADDRESS:PORT> --to <HOST:PORT>
           --rate <RATE>";

pub(super) const ROUTER_EXAMPLES: &str = "\
Examples:
  # XCP at a site's bottleneck of 100 Mbit/s: slightly below its rate, so that the queue is here
  manyflow router --listen 0.0.0.0:7000 --to service.example.net:7000 --rate 95Mbit/s

  # A slow path for a test, 20 Mbit/s with a round-trip time of 40 ms, whose router does not speak XCP
  manyflow router --listen 127.0.0.1:7001 --to 127.0.0.1:7000 --rate 20Mbit/s --delay 20ms --queue 40ms --drop-tail";

/// Arguments of `router`.
#[derive(Debug, Args)]
pub(crate) struct RouterArgs {
    /// Take datagrams of clients at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: SocketAddr,
    /// Forward them to this host
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::address::connect_with_port)]
    pub(crate) to: String,
    /// The link's rate in each direction
    #[arg(long)]
    pub(crate) rate: Rate,
    /// The link's delay in each direction
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) delay: Duration,
    /// The longest queue before the link, in the time that it takes to send it
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub(crate) queue: Duration,
    /// Do not speak XCP: only drop packets that the queue has no room for
    #[arg(long)]
    pub(crate) drop_tail: bool,
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}
