//! The options of `lab`.

use clap::Args;
use manyflow_messages::StatusUrl;
use manyflow_terminal::completion::scenarios;

pub(super) const LAB_EXAMPLES: &str = "\
Examples:
  # Pick a figure in the browser, edit it, run it, and compare runs
  manyflow lab

  # With files of your own, which stand first in the list
  manyflow lab my-network.toml

  # Watch a sender, a relay and a daemon that serve metrics
  manyflow lab --attach 127.0.0.1:9464 --attach http://relay.example.net:9464 --attach http://a.example.net:9464

  # Open a permalink that another lab has made
  manyflow lab --open 'http://127.0.0.1:40023/.../#...'

The page is served on 127.0.0.1 only, under an address with a random token. docs/lab.md describes the page.";

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// Scenario files, or ids of figures, that stand first in the list of figures
    #[arg(value_name = "FILE|ID", add = scenarios())]
    pub(crate) scenarios: Vec<String>,
    /// Watch the role that serves metrics at this address: its host and port, with http:// or
    /// without; can be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) attach: Vec<StatusUrl>,
    /// The port on 127.0.0.1; by default any free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Open the scenario of a permalink: print an address that shows it
    #[arg(long, value_name = "LINK")]
    pub(crate) open: Option<String>,
}
