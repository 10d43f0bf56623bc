//! The units of `manyflow stream send`.

use anyhow::Result;
use manyflow_layered::unit::pattern::Size;
use manyflow_streams::{Input, Source, SourceConfig, SourceError, SourceUnit};
use tokio::sync::mpsc;

use crate::cli::StreamSendArgs;
use manyflow_terminal::usage;

/// Width and height of the test picture. Units of this size fill about 12 Mbit/s at 10 per second.
const PATTERN: (u16, u16) = (640, 360);

/// Opens the source that the options name.
pub(super) fn open(args: &StreamSendArgs) -> Result<Source> {
    let pattern = || Size::new(PATTERN.0, PATTERN.1).map(Input::Pattern);
    let input = match (&args.folder, &args.pipe, &args.program) {
        (Some(folder), ..) => Input::Folder {
            folder: folder.clone(),
            is_repeated: args.repeat,
        },
        (_, Some(pipe), _) => Input::Pipe(pipe.clone()),
        (.., Some(program)) => Input::Program(program.clone()),
        _ => match (&args.rows, &args.video) {
            (Some(rows), _) => Input::Rows {
                path: rows.clone(),
                columns: args.columns.clone(),
            },
            (_, Some(video)) => Input::Video(video.clone()),
            _ => pattern().map_err(|error| usage(error.to_string()))?,
        },
    };
    let fps = args.fps;
    Ok(Source::open(SourceConfig { input, fps })?)
}

/// Passes units on until the source ends or fails, or nobody takes them.
pub(super) async fn feed(
    mut source: Source,
    units: mpsc::Sender<SourceUnit>,
) -> Result<(), SourceError> {
    while let Some(bytes) = source.next().await? {
        let unit = SourceUnit {
            bytes,
            interval: Some(source.interval()),
        };
        if units.send(unit).await.is_err() {
            break;
        }
    }
    Ok(())
}
