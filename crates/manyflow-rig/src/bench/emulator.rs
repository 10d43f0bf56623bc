//! `manyflow-rig bench emulator`: how exactly the emulator keeps to its links, and its speed.
//!
//! The hosts are two namespaces with one link between them. A measurement in which the emulator
//! could not keep time is not judged.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use manyflow_core::link::{
    Counters, LinkConfig, Marking, Overload, QueueLimit, RedConfig, RedVariant,
};
use manyflow_core::{Rate, Time};
use manyflow_emulator::bell::Bell;
use manyflow_emulator::drive::Lateness;
use manyflow_emulator::fabric::{Addresses, Counts};
use manyflow_emulator::kernel::tcp::{Bulk, CongestionControl, Running};
use manyflow_emulator::priority;
use manyflow_emulator::stage::Stage;
use manyflow_emulator::{EmulateError, check_rights, netns};
use manyflow_netsim::{LinkId, NodeId};
use manyflow_scenario::Network;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};

use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::usage;

const PINGS: usize = 1_000;
const PING_DELAY: Duration = Duration::from_millis(20);
const PING_INTERVAL: Duration = Duration::from_millis(10);
/// The time after which a ping counts as lost.
const PING_PATIENCE: Duration = Duration::from_secs(1);
/// The type of an ICMP echo request (RFC 792). The kernel adds identifier and checksum.
const ECHO_REQUEST: u8 = 8;
/// Maximum of the median and of the 99th percentile of the delay that a ping has in addition to
/// that of the link, there and back.
const MEDIAN_BOUND: Duration = Duration::from_micros(300);
const P99_BOUND: Duration = Duration::from_millis(2);

const TCP_RATE: Rate = Rate::from_bits_per_s(100_000_000);
const TCP_DELAY: Duration = Duration::from_millis(10);
/// The bandwidth-delay product of the round-trip time.
const TCP_QUEUE_BYTES: u64 = 250_000;
/// The time after which a single connection has found the rate of the link.
const TCP_START: Duration = Duration::from_secs(5);
const TCP_STEADY: Duration = Duration::from_secs(15);
const UTILISATION_BOUND: f64 = 0.95;
const SHARED: Duration = Duration::from_secs(60);
const SHARE_BOUND: f64 = 0.4;
const MARKED: Duration = Duration::from_secs(5);
/// The time in which links and connections become empty.
const DRAIN: Duration = Duration::from_secs(1);

const FLOOD: Duration = Duration::from_secs(5);
const FLOOD_PER_MS: usize = 80;
const FLOOD_BYTES: usize = 1_400;
const SPEED_BOUND: f64 = 60_000.0;

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const THERE: LinkId = LinkId(0);
const BACK: LinkId = LinkId(1);
const PORT: u16 = 20_000;

pub(crate) fn run(display: &Display) -> Result<()> {
    check_rights().map_err(|error| usage(error.to_string()))?;
    netns::remove_stale()?;
    display.print_line(&format!("{:<52} {:>12} {:>12}", "", "measured", "bound"))?;
    let mut verdicts = Verdicts {
        display,
        failures: Vec::new(),
    };
    pings(&mut verdicts)?;
    one_connection(&mut verdicts)?;
    two_connections(&mut verdicts)?;
    marks(&mut verdicts)?;
    flood(&mut verdicts)?;
    match verdicts.failures.as_slice() {
        [] => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

/// Prints measurements, and collects those that miss their bounds.
struct Verdicts<'a> {
    display: &'a Display,
    failures: Vec<String>,
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Verdicts<'_> {
    /// Judges a value, unless the emulator could not keep time.
    fn judge(
        &mut self,
        what: &str,
        value: f64,
        bound: &Bound,
        lateness: &Lateness,
    ) -> Result<(), OutputError> {
        let (sign, limit, is_met) = match bound {
            Bound::AtLeast(limit) => (">=", *limit, value >= *limit),
            Bound::AtMost(limit) => ("<=", *limit, value <= *limit),
        };
        let verdict = match (lateness.check(), is_met) {
            (Err(why), _) => {
                self.failures.push(format!("not judged: {what}: {why}"));
                "not judged"
            }
            (Ok(()), false) => {
                let failure = format!("missed: {what}: {value:.3}, {sign} {limit}");
                self.failures.push(failure);
                "missed"
            }
            (Ok(()), true) => "met",
        };
        let limit_shown = format!("{sign} {limit}");
        self.display
            .print_line(&format!("{what:<52} {value:>12.3} {limit_shown:>12}"))?;
        self.display.print_json(&json!({
            "event": "measured", "what": what, "value": value, "bound": limit, "verdict": verdict,
            "late_packets": lateness.late, "packets": lateness.packets,
            "lateness_max_seconds": lateness.max.as_secs_f64(),
        }))
    }

    /// Judges whether each packet of a run is accounted for. The links must be empty.
    fn judge_counts(&mut self, what: &str, stage: &Stage) -> Result<(), OutputError> {
        let counts = stage.drive.fabric().counts();
        let network = stage.drive.fabric().network();
        let links = [THERE, BACK].map(|link| network.link_counters(link));
        let missing = counts.entered.abs_diff(accounted(&counts, &links));
        let missing = missing as f64;
        let what = format!("{what}: packets not accounted for");
        // Late packets are counted like others.
        self.judge(&what, missing, &Bound::AtMost(0.0), &Lateness::default())
    }
}

/// Returns the number of packets whose fate is known: out, dropped, lost, refused or in transit.
fn accounted(counts: &Counts, links: &[Counters]) -> u64 {
    let in_links = |link: &Counters| link.pushed - link.delivered;
    let in_links: u64 = links.iter().map(in_links).sum();
    counts.left + counts.refused + counts.unjoined + counts.expired + in_links
}

/// Two hosts with a link in each direction.
fn stage(link: LinkConfig) -> Result<Stage, EmulateError> {
    let mut network = Network::new(1);
    let [a, b] = ["A", "B"].map(|name| network.add_node(name));
    network.add_duplex(a, b, link);
    Stage::new(network, 2, &[A, B])
}

fn address(node: NodeId, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Addresses::of_scenario().of(node).v4, port)
}

/// Runs the network for a time.
fn run_for(stage: &mut Stage, time: Duration) -> Result<()> {
    let end = stage.drive.now() + time;
    let mut bell = Bell::new().context("no pipe")?;
    stage.drive.run_until(end, &mut bell, &mut ())?;
    Ok(())
}

/// Makes a UDP socket in the namespace of a host.
fn udp(stage: &Stage, node: NodeId) -> Result<UdpSocket> {
    let socket = stage
        .namespace(node)
        .enter(|| UdpSocket::bind(address(node, PORT)))?;
    socket.context("no UDP socket")
}

/// Makes a socket for ICMP echo in the namespace of a host.
fn icmp(stage: &Stage, node: NodeId) -> Result<Socket> {
    let namespace = stage.namespace(node);
    namespace.set("net/ipv4/ping_group_range", "0 2147483647")?;
    let socket = namespace.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
        socket.set_read_timeout(Some(PING_PATIENCE))?;
        Ok::<_, io::Error>(socket)
    })?;
    socket.context("no ICMP socket")
}

/// Measures the delay that pings have in addition to that of the link.
fn pings(verdicts: &mut Verdicts) -> Result<()> {
    let mut stage = stage(LinkConfig {
        delay: PING_DELAY,
        ..LinkConfig::default()
    })?;
    let client = icmp(&stage, A)?;
    let mut bell = Bell::new().context("no pipe")?;
    let mut ringer = bell.ringer().context("no pipe")?;
    let pings = thread::spawn(move || {
        let added = ping(&client);
        ringer.ring();
        added
    });
    stage.drive.run_until(Time::MAX, &mut bell, &mut ())?;
    let added = pings.join().expect("pings do not panic");
    let mut added = added.context("a ping was lost")?;
    added.sort();
    let lateness = stage.drive.lateness();
    let rows = [
        ("median", added[PINGS / 2], MEDIAN_BOUND),
        ("99th percentile", added[PINGS * 99 / 100], P99_BOUND),
    ];
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    for (name, value, bound) in rows {
        let what = format!("added delay of {PINGS} pings, {name}, ms");
        verdicts.judge(&what, ms(value), &Bound::AtMost(ms(bound)), &lateness)?;
    }
    verdicts.judge_counts("pings", &stage)?;
    Ok(())
}

/// Returns the delay of each ping beyond that of the links. The kernel of B answers.
fn ping(socket: &Socket) -> io::Result<Vec<Duration>> {
    // Otherwise the time for which this thread waits for a processor would count as well.
    priority::raise();
    socket.connect(&address(B, 0).into())?;
    let mut socket = socket;
    let mut added = Vec::with_capacity(PINGS);
    for number in 0..PINGS as u16 {
        let mut request = [0; 64];
        request[0] = ECHO_REQUEST;
        request[6..8].copy_from_slice(&number.to_be_bytes());
        let sent = Instant::now();
        socket.write_all(&request)?;
        socket.read_exact(&mut request)?;
        added.push(sent.elapsed().saturating_sub(2 * PING_DELAY));
        thread::sleep(PING_INTERVAL);
    }
    Ok(added)
}

fn tcp_link() -> LinkConfig {
    LinkConfig {
        rate: Some(TCP_RATE),
        delay: TCP_DELAY,
        queue: QueueLimit::Bytes(TCP_QUEUE_BYTES),
        ..LinkConfig::default()
    }
}

/// Begins a connection from A to B, which ends after `length`.
fn connect(stage: &Stage, number: u16, length: Duration) -> Result<Running, EmulateError> {
    let bulk = Bulk {
        from: address(A, PORT + number),
        to: address(B, PORT + number),
        congestion_control: CongestionControl::Cubic,
        segment_bytes: None,
        start: Instant::now(),
        stop: Some(Instant::now() + length),
        transfer: None,
    };
    bulk.begin(stage.namespace(A), stage.namespace(B))
}

/// Measures the share of a link that one connection of the kernel uses.
fn one_connection(verdicts: &mut Verdicts) -> Result<()> {
    let mut stage = stage(tcp_link())?;
    let connection = connect(&stage, 0, TCP_START + TCP_STEADY)?;
    let bits = |stage: &Stage| {
        let link = stage.drive.fabric().network().link_counters(THERE);
        link.delivered_bytes as f64 * 8.0
    };
    run_for(&mut stage, TCP_START)?;
    let (before, began) = (bits(&stage), stage.drive.now());
    run_for(&mut stage, TCP_STEADY)?;
    let rate = (bits(&stage) - before) / (stage.drive.now() - began).as_secs_f64();
    run_for(&mut stage, DRAIN)?;
    drop(connection);
    let used = rate / TCP_RATE.bits_per_s() as f64;
    let what = format!("share of {TCP_RATE} that one kernel CUBIC uses");
    let lateness = stage.drive.lateness();
    verdicts.judge(&what, used, &Bound::AtLeast(UTILISATION_BOUND), &lateness)?;
    verdicts.judge_counts("one connection", &stage)?;
    Ok(())
}

/// Measures how two connections of the kernel share a link.
fn two_connections(verdicts: &mut Verdicts) -> Result<()> {
    let mut stage = stage(tcp_link())?;
    let connections = [connect(&stage, 0, SHARED)?, connect(&stage, 1, SHARED)?];
    run_for(&mut stage, SHARED)?;
    let bytes = connections.each_ref().map(|one| one.received() as f64);
    run_for(&mut stage, DRAIN)?;
    drop(connections);
    let smaller = bytes[0].min(bytes[1]) / (bytes[0] + bytes[1]);
    let what = format!("smaller share of two kernel CUBICs, {} s", SHARED.as_secs());
    let lateness = stage.drive.lateness();
    verdicts.judge(&what, smaller, &Bound::AtLeast(SHARE_BOUND), &lateness)?;
    verdicts.judge_counts("two connections", &stage)?;
    Ok(())
}

/// Checks that each mark of a queue arrives, with a connection that supports ECN.
fn marks(verdicts: &mut Verdicts) -> Result<()> {
    let red = RedConfig {
        minimum_packets: 15.0,
        maximum_packets: 45.0,
        maximum_probability: 0.1,
        weight: 0.002,
        ecn: true,
        mean_packet_bytes: 1_500,
        marking: Marking::default(),
        overload: Overload::default(),
        variant: RedVariant::Paper,
    };
    let mut stage = stage(LinkConfig {
        red: Some(red),
        ..tcp_link()
    })?;
    for node in [A, B] {
        stage.namespace(node).set("net/ipv4/tcp_ecn", "1")?;
    }
    let connection = connect(&stage, 0, MARKED)?;
    run_for(&mut stage, MARKED + DRAIN)?;
    drop(connection);
    let network = stage.drive.fabric().network();
    let marked = [THERE, BACK].map(|link| network.link_counters(link).marked);
    let marked: u64 = marked.iter().sum();
    let arrived = stage.drive.fabric().counts().left_marked;
    let none = Lateness::default();
    let wrong = marked.abs_diff(arrived) as f64;
    let what = "marks that did not arrive";
    verdicts.judge(what, wrong, &Bound::AtMost(0.0), &none)?;
    let what = "marks of a queue with RED";
    verdicts.judge(what, marked as f64, &Bound::AtLeast(1.0), &none)?;
    verdicts.judge_counts("marks", &stage)?;
    Ok(())
}

/// Measures the number of packets that one core moves.
fn flood(verdicts: &mut Verdicts) -> Result<()> {
    let mut stage = stage(LinkConfig {
        rate: Some(Rate::from_bits_per_s(10_000_000_000)),
        delay: Duration::from_millis(1),
        ..LinkConfig::default()
    })?;
    let (source, _sink) = (udp(&stage, A)?, udp(&stage, B)?);
    let sending = thread::spawn(move || send_flood(&source));
    let cpu_before = cpu()?;
    run_for(&mut stage, FLOOD + DRAIN)?;
    let cpu = cpu()? - cpu_before;
    let sent = sending.join().expect("a flood does not panic");
    sent.context("cannot send")?;
    let moved = stage.drive.fabric().counts().left;
    let per_s = moved as f64 / cpu.as_secs_f64();
    let what = "packets/s of one core";
    let none = Lateness::default();
    verdicts.judge(what, per_s, &Bound::AtLeast(SPEED_BOUND), &none)?;
    verdicts.judge_counts("flood", &stage)?;
    Ok(())
}

/// Sends packets at a constant rate, in bursts.
fn send_flood(socket: &UdpSocket) -> io::Result<()> {
    socket.connect(address(B, PORT))?;
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < FLOOD {
        let due = began.elapsed().as_millis() as usize * FLOOD_PER_MS;
        while sent < due {
            socket.send(&[0; FLOOD_BYTES])?;
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Returns the processor time of the current thread.
fn cpu() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.into())
}
