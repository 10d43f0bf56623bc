//! Runs a command behind one emulated link.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_core::link::{Counters, LinkConfig};
use manyflow_netsim::{LinkId, NodeId};
use manyflow_scenario::Network;
use nix::ifaddrs::getifaddrs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bell::{Bell, Ringer};
use crate::drive::{Drive, Ended, Lateness};
use crate::error::EmulateError;
use crate::fabric::{Addresses, Counts, Fabric};
use crate::netns::{Namespace, add_outer_device};

/// The environment variable with the gateway's IPv4 address.
pub const GATEWAY: &str = "MANYFLOW_GATEWAY";
/// The environment variable with the gateway's IPv6 address.
pub const GATEWAY_V6: &str = "MANYFLOW_GATEWAY6";
/// The environment variable with the command's own IPv4 address.
pub const ADDRESS: &str = "MANYFLOW_ADDRESS";
/// The environment variable with the command's own IPv6 address.
pub const ADDRESS_V6: &str = "MANYFLOW_ADDRESS6";

/// The first address of 100.64.0.0/10, which is shared address space (RFC 6598).
const FIRST: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
/// The number of networks with four addresses in it.
const NETWORKS: u32 = 1 << 20;
/// The time in which a command may end by itself after Ctrl-C, which the terminal sends to it, too.
const GRACE: Duration = Duration::from_secs(1);
/// The time in which a command may end after SIGTERM.
pub(crate) const TERM_GRACE: Duration = Duration::from_secs(5);

/// The maximum time for the end of connections after that of the command.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// The time without packets, beyond a round-trip time, after which connections have ended.
const QUIET: Duration = Duration::from_millis(50);

const OUTER: NodeId = NodeId(0);
const INNER: NodeId = NodeId(1);

/// A link and the command behind it.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The link from the command to the gateway, and the same in the other direction.
    pub link: LinkConfig,
    /// Selects the random streams of losses.
    pub seed: u64,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// The packets of a run.
#[derive(Copy, Clone, Debug)]
pub struct Summary {
    /// The link from the command to the gateway.
    pub up: Counters,
    /// The link from the gateway to the command.
    pub down: Counters,
    /// The packets that each link carried at the end, queued or on the wire.
    pub carried: [u64; 2],
    /// The packets that entered and left.
    pub counts: Counts,
    /// The lateness of deliveries.
    pub lateness: Lateness,
}

impl Shell {
    /// Runs the command until it ends, and removes everything that was made for it. A ring of
    /// `bell` ends the command: after a second it gets SIGTERM, and five seconds later SIGKILL.
    ///
    /// # Errors
    /// Returns an error if the network cannot be made or the command cannot be started.
    pub fn run(&self, bell: &mut Bell) -> Result<(ExitStatus, Summary), EmulateError> {
        let addresses = Addresses::with_gateway(free_network()?);
        let [gateway, own] = [OUTER, INNER].map(|node| addresses.of(node));
        let namespace = Namespace::create()?;
        let inner = namespace.add_device(own)?;
        let outer = format!("manyflow{}", std::process::id());
        let outer = add_outer_device(&outer, gateway, own)?;
        let mut network = Network::new(self.seed);
        let nodes = ["gateway", "command"].map(|name| network.add_node(name));
        let links = network.add_duplex(nodes[1], nodes[0], self.link.clone());
        let fabric = Fabric::new(network, 2, &[OUTER, INNER], addresses);
        let mut drive = Drive::new(fabric, vec![(OUTER, outer), (INNER, inner)]);

        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.env(GATEWAY, gateway.v4.to_string());
        command.env(GATEWAY_V6, gateway.v6.to_string());
        command.env(ADDRESS, own.v4.to_string());
        command.env(ADDRESS_V6, own.v6.to_string());
        let name = || self.command[0].to_string_lossy().into_owned();
        let child = namespace.enter(|| command.spawn())?;
        let child = child.map_err(|error| EmulateError::Command(name(), error))?;
        let ringer = bell.ringer();
        let ringer = ringer.map_err(|error| EmulateError::Command(name(), error))?;
        let status = Running::watch(child, ringer).drive(&mut drive, bell)?;
        let status = status.map_err(|error| EmulateError::Command(name(), error))?;
        self.drain(&mut drive, bell)?;
        Ok((status, Summary::of(&mut drive, links)))
    }

    /// Delivers the packets that are still on their way, and the answers to them: otherwise the
    /// other ends of the command's connections would not learn of their end.
    fn drain(&self, drive: &mut Drive, bell: &mut Bell) -> Result<(), EmulateError> {
        let end = drive.now() + DRAIN_MAX;
        let round_trip = 2 * self.link.delay + QUIET;
        loop {
            let sent = packets_sent(drive);
            let until = (drive.now() + round_trip).min(end);
            let ended = drive.run_until(until, bell, &mut ())?;
            let is_quiet = packets_sent(drive) == sent;
            if is_quiet || until == end || ended == Ended::Rung {
                return Ok(());
            }
        }
    }
}

/// A command, and the thread that waits for its end.
struct Running {
    pid: Pid,
    ended: Receiver<io::Result<ExitStatus>>,
}

impl Running {
    fn watch(mut child: Child, mut ringer: Ringer) -> Running {
        let (report, ended) = channel();
        let pid = Pid::from_raw(child.id() as i32);
        thread::spawn(move || {
            // Nobody waits for the status of a command that is given up.
            let _ = report.send(child.wait());
            ringer.ring();
        });
        Running { pid, ended }
    }

    /// Runs the network until the command has ended. Ends the command after a ring of the bell.
    fn drive(
        self,
        drive: &mut Drive,
        bell: &mut Bell,
    ) -> Result<io::Result<ExitStatus>, EmulateError> {
        let mut signals = [(GRACE, Signal::SIGTERM), (TERM_GRACE, Signal::SIGKILL)].into_iter();
        let mut next: Option<(Time, Signal)> = None;
        loop {
            let until = next.map_or(Time::MAX, |(due, _)| due);
            let ended = drive.run_until(until, bell, &mut ())?;
            if let Ok(status) = self.ended.try_recv() {
                return Ok(status);
            }
            if ended == Ended::Time
                && let Some((_, signal)) = next.take()
            {
                // The command has not been waited for, so its number is still its own.
                let _ = kill(self.pid, signal);
            }
            if next.is_none() {
                let wait = signals.next();
                next = wait.map(|(wait, signal)| (drive.now() + wait, signal));
            }
        }
    }
}

impl Summary {
    fn of(drive: &mut Drive, (up, down): (LinkId, LinkId)) -> Summary {
        let lateness = drive.lateness();
        let counts = drive.fabric().counts();
        let network = drive.fabric().network();
        let [up, down] = [up, down].map(|link| network.link_counters(link));
        let carried = [up, down]
            .map(|link| link.pushed + link.duplicated - link.delivered - link.dropped - link.lost);
        Summary {
            up,
            down,
            carried,
            counts,
            lateness,
        }
    }
}

/// Returns the number of packets that the hosts have sent, except IGMP and MLD reports: those do
/// not belong to connections.
fn packets_sent(drive: &Drive) -> u64 {
    let counts = drive.fabric().counts();
    counts.entered - counts.unjoined
}

/// Returns the first host address of a network with four addresses that no interface has.
fn free_network() -> Result<Ipv4Addr, EmulateError> {
    let interfaces = getifaddrs().map_err(|error| EmulateError::System("getifaddrs", error))?;
    let used: Vec<u32> = interfaces
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip().to_bits() >> 2))
        .collect();
    // Several emulations can begin at the same time, so each begins its search elsewhere.
    let first = std::process::id() % NETWORKS;
    (0..NETWORKS)
        .map(|offset| FIRST.to_bits() + ((first + offset) % NETWORKS) * 4)
        .find(|network| !used.contains(&(network >> 2)))
        .map(|network| Ipv4Addr::from_bits(network + 1))
        .ok_or(EmulateError::NoAddress)
}
