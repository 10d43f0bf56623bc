//! Units of a stream: files of a folder, a pipe, the output of a program, coded video, or the test
//! picture.
//!
//! A thread reads the units, because files, standard input and the coder of the test picture block.
//! It is at most two units ahead of [`Source::next`].

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use manyflow_layered::unit::{UNIT_BYTES_MAX, pattern};
use manyflow_net::child::Program;
use manyflow_net::reach::{Notice, Reach};
use manyflow_video::VideoError;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::framing::{FramingError, read_unit};
use super::rows::RowUnits;
use super::video_source::{VideoUnits, command_of, share_of};

/// The units that are read before they are asked for.
const AHEAD: usize = 2;
/// The units per second of a folder and of the test picture, unless given.
const FPS_DEFAULT: f64 = 10.0;
/// The rows of a unit of a file.
pub const FILE_ROWS: usize = 100;
/// The first estimate of the interval of a pipe without a given rate.
const INTERVAL: Duration = Duration::from_millis(100);
/// The bounds of an estimate.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Where units come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The files of a folder, sorted by name. Hidden files and subfolders are left out.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Whether the first file follows the last one.
        is_repeated: bool,
    },
    /// Units with their lengths, from a file or a named pipe; `-` is standard input.
    Pipe(PathBuf),
    /// Units with their lengths, from the standard output of a command that `sh -c` runs.
    Program(String),
    /// The rows of a CSV file with a header, or JSON lines, from a file or a named pipe; `-` is
    /// standard input. A unit has the rows of the time of a unit; of a file, [`FILE_ROWS`] rows.
    Rows {
        /// The file or the named pipe.
        path: PathBuf,
        /// The names of columns, or of keys of JSON objects, the most important one first: a prefix
        /// of a unit then has fewer columns of all rows. Other columns follow these. Without names,
        /// a prefix has fewer rows.
        columns: Vec<String>,
    },
    /// Coded video, of which each group of pictures is a unit: a file or a named pipe, `-` for
    /// standard input, or an address such as `rtsp://HOST/PATH`, from which ffmpeg reads.
    Video(String),
    /// The test picture, from number 0 on, without end.
    Pattern(pattern::Size),
}

/// The parameters of a [`Source`].
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Where units come from.
    pub input: Input,
    /// Units per second. Without it, a folder and the test picture give 10 per second, and a pipe
    /// or a program gives each unit as soon as it is read. Video has times of its own; these are
    /// the pictures per second of a byte stream that does not announce them.
    pub fps: Option<f64>,
}

/// The reason why a source gives no more units.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The rate is not in the supported range.
    #[error("{0} units per second: choose 0.01 to 1000")]
    Fps(f64),
    /// A folder or file cannot be read.
    #[error("cannot read {path} ({error}): check the path and its mode", path = .path.display())]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A folder has no files.
    #[error("{folder} has no files: write each unit to a file of its own", folder = .0.display())]
    NoFiles(PathBuf),
    /// A file is too long for a unit.
    #[error("{path} has {bytes} bytes, and a unit has at most {UNIT_BYTES_MAX}: make it smaller", path = .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A pipe or the output of a program has no valid framing.
    #[error("cannot read units from {from}: {error}")]
    Framing {
        /// The pipe or the command.
        from: String,
        /// The reason.
        error: String,
    },
    /// Rows cannot be read.
    #[error("cannot read rows from {from}: {error}")]
    Rows {
        /// The file or pipe.
        from: String,
        /// The reason.
        error: String,
    },
    /// A stream of video cannot be read.
    #[error("cannot read video from {from}: {error}")]
    Video {
        /// The file, the pipe or the address.
        from: String,
        /// The reason.
        error: VideoError,
    },
    /// Video comes from an address, and ffmpeg is not installed.
    #[error(
        "reading {0} needs ffmpeg, which is not installed: install it, or give a file or a pipe"
    )]
    NoFfmpeg(String),
    /// A program cannot be started or waited for.
    #[error("cannot run `{command}` with sh ({error})")]
    Shell {
        /// The command.
        command: String,
        /// The system's reason.
        error: io::Error,
    },
    /// A program has failed.
    #[error("`{command}` failed ({status}): see its messages above")]
    Failed {
        /// The command.
        command: String,
        /// Its status.
        status: ExitStatus,
    },
    /// The thread of the source cannot be started.
    #[error("cannot start a thread to read units ({0})")]
    Thread(io::Error),
}

/// A unit, and the time until the next one if the unit has it.
pub(crate) type Next = Result<(Bytes, Option<Duration>), SourceError>;

/// Gives the units of a stream, one after the other, at their times. Dropping a source ends its
/// program.
#[derive(Debug)]
pub struct Source {
    units: mpsc::Receiver<Next>,
    /// A unit that was read, and waits for its time.
    early: Option<Next>,
    pace: Pace,
    program: Option<(String, Program)>,
    /// Warns until the first unit has come. Later units may come at any interval.
    first: Option<Reach>,
}

/// When the next unit is due.
#[derive(Debug)]
enum Pace {
    /// At a given rate. A unit is due from a tick until it is given.
    Fixed { interval: Interval, is_due: bool },
    /// As units come: the smoothed interval, and when the last one came.
    AsRead {
        mean: Duration,
        last: Option<Instant>,
    },
    /// By the units' own times: when the next one is due, at the share of the time of the last one.
    Timed {
        due: Option<Instant>,
        interval: Duration,
        share: f64,
    },
}

impl Source {
    /// Opens a source. Must be called in a tokio runtime. A pipe is opened by the source's thread,
    /// because the system waits for its writer; its errors come with the first unit.
    ///
    /// # Errors
    /// If the rate is outside its range, a path does not exist, the folder has no files, or the
    /// program does not start.
    pub fn open(config: SourceConfig) -> Result<Source, SourceError> {
        let pace = Pace::of(&config)?;
        let first = Some(reach_of(&config.input));
        let mut program = None;
        let units = match config.input {
            Input::Folder {
                folder,
                is_repeated,
            } => {
                let files = list_files(&folder)?;
                spawn(Files::new(files, is_repeated))?
            }
            Input::Pipe(path) => {
                find_pipe(&path)?;
                let from = path.display().to_string();
                spawn(Framed::new(from, move || open_pipe(&path)))?
            }
            Input::Program(command) => {
                let (started, output) = start_program(&command, None)?;
                program = Some((command.clone(), started));
                spawn(Framed::new(format!("`{command}`"), || Ok(output)))?
            }
            Input::Rows { path, columns } => {
                find_pipe(&path)?;
                spawn(open_rows(path, columns, config.fps)?)?
            }
            Input::Video(input) => match command_of(&input)? {
                Some(command) => {
                    let (started, output) = start_program(command, Some(&input))?;
                    program = Some((command.to_owned(), started));
                    spawn(VideoUnits::new(input, config.fps, || Ok(output)))?
                }
                None => {
                    let path = PathBuf::from(&input);
                    find_pipe(&path)?;
                    spawn(VideoUnits::new(input, config.fps, move || open_pipe(&path)))?
                }
            },
            Input::Pattern(size) => spawn(pictures(size))?,
        };
        Ok(Source {
            units,
            early: None,
            pace,
            program,
            first,
        })
    }

    /// Waits for the next unit and its time; `None` at the end of the source. The call can be
    /// cancelled without losing a unit.
    ///
    /// # Errors
    /// If a unit cannot be read, or the program has failed. No units follow.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let Pace::Fixed { interval, is_due } = &mut self.pace
            && !*is_due
        {
            interval.tick().await;
            *is_due = true;
        }
        if self.early.is_none() {
            self.early = match &mut self.first {
                None => self.units.recv().await,
                Some(reach) => tokio::select! {
                    unit = self.units.recv() => unit,
                    never = reach.warn_while_down() => match never {},
                },
            };
        }
        // At the end of the source, its last unit takes its time to be sent.
        if let (Some(Ok(_)) | None, Pace::Timed { due: Some(due), .. }) = (&self.early, &self.pace)
        {
            tokio::time::sleep_until(*due).await;
        }
        let unit = self.early.take();
        let notice = self.first.take().and_then(|mut reach| reach.up());
        match unit {
            Some(unit) => {
                notice.iter().for_each(Notice::log);
                let (bytes, duration) = unit?;
                self.pace.note_unit(duration);
                Ok(Some(bytes))
            }
            None => self.finish_program().await.map(|()| None),
        }
    }

    /// Returns the time until the next unit: that of the given rate or of the last unit, or an
    /// average of the last units' intervals.
    pub fn interval(&self) -> Duration {
        match &self.pace {
            Pace::Fixed { interval, .. } => interval.period(),
            Pace::AsRead { mean, .. } => *mean,
            Pace::Timed { interval, .. } => *interval,
        }
    }

    async fn finish_program(&mut self) -> Result<(), SourceError> {
        let Some((command, mut program)) = self.program.take() else {
            return Ok(());
        };
        match program.wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(SourceError::Failed { command, status }),
            Err(error) => Err(SourceError::Shell { command, error }),
        }
    }
}

/// Returns the warnings for a source that gives no unit.
fn reach_of(input: &Input) -> Reach {
    let (source, hint) = match input {
        Input::Folder { folder, .. } => (folder.display().to_string(), "can its files be read?"),
        Input::Pipe(path) => {
            let pipe = match path.as_os_str() == "-" {
                true => "standard input".to_owned(),
                false => format!("the pipe {}", path.display()),
            };
            (pipe, "does a program write units with their lengths to it?")
        }
        Input::Program(command) => (
            format!("`{command}`"),
            "does it write units with their lengths to its standard output?",
        ),
        Input::Rows { path, .. } => (
            path.display().to_string(),
            "does a program write CSV or JSON lines to it?",
        ),
        Input::Video(input) => (input.clone(), "does it have key pictures?"),
        Input::Pattern(_) => ("the test picture".to_owned(), ""),
    };
    let mut reach = Reach::new(source, hint);
    reach.down("no unit has come");
    reach
}

impl Pace {
    fn of(config: &SourceConfig) -> Result<Pace, SourceError> {
        let default = match &config.input {
            Input::Video(input) => {
                return Ok(Pace::Timed {
                    due: None,
                    interval: INTERVAL,
                    share: share_of(input),
                });
            }
            Input::Folder { .. } | Input::Pattern(_) => Some(FPS_DEFAULT),
            Input::Rows { path, .. } if path.is_file() => Some(FPS_DEFAULT),
            Input::Rows { .. } | Input::Pipe(_) | Input::Program(_) => None,
        };
        let Some(fps) = config.fps.or(default) else {
            return Ok(Pace::AsRead {
                mean: INTERVAL,
                last: None,
            });
        };
        if !(0.01..=1_000.0).contains(&fps) {
            return Err(SourceError::Fps(fps));
        }
        let mut interval = tokio::time::interval(Duration::from_secs_f64(1.0 / fps));
        // A sender that was slow sends no burst of units.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Pace::Fixed {
            interval,
            is_due: false,
        })
    }

    fn note_unit(&mut self, duration: Option<Duration>) {
        match self {
            Pace::Timed {
                due,
                interval,
                share,
            } => {
                *interval = duration.unwrap_or(*interval);
                // A source that was late for longer than a unit sends no burst of units.
                let now = Instant::now();
                let begun = due.filter(|due| now - *due < *interval).unwrap_or(now);
                *due = Some(begun + interval.mul_f64(*share));
            }
            Pace::Fixed { is_due, .. } => *is_due = false,
            Pace::AsRead { mean, last } => {
                let now = Instant::now();
                if let Some(last) = *last {
                    let smoothed = (*mean * 7 + (now - last)) / 8;
                    *mean = smoothed.clamp(INTERVAL_MIN, INTERVAL_MAX);
                }
                *last = Some(now);
            }
        }
    }
}

/// Reads units in a thread, until they end, one fails, or the source is dropped.
fn spawn(
    units: impl Iterator<Item = Next> + Send + 'static,
) -> Result<mpsc::Receiver<Next>, SourceError> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let read = move || {
        for unit in units {
            let is_last = unit.is_err();
            if sender.blocking_send(unit).is_err() || is_last {
                break;
            }
        }
    };
    thread::Builder::new()
        .name("stream source".to_owned())
        .spawn(read)
        .map_err(SourceError::Thread)?;
    Ok(receiver)
}

/// The pictures of the test sequence.
fn pictures(size: pattern::Size) -> impl Iterator<Item = Next> + Send {
    (0..=u32::MAX)
        .cycle()
        .map(move |number| Ok((pattern::encode(number, size).into(), None)))
}

pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> SourceError {
    let path = path.to_owned();
    |error| SourceError::Unreadable { path, error }
}

/// The files of a folder, sorted by name.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
        let entry = entry.map_err(unreadable(folder))?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(SourceError::NoFiles(folder.to_owned())),
        false => Ok(files),
    }
}

/// Reads files, one unit each.
struct Files {
    files: Vec<PathBuf>,
    next: usize,
    is_repeated: bool,
}

impl Files {
    fn new(files: Vec<PathBuf>, is_repeated: bool) -> Files {
        Files {
            files,
            next: 0,
            is_repeated,
        }
    }
}

impl Iterator for Files {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        if self.next == self.files.len() && self.is_repeated {
            self.next = 0;
        }
        let path = self.files.get(self.next)?;
        self.next += 1;
        Some(read_file(path))
    }
}

fn read_file(path: &Path) -> Next {
    let file = File::open(path).map_err(unreadable(path))?;
    let bytes = file.metadata().map_err(unreadable(path))?.len();
    let mut unit = Vec::new();
    let read = file.take(UNIT_BYTES_MAX as u64 + 1).read_to_end(&mut unit);
    match read.map_err(unreadable(path))? {
        read if read > UNIT_BYTES_MAX => Err(SourceError::TooLong {
            path: path.to_owned(),
            bytes,
        }),
        _ => Ok((unit.into(), None)),
    }
}

/// Refuses a path where nothing is, before anybody receives the stream. A named pipe is opened
/// later: that waits for its other end.
fn find_pipe(path: &Path) -> Result<(), SourceError> {
    match path == Path::new("-") {
        true => Ok(()),
        false => fs::metadata(path).map(drop).map_err(unreadable(path)),
    }
}

fn open_pipe(path: &Path) -> Result<Box<dyn Read + Send>, SourceError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(unreadable(path))?;
    Ok(Box::new(file))
}

/// Opens rows. Those of a pipe come at their times, those of a file at the pace of units.
fn open_rows(
    path: PathBuf,
    columns: Vec<String>,
    fps: Option<f64>,
) -> Result<RowUnits, SourceError> {
    let (interval, rows_max) = match path.is_file() {
        true => (Duration::ZERO, FILE_ROWS),
        false => (
            Duration::from_secs_f64(1.0 / fps.unwrap_or(FPS_DEFAULT)),
            usize::MAX,
        ),
    };
    let from = path.display().to_string();
    RowUnits::new(from, interval, rows_max, columns, move || open_pipe(&path))
}

/// Starts a program whose output is a pipe of units, or of what it reads from `input`.
fn start_program(command: &str, input: Option<&str>) -> Result<(Program, File), SourceError> {
    let shell = |error| SourceError::Shell {
        command: command.to_owned(),
        error,
    };
    let program = Program::start(command, |shell| {
        shell.stdin(Stdio::null()).stdout(Stdio::piped());
        shell.envs(input.map(|input| ("MANYFLOW_INPUT", input)));
    });
    let mut program = program.map_err(shell)?;
    let output = program.child().stdout.take();
    let output = output.ok_or(io::ErrorKind::BrokenPipe);
    let output = output.map_err(|kind| shell(kind.into()))?;
    let output = output.into_owned_fd().map_err(shell)?;
    Ok((program, File::from(output)))
}

/// Units of a pipe, which the first call opens.
struct Framed<O, R> {
    from: String,
    open: Option<O>,
    pipe: Option<BufReader<R>>,
}

impl<R: Read, O: FnOnce() -> Result<R, SourceError>> Framed<O, R> {
    fn new(from: String, open: O) -> Framed<O, R> {
        Framed {
            from,
            open: Some(open),
            pipe: None,
        }
    }

    fn read(&mut self) -> Result<Option<Bytes>, SourceError> {
        if let Some(open) = self.open.take() {
            self.pipe = Some(BufReader::new(open()?));
        }
        let Some(pipe) = &mut self.pipe else {
            return Ok(None);
        };
        read_unit(pipe).map_err(|error: FramingError| SourceError::Framing {
            from: self.from.clone(),
            error: error.to_string(),
        })
    }
}

impl<R: Read, O: FnOnce() -> Result<R, SourceError>> Iterator for Framed<O, R> {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        let unit = self.read().transpose()?;
        Some(unit.map(|bytes| (bytes, None)))
    }
}
