//! The options of `top`.

use std::time::Duration;

use clap::Args;
use manyflow_core::units::parse_duration;
use manyflow_messages::StatusUrl;

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  # The daemon on this machine whose file has metrics = \"127.0.0.1:9464\"
  manyflow top

  # Three daemons, every five seconds
  manyflow top a.example.net:9464 b.example.net:9464 c.example.net:9464 --interval 5s

  # A switch and its two stores
  manyflow top switch.example.net:9464 10.0.0.1:9464 10.0.0.2:9464

  # One table, for a report
  manyflow top a.example.net:9464 --once

  # One JSON object in each line, for programs
  manyflow top --json

Columns:
  topology   how often the topology has changed as the daemon saw it
  pauses     how often senders had to wait for a slow member
  queue      messages that wait for the link
  again      TCP segments that were sent again
  action     blocks: senders of the group wait; misses: the member misses messages; evicted: it was removed";

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The addresses at which daemons, or other roles, serve metrics
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9464")]
    pub(crate) urls: Vec<StatusUrl>,
    /// Print one table after one interval, and exit; with 1 if nothing answered
    #[arg(long)]
    pub(crate) once: bool,
    /// The time between two tables, at least 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
}

/// Parses an interval. Daemons change their status twice a second.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    match interval >= Duration::from_millis(500) {
        true => Ok(interval),
        false => Err("daemons report twice a second: use at least 500ms".to_owned()),
    }
}
