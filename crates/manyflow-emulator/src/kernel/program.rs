//! Programs in namespaces. Each has a thread that starts it, watches it and ends it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::EmulateError;
use crate::netns::Namespace;
use crate::shell::TERM_GRACE;

/// The time between two looks at a program.
const TICK: Duration = Duration::from_millis(10);

/// A program, its environment and its times.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The environment variables besides those of this process.
    pub environment: Vec<(String, String)>,
    /// The files for standard output and standard error. If there is no file for standard output,
    /// its lines are [reported](Report::Line).
    pub output: Option<PathBuf>,
    /// The file for standard error.
    pub errors: PathBuf,
    /// A file that another program writes, without which this one does not start.
    pub after: Option<PathBuf>,
    /// The time at which the program starts.
    pub start: Instant,
    /// The time at which it is ended.
    pub stop: Option<Instant>,
}

/// The news of a program.
#[derive(Debug)]
pub enum Report {
    /// The program cannot be started.
    NotStarted(io::Error),
    /// A line of its standard output.
    Line(String),
    /// The program has ended, by itself or because it was time.
    Ended {
        /// The exit code, or 128 and the number of the signal that ended it.
        code: i32,
        /// Whether it was time.
        is_stopped: bool,
    },
}

/// A program that starts, runs or has ended. It is ended on drop: all processes of its process
/// group get SIGTERM, and SIGKILL if it still runs five seconds later.
#[derive(Debug)]
pub struct Running {
    reports: Receiver<Report>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Program {
    /// Starts the program in a namespace when it is time.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be entered.
    pub fn begin(self, namespace: &Namespace) -> Result<Running, EmulateError> {
        let (sender, reports) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_over);
        // A thread, and the processes that it starts, are in the namespace of their parent.
        let watch = || thread::spawn(move || self.watch(&sender, &end));
        let thread = namespace.enter(watch)?;
        Ok(Running {
            reports,
            is_over,
            thread: Some(thread),
        })
    }

    fn watch(&self, reports: &Sender<Report>, is_over: &AtomicBool) {
        let has_ended = || is_over.load(Ordering::Relaxed);
        let is_missing = || {
            let length = |file: &PathBuf| std::fs::metadata(file).map_or(0, |data| data.len());
            self.after.as_ref().is_some_and(|file| length(file) == 0)
        };
        let is_past = |stop: Instant| Instant::now() >= stop;
        while Instant::now() < self.start || is_missing() {
            if has_ended() || self.stop.is_some_and(is_past) {
                return;
            }
            thread::sleep(TICK);
        }
        let begun = self.spawn().and_then(|mut child| {
            let reader = child.stdout.take().map(|lines| read(lines, reports));
            let is_due = || has_ended() || self.stop.is_some_and(is_past);
            let ended = wait(child, is_due)?;
            // All lines are reported before the end. A reader that panicked has printed why.
            let _ = reader.map(JoinHandle::join);
            Ok(ended)
        });
        // If nobody takes the report, the run has ended.
        let _ = reports.send(begun.unwrap_or_else(Report::NotStarted));
    }

    fn spawn(&self) -> io::Result<Child> {
        let stdout = match &self.output {
            Some(file) => File::create(file)?.into(),
            None => Stdio::piped(),
        };
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(stdout);
        command.stderr(File::create(&self.errors)?);
        // Signals reach the processes that the program starts, too, and Ctrl-C reaches none.
        command.process_group(0).spawn()
    }
}

/// Reports the lines of a program's output until the program closes it.
fn read(lines: ChildStdout, reports: &Sender<Report>) -> JoinHandle<()> {
    let reports = reports.clone();
    thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            // If nobody takes the line, the run has ended. The program may still print.
            let _ = reports.send(Report::Line(line));
        }
    })
}

/// Waits for a program's end. Ends it when it is due.
fn wait(mut child: Child, is_due: impl Fn() -> bool) -> io::Result<Report> {
    let group = Pid::from_raw(child.id() as i32);
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Report::Ended {
                code: code(status),
                is_stopped: asked.is_some(),
            });
        }
        // The program has not been waited for, so its number is still its own.
        match asked {
            None if is_due() => {
                asked = Some(Instant::now());
                let _ = killpg(group, Signal::SIGTERM);
            }
            Some(since) if since.elapsed() > TERM_GRACE => {
                let _ = killpg(group, Signal::SIGKILL);
            }
            _ => {}
        }
        thread::sleep(TICK);
    }
}

/// Returns the exit code that a shell reports for this status.
fn code(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

impl Running {
    /// Returns the next report; `None` if there is none yet.
    pub fn poll(&self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    /// Begins to end the program, which [drop](Drop) waits for. Several programs end at the same
    /// time in this way.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Ends the program, and waits for its end.
    pub fn end_and_wait(&mut self) {
        self.end();
        // A thread that has panicked has printed its message.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_and_wait();
    }
}
