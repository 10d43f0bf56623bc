//! Hosts in network namespaces, on a bridge that snoops IGMP and queries.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use manyflow_core::units::Rate;
use manyflow_emulator::netns::Namespace;
use manyflow_terminal::usage;
use serde_json::Value;

/// The name of each host's interface.
pub(super) const INTERFACE: &str = "eth0";
/// The sender's address.
pub(super) const SENDER: &str = "10.99.0.1";
/// The address of all hosts.
pub(super) const BROADCAST: &str = "10.99.0.255";
/// The queue of a slow link: that of a common router.
const SLOW_QUEUE_BYTES: u64 = 200_000;

/// Time for which a new bridge floods multicast, and a little more: the maximum response time of
/// IGMP (RFC 3376 section 8.3). The switches of a network in use have it behind them.
const SETTLING: Duration = Duration::from_secs(12);

/// The namespaces of a sender and of receivers, which are removed on drop.
pub(super) struct Lan {
    bridge: Namespace,
    pub(super) sender: Namespace,
    pub(super) receivers: Vec<Namespace>,
}

impl Lan {
    /// Makes a sender and `receivers`, of which the last has a link of the rate `slow`.
    pub(super) fn new(receivers: usize, slow: Option<Rate>) -> Result<Lan> {
        check_root()?;
        let receivers_made: Result<_, _> = (0..receivers).map(|_| Namespace::create()).collect();
        let lan = Lan {
            bridge: Namespace::create()?,
            sender: Namespace::create()?,
            receivers: receivers_made?,
        };
        let bridge = lan.bridge.name();
        ip(&format!(
            "-n {bridge} link add lan type bridge mcast_querier 1 mcast_query_response_interval 10"
        ))?;
        ip(&format!("-n {bridge} link set lan up"))?;
        for (number, host) in lan.hosts().enumerate() {
            let host = host.name();
            ip(&format!(
                "link add {INTERFACE} netns {host} type veth peer name port{number} netns {bridge}"
            ))?;
            ip(&format!("-n {bridge} link set port{number} master lan up"))?;
            // Unlike the counters of an interface, those of a queue count the headers of each
            // packet in a train (GSO).
            tc(&format!(
                "-n {bridge} qdisc add dev port{number} root pfifo"
            ))?;
            let address = address(number);
            ip(&format!(
                "-n {host} address add {address}/24 broadcast {BROADCAST} dev {INTERFACE}"
            ))?;
            ip(&format!("-n {host} link set {INTERFACE} up"))?;
            ip(&format!("-n {host} route add 224.0.0.0/4 dev {INTERFACE}"))?;
        }
        if let Some(rate) = slow {
            let rate = rate.bits_per_s();
            tc(&format!(
                "-n {bridge} qdisc replace dev port{receivers} root tbf rate {rate}bit burst 16kb limit {SLOW_QUEUE_BYTES}"
            ))?;
        }
        thread::sleep(SETTLING);
        Ok(lan)
    }

    /// Returns the sender and the receivers.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Namespace> {
        std::iter::once(&self.sender).chain(&self.receivers)
    }

    /// Returns the number of bytes that the link to a receiver, counted from 0, has carried so far,
    /// Ethernet headers included.
    pub(super) fn carried_bytes(&self, receiver: usize) -> Result<u64> {
        let port = receiver + 1;
        let arguments = format!("-n {} -s -j qdisc show dev port{port}", self.bridge.name());
        let shown = tc(&arguments)?;
        let queues: Value = serde_json::from_slice(&shown).unwrap_or_default();
        let bytes = queues[0]["bytes"].as_u64();
        bytes.with_context(|| format!("tc {arguments}: no count of bytes"))
    }
}

/// Returns the address of a host: 0 is the sender.
pub(super) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, host as u8 + 1)
}

/// Returns a command that runs a program on a host.
pub(super) fn in_namespace(host: &Namespace, program: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host.name()]).arg(program);
    command
}

/// Returns an error if the user may not make network namespaces.
fn check_root() -> Result<()> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(usage(
            "network namespaces need root: run this command with sudo",
        )),
    }
}

fn ip(arguments: &str) -> Result<()> {
    run("ip", arguments)?;
    Ok(())
}

fn tc(arguments: &str) -> Result<Vec<u8>> {
    run("tc", arguments)
}

/// Runs a program with arguments that spaces separate, and returns its output.
fn run(program: &str, arguments: &str) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output();
    let output = output
        .with_context(|| format!("cannot run {program} (Debian: apt-get install iproute2)"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {arguments}: {}", reason.trim());
    }
    Ok(output.stdout)
}
