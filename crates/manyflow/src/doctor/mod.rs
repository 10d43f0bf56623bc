//! `manyflow doctor`: probes what this machine can do, and says what to change and how.
//!
//! Each check tries the thing itself, or reads the kernel's own answer. Datagrams go to loopback
//! only. Probes that need rights use a network namespace of their own, which they remove.

mod capacity;
mod multicast;
mod network;
mod programs;
mod rights;

use anyhow::{Result, bail};
use serde_json::json;

use manyflow_terminal::display::{Display, OutputError};

/// The verdict of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Status {
    /// The machine has it.
    Ok,
    /// It works, but less well than it could.
    Limited,
    /// Something that only some commands use is missing.
    Missing,
    /// Something that every transfer needs is missing.
    Failed,
}

impl Status {
    const ALL: [Status; 4] = [Status::Ok, Status::Limited, Status::Missing, Status::Failed];

    /// The word for this status, in the table and in JSON.
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
            Status::Failed => "failed",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
struct Check {
    /// The name, which does not change between versions.
    name: &'static str,
    status: Status,
    /// The probe's observation.
    found: String,
    /// The use that is limited or impossible; `None` if the check is met.
    effect: Option<String>,
    /// The command that changes it; `None` if no single command does.
    command: Option<String>,
}

impl Check {
    /// A check that is met.
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check {
            name,
            status: Status::Ok,
            found: found.into(),
            effect: None,
            command: None,
        }
    }

    /// A check that is not met, with its effect on commands.
    fn unmet(
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        effect: impl Into<String>,
    ) -> Check {
        debug_assert!(status != Status::Ok, "{name} is met");
        Check {
            status,
            effect: Some(effect.into()),
            ..Check::ok(name, found)
        }
    }

    /// The same check, with the command that changes the machine.
    fn fix(self, command: impl Into<String>) -> Check {
        Check {
            command: Some(command.into()),
            ..self
        }
    }

    fn print(&self, display: &Display) -> Result<(), OutputError> {
        display.print_line(&format!(
            "{:<8} {:<20} {}",
            self.status.word(),
            self.name,
            self.found
        ))?;
        if let Some(effect) = &self.effect {
            display.print_line(&format!("{:29} {effect}", ""))?;
        }
        if let Some(command) = &self.command {
            display.print_line(&format!("{:29} change: {command}", ""))?;
        }
        display.print_json(&json!({
            "event": "check",
            "name": self.name,
            "status": self.status.word(),
            "found": self.found,
            "effect": self.effect,
            "command": self.command,
        }))
    }
}

/// Probes the machine and prints each result as it comes.
///
/// # Errors
/// Returns an error if something is missing that every transfer needs, or if standard output is
/// closed.
pub(crate) async fn run(display: &Display) -> Result<()> {
    let mut checks = Checks {
        display,
        all: Vec::new(),
    };
    checks.add(network::checks())?;
    checks.add(multicast::checks().await)?;
    checks.add(capacity::checks())?;
    checks.add(rights::checks())?;
    checks.add(programs::checks())?;
    checks.conclude()
}

/// The checks so far.
struct Checks<'a> {
    display: &'a Display,
    all: Vec<Check>,
}

impl Checks<'_> {
    fn add(&mut self, checks: Vec<Check>) -> Result<(), OutputError> {
        for check in &checks {
            check.print(self.display)?;
        }
        self.all.extend(checks);
        Ok(())
    }

    fn count(&self, status: Status) -> usize {
        let with_status = self.all.iter().filter(|check| check.status == status);
        with_status.count()
    }

    fn conclude(&self) -> Result<()> {
        let counts = Status::ALL.map(|status| (status.word(), self.count(status)));
        let line = counts.map(|(word, count)| format!("{count} {word}"));
        self.display.print_line(&line.join(", "))?;
        let mut done = json!({"event": "done"});
        for (word, count) in counts {
            done[word] = count.into();
        }
        self.display.print_json(&done)?;
        let failed = self.all.iter().filter(|it| it.status == Status::Failed);
        let failed: Vec<_> = failed.map(|check| check.name).collect();
        match failed.is_empty() {
            true => Ok(()),
            false => bail!(
                "this machine cannot transfer anything: {} failed; see above",
                failed.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::EVENTS;
    use manyflow_terminal::OutputArgs;

    fn conclude(statuses: &[Status]) -> Result<()> {
        let check = |status: &Status| Check {
            status: *status,
            ..Check::ok("udp", "found")
        };
        let display = &Display::new(&OutputArgs::default(), "doctor".to_owned(), EVENTS);
        let all = statuses.iter().map(check).collect();
        Checks { display, all }.conclude()
    }

    #[test]
    fn only_a_failed_check_fails_the_command() {
        assert!(conclude(&[Status::Ok, Status::Limited, Status::Missing]).is_ok());
        let error = conclude(&[Status::Ok, Status::Failed]).unwrap_err();
        assert!(error.to_string().contains("udp failed"), "{error}");
    }
}
