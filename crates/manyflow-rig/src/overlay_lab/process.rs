//! A server as a process of its own.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time for a server to accept clients, or to end.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A process, which is killed on drop.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a process whose output is appended to a file.
    ///
    /// # Errors
    /// If the process cannot be started, or if the file cannot be written.
    pub fn start(mut command: Command, log: &Path) -> Result<Process> {
        let output = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?);
        let child = command.stderr(output).spawn();
        Ok(Process(
            child.with_context(|| format!("cannot run {command:?}"))?,
        ))
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Stops the process (SIGSTOP), or lets it continue (SIGCONT).
    ///
    /// # Errors
    /// If the system refuses the signal.
    pub fn stop(&self, stop: bool) -> Result<()> {
        let signal = if stop {
            Signal::SIGSTOP
        } else {
            Signal::SIGCONT
        };
        Ok(kill(Pid::from_raw(self.id() as i32), signal)?)
    }

    /// Interrupts the process (SIGINT), and waits until it has ended.
    ///
    /// # Errors
    /// If the system refuses the signal, or if the process has not ended after 20 s.
    pub fn interrupt(&mut self) -> Result<()> {
        if self.has_ended()? {
            return Ok(());
        }
        kill(Pid::from_raw(self.id() as i32), Signal::SIGINT)?;
        let deadline = Instant::now() + START_LIMIT;
        while !self.has_ended()? {
            ensure!(
                Instant::now() < deadline,
                "an interrupted process does not end"
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns whether the process has ended.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Waits until the process accepts clients at `address`; its output is in `log`.
    ///
    /// # Errors
    /// If the process ends, or accepts no clients within 20 s.
    pub fn wait_until_ready(&mut self, address: SocketAddr, log: &Path) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if self.has_ended()? || Instant::now() > deadline {
                let log = std::fs::read_to_string(log)?;
                bail!(
                    "a server does not accept clients at {address}: {}",
                    log.trim()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
