//! The options of `member` and `gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hyper::http::uri::PathAndQuery;
use manyflow_core::units::{Bytes, parse_duration};
use manyflow_ensembles::http::{Origin, TunnelPort};
use manyflow_net::address::Address;
use manyflow_terminal::members::MembersArgs;

pub(super) const MEMBER_EXAMPLES: &str = "\
Examples:
  # Two servers, each with its member
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.1:7000
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.2:7000

  # The gateway for clients
  manyflow gateway --listen 127.0.0.1:8088 --member 10.0.0.1:7000 --member 10.0.0.2:7000
  curl http://127.0.0.1:8088/

  # The server is asked for a page every second, and has 10 s for an answer
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.1:7000 --check /healthz --answer-within 10s

  # A TCP server, such as PostgreSQL or one with TLS, for `manyflow gateway --tcp`
  manyflow member --tcp 127.0.0.1:5432 --listen 10.0.0.1:7000

  # Sealed between gateway and members
  manyflow keygen --shared-key service.key
  manyflow member --http http://127.0.0.1:8080 --listen 10.0.0.1:7000 --key service.key";

pub(super) const GATEWAY_EXAMPLES: &str = "\
Examples:
  manyflow gateway --listen 127.0.0.1:8088 --member 10.0.0.1:7000 --member 10.0.0.2:7000
  curl http://127.0.0.1:8088/

  # A member at each address of a name
  manyflow gateway --listen 127.0.0.1:8088 --member dns:web.example.net:7000

  # Two switches before the same members: the gateway uses the first that answers
  manyflow gateway --listen 127.0.0.1:8088 --to 10.0.0.8:7000 --to 10.0.0.9:7000

  # A TCP port whose streams reach the TCP servers of members
  manyflow gateway --listen 127.0.0.1:5432 --member 10.0.0.1:7000 --tcp

  # The same for clients that name the server by SOCKS5, or by CONNECT
  manyflow gateway --listen 127.0.0.1:1080 --to 10.0.0.9:7000 --tcp=socks5

  # Behind nginx or Envoy, which send the client's address before each stream
  manyflow gateway --listen 127.0.0.1:8443 --to 10.0.0.9:7000 --tcp --accept-proxy

  # With metrics at http://127.0.0.1:9465/metrics, on a line where signs of life may take longer
  manyflow gateway --listen 0.0.0.0:80 --to switch.example.net:7000 --timeout 10s --metrics 127.0.0.1:9465

  # Sealed between gateway and members
  manyflow gateway --listen 127.0.0.1:8088 --to 10.0.0.9:7000 --key service.key

`manyflow member --help` shows the other side.";

/// Arguments of `member`.
#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    /// The HTTP server that answers the requests
    #[arg(long, value_name = "URL", required_unless_present = "tcp")]
    pub(crate) http: Option<Origin>,
    /// A TCP server for the streams of `manyflow gateway --tcp`: the first, unless the client names
    /// another one of these; can be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) tcp: Vec<Address>,
    /// Send the client's address to the TCP servers before each stream (PROXY protocol, version 2)
    #[arg(long, requires = "tcp")]
    pub(crate) proxy_protocol: bool,
    /// The time that the HTTP server has for the beginning of its response after it has got the
    /// request, and for each further piece
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) answer_within: Duration,
    /// Ask the HTTP server for this path every second. With another status than 2xx or 3xx twice in
    /// a row, gateways prefer other members
    #[arg(long, value_name = "PATH", requires = "http", value_parser = path)]
    pub(crate) check: Option<PathAndQuery>,
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
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// Arguments of `gateway`.
#[derive(Debug, Args)]
#[command(mut_arg("member", |member| member.required_unless_present("to")))]
pub(crate) struct GatewayArgs {
    /// Accept HTTP clients at this address, or TCP clients with --tcp
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) members: MembersArgs,
    /// Instead of members: the switch before them. Repeated, it names switches before the same
    /// members: the first that answers is used
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with = "member",
        value_parser = crate::address::connect_with_port
    )]
    pub(crate) to: Vec<String>,
    /// Pass TCP streams, each to the server of one member for its life
    #[arg(long, value_enum, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "plain")]
    pub(crate) tcp: Option<TunnelArg>,
    /// The TCP server of members to which the streams of --tcp go, instead of their first one
    #[arg(long, requires = "tcp", value_name = "HOST:PORT")]
    pub(crate) server: Option<Address>,
    /// Read the client's address from the beginning of each connection (PROXY protocol)
    #[arg(long, requires = "tcp")]
    pub(crate) accept_proxy: bool,
    /// The time after which a GET or HEAD without an answer is sent to a second member as well; at
    /// most a tenth of the requests are. 0s: only if the first member is silent
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) hedge_after: Duration,
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
    /// Serve a status page over HTTP on this address, and metrics for Prometheus (OpenMetrics text)
    /// at /metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// The ports of `gateway --tcp`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TunnelArg {
    /// Each connection is a stream to the first TCP server of a member
    Plain,
    /// The client names the TCP server by SOCKS5
    Socks5,
    /// The client names the TCP server by HTTP's CONNECT
    Connect,
}

impl From<TunnelArg> for TunnelPort {
    fn from(port: TunnelArg) -> TunnelPort {
        match port {
            TunnelArg::Plain => TunnelPort::Plain,
            TunnelArg::Socks5 => TunnelPort::Socks5,
            TunnelArg::Connect => TunnelPort::Connect,
        }
    }
}

fn path(text: &str) -> Result<PathAndQuery, String> {
    let path = text.parse().ok().filter(|_| text.starts_with('/'));
    path.ok_or_else(|| format!("`{text}` is not a path such as /healthz"))
}
