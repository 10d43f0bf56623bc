//! The options of `completions` and `man`, and `doctor`'s help.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(super) const DOCTOR_HELP: &str = "\
Examples:
  manyflow doctor
  manyflow doctor --json | jq 'select(.status != \"ok\")'

Statuses:
  ok       this machine has it
  limited  it works, but less well than it could
  missing  some commands do not work; the line below says which
  failed   nothing can be transferred; the exit code is 1

Probes send to the loopback interface only. With --json, each check is an object.";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  # For this user, from the next shell on
  manyflow completions bash > ~/.local/share/bash-completion/completions/manyflow
  manyflow completions fish > ~/.config/fish/completions/manyflow.fish

  # zsh: into a folder of fpath
  manyflow completions zsh > /usr/local/share/zsh/site-functions/_manyflow";

pub(super) const MAN_EXAMPLES: &str = "\
Example:
  manyflow man --out ~/.local/share/man/man1
  man manyflow-send";

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: CompletionShell,
}

/// The shells whose completions are kept: their scripts are tested.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    /// bash with bash-completion
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

impl CompletionShell {
    /// Returns the name of the shell.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CompletionShell::Bash => "bash",
            CompletionShell::Zsh => "zsh",
            CompletionShell::Fish => "fish",
        }
    }
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder for the pages, which is made if it does not exist: manyflow.1, manyflow-send.1
    /// and so on
    #[arg(long, value_name = "FOLDER", value_parser = super::folder())]
    pub(crate) out: PathBuf,
}
