//! The processes of a transfer.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Maximum time of a transfer.
pub(super) const LIMIT: Duration = Duration::from_secs(180);

/// Waits for all receivers, and calls `on_end` with the number of each when it ends, from 0.
/// Returns the time that each took since `start`, in seconds.
///
/// # Errors
/// If a receiver fails, if the transfer takes longer than [`LIMIT`], or if `on_end` fails.
pub(super) fn wait_for_all(
    receivers: &mut [Running],
    start: Instant,
    mut on_end: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = vec![None; receivers.len()];
    while seconds.contains(&None) {
        for (number, receiver) in receivers.iter_mut().enumerate() {
            if seconds[number].is_none()
                && let Some(status) = receiver.child.try_wait()?
            {
                ensure!(status.success(), "receiver {} failed", number + 1);
                seconds[number] = Some(start.elapsed().as_secs_f64());
                on_end(number)?;
            }
        }
        if start.elapsed() >= LIMIT {
            let missing = (0..seconds.len()).filter(|&number| seconds[number].is_none());
            let missing: Vec<_> = missing.map(|number| (number + 1).to_string()).collect();
            bail!(
                "the transfer takes more than {} s; still incomplete: receiver {}",
                LIMIT.as_secs(),
                missing.join(", ")
            );
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(seconds.into_iter().flatten().collect())
}

/// A process, which is killed on drop.
pub(super) struct Running {
    pub(super) child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Result<Running> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let output = child.stdout.take().context("the output is piped")?;
        let lines = read_lines(output);
        Ok(Running { child, lines })
    }

    /// Waits for a line that begins with `text`, of a program whose lines are no events.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        let mut lines = self.lines.iter();
        let found = lines.any(|line| line.starts_with(text));
        ensure!(found, "a program ended before it wrote `{text}`");
        Ok(())
    }

    /// Waits for an event of the kind.
    pub(super) fn event(&mut self, kind: &str) -> Result<Value> {
        loop {
            match self.next_event()? {
                Some(event) if event["event"] == kind => return Ok(event),
                Some(_) => {}
                None => bail!("a program ended before it was `{kind}`"),
            }
        }
    }

    /// Returns the remaining events of the kind, of which there is at least one. Waits until
    /// the program ends.
    pub(super) fn events(&mut self, kind: &str) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        while let Some(event) = self.next_event()? {
            if event["event"] == kind {
                events.push(event);
            }
        }
        ensure!(!events.is_empty(), "a program was never at `{kind}`");
        Ok(events)
    }

    /// Returns the last event of the kind. Waits until the program ends.
    pub(super) fn last_event(&mut self, kind: &str) -> Result<Value> {
        Ok(self.events(kind)?.pop().unwrap_or_default())
    }

    fn next_event(&mut self) -> Result<Option<Value>> {
        let line = self.lines.recv().ok();
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    pub(super) fn interrupt(&self) -> Result<()> {
        Ok(kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?)
    }

    /// Interrupts the program that this one has started. `perf` ends with its program.
    pub(super) fn interrupt_child(&self) -> Result<()> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        let child = children.split_whitespace().next();
        let child = child.with_context(|| format!("process {id} has started no program"))?;
        Ok(kill(Pid::from_raw(child.parse()?), Signal::SIGINT)?)
    }

    pub(super) fn wait(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "a program failed");
        Ok(())
    }

    pub(super) fn wait_within(&mut self, limit: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            ensure!(
                start.elapsed() < limit,
                "uftp takes more than {} s",
                limit.as_secs()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in a thread until the end of `output`: a program that nobody reads stops when its
/// pipe is full.
fn read_lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let output = BufReader::new(output).lines();
        output
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    lines
}
