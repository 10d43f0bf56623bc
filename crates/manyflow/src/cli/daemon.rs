//! The options of `daemon`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use manyflow_core::units::parse_duration;

pub(super) const DAEMON_EXAMPLES: &str = r#"Examples:
  # A daemon as a file describes it
  manyflow daemon /etc/manyflow/overlay.toml

  # Two daemons on this machine, for a first try; clients connect to either
  manyflow daemon --name a --listen 127.0.0.1:4747 --clients 127.0.0.1:4222 --insecure
  manyflow daemon --name b --link a=127.0.0.1:4747 --clients 127.0.0.1:4223 --insecure

  # Only programs on this machine; they connect to the Unix socket
  manyflow daemon --name c --link a=127.0.0.1:4747 --clients unix:/run/manyflow.sock --insecure
  manyflow sub 'news.*' --server unix:/run/manyflow.sock

  # Programs with Spread's client libraries take part in ordered groups
  manyflow daemon --name d --clients-spread 127.0.0.1:4803 --insecure

  # overlay.toml
  name = "a"                     # unique in the overlay
  listen = "0.0.0.0:4747"        # other daemons connect here
  clients = "0.0.0.0:4222"       # NATS clients connect here, or at "unix:/run/manyflow.sock"
  clients-ws = "0.0.0.0:8080"    # and those in browsers, over WebSocket
  clients-spread = "127.0.0.1:4803"  # programs with Spread's libraries, without [[users]]
  metrics = "127.0.0.1:9464"     # http://127.0.0.1:9464/metrics
  controller = "cost-benefit"    # or "none"
  max-payload = "1 MiB"          # of a message; also ping-interval and hold (docs)

  [links]
  b = "b.example.net:4747"
  c = { address = "c.example.net:4747", weight = 2 }

  [slow]                         # members that read too slowly: evict (after 10 s), drop or block
  "quotes.>" = "drop"

  [[users]]
  name = "feed"
  password-file = "feed.password"
  publish = ["quotes.>"]
  priority = 200                 # percent of other users' share"#;

/// Arguments of `daemon`.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The file that describes the daemon
    #[arg(value_name = "FILE", required_unless_present = "name")]
    pub(crate) file: Option<PathBuf>,
    /// The daemon's name, which no other daemon of the overlay has
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) name: Option<String>,
    /// Let other daemons connect at this host and port
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "file", value_parser = crate::address::check_listen::<4747>)]
    pub(crate) listen: Option<String>,
    /// Serve NATS clients at this host and port, or those on this machine at a Unix socket:
    /// unix:/run/manyflow.sock
    #[arg(long, value_name = "HOST:PORT|unix:PATH", conflicts_with = "file", value_parser = crate::address::check_clients::<4222>)]
    pub(crate) clients: Option<String>,
    /// Serve NATS clients in browsers, over WebSocket, at this host and port
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "file", value_parser = crate::address::check_listen::<{ manyflow_messages::CLIENT_WS_PORT }>)]
    pub(crate) clients_ws: Option<String>,
    /// Serve programs with Spread's client libraries at this host and port, or at a Unix socket
    /// such as unix:/tmp/4803, where the C library looks for one of port 4803
    #[arg(long, value_name = "HOST:PORT|unix:PATH", conflicts_with = "file", value_parser = crate::address::check_clients::<{ manyflow_messages::CLIENT_SPREAD_PORT }>)]
    pub(crate) clients_spread: Option<String>,
    /// Connect to another daemon, at port 4747 by default; can be repeated
    #[arg(long, value_name = "NAME=HOST[:PORT]", conflicts_with = "file")]
    pub(crate) link: Vec<LinkArg>,
    /// The flow control, the same at all daemons: cost-benefit or none
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) controller: Option<String>,
    /// Use neither TLS nor passwords: every host that can connect may do everything
    #[arg(long, conflicts_with = "file")]
    pub(crate) insecure: bool,
    /// Serve the daemon's state over HTTP on this address: a page at /, metrics for Prometheus at
    /// /metrics, /status.json, which `manyflow top` reads, and the pages that `nats-top` reads
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
    /// The time that clients have to connect elsewhere when the daemon stops (Ctrl-C, SIGTERM,
    /// SIGUSR2); a second one ends the daemon at once
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
}

/// A neighbour such as `b=192.0.2.1:4747`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkArg {
    pub(crate) name: String,
    pub(crate) address: String,
}

impl FromStr for LinkArg {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkArg, String> {
        let parts = text.split_once('=');
        let (name, address) =
            parts.ok_or_else(|| format!("`{text}` is not a link such as b=192.0.2.1:4747"))?;
        let address = crate::address::connect::<{ manyflow_messages::DAEMON_PORT }>(address);
        Ok(LinkArg {
            name: name.to_owned(),
            address: address.map_err(|error| error.to_string())?,
        })
    }
}
