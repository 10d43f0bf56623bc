//! The options of `member` and `gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use manyflow_core::units::{Bytes, parse_duration};
use manyflow_ensembles::http::Origin;

pub(super) const MEMBER_EXAMPLES: &str = "\
Examples:
  # Two servers, each with its member, and a switch
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.1:7000
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.2:7000
  manyflow switch --listen 10.0.0.9:7000 --policy affinity --member a=10.0.0.1:7000 --member b=10.0.0.2:7000

  # The gateway for clients
  manyflow gateway --listen 127.0.0.1:8088 --to 10.0.0.9:7000
  curl http://127.0.0.1:8088/

  # Sealed between gateway and members
  manyflow keygen --shared-key service.key
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.1:7000 --key service.key";

pub(super) const GATEWAY_EXAMPLES: &str = "\
Examples:
  manyflow gateway --listen 127.0.0.1:8088 --to 10.0.0.9:7000
  curl http://127.0.0.1:8088/

  # With metrics at http://127.0.0.1:9465/metrics, on a line where signs of life may take longer
  manyflow gateway --listen 0.0.0.0:80 --to switch.example.net:7000 --timeout 10s --metrics 127.0.0.1:9465

  # Sealed between gateway and members
  manyflow gateway --listen 127.0.0.1:8088 --to 10.0.0.9:7000 --key service.key

`manyflow member --help` shows the other side.";

/// Arguments of `member`.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The HTTP server that answers the requests
    #[arg(long, value_name = "URL")]
    pub(crate) http: Origin,
    /// Accept connections of switches and gateways at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: SocketAddr,
    /// Open messages that were sealed with this key, and seal the answers: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The maximum number of requests in progress; gateways send others to another member
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) requests_max: u32,
    /// The time that requests in progress have to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Serve metrics for Prometheus (OpenMetrics text) over HTTP on this address, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// Arguments of `gateway`.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Accept HTTP clients at this address
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: SocketAddr,
    /// The switch of the service, or its only member
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::address::connect_with_port)]
    pub(crate) to: String,
    /// Seal the requests with this key, which the members have, too: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The time without a sign of life of a request after which its member counts as dead. A GET or
    /// HEAD is then sent once more, and another request is answered with 502. Below 2 s, requests
    /// are given up that the switch is about to give to another member
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// The maximum memory for a response that its client takes slowly
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    pub(crate) window: Bytes,
    /// The maximum number of requests in progress; others are answered with 503
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) requests_max: u32,
    /// The maximum number of connections of clients; others wait
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) clients_max: u32,
    /// The time that requests in progress have to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Serve metrics for Prometheus (OpenMetrics text) over HTTP on this address, at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}
