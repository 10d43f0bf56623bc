//! Images at the command line: `send -`, `send DEVICE`, `recv --to` and `recv --pipe`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::Result;
use manyflow_files::image::{ImageInput, ImageOutput};
use manyflow_net::child::Program;

use crate::cli::{ImageRecvArgs, ImageSendArgs};
use manyflow_terminal::usage;

/// Opens the image that the paths of `send` name, if they name one.
///
/// # Errors
/// If the image is not alone, or cannot be opened.
pub(crate) fn input(paths: &[PathBuf], args: &ImageSendArgs) -> Result<Option<ImageInput>> {
    let image = paths.iter().find(|path| ImageInput::is_image(path));
    let Some(image) = image else {
        return match args.name {
            None => Ok(None),
            Some(_) => Err(usage(
                "--name is for standard input (-) and block devices: files have names of their own",
            )),
        };
    };
    if paths.len() > 1 {
        let image = image.display();
        return Err(usage(format!(
            "{image} is sent as an image, so it has to be the only path: send the others in a session of their own"
        )));
    }
    Ok(Some(ImageInput::open(image, args.name.clone())?))
}

/// Returns the output of an image, and the command that reads it, which runs from now on.
///
/// # Errors
/// If the command cannot be run.
pub(crate) fn output(
    args: &ImageRecvArgs,
) -> Result<(ImageOutput, Option<PipeCommand>), PipeError> {
    if let Some(device) = &args.to {
        return Ok((ImageOutput::Device(device.clone()), None));
    }
    let Some(text) = &args.pipe else {
        return Ok((ImageOutput::Folder, None));
    };
    let (reader, writer) = io::pipe().map_err(PipeError::Shell)?;
    let program = Program::start(text, |shell| {
        // Standard output has the objects of --json.
        shell.stdin(Stdio::from(reader)).stdout(io::stderr());
    });
    let writer = Arc::new(File::from(OwnedFd::from(writer)));
    let command = PipeCommand {
        text: text.clone(),
        program: program.map_err(PipeError::Shell)?,
        input: Arc::clone(&writer),
    };
    Ok((ImageOutput::Pipe(writer), Some(command)))
}

/// The reason why the command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PipeError {
    /// The shell cannot be run.
    #[error("--pipe: cannot run sh ({0})")]
    Shell(io::Error),
    /// The command failed.
    #[error("--pipe: `{command}` failed ({status}), although it was given the whole image")]
    Failed {
        /// The command, as the user gave it.
        command: String,
        /// The status of the shell.
        status: ExitStatus,
    },
    /// The user or a service manager interrupted the command.
    #[error("--pipe: `{0}` was interrupted, although it was given the whole image")]
    Interrupted(String),
}

/// The command that reads an image.
pub(crate) struct PipeCommand {
    text: String,
    program: Program,
    /// The command's input, which must not end before the command is killed, or has the image.
    input: Arc<File>,
}

impl PipeCommand {
    /// Waits for the command if it was given the whole image, and ends it otherwise.
    ///
    /// # Errors
    /// If it has the image, and fails or is interrupted.
    pub(crate) async fn finish(
        self,
        has_image: bool,
        interruption: impl Future<Output = ()>,
    ) -> Result<(), PipeError> {
        match has_image {
            true => self.wait(interruption).await,
            false => {
                self.end().await;
                Ok(())
            }
        }
    }

    /// Waits until the command, which has the whole image, ends by itself, or ends it when
    /// `interruption` completes.
    async fn wait(mut self, interruption: impl Future<Output = ()>) -> Result<(), PipeError> {
        drop(self.input);
        let status = tokio::select! {
            status = self.program.wait() => status.map_err(PipeError::Shell)?,
            () = interruption => {
                self.program.end().await;
                return Err(PipeError::Interrupted(self.text));
            }
        };
        match status.success() {
            true => Ok(()),
            false => Err(PipeError::Failed {
                command: self.text,
                status,
            }),
        }
    }

    /// Ends the command, which has not been given the whole image.
    async fn end(mut self) {
        if let Ok(Some(status)) = self.program.child().try_wait() {
            tracing::error!("--pipe: `{}` has ended early ({status})", self.text);
        }
        self.program.end().await;
    }
}
