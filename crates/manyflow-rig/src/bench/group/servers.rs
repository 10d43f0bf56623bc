//! The processes of our daemons, or of nats-server.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context as _, Result};
use manyflow_net::reserved::ReservedAddress;
use manyflow_rig::overlay_lab::Process;
use tempfile::TempDir;

use super::client;
use crate::bench::lan::{self, Lan};
use crate::bench::{process_cpu_s, profile};
use crate::cli::{GroupController, GroupLayout};

/// The names of the servers, in the order of their clients.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// The service of messages to an ordered group.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub(in crate::bench) enum Service {
    Agreed,
    Safe,
}

/// The servers that carry messages.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub(in crate::bench) enum Program {
    /// Three of our daemons.
    Manyflow(GroupLayout, GroupController),
    /// The same, with messages of this service to an ordered group.
    Ordered(GroupLayout, GroupController, Service),
    NatsServer,
    /// Three nats-servers, of which each is connected with each other.
    NatsCluster,
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Program::Manyflow(GroupLayout::Line, GroupController::CostBenefit) => {
                "manyflow, line of 3"
            }
            Program::Manyflow(GroupLayout::Mesh, GroupController::CostBenefit) => {
                "manyflow, mesh of 3"
            }
            Program::Manyflow(GroupLayout::Line, GroupController::None) => {
                "the same, no controller"
            }
            Program::Manyflow(GroupLayout::Mesh, GroupController::None) => "mesh, no controller",
            Program::Manyflow(GroupLayout::Line, GroupController::Tfrc) => "the same, TFRC",
            Program::Manyflow(GroupLayout::Mesh, GroupController::Tfrc) => "mesh, TFRC",
            Program::Ordered(_, _, Service::Agreed) => "the same, agreed order",
            Program::Ordered(_, _, Service::Safe) => "the same, safe",
            Program::NatsServer => "nats-server",
            Program::NatsCluster => "nats-server, cluster of 3",
        })
    }
}

impl Program {
    pub(in crate::bench) fn is_installed(&self) -> bool {
        let version = || Command::new("nats-server").arg("--version").output();
        self.is_ours() || version().is_ok()
    }

    /// Returns whether these are our daemons.
    pub(in crate::bench) fn is_ours(&self) -> bool {
        matches!(self, Program::Manyflow(..) | Program::Ordered(..))
    }

    /// Returns the subject that all send to and subscribe to.
    pub(in crate::bench) fn subject(self) -> &'static str {
        match self {
            Program::Ordered(_, _, Service::Agreed) => "$MF.agreed.bench.group",
            Program::Ordered(_, _, Service::Safe) => "$MF.safe.bench.group",
            _ => "bench.group",
        }
    }

    /// Returns the subject that members subscribe to.
    pub(in crate::bench) fn subscription(self) -> &'static str {
        match self {
            Program::Ordered(..) => "$MF.agreed.bench.group",
            other => other.subject(),
        }
    }

    /// Returns a command for each server, whose clients connect to its address in `clients`.
    fn commands(self, clients: &[SocketAddr], links: &[SocketAddr]) -> Result<Vec<Command>> {
        match self {
            Program::Manyflow(layout, controller) | Program::Ordered(layout, controller, _) => (0
                ..clients.len())
                .map(|number| daemon((layout, controller), number, clients, links))
                .collect(),
            Program::NatsServer => Ok(vec![nats_server(clients[0])]),
            Program::NatsCluster => {
                let routes: Vec<_> = links.iter().map(|link| format!("nats://{link}")).collect();
                let commands = clients.iter().zip(&routes).map(|(client, own)| {
                    let mut command = nats_server(*client);
                    command.args(["--cluster_name", "bench", "--cluster", own]);
                    command.args(["--routes", &routes.join(",")]);
                    command
                });
                Ok(commands.collect())
            }
        }
    }
}

fn daemon(
    (layout, controller): (GroupLayout, GroupController),
    number: usize,
    clients: &[SocketAddr],
    links: &[SocketAddr],
) -> Result<Command> {
    let mut command = Command::new(crate::program::manyflow()?);
    command.args(["daemon", "--insecure", "--name", NAMES[number]]);
    command.args(["--listen", &links[number].to_string()]);
    command.args(["--clients", &clients[number].to_string()]);
    command.args([
        "--controller",
        match controller {
            GroupController::CostBenefit => "cost-benefit",
            GroupController::Tfrc => "tfrc",
            GroupController::None => "none",
        },
    ]);
    let is_linked = |other: &usize| match layout {
        GroupLayout::Line => other.abs_diff(number) == 1,
        GroupLayout::Mesh => *other != number,
    };
    for other in (0..links.len()).filter(is_linked) {
        command.args(["--link", &format!("{}={}", NAMES[other], links[other])]);
    }
    Ok(command)
}

fn nats_server(clients: SocketAddr) -> Command {
    let mut command = Command::new("nats-server");
    command.args(["--addr", &clients.ip().to_string()]);
    command.args(["--port", &clients.port().to_string()]);
    command
}

/// Runs `work` on a host, if there are hosts.
fn inside<T: Send>(
    lan: Option<&Lan>,
    number: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match lan.and_then(|lan| lan.hosts().nth(number)) {
        Some(host) => host.enter(work)?,
        None => work(),
    }
}

/// Returns the file of what a server writes.
fn log_path(folder: &TempDir, number: usize) -> PathBuf {
    folder.path().join(format!("{number}.log"))
}

/// Running servers, which are killed on drop.
pub(in crate::bench) struct Servers<'a> {
    /// The hosts that they run on, if they have hosts of their own.
    lan: Option<&'a Lan>,
    pub(in crate::bench) program: Program,
    processes: Vec<Process>,
    addresses: Vec<SocketAddr>,
    folder: TempDir,
    /// Whether the processes are those of `perf`, with the servers as children.
    are_recorded: bool,
}

impl<'a> Servers<'a> {
    /// Starts the servers of a program, on loopback or each on a host of its own, and waits until
    /// they accept clients.
    ///
    /// # Errors
    /// If a server ends, or accepts no clients within 20 s.
    pub(in crate::bench) fn start(program: Program, lan: Option<&'a Lan>) -> Result<Servers<'a>> {
        Servers::start_recorded(program, lan, None)
    }

    /// Starts the servers of a program under `perf`, if there is a folder for what it records: a
    /// file for each server, by its name.
    ///
    /// # Errors
    /// If a server ends, or accepts no clients within 20 s.
    pub(super) fn start_recorded(
        program: Program,
        lan: Option<&'a Lan>,
        records: Option<&Path>,
    ) -> Result<Servers<'a>> {
        let folder = tempfile::tempdir()?;
        let reserved: Vec<_> = (0..2 * NAMES.len())
            .map(|_| ReservedAddress::new())
            .collect::<Result<_, _>>()?;
        let mut addresses: Vec<_> = reserved.iter().map(ReservedAddress::get).collect();
        let (clients, links) = addresses.split_at_mut(NAMES.len());
        if lan.is_some() {
            let hosts = links.iter_mut().enumerate();
            hosts.for_each(|(host, link)| link.set_ip(lan::address(host).into()));
        }
        let mut servers = Servers {
            lan,
            program,
            processes: Vec::new(),
            addresses: clients.to_vec(),
            folder,
            are_recorded: records.is_some(),
        };
        for (number, command) in program.commands(clients, links)?.into_iter().enumerate() {
            let log = log_path(&servers.folder, number);
            let command = servers.on_host(number, command)?;
            let command = match records {
                Some(folder) => profile::recorded(&command, &folder.join(NAMES[number])),
                None => command,
            };
            servers.processes.push(Process::start(command, &log)?);
        }
        servers.addresses.truncate(servers.processes.len());
        for (number, address) in servers.addresses.clone().into_iter().enumerate() {
            let log = log_path(&servers.folder, number);
            let process = &mut servers.processes[number];
            inside(lan, number, || process.wait_until_ready(address, &log))?;
        }
        Ok(servers)
    }

    /// Returns a command that runs another one on its host.
    fn on_host(&self, number: usize, command: Command) -> Result<Command> {
        let Some(lan) = self.lan else {
            return Ok(command);
        };
        let host = lan.hosts().nth(number);
        let host = host.context("the network has too few hosts")?;
        let mut outer = lan::in_namespace(host, command.get_program().as_ref());
        outer.args(command.get_args());
        Ok(outer)
    }

    /// Connects a client to one of the servers, from its host. It joins a group or none.
    ///
    /// # Errors
    /// If there is no connection, or if the server refuses the client.
    pub(super) fn connect(&self, number: usize, join: Option<&str>) -> Result<TcpStream> {
        let number = number % self.addresses.len();
        let connect = || client::connect(self.addresses[number], join);
        inside(self.lan, number, connect)
    }

    /// Returns the last line that each server has written, for errors.
    pub(in crate::bench) fn last_lines(&self) -> String {
        let last_line = |number| {
            let log = fs::read_to_string(log_path(&self.folder, number)).unwrap_or_default();
            let line = log.lines().next_back().unwrap_or("nothing").trim();
            format!("server {} wrote last: {line}", NAMES[number])
        };
        let lines: Vec<_> = (0..self.processes.len()).map(last_line).collect();
        lines.join("; ")
    }

    /// Ends the servers, so that their records are complete.
    ///
    /// # Errors
    /// If one does not end.
    pub(super) fn end(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::interrupt)
    }

    /// Returns the processor time of all servers.
    pub(in crate::bench) fn cpu_s(&self) -> Result<f64> {
        let processes = self.processes.iter();
        processes.map(|process| process_cpu_s(process.id())).sum()
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        // A server would outlive a `perf` that is killed.
        if self.are_recorded {
            let _ = self.end();
        }
    }
}
