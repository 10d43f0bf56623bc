//! Daemons joined by pipes that lose no frames. A random scheduler moves the frames one at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::*;
use crate::controller::Open;
use crate::hop::Arrival;
use crate::message::{GroupSet, Message};
use crate::sequence::LinkSeq;
use manyflow_core::{Length, Payload};

pub(crate) const G: GroupId = GroupId(7);

/// The number of messages that a pipe's end accepts before its frames are sent. Tests may change
/// it.
pub(crate) type Room = Arc<AtomicUsize>;

/// One end of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe<P> {
    room: Room,
    out: VecDeque<(Message, P)>,
    arrived: VecDeque<(Message, P)>,
}

impl<P> Pipe<P> {
    pub(crate) fn new(room: usize) -> (Pipe<P>, Room) {
        let room = Arc::new(AtomicUsize::new(room));
        let pipe = Pipe {
            room: Arc::clone(&room),
            out: VecDeque::new(),
            arrived: VecDeque::new(),
        };
        (pipe, room)
    }
}

impl<P: Payload + core::fmt::Debug> Hop<P> for Pipe<P> {
    fn overhead_bytes(&self) -> u32 {
        42
    }
    fn keeps_order(&self) -> bool {
        true
    }
    fn has_room(&self) -> bool {
        self.out.len() < self.room.load(Ordering::Relaxed)
    }
    fn push(&mut self, _now: Time, message: Message, payload: P) {
        self.out.push_back((message, payload));
    }
    fn handle_frame(&mut self, _now: Time, frame: &Frame, _ecn: Ecn, payload: P) {
        if let Frame::Datagram { message, .. } = frame {
            self.arrived.push_back((*message, payload));
        }
    }
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_transmit(&mut self, _now: Time) -> Option<(Frame, P)> {
        let (message, payload) = self.out.pop_front()?;
        Some((
            Frame::Datagram {
                number: LinkSeq(0),
                message,
            },
            payload,
        ))
    }
    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<P>> {
        let (message, payload) = self.arrived.pop_front()?;
        Some(Arrival { message, payload })
    }
}

pub(super) struct World {
    pub(super) daemons: Vec<Daemon<Length>>,
    /// The room of each pipe's end, by its own daemon and the other end's.
    rooms: BTreeMap<(DaemonId, DaemonId), Room>,
    /// Frames in transit, by source and destination.
    frames: BTreeMap<(DaemonId, DaemonId), VecDeque<(Frame, Length)>>,
    /// Frames with the payload of a client's message, by source and destination.
    pub(super) carried: BTreeMap<(u16, u16), usize>,
    /// The origins and numbers of the messages that were delivered to each client, by daemon and
    /// client.
    pub(super) read: BTreeMap<(usize, ClientId), Vec<(DaemonId, u64)>>,
    /// The number of messages of each client that have entered.
    pub(super) ready: BTreeMap<(usize, ClientId), u32>,
    /// Clients that read no messages.
    pub(super) asleep: Vec<(usize, ClientId)>,
    pub(super) events: Vec<(usize, Event)>,
    pub(super) random: Pcg64Mcg,
    pub(super) now: Time,
}

impl World {
    pub(super) fn new(
        daemons: usize,
        links: &[(u16, u16)],
        config: &OverlayConfig,
        seed: u64,
    ) -> World {
        let links: Vec<_> = links
            .iter()
            .map(|(a, b)| (DaemonId(*a), DaemonId(*b), 1))
            .collect();
        let topology = Arc::new(Topology::new((0..daemons as u16).map(DaemonId), &links).unwrap());
        let mut rooms = BTreeMap::new();
        let daemon = |here: usize| {
            let here = DaemonId(here as u16);
            let ends = topology.neighbours(here).iter();
            let hops = ends.map(|end| -> Box<dyn Hop<Length>> {
                let (pipe, room) = Pipe::new(4);
                rooms.insert((here, *end), room);
                Box::new(pipe)
            });
            let (config, topology) = (config.clone(), topology.clone());
            Daemon::fixed(config, Box::new(Open), here, topology, hops.collect()).unwrap()
        };
        World {
            daemons: (0..daemons).map(daemon).collect(),
            rooms,
            frames: BTreeMap::new(),
            carried: BTreeMap::new(),
            read: BTreeMap::new(),
            ready: BTreeMap::new(),
            asleep: Vec::new(),
            events: Vec::new(),
            random: Pcg64Mcg::seed_from_u64(seed),
            now: Time::ZERO,
        }
    }

    /// Changes the room of a daemon's end of a pipe and calls `handle_writable`.
    pub(super) fn set_room(&mut self, at: usize, neighbour: u16, room: usize) {
        let neighbour = DaemonId(neighbour);
        let ends = (DaemonId(at as u16), neighbour);
        self.rooms[&ends].store(room, Ordering::Relaxed);
        self.daemons[at].handle_writable(self.now, neighbour);
        self.drain(at);
    }

    pub(super) fn connect(&mut self, at: usize) -> ClientId {
        self.daemons[at].connect(self.now, 100)
    }

    pub(super) fn say(&mut self, at: usize, client: ClientId, frame: ClientFrame) {
        self.daemons[at].handle_client(self.now, client, &frame, Length(100));
        self.drain(at);
    }

    pub(super) fn send(&mut self, at: usize, client: ClientId, groups: impl Into<GroupSet>) {
        self.say(
            at,
            client,
            ClientFrame::Send {
                groups: groups.into(),
                sent_us: 0,
                layered: false,
            },
        );
    }

    pub(super) fn member(&mut self, at: usize) -> ClientId {
        self.member_of(at, G)
    }

    pub(super) fn member_of(&mut self, at: usize, group: GroupId) -> ClientId {
        let client = self.connect(at);
        self.say(at, client, ClientFrame::Join(group));
        client
    }

    pub(super) fn drain(&mut self, at: usize) {
        let from = DaemonId(at as u16);
        while let Some(transmit) = self.daemons[at].poll_transmit() {
            match transmit {
                Transmit::Daemon(to, frame, payload) => {
                    if let Frame::Datagram { message, .. } = frame
                        && message.is_data()
                        && payload.length() > 0
                    {
                        *self.carried.entry((from.0, to.0)).or_default() += 1;
                    }
                    let queue = self.frames.entry((from, to)).or_default();
                    queue.push_back((frame, payload));
                }
                Transmit::Client(client, ClientFrame::Deliver { origin, data, .. }, _) => {
                    let read = self.read.entry((at, client)).or_default();
                    read.push((origin, data.sequence.number()));
                    if !self.asleep.contains(&(at, client)) {
                        let took = ClientFrame::Took { messages: 1 };
                        self.daemons[at].handle_client(self.now, client, &took, Length(0));
                    }
                }
                Transmit::Client(client, ClientFrame::Ready, _) => {
                    *self.ready.entry((at, client)).or_default() += 1;
                }
                Transmit::Client(..) => {}
            }
        }
        while let Some(event) = self.daemons[at].poll_event() {
            self.events.push((at, event));
        }
    }

    /// Moves one frame on a randomly chosen queue. Returns `false` if no frame is in transit.
    pub(super) fn step(&mut self) -> bool {
        let busy: Vec<_> = self
            .frames
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .collect();
        if busy.is_empty() {
            return false;
        }
        let (from, to) = *busy[self.random.random_range(0..busy.len())].0;
        let queue = self.frames.get_mut(&(from, to)).unwrap();
        let (frame, payload) = queue.pop_front().unwrap();
        let at = usize::from(to.0);
        self.daemons[at].handle_frame(self.now, from, &frame, Ecn::NotCapable, payload);
        self.drain(at);
        true
    }

    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    pub(super) fn from(&self, at: usize, client: ClientId, origin: usize) -> Vec<u64> {
        let read = self.read.get(&(at, client)).into_iter().flatten();
        let origin = DaemonId(origin as u16);
        read.filter(|(from, _)| *from == origin)
            .map(|(_, n)| *n)
            .collect()
    }
}
