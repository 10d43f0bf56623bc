//! Daemons whose links come and go, joined by pipes. A random scheduler moves the frames one at a
//! time; a link that goes down takes the frames on it along.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};

use super::super::*;
use super::world::Pipe;
use crate::controller::Open;
use crate::message::{GroupSet, Message};
use crate::notary::{Claim, Notary};
use manyflow_core::Payload;

/// Sparse numbers, as hashes of names are.
pub(super) const IDS: [DaemonId; 5] = [
    DaemonId(40_001),
    DaemonId(7),
    DaemonId(65_535),
    DaemonId(0),
    DaemonId(12_345),
];

/// A daemon's client.
pub(super) type At = (usize, ClientId);

/// A message as a member read it: its origin, the origin's incarnation, its group and its number.
pub(super) type Read = (DaemonId, GroupId, u64);

/// A frame with its payload, and the connection that it belongs to.
type Numbered = (u32, Frame, Vec<u8>);

/// A notary whose signatures are digests. Daemons of tests do not compute those of others.
#[derive(Debug)]
pub(super) struct TestNotary([u8; 2]);

impl TestNotary {
    pub(super) fn of(daemon: DaemonId) -> TestNotary {
        TestNotary(daemon.0.to_be_bytes())
    }
}

impl Notary<Vec<u8>> for TestNotary {
    fn bytes<'a>(&self, payload: &'a Vec<u8>) -> &'a [u8] {
        payload
    }

    fn payload(&self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn identity(&self) -> &[u8] {
        &self.0
    }

    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        let signed = Sha256::new().chain_update(self.0).chain_update(statement);
        signed.finalize().to_vec()
    }

    fn verify(&self, claim: &Claim<'_>) -> bool {
        let other = TestNotary::of(claim.origin);
        claim.identity == other.0 && claim.signature == other.sign(claim.statement)
    }
}

#[derive(Debug)]
struct Node {
    daemon: Daemon<Vec<u8>>,
    /// The number of the present connection to each neighbour.
    links: BTreeMap<usize, u32>,
}

pub(super) struct LivingWorld {
    config: OverlayConfig,
    is_signed: bool,
    nodes: Vec<Option<Node>>,
    incarnations: Vec<u32>,
    connections: u32,
    /// Frames in transit, by source and destination.
    frames: BTreeMap<(usize, usize), VecDeque<Numbered>>,
    pub(super) read: BTreeMap<At, Vec<(Read, u32)>>,
    /// The lengths of the payloads that a client read of the messages of a daemon to a group.
    lengths: BTreeMap<(At, DaemonId, GroupId), Vec<usize>>,
    pub(super) ready: BTreeMap<At, u32>,
    pub(super) events: Vec<(usize, Event)>,
    pub(super) interests: Vec<(usize, Interest<Vec<u8>>)>,
    /// The bytes of clients' messages and of acknowledgements that were sent.
    pub(super) data_bytes: u64,
    pub(super) receipt_bytes: u64,
    /// The number of seals that were sent over a link.
    pub(super) seals: u64,
    pub(super) random: Pcg64Mcg,
    pub(super) now: Time,
}

impl LivingWorld {
    /// Returns `daemons` daemons without links, at most five. They sign their states if the seed is
    /// odd.
    pub(super) fn new(daemons: usize, config: &OverlayConfig, seed: u64) -> LivingWorld {
        LivingWorld::with(daemons, config, seed, seed % 2 == 1)
    }

    /// Returns `daemons` daemons without links, at most five.
    pub(super) fn with(
        daemons: usize,
        config: &OverlayConfig,
        seed: u64,
        is_signed: bool,
    ) -> LivingWorld {
        let mut world = LivingWorld {
            config: config.clone(),
            is_signed,
            nodes: (0..daemons).map(|_| None).collect(),
            incarnations: vec![100; daemons],
            connections: 0,
            frames: BTreeMap::new(),
            read: BTreeMap::new(),
            lengths: BTreeMap::new(),
            ready: BTreeMap::new(),
            events: Vec::new(),
            interests: Vec::new(),
            data_bytes: 0,
            receipt_bytes: 0,
            seals: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
            now: Time::ZERO,
        };
        (0..daemons).for_each(|at| world.start(at, 1));
        world
    }

    /// Starts a daemon, with an incarnation that is `later` than its last one.
    pub(super) fn start(&mut self, at: usize, later: i64) {
        self.incarnations[at] = self.incarnations[at].saturating_add_signed(later as i32);
        let (config, incarnation) = (self.config.clone(), self.incarnations[at]);
        let mut daemon = Daemon::new(config, Box::new(Open), IDS[at], incarnation).unwrap();
        if self.is_signed {
            daemon = daemon.with_notary(Box::new(TestNotary::of(IDS[at])));
        }
        self.nodes[at] = Some(Node {
            daemon,
            links: BTreeMap::new(),
        });
    }

    /// Crashes a daemon. Its neighbours notice at once.
    pub(super) fn crash(&mut self, at: usize) {
        self.nodes[at] = None;
        for end in 0..self.nodes.len() {
            self.remove_end(end, at);
        }
        self.read.retain(|(place, _), _| *place != at);
    }

    pub(super) fn is_up(&self, at: usize) -> bool {
        self.nodes[at].is_some()
    }

    pub(super) fn daemon(&mut self, at: usize) -> &mut Daemon<Vec<u8>> {
        &mut self.nodes[at].as_mut().unwrap().daemon
    }

    pub(super) fn is_linked(&self, a: usize, b: usize) -> bool {
        let node = self.nodes[a].as_ref();
        node.is_some_and(|node| node.links.contains_key(&b))
    }

    pub(super) fn link(&mut self, a: usize, b: usize) {
        self.connections += 1;
        for (from, to) in [(a, b), (b, a)] {
            let (pipe, _) = Pipe::new(4);
            let (connection, now) = (self.connections, self.now);
            let node = self.nodes[from].as_mut().unwrap();
            node.links.insert(to, connection);
            node.daemon.add_link(now, IDS[to], 1, Box::new(pipe));
            self.drain(from);
        }
    }

    /// Takes a link down. One end notices before the other, if `lag` moves frames in between.
    pub(super) fn cut(&mut self, a: usize, b: usize, lag: usize) {
        self.remove_end(a, b);
        (0..lag).for_each(|_| {
            self.step();
        });
        self.remove_end(b, a);
    }

    fn remove_end(&mut self, from: usize, to: usize) {
        let now = self.now;
        if let Some(node) = &mut self.nodes[from]
            && node.links.remove(&to).is_some()
        {
            node.daemon.remove_link(now, IDS[to]);
            self.drain(from);
        }
    }

    pub(super) fn connect(&mut self, at: usize) -> ClientId {
        let now = self.now;
        self.daemon(at).connect(now, 100)
    }

    pub(super) fn say(&mut self, (at, client): At, frame: ClientFrame, bytes: u32) {
        let now = self.now;
        let payload = vec![0; bytes as usize];
        self.daemon(at).handle_client(now, client, &frame, payload);
        self.drain(at);
    }

    /// Connects a client that joins a group. The group's name is its number.
    pub(super) fn member(&mut self, at: usize, group: GroupId) -> At {
        let client = self.connect(at);
        self.say((at, client), ClientFrame::Join(group), group.0);
        (at, client)
    }

    pub(super) fn send(&mut self, from: At, groups: impl Into<GroupSet>) {
        self.send_bytes(from, groups, 1000);
    }

    pub(super) fn send_bytes(&mut self, from: At, groups: impl Into<GroupSet>, bytes: u32) {
        self.say(
            from,
            ClientFrame::Send {
                groups: groups.into(),
                sent_us: 0,
                layered: false,
            },
            bytes,
        );
    }

    fn drain(&mut self, at: usize) {
        let Some(mut node) = self.nodes[at].take() else {
            return;
        };
        while let Some(transmit) = node.daemon.poll_transmit() {
            match transmit {
                Transmit::Daemon(to, frame, payload) => self.carry(at, &node, to, frame, payload),
                Transmit::Client(client, ClientFrame::Deliver { origin, data, .. }, payload) => {
                    let of = ((at, client), origin, data.group);
                    self.lengths.entry(of).or_default().push(payload.len());
                    let read = (origin, data.group, data.sequence.number());
                    let place = IDS.iter().position(|id| *id == origin).unwrap();
                    let incarnation = self.incarnations[place];
                    let reads = self.read.entry((at, client)).or_default();
                    reads.push((read, incarnation));
                    let took = ClientFrame::Took { messages: 1 };
                    node.daemon
                        .handle_client(self.now, client, &took, Vec::new());
                }
                Transmit::Client(client, ClientFrame::Ready, _) => {
                    *self.ready.entry((at, client)).or_default() += 1;
                }
                Transmit::Client(..) => {}
            }
        }
        while let Some(event) = node.daemon.poll_event() {
            self.events.push((at, event));
        }
        while let Some(interest) = node.daemon.poll_interest() {
            self.interests.push((at, interest));
        }
        self.nodes[at] = Some(node);
    }

    fn carry(&mut self, at: usize, node: &Node, to: DaemonId, frame: Frame, payload: Vec<u8>) {
        let to = IDS.iter().position(|id| *id == to).unwrap();
        if let Frame::Datagram { message, .. } = frame {
            let bytes = u64::from(frame.wire_bytes() + payload.length());
            match message.body {
                Body::Data(_) | Body::Shared(_) | Body::Again(_) | Body::Resent(_) => {
                    self.data_bytes += bytes;
                }
                Body::Acknowledge(_) => self.receipt_bytes += bytes,
                Body::Seal(_) => self.seals += 1,
                _ => {}
            }
        }
        if let Some(connection) = node.links.get(&to) {
            let queue = self.frames.entry((at, to)).or_default();
            queue.push_back((*connection, frame, payload));
        }
    }

    /// Lets a daemon handle a message that a neighbour did not send.
    pub(super) fn forge(&mut self, from: usize, to: usize, origin: usize, body: Body) {
        self.forge_with(from, to, origin, body, Vec::new());
    }

    /// Lets a daemon handle a message with a payload that a neighbour did not send.
    pub(super) fn forge_with(
        &mut self,
        from: usize,
        to: usize,
        origin: usize,
        body: Body,
        payload: Vec<u8>,
    ) {
        self.forge_about_with(from, to, IDS[origin], body, payload);
    }

    /// Lets a daemon handle a message, about any daemon, that a neighbour did not send.
    pub(super) fn forge_about(&mut self, from: usize, to: usize, origin: DaemonId, body: Body) {
        self.forge_about_with(from, to, origin, body, Vec::new());
    }

    fn forge_about_with(
        &mut self,
        from: usize,
        to: usize,
        origin: DaemonId,
        body: Body,
        payload: Vec<u8>,
    ) {
        let message = Message {
            origin,
            copy: Default::default(),
            body,
        };
        let number = LinkSeq(0);
        let frame = Frame::Datagram { number, message };
        let now = self.now;
        self.daemon(to)
            .handle_frame(now, IDS[from], &frame, Ecn::NotCapable, payload);
        self.drain(to);
    }

    /// Lets a message about a daemon follow the frames that are in transit from one daemon to
    /// another.
    pub(super) fn delay(&mut self, from: usize, to: usize, origin: usize, body: Body) {
        let message = Message {
            origin: IDS[origin],
            copy: Default::default(),
            body,
        };
        let number = LinkSeq(0);
        let connection = self.nodes[from].as_ref().unwrap().links[&to];
        let queue = self.frames.entry((from, to)).or_default();
        queue.push_back((connection, Frame::Datagram { number, message }, Vec::new()));
    }

    /// Moves one frame on a randomly chosen queue. Returns `false` if no frame is in transit.
    pub(super) fn step(&mut self) -> bool {
        self.frames.retain(|_, queue| !queue.is_empty());
        if self.frames.is_empty() {
            return false;
        }
        let place = self.random.random_range(0..self.frames.len());
        let (&(from, to), queue) = self.frames.iter_mut().nth(place).unwrap();
        let (connection, frame, payload) = queue.pop_front().unwrap();
        let now = self.now;
        if let Some(node) = &mut self.nodes[to]
            && node.links.get(&from) == Some(&connection)
        {
            node.daemon
                .handle_frame(now, IDS[from], &frame, Ecn::NotCapable, payload);
            self.drain(to);
        }
        true
    }

    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    /// Lets time pass, in steps of 50 ms at whose ends all frames have arrived.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.run();
            self.now = (self.now + Duration::from_millis(50)).min(end);
            self.tick();
        }
        self.run();
    }

    /// Handles the timers that are due.
    pub(super) fn tick(&mut self) {
        for at in 0..self.nodes.len() {
            let now = self.now;
            if let Some(node) = &mut self.nodes[at] {
                node.daemon.handle_timeout(now);
                self.drain(at);
            }
        }
    }

    /// Returns the numbers that a member read of the messages of a daemon to a group.
    pub(super) fn numbers(&self, member: At, origin: usize, group: GroupId) -> Vec<u64> {
        let read = self.read.get(&member).into_iter().flatten();
        let of = |read: &&(Read, u32)| read.0.0 == IDS[origin] && read.0.1 == group;
        read.filter(of).map(|(read, _)| read.2).collect()
    }

    /// Returns the lengths of the payloads that a member read of a daemon's messages to a group.
    pub(super) fn lengths(&self, member: At, origin: usize, group: GroupId) -> Vec<usize> {
        let lengths = self.lengths.get(&(member, IDS[origin], group));
        lengths.cloned().unwrap_or_default()
    }

    /// Returns the number of entries that each daemon keeps.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().flatten();
        nodes.map(|node| node.daemon.state_size()).collect()
    }

    pub(super) fn versions(&self) -> Vec<u16> {
        let nodes = self.nodes.iter().flatten();
        nodes.map(|node| node.daemon.topology().version()).collect()
    }
}
