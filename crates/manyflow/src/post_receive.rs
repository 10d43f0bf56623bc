//! `--post-receive`: a command that runs when all files are stored.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use manyflow_files::session::Received;
use manyflow_net::child::Program;

/// The reason why the command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostReceiveError {
    /// The shell cannot be run.
    #[error("--post-receive: cannot run sh ({0}). All files are stored")]
    Shell(io::Error),
    /// The output folder no longer exists.
    #[error("--post-receive: cannot use {folder} ({error})", folder = .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The command failed.
    #[error("--post-receive: `{command}` failed ({status}). All files are stored")]
    Failed {
        /// The command, as the user gave it.
        command: String,
        /// The status of the shell.
        status: ExitStatus,
    },
    /// The user or a service manager interrupted the command.
    #[error("--post-receive: `{0}` was interrupted. All files are stored")]
    Interrupted(String),
}

/// Runs `command` with `sh -c`, and waits for its end, or ends it when `interruption` completes.
/// Its output goes to standard error, because `--json` uses standard output.
pub(crate) async fn run(
    command: &str,
    output: &Path,
    received: &Received,
    interruption: impl Future<Output = ()>,
) -> Result<(), PostReceiveError> {
    let folder = output.canonicalize();
    let folder = folder.map_err(|error| PostReceiveError::Folder {
        folder: output.to_owned(),
        error,
    })?;
    let bytes: u64 = received.files.iter().map(|file| file.bytes).sum();
    let program = Program::start(command, |shell| {
        shell
            .env("MANYFLOW_OUTPUT", folder)
            .env("MANYFLOW_FILES", received.files.len().to_string())
            .env("MANYFLOW_BYTES", bytes.to_string())
            .stdin(Stdio::null())
            .stdout(io::stderr());
    });
    let mut program = program.map_err(PostReceiveError::Shell)?;
    let status = tokio::select! {
        status = program.wait() => status.map_err(PostReceiveError::Shell)?,
        () = interruption => {
            program.end().await;
            return Err(PostReceiveError::Interrupted(command.to_owned()));
        }
    };
    match status.success() {
        true => Ok(()),
        false => Err(PostReceiveError::Failed {
            command: command.to_owned(),
            status,
        }),
    }
}
