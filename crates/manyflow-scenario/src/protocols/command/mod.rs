//! Commands in scenarios: programs that run at a node of an emulated scenario.

mod session;

pub(crate) use session::Commands;

use serde::Deserialize;

/// `sessions.command`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CommandTable {
    /// The command, which `sh -c` runs.
    pub run: String,
}
