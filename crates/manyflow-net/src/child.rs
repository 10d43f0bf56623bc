//! Programs of the user, such as those of `stream --program` and `recv --post-receive`.
//!
//! A program has a process group of its own. So ending it also ends the processes that it has
//! started, whatever signals they ignore.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Time between the request to end (SIGTERM) and the end by force (SIGKILL).
const GRACE: Duration = Duration::from_millis(300);

/// A program that runs. Dropping it kills its process group.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// The process group, until the program has been waited for.
    group: Option<Pid>,
}

impl Program {
    /// Runs `command` with `sh -c`. `prepare` sets its streams and its environment. Must be called
    /// in a tokio runtime.
    ///
    /// # Errors
    /// If the shell cannot be run.
    pub fn start(command: &str, prepare: impl FnOnce(&mut Command)) -> io::Result<Program> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).process_group(0);
        prepare(&mut shell);
        let child = shell.spawn()?;
        let number = child.id().and_then(|id| i32::try_from(id).ok());
        let group = number.map(Pid::from_raw);
        Ok(Program { child, group })
    }

    /// Returns the process, whose streams can be taken.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the program ends by itself. Processes that it has left in the background keep
    /// running. Cancel safe.
    ///
    /// # Errors
    /// If the system cannot wait for it.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.group = None;
        Ok(status)
    }

    /// Asks the program and all that it has started to end, and kills those that do not within 0.3
    /// s.
    pub async fn end(mut self) {
        if let Some(group) = self.group {
            // A group that has ended needs no signal.
            let _ = killpg(group, Signal::SIGTERM);
            let _ = timeout(GRACE, self.child.wait()).await;
        }
        // Dropping it kills the rest of the group.
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // A group that has ended needs no signal.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use manyflow_testing::LIMIT;

    use super::*;

    /// A command that writes the numbers of its two processes into `folder`, ignores signals and
    /// waits.
    fn stubborn(folder: &Path) -> String {
        let folder = folder.display();
        let wait = "trap '' TERM INT HUP; while :; do sleep 1; done";
        format!("({wait}) & echo $! > {folder}/second; echo $$ > {folder}/first; {wait}")
    }

    /// Waits until a file has a number.
    async fn number_in(path: &Path) -> i32 {
        let read = async {
            loop {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                if let Ok(number) = text.trim().parse() {
                    return number;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, read).await.unwrap()
    }

    /// Waits until no process has this number, or until it only waits for its parent.
    async fn wait_for_end(number: i32) {
        let runs = || {
            let status = std::fs::read_to_string(format!("/proc/{number}/stat"));
            status.is_ok_and(|status| !status.contains(") Z "))
        };
        let ends = async {
            while runs() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, ends).await.unwrap();
    }

    #[tokio::test]
    async fn a_program_that_ignores_signals_ends_with_all_that_it_started() {
        for is_dropped in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let program = Program::start(&stubborn(folder.path()), |_| ()).unwrap();
            let first = number_in(&folder.path().join("first")).await;
            let second = number_in(&folder.path().join("second")).await;
            match is_dropped {
                true => drop(program),
                false => program.end().await,
            }
            wait_for_end(first).await;
            wait_for_end(second).await;
        }
    }

    #[tokio::test]
    async fn a_program_that_has_ended_leaves_its_background_processes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("second");
        let command = format!("sleep 1000 & echo $! > {}", path.display());
        let mut program = Program::start(&command, |_| ()).unwrap();
        assert!(program.wait().await.unwrap().success());
        drop(program);
        let second = Pid::from_raw(number_in(&path).await);
        nix::sys::signal::kill(second, Signal::SIGKILL).expect("it still runs");
    }
}
