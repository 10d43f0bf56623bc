//! The consumers of the units of `manyflow stream recv`.

use anyhow::Result;
use manyflow_core::units::Bytes;
use manyflow_layered::unit::Unit;
use manyflow_layered::unit::pattern::{Picture, decode, psnr_db};
use manyflow_streams::{Output, Sink};
use tokio::sync::mpsc;

use crate::cli::StreamRecvArgs;
use manyflow_terminal::Display;

/// Takes the units of a stream.
pub(super) enum Consumer {
    /// Writes them.
    Sink(Box<Sink>),
    /// Decodes those of the test picture, and prints their quality.
    Pattern(Display),
}

impl Consumer {
    /// Opens the consumer that the options name. Without any, units are received and not kept.
    pub(super) fn open(args: &StreamRecvArgs, display: &Display) -> Result<Consumer> {
        let output = match (&args.folder, &args.pipe, &args.program, &args.video) {
            (Some(folder), ..) => Output::Folder {
                folder: folder.clone(),
                extension: args.extension.clone(),
            },
            (_, Some(pipe), ..) => Output::Pipe(pipe.clone()),
            (_, _, Some(program), _) => Output::Program(program.clone()),
            (.., Some(video)) => Output::Video(video.clone()),
            _ if args.pattern => return Ok(Consumer::Pattern(display.clone())),
            _ => Output::Discard,
        };
        Ok(Consumer::Sink(Box::new(Sink::open(output)?)))
    }

    /// Takes units until there are none left or the output fails.
    pub(super) async fn consume(self, mut units: mpsc::Receiver<Unit>) -> Result<()> {
        match self {
            Consumer::Sink(mut sink) => {
                while let Some(unit) = units.recv().await {
                    sink.push(unit.number, unit.prefix)?;
                }
                sink.finish().await?;
            }
            Consumer::Pattern(display) => {
                while let Some(unit) = units.recv().await {
                    let line = tokio::task::spawn_blocking(move || describe(&unit));
                    display.print_line(&line.await?)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns a line about the quality of a unit of the test picture.
fn describe(unit: &Unit) -> String {
    let bytes = Bytes(unit.prefix.len() as u64);
    let quality = match decode(&unit.prefix) {
        Ok(picture) => {
            let original = Picture::draw(picture.number, picture.size);
            format!("{:.1} dB", psnr_db(&original, &picture))
        }
        Err(error) => error.to_string(),
    };
    format!("unit {}: {bytes}, {quality}", unit.number)
}
