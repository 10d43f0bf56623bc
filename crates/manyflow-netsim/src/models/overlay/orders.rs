//! Tests of the two orders to compare with: all members deliver all messages in one order.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;

use manyflow_core::{Contents, Ecn};
use manyflow_overlay::controller::Open;
use manyflow_overlay::hop::DatagramHop;
use manyflow_overlay::{
    Addresses, ClientFrame, Daemon, DaemonEndpoint, DaemonId, OverlayConfig, Topology,
};
use rand::RngExt;

const GROUP: GroupId = GroupId(3);
const DAEMONS: u32 = 4;
/// The endpoint of the client at daemon `d` is `CLIENTS + d`.
const CLIENTS: u32 = 100;
const DELAY: Duration = Duration::from_millis(5);

type Node = Box<dyn Endpoint<Rx = Frame, Tx = Frame, Event = Event>>;

/// A chain of daemons, each with a client that sends and is a member.
struct Chain {
    nodes: Vec<Node>,
    now: Time,
    /// Packets between daemons, by the time of their arrival.
    under_way: BTreeMap<(Time, u64), (u32, Packet<Frame>)>,
    number: u64,
    random: Pcg64Mcg,
    loss: f64,
    lost: u32,
    /// The messages that each client has got, by when they were ready.
    read: Vec<Vec<u32>>,
    ready: Vec<bool>,
}

fn topology() -> Arc<Topology> {
    let ids: Vec<DaemonId> = (0..DAEMONS as u16).map(DaemonId).collect();
    let links: Vec<_> = ids.windows(2).map(|ends| (ends[0], ends[1], 1)).collect();
    Arc::new(Topology::new(ids, &links).unwrap())
}

fn addresses() -> Arc<Addresses> {
    Arc::new(Addresses::new((0..DAEMONS).map(EndpointId).collect()))
}

impl Chain {
    fn new(loss: f64, node: impl Fn(DaemonId) -> Node) -> Chain {
        let mut chain = Chain {
            nodes: (0..DAEMONS as u16).map(|at| node(DaemonId(at))).collect(),
            now: Time::ZERO,
            under_way: BTreeMap::new(),
            number: 0,
            random: Pcg64Mcg::seed_from_u64(7),
            loss,
            lost: 0,
            read: vec![Vec::new(); DAEMONS as usize],
            ready: vec![true; DAEMONS as usize],
        };
        for at in 0..DAEMONS {
            chain.tick(at);
            for frame in [
                ClientFrame::Connect { priority: 100 },
                ClientFrame::Join(GROUP),
            ] {
                chain.ask(at, frame, 0);
            }
        }
        chain.run(Duration::from_secs(1));
        chain
    }

    fn tick(&mut self, at: u32) {
        self.nodes[at as usize].handle_timeout(self.now);
        self.drain(at);
    }

    fn ask(&mut self, at: u32, frame: ClientFrame, length: u32) {
        let to = Destination::Endpoint(EndpointId(at));
        let packet = Packet::new(to, Frame::Client(frame), length);
        let packet = packet.with_source(EndpointId(CLIENTS + at));
        self.nodes[at as usize].handle_packet(self.now, &packet);
        self.drain(at);
    }

    /// Sends a message of the client at a daemon, which `sent_us` identifies.
    fn send(&mut self, at: u32, sent_us: u32) {
        assert!(std::mem::take(&mut self.ready[at as usize]), "{at}");
        let groups = GROUP.into();
        let frame = ClientFrame::Send {
            groups,
            sent_us,
            layered: false,
        };
        self.ask(at, frame, 100);
    }

    fn drain(&mut self, at: u32) {
        while let Some(Action::Send(packet)) = self.nodes[at as usize].poll_action(self.now) {
            let Destination::Endpoint(EndpointId(to)) = packet.destination else {
                panic!("a multicast packet");
            };
            match packet.header {
                Frame::Client(ClientFrame::Deliver { data, .. }) => {
                    self.read[(to - CLIENTS) as usize].push(data.sent_us);
                    self.ask(at, ClientFrame::Took { messages: 1 }, 0);
                }
                Frame::Client(ClientFrame::Ready) => self.ready[(to - CLIENTS) as usize] = true,
                Frame::Client(_) => {}
                _ if self.random.random_bool(self.loss) => self.lost += 1,
                _ => {
                    let due = self.now + DELAY * to.abs_diff(at);
                    self.number += 1;
                    let packet = packet.with_source(EndpointId(at));
                    self.under_way.insert((due, self.number), (to, packet));
                }
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timers = self.nodes.iter().zip(0u32..);
            let timers = timers.filter_map(|(node, at)| Some((node.poll_timeout()?, at)));
            let timer = timers.min();
            let arrival = self.under_way.first_key_value().map(|(key, _)| key.0);
            let next = [timer.map(|timer| timer.0), arrival];
            let Some(next) = next.into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if arrival.is_some_and(|arrival| arrival <= next) {
                let (_, (to, packet)) = self.under_way.pop_first().unwrap();
                assert_eq!(packet.ecn, Ecn::NotCapable);
                self.nodes[to as usize].handle_packet(self.now, &packet);
                self.drain(to);
            } else if let Some((_, at)) = timer {
                self.tick(at);
            }
        }
    }

    /// Lets all clients send, and returns the order in which all members have got the messages.
    fn order(mut self, rounds: u32, senders: &[u32]) -> (Vec<u32>, u32) {
        for round in 0..rounds {
            for at in senders {
                self.send(*at, round * 10 + at);
                self.run(Duration::from_micros(700));
            }
            self.run(Duration::from_millis(3));
        }
        self.run(Duration::from_secs(20));
        let order = self.read.pop().unwrap();
        assert_eq!(order.len(), rounds as usize * senders.len());
        assert!(
            self.read.iter().all(|read| *read == order),
            "{:?}",
            self.read
        );
        for at in senders {
            let own = order.iter().filter(|message| *message % 10 == *at);
            assert!(own.is_sorted(), "the messages of {at} in another order");
        }
        (order, self.lost)
    }
}

fn sequencer(moves: bool, is_safe: bool) -> impl Fn(DaemonId) -> Node {
    let config = SequencerConfig {
        moves,
        is_safe,
        pace: Duration::from_millis(1),
    };
    move |here| {
        let topology = topology();
        let ends = topology.neighbours(here).len();
        let hops = (0..ends)
            .map(|_| Box::new(DatagramHop::new()) as _)
            .collect();
        let daemon = Daemon::<Contents>::fixed(
            OverlayConfig::default(),
            Box::new(Open),
            here,
            topology,
            hops,
        );
        let daemon = DaemonEndpoint::of_daemon(daemon.unwrap(), addresses());
        let agent = Sequencer::new(config, here, DAEMONS as usize, GROUP);
        Box::new(daemon.with_agent(agent))
    }
}

fn ring(is_safe: bool) -> impl Fn(DaemonId) -> Node {
    move |here| {
        let config = RingConfig {
            is_safe,
            retransmission: Duration::from_millis(300),
            ..RingConfig::default()
        };
        Box::new(Ring::new(config, here, topology(), addresses()))
    }
}

#[test]
fn a_sequencer_orders_messages_of_all_daemons() {
    for is_safe in [false, true] {
        Chain::new(0.0, sequencer(false, is_safe)).order(40, &[0, 1, 2, 3]);
    }
}

#[test]
fn a_sequencer_moves_to_the_busy_daemon_and_back() {
    let chain = Chain::new(0.0, sequencer(true, false));
    chain.order(60, &[3]);
    let chain = Chain::new(0.0, sequencer(true, true));
    chain.order(60, &[0, 1, 2, 3]);
    // Each daemon is busy in its turn, so that decisions of several sequencers are under way.
    let mut chain = Chain::new(0.0, sequencer(true, false));
    for message in 0..300 {
        let at = message / 10 % DAEMONS;
        while !std::mem::take(&mut chain.ready[at as usize]) {
            chain.run(Duration::from_micros(100));
        }
        chain.ready[at as usize] = true;
        chain.send(at, message);
        chain.run(Duration::from_micros(300));
    }
    chain.run(Duration::from_secs(5));
    assert_eq!(chain.read[0].len(), 300);
    assert!(chain.read.iter().all(|read| *read == chain.read[0]));
}

#[test]
fn a_message_of_the_sequencers_daemon_takes_one_way() {
    // At daemon 3 itself, a message waits for daemon 0 until the sequencer has moved to 3.
    let waits = |moves| {
        let mut chain = Chain::new(0.0, sequencer(moves, false));
        for message in 0..40 {
            chain.send(3, message);
            chain.run(Duration::from_millis(100));
        }
        chain.send(3, 99);
        chain.run(DELAY * 4);
        chain.read[3].last() != Some(&99)
    };
    assert!(waits(false));
    assert!(!waits(true));
}

#[test]
fn a_ring_orders_messages_and_repairs_losses() {
    for is_safe in [false, true] {
        let (_, lost) = Chain::new(0.0, ring(is_safe)).order(40, &[0, 1, 2, 3]);
        assert_eq!(lost, 0);
        let (_, lost) = Chain::new(0.03, ring(is_safe)).order(40, &[0, 1, 2, 3]);
        assert!(lost > 20, "{lost} packets were lost");
    }
}

#[test]
fn a_message_of_a_ring_waits_for_the_token_and_a_safe_one_for_two_rotations() {
    // A rotation takes three links and the way back over three.
    let rotation = DELAY * 6;
    let latency = |is_safe| {
        let mut chain = Chain::new(0.0, ring(is_safe));
        chain.send(1, 5);
        let begin = chain.now;
        while chain.read[1].is_empty() {
            chain.run(Duration::from_millis(1));
        }
        chain.now - begin
    };
    assert!(latency(false) <= rotation);
    assert!(latency(true) >= rotation + DELAY);
    assert!(latency(true) <= rotation * 3);
}
