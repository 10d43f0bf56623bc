//! The command of a session: a program that runs at a node of an emulated scenario.

use serde::Deserialize;

/// `sessions.command`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CommandTable {
    /// The command, which `sh -c` runs.
    pub run: String,
}
