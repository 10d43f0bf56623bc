//! Units of coded video: a file, a pipe, or what ffmpeg reads from an address.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use manyflow_video::{Splitter, UNIT_DURATION_MAX};

use super::source::{Next, SourceError};

/// The bytes that are read at once. A live source gives fewer.
const READ_BYTES: usize = 64 << 10;
/// The share of its time after which a unit of a live source may be followed by the next one. So a
/// source whose clock is faster than this one does not fall behind.
const LIVE_SHARE: f64 = 0.99;

/// Returns the share of a unit's time until the next one may be sent: the whole of it for a file,
/// which could be read at once.
pub(super) fn share_of(input: &str) -> f64 {
    match fs::metadata(input) {
        Ok(file) if file.is_file() => 1.0,
        _ => LIVE_SHARE,
    }
}

/// Returns the command that reads video from an address, with the address in `$MANYFLOW_INPUT`;
/// `None` if `input` is a file.
///
/// # Errors
/// If `input` is an address, and ffmpeg is not installed.
pub(super) fn command_of(input: &str) -> Result<Option<&'static str>, SourceError> {
    let Some((scheme, _)) = input.split_once("://") else {
        return Ok(None);
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_ffmpeg = |folder: std::path::PathBuf| folder.join("ffmpeg").is_file();
    if !std::env::split_paths(&path).any(has_ffmpeg) {
        return Err(SourceError::NoFfmpeg(input.to_owned()));
    }
    Ok(Some(match scheme {
        // By TCP, because the sender cannot repair what this path loses.
        "rtsp" | "rtsps" => {
            "exec ffmpeg -nostdin -v error -rtsp_transport tcp -i \"$MANYFLOW_INPUT\" -c copy -f mpegts -"
        }
        _ => "exec ffmpeg -nostdin -v error -i \"$MANYFLOW_INPUT\" -c copy -f mpegts -",
    }))
}

/// Units of a stream of bytes, which the first call opens.
pub(super) struct VideoUnits<O, R> {
    from: String,
    open: Option<O>,
    pipe: Option<R>,
    splitter: Splitter,
    buffer: Vec<u8>,
    has_ended: bool,
    has_warned: bool,
}

impl<R: Read, O: FnOnce() -> Result<R, SourceError>> VideoUnits<O, R> {
    /// Reads from what `open` returns. `fps` are the pictures per second of a stream without times.
    pub(super) fn new(from: String, fps: Option<f64>, open: O) -> VideoUnits<O, R> {
        VideoUnits {
            from,
            open: Some(open),
            pipe: None,
            splitter: Splitter::new(fps),
            buffer: vec![0; READ_BYTES],
            has_ended: false,
            has_warned: false,
        }
    }

    fn read(&mut self) -> Result<Option<(bytes::Bytes, Option<Duration>)>, SourceError> {
        loop {
            if let Some(unit) = self.splitter.poll_unit() {
                self.warn_unless_closed(unit.is_closed);
                return Ok(Some((unit.bytes.into(), Some(unit.duration))));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> Result<(), SourceError> {
        if let Some(open) = self.open.take() {
            self.pipe = Some(open()?);
        }
        let unreadable = super::source::unreadable(Path::new(&self.from));
        let read = match &mut self.pipe {
            Some(pipe) => pipe.read(&mut self.buffer).map_err(unreadable)?,
            None => 0,
        };
        let taken = match read {
            0 => {
                self.has_ended = true;
                self.splitter.finish()
            }
            read => self.splitter.push(&self.buffer[..read]),
        };
        taken.map_err(|error| SourceError::Video {
            from: self.from.clone(),
            error,
        })
    }

    /// Warns once of groups of pictures that take several units.
    fn warn_unless_closed(&mut self, is_closed: bool) {
        if !is_closed && !self.has_warned {
            self.has_warned = true;
            tracing::warn!(
                "{} has units of {} s that do not begin with an IDR picture: a receiver that misses a \
                 picture that others need has no pictures until the next one; encode closed groups \
                 of a second (ffmpeg: -g, with the pictures per second)",
                self.from,
                UNIT_DURATION_MAX.as_secs()
            );
        }
    }
}

impl<R: Read, O: FnOnce() -> Result<R, SourceError>> Iterator for VideoUnits<O, R> {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        self.read().transpose()
    }
}
