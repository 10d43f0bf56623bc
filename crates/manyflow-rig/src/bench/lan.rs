//! Hosts in network namespaces, on a bridge that snoops IGMP and queries.
//!
//! | layout | the sender | relays |
//! |---|---|---|
//! | `Flat` | on the bridge | none |
//! | `SiteRelay` | on the bridge | a host on the bridge |
//! | `TwoRouters` | behind two routers, of which the second is on the bridge | the routers, which forward no multicast |

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
/// The address of all hosts.
pub(super) const BROADCAST: &str = "10.99.0.255";
/// The network of the hosts on the bridge.
const NETWORK: &str = "10.99.0.0/24";
/// All networks. There is no default route: a program that asks a nameserver for the name of an
/// address would wait for an answer, instead of failing at once.
const NETWORKS: &str = "10.99.0.0/16";
/// The interface of a router towards the sender.
pub(super) const UPSTREAM: &str = "upstream";
/// The queue of a slow link: that of a common router.
const SLOW_QUEUE_BYTES: u64 = 200_000;
/// The queue of a sender's interface: a thousand packets, as Linux gives to Ethernet.
const SENDER_QUEUE_BYTES: u64 = 1_500_000;

/// Time for which a new bridge floods multicast, and a little more: the maximum response time of
/// IGMP (RFC 3376 section 8.3). The switches of a network in use have it behind them.
const SETTLING: Duration = Duration::from_secs(12);

/// The place of relays between the sender and the receivers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// There are none: sender and receivers are on one bridge.
    Flat,
    /// One, on a host of its own beside the receivers.
    SiteRelay,
    /// Two, on the routers between the sender's network and the receivers'.
    TwoRouters,
}

/// A host for a relay.
pub(super) struct RelayHost {
    pub(super) namespace: Namespace,
    /// The address at which receivers, or the next relay, reach this one.
    pub(super) address: Ipv4Addr,
    /// The address at which the sender, or the relay before, reaches this one.
    pub(super) upstream: Ipv4Addr,
}

/// The namespaces of a sender, of relays and of receivers, which are removed on drop.
pub(super) struct Lan {
    bridge: Namespace,
    pub(super) sender: Namespace,
    pub(super) sender_address: Ipv4Addr,
    /// From the sender towards the receivers.
    pub(super) relays: Vec<RelayHost>,
    pub(super) receivers: Vec<Namespace>,
}

impl Lan {
    /// Makes a sender and `receivers`, with the relays of a layout.
    pub(super) fn new(receivers: usize, layout: Layout) -> Result<Lan> {
        check_root()?;
        let receivers_made: Result<_, _> = (0..receivers).map(|_| Namespace::create()).collect();
        let beside = address(receivers + 1);
        let addresses = match layout {
            Layout::Flat => vec![],
            Layout::SiteRelay => vec![(beside, beside)],
            Layout::TwoRouters => vec![
                (router_address(1, 2), router_address(2, 1)),
                (router_address(2, 2), address(0)),
            ],
        };
        let relays = addresses.into_iter().map(|(upstream, address)| {
            Ok(RelayHost {
                namespace: Namespace::create()?,
                address,
                upstream,
            })
        });
        let lan = Lan {
            bridge: Namespace::create()?,
            sender: Namespace::create()?,
            sender_address: match layout {
                Layout::TwoRouters => router_address(1, 1),
                Layout::Flat | Layout::SiteRelay => address(0),
            },
            relays: relays.collect::<Result<_>>()?,
            receivers: receivers_made?,
        };
        let bridge = lan.bridge.name();
        ip(&format!(
            "-n {bridge} link add lan type bridge mcast_querier 1 mcast_query_response_interval 10"
        ))?;
        ip(&format!("-n {bridge} link set lan up"))?;
        let relays = || lan.relays.iter().map(|relay| &relay.namespace);
        let nearest = match layout {
            Layout::TwoRouters => relays().next_back(),
            Layout::Flat | Layout::SiteRelay => Some(&lan.sender),
        };
        let beside = relays().filter(|_| layout == Layout::SiteRelay);
        let hosts = nearest.into_iter().chain(&lan.receivers).chain(beside);
        for (number, host) in hosts.enumerate() {
            lan.attach(number, host)?;
        }
        if layout == Layout::TwoRouters {
            lan.connect_routers()?;
        }
        thread::sleep(SETTLING);
        Ok(lan)
    }

    /// Connects a host with the bridge.
    fn attach(&self, number: usize, host: &Namespace) -> Result<()> {
        let (bridge, host) = (self.bridge.name(), host.name());
        ip(&format!(
            "link add {INTERFACE} netns {host} type veth peer name port{number} netns {bridge}"
        ))?;
        ip(&format!("-n {bridge} link set port{number} master lan up"))?;
        // Unlike the counters of an interface, those of a queue count the headers of each packet in
        // a train (GSO).
        tc(&format!(
            "-n {bridge} qdisc add dev port{number} root pfifo"
        ))?;
        configure(host, INTERFACE, address(number))?;
        ip(&format!("-n {host} route add 224.0.0.0/4 dev {INTERFACE}"))
    }

    /// Connects the sender with the first router, and each router with the next one. Routers
    /// forward unicast only: the kernel forwards multicast for nobody but a routing daemon.
    fn connect_routers(&self) -> Result<()> {
        let routers = self.relays.iter().map(|relay| &relay.namespace);
        let chain: Vec<_> = std::iter::once(&self.sender).chain(routers).collect();
        for (number, pair) in chain.windows(2).enumerate() {
            let network = number + 1;
            let (near, far) = (pair[0].name(), pair[1].name());
            ip(&format!(
                "link add {INTERFACE} netns {near} type veth peer name {UPSTREAM} netns {far}"
            ))?;
            let (near_address, far_address) =
                (router_address(network, 1), router_address(network, 2));
            configure(near, INTERFACE, near_address)?;
            configure(far, UPSTREAM, far_address)?;
            pair[1].set("net/ipv4/ip_forward", "1")?;
            let downstream = if number == 0 { NETWORKS } else { NETWORK };
            ip(&format!(
                "-n {near} route add {downstream} via {far_address}"
            ))?;
            ip(&format!("-n {far} route add {NETWORKS} via {near_address}"))?;
        }
        ip(&format!(
            "-n {} route add 224.0.0.0/4 dev {INTERFACE}",
            self.sender.name()
        ))?;
        let receivers = self.receivers.iter();
        receivers
            .map(|host| format!("-n {} route add {NETWORKS} via {}", host.name(), address(0)))
            .try_for_each(|arguments| ip(&arguments))
    }

    /// Gives the link to the last receiver this rate.
    pub(super) fn slow_down_last(&self, rate: Rate) -> Result<()> {
        let (bridge, port) = (self.bridge.name(), self.receivers.len());
        let rate = rate.bits_per_s();
        tc(&format!(
            "-n {bridge} qdisc replace dev port{port} root tbf rate {rate}bit burst 16kb limit {SLOW_QUEUE_BYTES}"
        ))?;
        Ok(())
    }

    /// Gives the sender's link this rate.
    pub(super) fn limit_sender(&self, rate: Rate) -> Result<()> {
        let (host, rate) = (self.sender.name(), rate.bits_per_s());
        // A packet train of 64 KiB (GSO) fits into the bucket, so that it is not taken apart.
        tc(&format!(
            "-n {host} qdisc replace dev {INTERFACE} root tbf rate {rate}bit burst 128kb limit {SENDER_QUEUE_BYTES}"
        ))?;
        Ok(())
    }

    /// Returns the sender and the receivers.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Namespace> {
        std::iter::once(&self.sender).chain(&self.receivers)
    }

    /// Returns the number of bytes that the link to a receiver, counted from 0, has carried so far,
    /// Ethernet headers included.
    pub(super) fn carried_bytes(&self, receiver: usize) -> Result<u64> {
        bytes_of(self.bridge.name(), &format!("port{}", receiver + 1))
    }

    /// Returns the number of bytes that have left the sender so far, Ethernet headers included; 0
    /// unless [`limit_sender`](Self::limit_sender) has made a queue that counts them.
    pub(super) fn sent_bytes(&self) -> Result<u64> {
        bytes_of(self.sender.name(), INTERFACE)
    }
}

/// Returns the bytes that the queue of an interface has passed on.
fn bytes_of(namespace: &str, interface: &str) -> Result<u64> {
    let arguments = format!("-n {namespace} -s -j qdisc show dev {interface}");
    let shown = tc(&arguments)?;
    let queues: Value = serde_json::from_slice(&shown).unwrap_or_default();
    let bytes = queues[0]["bytes"].as_u64();
    bytes.with_context(|| format!("tc {arguments}: no count of bytes"))
}

/// Gives an interface its address.
fn configure(namespace: &str, interface: &str, address: Ipv4Addr) -> Result<()> {
    let [a, b, c, _] = address.octets();
    ip(&format!(
        "-n {namespace} address add {address}/24 broadcast {a}.{b}.{c}.255 dev {interface}"
    ))?;
    ip(&format!("-n {namespace} link set {interface} up"))
}

/// Returns the address of a host on the bridge: 0 is the sender, or the router before it.
pub(super) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, host as u8 + 1)
}

/// Returns an address in one of the networks between the sender and the bridge, counted from 1.
/// Host 1 is nearer to the sender than host 2.
fn router_address(network: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, network as u8, host)
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
