//! The units that a receiver has got: to files of a folder, a pipe, a program, or nowhere.
//!
//! A thread writes the units. [`Sink::push`] never waits for it: units that exceed the queue are
//! dropped and counted, so a slow disk or program costs units, but no packets.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use manyflow_layered::unit::UNIT_BYTES_MAX;
use manyflow_net::child::Program;
use manyflow_net::disk::is_special;
use manyflow_net::reach::{Notice, Reach};
use manyflow_video::IndexError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::formats::finish;
use super::framing::write_unit;
use super::rows::{self, Rows};
use super::video_sink::VideoWriter;

/// The units that may wait for the thread.
const QUEUE_UNITS: usize = 1_024;
/// The bytes that may wait for the thread.
const QUEUE_BYTES_MAX: usize = UNIT_BYTES_MAX;

/// The path that stands for standard output.
pub(super) const STDOUT: &str = "-";

/// Where units go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A file for each unit in a folder, which is created if necessary. A file appears under its
    /// name when it is whole.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The extension of the files, without a dot; may be empty.
        extension: String,
    },
    /// Units with their lengths, to a file or a named pipe; `-` is standard output.
    Pipe(PathBuf),
    /// Units with their lengths, to the standard input of a command that `sh -c` runs.
    Program(String),
    /// The pictures of units of video: `-` for standard output, `udp://HOST:PORT`, a folder that a
    /// browser plays, which exists or ends in a slash, or a file or named pipe. They are MPEG-TS,
    /// or IVF for AV1; a file with the extension of a codec, such as `h264`, is a byte stream
    /// without it.
    Video(String),
    /// Nowhere: units are only counted.
    Discard,
}

/// Counts of a [`Sink`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Units written.
    pub written: u64,
    /// Units dropped, because the output was too slow.
    pub dropped: u64,
}

/// The reason why a sink takes no more units.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A folder, file or pipe cannot be written.
    #[error(
        "cannot write {} ({error}): check the disk and the permissions, or choose another output",
        shown(path)
    )]
    Unwritable {
        /// The folder, file or pipe; `-` for standard output.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A unit's file would replace a device, a pipe or a socket.
    #[error("{path} is no regular file, and a unit would replace it: move it, or choose another folder", path = .0.display())]
    Special(PathBuf),
    /// A unit is no video.
    #[error("unit {0} cannot be played: {1}")]
    Video(u32, IndexError),
    /// The output needs MPEG-TS, and the stream is AV1.
    #[error("{output} needs MPEG-TS, which AV1 does not have here: write it to a file or a pipe, such as video.ivf", output = .0.display())]
    NoMpegTs(PathBuf),
    /// The extension of files contains a separator of folders.
    #[error("{0:?} is no extension of a file: give letters and digits, such as bin")]
    Extension(String),
    /// A program cannot be started or waited for.
    #[error("cannot run `{command}` with sh ({error})")]
    Shell {
        /// The command.
        command: String,
        /// The system's reason.
        error: io::Error,
    },
    /// A program has closed its input, or has failed.
    #[error("`{command}` takes no more units ({reason}): see its messages above")]
    Program {
        /// The command.
        command: String,
        /// Its status, or the error of writing to it.
        reason: String,
    },
    /// The thread of the sink cannot be started, or has ended.
    #[error("the thread that writes units is not running ({0})")]
    Thread(io::Error),
}

impl SinkError {
    /// Whether the reader of standard output has closed it, as `head` does.
    pub fn is_closed_output(&self) -> bool {
        matches!(self, SinkError::Unwritable { path, error }
            if path == Path::new(STDOUT) && error.kind() == ErrorKind::BrokenPipe)
    }
}

/// Writes units in a thread. Dropping a sink ends its program; a thread that waits for a pipe or a
/// disk ends with the process.
#[derive(Debug)]
pub struct Sink {
    queue: mpsc::Sender<(u32, Bytes)>,
    shared: Arc<Shared>,
    dropped: u64,
    /// The result of the thread.
    ended: oneshot::Receiver<Result<(), SinkError>>,
    program: Option<(String, Program)>,
    /// Warns until the first unit is written: a named pipe may have no reader.
    first: Option<Reach>,
}

/// Counts that the thread changes.
#[derive(Debug, Default)]
struct Shared {
    queued_bytes: AtomicUsize,
    written: AtomicU64,
}

impl Sink {
    /// Opens a sink. Must be called in a tokio runtime. A pipe is opened by the sink's thread,
    /// because the system waits for its reader.
    ///
    /// # Errors
    /// If the folder cannot be created, the extension has a separator, or the program does not
    /// start.
    pub fn open(output: Output) -> Result<Sink, SinkError> {
        let mut program = None;
        let first = reach_of(&output);
        let writer = match output {
            // `Path::set_extension` panics at a separator.
            Output::Folder { extension, .. } if extension.contains(std::path::is_separator) => {
                return Err(SinkError::Extension(extension));
            }
            Output::Folder { folder, extension } => {
                fs::create_dir_all(&folder).map_err(unwritable(&folder))?;
                Writer::Folder { folder, extension }
            }
            Output::Pipe(path) => Writer::Unopened(path),
            Output::Program(command) => {
                let (started, input) = start_program(&command)?;
                program = Some((command.clone(), started));
                Writer::Program { command, input }
            }
            Output::Video(output) => Writer::Video(Box::new(VideoWriter::open(&output)?)),
            Output::Discard => Writer::Discard,
        };
        let shared = Arc::new(Shared::default());
        let (queue, units) = mpsc::channel(QUEUE_UNITS);
        let ended = spawn(writer, units, shared.clone())?;
        Ok(Sink {
            queue,
            shared,
            dropped: 0,
            ended,
            program,
            first,
        })
    }

    /// Queues a unit. Does not wait: returns false if the queue is full, and the unit is dropped.
    ///
    /// # Errors
    /// If an earlier unit could not be written. The sink takes no more units.
    pub fn push(&mut self, number: u32, unit: Bytes) -> Result<bool, SinkError> {
        // The thread has ended; its queue may still be full.
        if self.queue.is_closed() {
            return Err(self.failure());
        }
        self.first_notice().iter().for_each(Notice::log);
        let bytes = unit.len();
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        // One unit may wait, however long it is.
        let fits = queued == 0 || queued + bytes <= QUEUE_BYTES_MAX;
        let pushed = match fits {
            true => self.queue.try_send((number, unit)),
            false => Err(mpsc::error::TrySendError::Full((number, unit))),
        };
        if pushed.is_err() {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        match pushed {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.dropped += 1;
                Ok(false)
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(self.failure()),
        }
    }

    /// Returns a warning that is due before the first unit is written, or that it is over.
    fn first_notice(&mut self) -> Option<Notice> {
        let is_written = self.shared.written.load(Ordering::Relaxed) > 0;
        match is_written {
            true => self.first.take()?.up(),
            false => self.first.as_mut()?.poll(Instant::now()),
        }
    }

    /// The error with which the thread has ended.
    fn failure(&mut self) -> SinkError {
        match self.ended.try_recv() {
            Ok(Err(error)) => error,
            _ => thread_ended(),
        }
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> SinkStats {
        SinkStats {
            written: self.shared.written.load(Ordering::Relaxed),
            dropped: self.dropped,
        }
    }

    /// Waits until all queued units are written, and the program, if any, has ended.
    ///
    /// # Errors
    /// If a unit could not be written, or the program has failed.
    pub async fn finish(mut self) -> Result<SinkStats, SinkError> {
        let (shared, dropped) = (self.shared.clone(), self.dropped);
        drop(self.queue);
        self.ended.await.unwrap_or_else(|_| Err(thread_ended()))?;
        if let Some((command, program)) = &mut self.program {
            let status = program.wait().await;
            check_status(command, status)?;
        }
        let written = shared.written.load(Ordering::Relaxed);
        Ok(SinkStats { written, dropped })
    }
}

/// Returns the name of an output for messages.
fn shown(path: &Path) -> Cow<'_, str> {
    match path == Path::new(STDOUT) {
        true => "standard output".into(),
        false => path.to_string_lossy(),
    }
}

/// Returns the warnings for an output that takes no unit, if it can be a named pipe.
fn reach_of(output: &Output) -> Option<Reach> {
    let path = match output {
        Output::Pipe(path) => path,
        Output::Video(name) => Path::new(name),
        Output::Folder { .. } | Output::Program(_) | Output::Discard => return None,
    };
    let hint = "if it is a named pipe, start the program that reads it";
    let mut reach = Reach::new(shown(path), hint);
    reach.down("it has taken no unit");
    Some(reach)
}

fn thread_ended() -> SinkError {
    SinkError::Thread(io::Error::other("it has ended"))
}

fn check_status(command: &str, status: io::Result<ExitStatus>) -> Result<(), SinkError> {
    let command = command.to_owned();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(SinkError::Program {
            command,
            reason: status.to_string(),
        }),
        Err(error) => Err(SinkError::Shell { command, error }),
    }
}

/// Writes units in a thread, until the queue is closed or a unit fails.
fn spawn(
    mut writer: Writer,
    mut units: mpsc::Receiver<(u32, Bytes)>,
    shared: Arc<Shared>,
) -> Result<oneshot::Receiver<Result<(), SinkError>>, SinkError> {
    let (report, ended) = oneshot::channel();
    let mut columns = Columns::default();
    let mut write_all = move || {
        while let Some((number, unit)) = units.blocking_recv() {
            writer.write(number, &unit, &mut columns)?;
            shared.queued_bytes.fetch_sub(unit.len(), Ordering::Relaxed);
            shared.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::Builder::new()
        .name("stream sink".to_owned())
        .spawn(move || {
            let result = write_all();
            // The report comes before the queue closes, so that `push` finds the reason.
            let _ = report.send(result);
            drop(write_all);
        })
        .map_err(SinkError::Thread)?;
    Ok(ended)
}

/// Starts a program whose input is a pipe of units.
fn start_program(command: &str) -> Result<(Program, File), SinkError> {
    let shell = |error| SinkError::Shell {
        command: command.to_owned(),
        error,
    };
    let program = Program::start(command, |shell| {
        shell.stdin(Stdio::piped());
    });
    let mut program = program.map_err(shell)?;
    let input = program.child().stdin.take();
    let input = input.ok_or(io::ErrorKind::BrokenPipe);
    let input = input.map_err(|kind| shell(kind.into()))?;
    let input = input.into_owned_fd().map_err(shell)?;
    Ok((program, File::from(input)))
}

pub(super) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> SinkError {
    let path = path.to_owned();
    |error| SinkError::Unwritable { path, error }
}

/// The thread's end of an output.
enum Writer {
    Folder {
        folder: PathBuf,
        extension: String,
    },
    Unopened(PathBuf),
    Pipe {
        path: PathBuf,
        pipe: Box<dyn Write + Send>,
    },
    Program {
        command: String,
        input: File,
    },
    Video(Box<VideoWriter>),
    Discard,
}

impl Writer {
    /// Writes a unit: rows as their text, a known format with a valid end, and others as they are.
    fn write(&mut self, number: u32, unit: &[u8], columns: &mut Columns) -> Result<(), SinkError> {
        if let Writer::Unopened(path) = self {
            *self = open_pipe(path)?;
        }
        if let Writer::Video(writer) = self {
            return writer.write(number, unit);
        }
        if rows::is_rows(unit) {
            // A prefix that is too short for the header has no rows.
            return rows::decode(unit)
                .map_or(Ok(()), |rows| self.write_rows(number, &rows, columns));
        }
        let unit = &finish(unit);
        match self {
            Writer::Folder { folder, extension } => write_file(folder, extension, number, unit),
            Writer::Pipe { path, pipe } => write_unit(pipe, unit).map_err(unwritable(path)),
            Writer::Program { command, input } => write_unit(input, unit).map_err(ended(command)),
            Writer::Unopened(_) | Writer::Video(_) | Writer::Discard => Ok(()),
        }
    }

    /// Writes rows: a file has its own header, and a pipe or a program gets one text without
    /// lengths.
    fn write_rows(
        &mut self,
        number: u32,
        rows: &Rows<'_>,
        columns: &mut Columns,
    ) -> Result<(), SinkError> {
        let mut text = Vec::new();
        match self {
            Writer::Folder { folder, extension } => {
                rows.write(true, &mut text);
                write_file(folder, extension, number, &text)
            }
            Writer::Pipe { path, pipe } => {
                columns.append(rows, &mut text);
                let written = pipe.write_all(&text).and_then(|()| pipe.flush());
                written.map_err(unwritable(path))
            }
            Writer::Program { command, input } => {
                columns.append(rows, &mut text);
                input.write_all(&text).map_err(ended(command))
            }
            Writer::Unopened(_) | Writer::Video(_) | Writer::Discard => Ok(()),
        }
    }
}

/// The columns of the rows in a pipe: the kind and header of the first unit.
#[derive(Debug, Default)]
struct Columns {
    known: Option<(rows::Kind, Vec<u8>)>,
    is_warned: bool,
}

impl Columns {
    /// Appends the text of rows, the first ones below their header. Rows with other columns would
    /// make the text invalid, and are left out.
    fn append(&mut self, rows: &Rows<'_>, text: &mut Vec<u8>) {
        let is_first = self.known.is_none();
        let (kind, header) = self
            .known
            .get_or_insert_with(|| (rows.kind, rows.header.to_vec()));
        if (*kind, &header[..]) == (rows.kind, rows.header) {
            rows.write(is_first, text);
        } else if !std::mem::replace(&mut self.is_warned, true) {
            tracing::warn!("rows with other columns have come, and are left out: start again");
        }
    }
}

fn ended(command: &str) -> impl FnOnce(io::Error) -> SinkError {
    let command = command.to_owned();
    move |error| SinkError::Program {
        command,
        reason: error.to_string(),
    }
}

fn open_pipe(path: &Path) -> Result<Writer, SinkError> {
    let pipe: Box<dyn Write + Send> = match path == Path::new(STDOUT) {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(path).map_err(unwritable(path))?),
    };
    let path = path.to_owned();
    Ok(Writer::Pipe { path, pipe })
}

/// Writes a file under a hidden name, and then renames it.
fn write_file(folder: &Path, extension: &str, number: u32, unit: &[u8]) -> Result<(), SinkError> {
    let mut path = folder.join(format!("{number:010}"));
    path.set_extension(extension);
    let part = folder.join(format!(".{number:010}.part"));
    for path in [&part, &path] {
        if is_special(path) {
            return Err(SinkError::Special(path.clone()));
        }
    }
    fs::write(&part, unit).map_err(unwritable(&part))?;
    fs::rename(&part, &path).map_err(unwritable(&path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use manyflow_testing::programs::wait_until;
    use nix::sys::stat::Mode;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pipe_without_a_reader_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let mut sink = Sink::open(Output::Pipe(pipe.clone())).unwrap();
        assert!(sink.push(0, Bytes::from_static(b"unit")).unwrap());
        assert_eq!(sink.first_notice(), None);
        advance(Duration::from_secs(2)).await;
        let warning = sink.first_notice().expect("a warning").to_string();
        assert!(warning.contains("has taken no unit"), "{warning}");
        let _reader = File::open(&pipe).unwrap();
        wait_until("a unit is written", || sink.stats().written == 1);
        assert!(matches!(sink.first_notice(), Some(Notice::Back(_))));
    }
}
