//! Random networks on one thread and on several: all calls of the observer and all counters must be
//! the same.
//!
//! Delays, timers and transmission times are small multiples of a unit, so that many events of all
//! parts fall on the same instants. Each endpoint's behaviour depends on the order of everything
//! that has reached it, so a single exchange of two events changes what follows.

use core::time::Duration;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use manyflow_core::link::{Aqm, CoDelConfig, LinkConfig, LossModel, QueueLimit, RedConfig};
use manyflow_core::{
    Action, Channel, Destination, Ecn, Endpoint, EndpointId, Header, Packet, Time,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::engine::{Change, Halt, Incident, LinkId, Network, NodeId, Observer};

/// The unit of delays and timers.
const UNIT: Duration = Duration::from_micros(500);
/// The bytes of a packet in units: at 8 Mbit/s the transmission of one takes half a unit.
const BYTES: u32 = 250;
/// The variable that sets the number of networks.
const SEEDS: &str = "MANYFLOW_SEEDS";

#[derive(Copy, Clone, Debug, PartialEq)]
struct Note {
    value: u64,
    bytes: u32,
}

impl Header for Note {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }
}

/// An endpoint that sends, joins and leaves at random, depending on all that has reached it.
struct Chatter {
    state: u64,
    endpoints: u32,
    sessions: u32,
    session: Option<u32>,
    next: Time,
    actions: VecDeque<Action<Note>>,
    events: VecDeque<u64>,
}

impl Chatter {
    fn mix(&mut self, value: u64) -> u64 {
        let mixed = (self.state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.state = mixed ^ (mixed >> 29);
        self.state >> 8
    }

    fn send(&mut self, destination: Destination) {
        let value = self.mix(1);
        let bytes = BYTES * (1 + (value % 4) as u32);
        let packet = Packet::new(destination, Note { value, bytes }, 0);
        let ecn = match value.is_multiple_of(2) {
            true => Ecn::Capable,
            false => Ecn::NotCapable,
        };
        self.actions.push_back(Action::Send(packet.with_ecn(ecn)));
    }

    fn send_to_one(&mut self) {
        let endpoint = EndpointId((self.mix(2) % u64::from(self.endpoints)) as u32);
        self.send(Destination::Endpoint(endpoint));
    }

    fn join_or_leave(&mut self) {
        if self.sessions == 0 {
            return;
        }
        let channel = Channel {
            session: (self.mix(3) % u64::from(self.sessions)) as u32,
            number: (self.mix(4) % 3) as u16,
        };
        let action = match self.mix(5) % 3 {
            0 => Action::Leave(channel),
            _ => Action::Join(channel),
        };
        self.actions.push_back(action);
    }
}

impl Endpoint for Chatter {
    type Rx = Note;
    type Tx = Note;
    type Event = u64;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Note>) {
        let marked = u64::from(packet.ecn == Ecn::Marked);
        let seen = packet.header.value ^ now.as_nanos() ^ marked;
        match self.mix(seen ^ u64::from(packet.source.0)) % 8 {
            0 => self.send_to_one(),
            1 => self.join_or_leave(),
            2 => self.events.push_back(self.state),
            // A timer that is set to an earlier time.
            3 => self.next = self.next.min(now + UNIT),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        let many = 1 + self.mix(6) % 3;
        for _ in 0..many {
            let is_multicast = self.mix(7).is_multiple_of(2);
            match self.session {
                Some(session) if is_multicast => {
                    let number = (self.mix(8) % 3) as u16;
                    self.send(Destination::Channel(Channel { session, number }));
                }
                _ => self.send_to_one(),
            }
        }
        self.join_or_leave();
        self.events.push_back(self.state);
        self.next = now + UNIT * (1 + (self.mix(9) % 8) as u32);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Note>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    fn poll_event(&mut self) -> Option<u64> {
        self.events.pop_front()
    }
}

/// Everything that an observer is called with, as text or as hashes of it.
#[derive(Default)]
struct Calls {
    is_text: bool,
    hashes: Vec<u64>,
    texts: Vec<String>,
}

impl Calls {
    fn note(&mut self, text: String) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        self.hashes.push(hasher.finish());
        if self.is_text {
            self.texts.push(text);
        }
    }
}

impl Observer<Note, u64> for Calls {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &u64) {
        self.note(format!("{now} {endpoint:?} {event}"));
    }

    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet<Note>) {
        self.note(format!("{now} tapped {link:?} {packet:?}"));
    }

    fn on_incident(&mut self, now: Time, incident: &Incident<Note>) {
        self.note(format!("{now} {incident:?}"));
    }
}

fn config(random: &mut Pcg64Mcg, is_plain: bool) -> LinkConfig {
    let mut config = LinkConfig {
        delay: UNIT * random.random_range(1..4),
        ..LinkConfig::default()
    };
    if random.random_bool(0.6) {
        config.rate = Some("8 Mbit/s".parse().unwrap());
        config.queue = QueueLimit::Packets(random.random_range(1..6));
    }
    match random.random_range(0..24) {
        0 => config.loss = LossModel::Bernoulli(0.1),
        1 => config.duplication = 0.1,
        2 => config.red = Some(RedConfig::default()),
        3 if !is_plain => config.aqm = Some(Aqm::CoDel(CoDelConfig::default())),
        4 if !is_plain => config.jitter = UNIT,
        5 if !is_plain => config.delay = Duration::ZERO,
        _ => {}
    }
    config
}

fn random_network(seed: u64) -> Network<Note, u64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut network = Network::new(seed);
    let nodes = random.random_range(2..20);
    for node in 0..nodes {
        network.add_node(&format!("N{node}"));
    }
    let mut links = Vec::new();
    let more = random.random_range(0..4);
    for node in 1..nodes + more {
        let a = NodeId(node % nodes);
        let b = NodeId(random.random_range(0..node.min(nodes)));
        if a != b {
            let there = config(&mut random, node % 4 > 0);
            let back = match random.random_bool(0.8) {
                true => there.clone(),
                false => config(&mut random, true),
            };
            links.push(network.add_link(a, b, there));
            links.push(network.add_link(b, a, back));
        }
    }
    let endpoints = random.random_range(2..20);
    let sessions = random.random_range(0..3);
    let homes: Vec<_> = (0..endpoints)
        .map(|_| NodeId(random.random_range(0..nodes)))
        .collect();
    for session in 0..sessions {
        network.open_session(homes[session % homes.len()]);
    }
    for (number, home) in homes.iter().enumerate() {
        let chatter = Chatter {
            state: random.random(),
            endpoints,
            sessions: sessions as u32,
            session: (number < sessions).then_some(number as u32),
            next: Time::ZERO + UNIT * random.random_range(0..3),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        };
        let id = network.add_endpoint(*home, Box::new(chatter));
        if random.random_bool(0.1) {
            network.mute(id);
        }
    }
    network.set_leave_latency(UNIT * random.random_range(0..5));
    for &link in &links {
        if random.random_bool(0.2) {
            network.tap(link);
        }
    }
    if random.random_bool(0.5) {
        network.trace();
    }
    if random.random_bool(0.4) {
        for _ in 0..random.random_range(1..6) {
            let link = links[random.random_range(0..links.len())];
            let at = Time::ZERO + UNIT * random.random_range(0..80);
            let change = match random.random_range(0..3) {
                0 => Change::Configure(link, config(&mut random, false).into()),
                1 => Change::Cut(link, true),
                _ => Change::Cut(link, false),
            };
            network.at(at, change);
        }
    }
    network
}

/// Runs a network with pauses, and returns the calls and the counters. Without a result, one thread
/// has to run the network.
fn run(mut network: Network<Note, u64>, is_text: bool) -> Result<(Calls, bool), Halt> {
    let mut calls = Calls {
        is_text,
        ..Calls::default()
    };
    for pause in [7, 8, 30, 80] {
        let end = Time::ZERO + UNIT * pause;
        network.run_until(end, &mut calls)?;
        assert_eq!(network.now(), end);
        for link in 0..network.map_len().0 {
            let link = LinkId(link);
            let queue = (network.queue_packets(link), network.queue_time(link));
            let counters = network.link_counters(link);
            calls.note(format!("{queue:?} {counters:?}"));
        }
        for endpoint in 0..network.map_len().1 {
            let received = network.received(EndpointId(endpoint));
            calls.note(format!("{received:?}"));
        }
        let totals = (network.transmissions(), network.unroutable());
        calls.note(format!("{totals:?} {:?}", network.next_time()));
        network.check_accounting().unwrap();
        if pause == 8 {
            network.wake(EndpointId(0), &mut calls);
        }
    }
    Ok((calls, network.windows().is_some()))
}

/// Runs a network on one thread and on several. Returns how often it was divided.
fn compare(seed: u64) -> usize {
    let single = random_network(seed);
    let (expected, _) = run(single, false).unwrap();
    let divided = (2..=4).filter(|&threads| {
        let parallel = |is_text| {
            let mut network = random_network(seed);
            network.set_threads(threads);
            let drive = network.drive.as_mut().unwrap();
            if seed.is_multiple_of(3) {
                drive.number_max = 500;
            }
            if seed.is_multiple_of(8) {
                // Real windows have more events, of which each thread runs a share.
                drive.events_min = 0;
            }
            run(network, is_text).unwrap()
        };
        let (calls, is_divided) = parallel(false);
        if calls.hashes != expected.hashes {
            explain(seed, threads, &parallel(true).0);
        }
        is_divided
    });
    divided.count()
}

/// Shows the first call that differs.
fn explain(seed: u64, threads: usize, calls: &Calls) -> ! {
    let (expected, _) = run(random_network(seed), true).unwrap();
    let pairs = expected.texts.iter().zip(&calls.texts);
    let same = pairs.take_while(|(a, b)| a == b).count();
    let show = |calls: &Calls| {
        let around = calls.texts.iter().skip(same.saturating_sub(3)).take(6);
        around.cloned().collect::<Vec<_>>().join("\n  ")
    };
    panic!(
        "seed {seed}: {threads} threads differ from one at call {same}:\n  {}\ninstead of\n  {}",
        show(calls),
        show(&expected)
    );
}

#[test]
fn several_threads_do_what_one_does() {
    let seeds = std::env::var(SEEDS).map_or(60, |text| text.parse().unwrap());
    let divided: usize = (0..seeds).map(compare).sum();
    println!("{seeds} networks, {divided} runs on several threads: all equal those on one");
    // Some networks are too small, or have no delay at which they could be divided.
    assert!(divided as u64 >= seeds, "{divided} runs were divided");
}

/// An endpoint whose timer is a mistake.
struct Mistaken;

impl Endpoint for Mistaken {
    type Rx = Note;
    type Tx = Note;
    type Event = u64;

    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Note>) {}

    fn handle_timeout(&mut self, _now: Time) {
        panic!("a mistake");
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Note>> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(Time::ZERO + UNIT)
    }

    fn poll_event(&mut self) -> Option<u64> {
        None
    }
}

#[test]
#[should_panic(expected = "a mistake")]
fn the_panic_of_a_thread_is_that_of_the_run() {
    let mut network = Network::new(1);
    let [a, b] = ["A", "B"].map(|name| network.add_node(name));
    let delay = UNIT;
    network.add_duplex(
        a,
        b,
        LinkConfig {
            delay,
            ..LinkConfig::default()
        },
    );
    network.add_endpoint(b, Box::new(Mistaken));
    network.set_threads(2);
    network.drive.as_mut().unwrap().events_min = 0;
    network.run_until(Time::ZERO + UNIT * 2, &mut ()).unwrap();
}

#[test]
fn a_run_near_a_limit_needs_one_thread() {
    let halted = (0..60).filter(|seed| {
        let mut network = random_network(*seed);
        network.set_threads(2);
        network.set_carried_max(3);
        matches!(run(network, false), Err(Halt::OneThread(_)))
    });
    assert!(halted.count() > 10);
}
