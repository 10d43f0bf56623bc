//! The commands of a scenario, as programs in the namespaces of their nodes.

use std::path::{Path, PathBuf};

use manyflow_core::{EndpointId, Time};
use manyflow_netsim::NodeId;
use manyflow_scenario::protocols::HostEvent;
use manyflow_scenario::{Command, Observable};

use crate::error::EmulateError;
use crate::fabric::Addresses;
use crate::kernel::program::{Program, Report, Running};
use crate::shell::{ADDRESS, ADDRESS_V6};
use crate::stage::Stage;

/// The beginning of the environment variables with the IPv4 addresses of nodes.
pub const NODE: &str = "MANYFLOW_NODE_";
/// The beginning of the environment variables with the IPv6 addresses of nodes.
pub const NODE_V6: &str = "MANYFLOW_NODE6_";

/// The exit codes by which a shell says that it cannot execute or find a command.
const NOT_RUN: [i32; 2] = [126, 127];

/// A command in the namespace of its node.
pub(super) struct CommandSession {
    endpoint: EndpointId,
    session: String,
    run: String,
    errors: PathBuf,
    running: Running,
}

impl CommandSession {
    /// Begins a command, which starts when it is time. Its output goes to files in `folder`.
    pub(super) fn begin(
        command: &Command,
        stage: &Stage,
        nodes: &[String],
        folder: &Path,
    ) -> Result<CommandSession, EmulateError> {
        let (endpoint, node) = command.at;
        let at = |time: Time| stage.drive.start() + (time - Time::ZERO);
        let file = |ending: &str| folder.join(format!("{}.{ending}", command.session));
        let program = Program {
            command: ["sh", "-c", &command.run].map(Into::into).to_vec(),
            environment: environment(node, nodes),
            output: Some(file("stdout")),
            errors: file("stderr"),
            after: None,
            start: at(command.start),
            stop: command.stop.map(at),
        };
        Ok(CommandSession {
            endpoint,
            session: command.session.clone(),
            run: command.run.clone(),
            errors: program.errors.clone(),
            running: program.begin(stage.namespace(node))?,
        })
    }

    /// Reports the exit code if the command has ended.
    pub(super) fn observe(
        &mut self,
        report: &mut dyn FnMut(EndpointId, HostEvent),
    ) -> Result<(), EmulateError> {
        match self.running.poll() {
            Some(Report::NotStarted(error)) => Err(self.error(&error.to_string())),
            Some(Report::Ended { code, .. }) if NOT_RUN.contains(&code) => {
                let said = last_line(&self.errors).unwrap_or(format!("exit code {code}"));
                Err(self.error(&said))
            }
            Some(Report::Ended { code, .. }) => {
                let event = HostEvent::Measured(Observable::ExitCode, code.into());
                report(self.endpoint, event);
                Ok(())
            }
            Some(Report::Line(_)) | None => Ok(()),
        }
    }

    /// Begins to end the command.
    pub(super) fn end(&self) {
        self.running.end();
    }

    fn error(&self, reason: &str) -> EmulateError {
        let CommandSession { session, run, .. } = self;
        EmulateError::Program(
            format!("session `{session}`: cannot run `{run}`"),
            reason.to_owned(),
        )
    }
}

/// Returns the last line that a program has written to a file, if any.
pub(super) fn last_line(file: &Path) -> Option<String> {
    let text = std::fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.trim_end().lines().last().map(str::to_owned)
}

/// Returns the variables with the addresses of all nodes, and of the command's own node.
fn environment(own: NodeId, nodes: &[String]) -> Vec<(String, String)> {
    let addresses = Addresses::of_scenario();
    let both = |[v4, v6]: [String; 2], node| {
        let addresses = addresses.of(node);
        [
            (v4, addresses.v4.to_string()),
            (v6, addresses.v6.to_string()),
        ]
    };
    let numbered = nodes.iter().zip((0..).map(NodeId));
    let all = numbered.flat_map(|(name, node)| both(variables(name), node));
    let own = both([ADDRESS, ADDRESS_V6].map(str::to_owned), own);
    all.chain(own).collect()
}

/// Returns the names of a node's variables. A shell only knows names of letters, digits and `_`.
fn variables(node: &str) -> [String; 2] {
    let letter = |letter: char| match letter.is_ascii_alphanumeric() {
        true => letter,
        false => '_',
    };
    let name: String = node.chars().map(letter).collect();
    [NODE, NODE_V6].map(|beginning| format!("{beginning}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_the_addresses_of_nodes() {
        let nodes = ["A", "R-0"].map(str::to_owned);
        let all = environment(NodeId(1), &nodes);
        let expected = [
            ("MANYFLOW_NODE_A", "10.0.0.1"),
            ("MANYFLOW_NODE6_A", "fd00:6d66::1"),
            ("MANYFLOW_NODE_R_0", "10.0.0.2"),
            ("MANYFLOW_NODE6_R_0", "fd00:6d66::2"),
            ("MANYFLOW_ADDRESS", "10.0.0.2"),
            ("MANYFLOW_ADDRESS6", "fd00:6d66::2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(all, expected);
    }
}
