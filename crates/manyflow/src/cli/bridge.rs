//! The options of `bridge`.

use std::path::PathBuf;

use clap::Args;

pub(super) const BRIDGE_EXAMPLES: &str = r#"Examples:
  # Subjects between two sites, each with a nats-server and a daemon
  manyflow bridge --site berlin --nats 127.0.0.1:4333 --daemon 127.0.0.1:4222 --subject 'orders.>'
  manyflow bridge --site paris --nats 127.0.0.1:4333 --daemon unix:/run/manyflow.sock --subject 'orders.>'

  # A bridge as a file describes it
  manyflow bridge /etc/manyflow/berlin.toml

  # berlin.toml
  site = "berlin"                # unique among the sites
  nats = "127.0.0.1:4333"        # the site's nats-server
  subjects = ["orders.>"]        # core messages in both directions, with requests and answers

  [daemon]                       # or daemon = "127.0.0.1:4222"; nats has the same keys
  address = "unix:/run/manyflow.sock"
  user = "bridge"
  password-file = "bridge.password"

  [[streams]]                    # of JetStream; acknowledged when both sites have the message
  name = "INVOICES"
  to = ["paris", "rome"]

  [[streams]]                    # paris has `to = ["berlin"]`
  name = "QUOTES"
  from = "paris"

A bridge connects again without a limit. docs/bridge.md says what is lost, repeated or reordered when."#;

/// Arguments of `bridge`.
#[derive(Debug, Args)]
pub(crate) struct BridgeArgs {
    /// The file that describes the bridge
    #[arg(value_name = "FILE", required_unless_present = "site")]
    pub(crate) file: Option<PathBuf>,
    /// The site's name, which no other site of the overlay has
    #[arg(long, value_name = "NAME", conflicts_with = "file", requires = "nats")]
    pub(crate) site: Option<String>,
    /// The host and port of the site's nats-server, or its URL
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "file", value_parser = crate::address::nats_server)]
    pub(crate) nats: Option<String>,
    /// The host and port of a daemon, or its Unix socket
    #[arg(long, value_name = "HOST[:PORT]|unix:PATH", conflicts_with = "file", default_value = "127.0.0.1:4222", value_parser = crate::address::server)]
    pub(crate) daemon: String,
    /// Carry the messages to this subject in both directions; can be repeated. * stands for one
    /// word between dots, > at the end for one or more
    #[arg(long, value_name = "SUBJECT", conflicts_with = "file")]
    pub(crate) subject: Vec<String>,
}
