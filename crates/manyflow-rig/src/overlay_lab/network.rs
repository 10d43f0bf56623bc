//! The processes of daemons, the links between them, and what they report.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use manyflow_messages::{self, StatusUrl};
use manyflow_net::reserved::ReservedAddress;
use manyflow_net::thin_link::{ThinLink, ThinLinkConfig};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::process::Process;

/// The time for a daemon to answer a request for its status.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
/// The time between two requests while a condition is awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A link between two daemons, by their places.
#[derive(Copy, Clone, Debug)]
pub struct LinkPlan {
    /// The daemon that connects, and the one that is connected to.
    pub ends: [usize; 2],
    /// Rate and delay.
    pub config: ThinLinkConfig,
}

/// A link between two daemons. The first one connects to the second.
#[derive(Debug)]
pub struct LabLink {
    pub ends: [usize; 2],
    pub thin: ThinLink,
}

/// A daemon and its addresses, which remain the same when it is restarted.
#[derive(Debug)]
struct Place {
    name: String,
    links: ReservedAddress,
    clients: ReservedAddress,
    pages: ReservedAddress,
    process: Option<Process>,
}

/// Daemons and the links between them. All daemons are killed on drop.
#[derive(Debug)]
pub struct Network {
    /// The program `manyflow`.
    program: PathBuf,
    places: Vec<Place>,
    /// All links, in the order of their plans.
    pub links: Vec<LabLink>,
    folder: TempDir,
}

impl Network {
    /// Starts the links and the daemons `a`, `b` and so on, and waits until each reaches all.
    ///
    /// # Errors
    /// If a daemon cannot be started, or if it does not reach all others within 30 s.
    pub async fn start(program: PathBuf, daemons: usize, links: &[LinkPlan]) -> Result<Network> {
        let places = ('a'..).take(daemons).map(|name| -> Result<Place> {
            Ok(Place {
                name: name.to_string(),
                links: ReservedAddress::new()?,
                clients: ReservedAddress::new()?,
                pages: ReservedAddress::new()?,
                process: None,
            })
        });
        let mut network = Network {
            program,
            places: places.collect::<Result<_>>()?,
            links: Vec::new(),
            folder: tempfile::tempdir().context("cannot create a temporary folder")?,
        };
        for plan in links {
            let server = network.places[plan.ends[1]].links.get();
            network.links.push(LabLink {
                ends: plan.ends,
                thin: ThinLink::start(server, plan.config).await?,
            });
        }
        for place in 0..daemons {
            network.start_daemon(place)?;
        }
        network
            .wait_until_connected(Duration::from_secs(60))
            .await?;
        Ok(network)
    }

    /// Returns the number of daemons.
    pub fn daemon_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the name of a daemon.
    pub fn name(&self, place: usize) -> &str {
        &self.places[place].name
    }

    /// Returns the address at which clients connect to a daemon.
    pub fn client_address(&self, place: usize) -> SocketAddr {
        self.places[place].clients.get()
    }

    /// Returns whether a daemon is running.
    pub fn is_running(&self, place: usize) -> bool {
        self.places[place].process.is_some()
    }

    /// Kills a daemon (SIGKILL).
    pub fn kill_daemon(&mut self, place: usize) {
        self.places[place].process = None;
    }

    /// Stops a daemon (SIGSTOP), which keeps its connections, or lets it continue (SIGCONT). Does
    /// nothing if it is not running.
    ///
    /// # Errors
    /// If the process cannot be signalled.
    pub fn stop_daemon(&self, place: usize, stop: bool) -> Result<()> {
        match &self.places[place].process {
            Some(process) => process.stop(stop),
            None => Ok(()),
        }
    }

    /// Starts a daemon, unless it is running.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start_daemon(&mut self, place: usize) -> Result<()> {
        if self.is_running(place) {
            return Ok(());
        }
        let command = self.command(place);
        let process = Process::start(command, &self.log_path(place))?;
        self.places[place].process = Some(process);
        Ok(())
    }

    fn command(&self, place: usize) -> Command {
        let own = &self.places[place];
        let mut command = Command::new(&self.program);
        command.args(["daemon", "--insecure", "--name", &own.name]);
        for (option, address) in [
            ("--listen", &own.links),
            ("--clients", &own.clients),
            ("--metrics", &own.pages),
        ] {
            command.args([option, &address.get().to_string()]);
        }
        for link in self.links.iter().filter(|link| link.ends[0] == place) {
            let name = self.name(link.ends[1]);
            command.args(["--link", &format!("{name}={}", link.thin.address())]);
        }
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "info");
        }
        command
    }

    fn log_path(&self, place: usize) -> PathBuf {
        let name = format!("{}.log", self.name(place));
        self.folder.path().join(name)
    }

    /// Keeps the folder with the logs of the daemons, and returns its path.
    pub fn keep_logs(&mut self) -> &Path {
        self.folder.disable_cleanup(true);
        self.folder.path()
    }

    /// Returns what a daemon reports of itself; `None` if it does not answer.
    pub async fn status(&self, place: usize) -> Option<Value> {
        if !self.is_running(place) {
            return None;
        }
        let status = timeout(STATUS_LIMIT, fetch_status(self.places[place].pages.get()));
        status.await.ok()?.ok()
    }

    /// Returns what all daemons report.
    pub async fn statuses(&self) -> Vec<Option<Value>> {
        let mut statuses = Vec::new();
        for place in 0..self.daemon_count() {
            statuses.push(self.status(place).await);
        }
        statuses
    }

    /// Waits until each daemon reaches all daemons.
    ///
    /// # Errors
    /// If one does not within the limit, or if one has ended by itself.
    pub async fn wait_until_connected(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        for place in 0..self.daemon_count() {
            while !self.reaches_all(place).await {
                self.check_running()?;
                ensure!(
                    Instant::now() < deadline,
                    "daemon {} does not reach all others within {} s: {}",
                    self.name(place),
                    limit.as_secs(),
                    self.log_end(place)
                );
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Returns an error if a daemon has ended by itself.
    fn check_running(&mut self) -> Result<()> {
        for place in 0..self.daemon_count() {
            if let Some(process) = &mut self.places[place].process
                && process.has_ended()?
            {
                bail!(
                    "daemon {} has ended: {}",
                    self.name(place),
                    self.log_end(place)
                );
            }
        }
        Ok(())
    }

    async fn reaches_all(&self, place: usize) -> bool {
        let status = self.status(place).await.unwrap_or_default();
        let daemons = status["daemons"].as_array().map_or(0, Vec::len);
        daemons == self.daemon_count()
    }

    /// Returns the last lines of a daemon's log.
    fn log_end(&self, place: usize) -> String {
        let log = std::fs::read_to_string(self.log_path(place)).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Returns the resident memory of a daemon in bytes; `None` if it is not running or the memory
    /// is not known.
    pub fn resident_bytes(&self, place: usize) -> Option<u64> {
        let process = self.places[place].process.as_ref()?.id();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = line?.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kib << 10)
    }
}

async fn fetch_status(pages: SocketAddr) -> Result<Value> {
    let url: StatusUrl = pages.to_string().parse()?;
    let status = manyflow_messages::fetch_status(&url).await?;
    Ok(serde_json::to_value(status)?)
}
