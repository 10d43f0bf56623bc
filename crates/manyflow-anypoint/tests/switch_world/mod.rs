//! A world of ACP connections and switches: nodes in a tree, and a [`Link`] in each direction.

use std::time::Duration;

use manyflow_anypoint::Event;
use manyflow_anypoint::switch::{Leg, MemberId, Policy, RoundRobin, Switch, SwitchConfig};
use manyflow_anypoint::{AcpConfig, Connection, Length, Segment};
use manyflow_core::Time;
use manyflow_core::link::{Carried, Link, LinkConfig};

/// A segment and its payload.
#[derive(Clone)]
struct Datagram(Segment, Length);

impl Carried for Datagram {}

/// A node: one end, or a switch.
pub(crate) struct Node {
    role: Role,
    /// The neighbours: an end has one; a switch has its peer, then its members.
    neighbours: Vec<usize>,
    pub(crate) events: Vec<(Time, Event)>,
    pub(crate) is_dead: bool,
}

enum Role {
    End(Box<End>),
    Switch(Box<Switch<Length>>),
}

/// An end and its application, which reads at once.
pub(crate) struct End {
    pub(crate) connection: Connection<Length>,
    /// The keys of the frames to send, last first.
    pub(crate) to_send: Vec<u32>,
    pub(crate) closes: bool,
    pub(crate) read: Vec<u32>,
    pub(crate) frame_bytes: u32,
}

impl End {
    fn run(&mut self, now: Time) {
        while let Some(key) = self.to_send.pop() {
            if self.connection.send(key, Length(self.frame_bytes)).is_err() {
                self.to_send.push(key);
                break;
            }
        }
        if self.closes && self.to_send.is_empty() {
            self.connection.close();
        }
        while let Some(frame) = self.connection.receive(now) {
            self.read.push(frame.key);
        }
    }
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Node>,
    /// The links, each with the nodes that it goes from and to.
    links: Vec<(usize, usize, Link<Datagram>)>,
    seed: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World {
            now: Time::ZERO,
            nodes: Vec::new(),
            links: Vec::new(),
            seed,
        }
    }

    fn add(&mut self, role: Role) -> usize {
        self.nodes.push(Node {
            role,
            neighbours: Vec::new(),
            events: Vec::new(),
            is_dead: false,
        });
        self.nodes.len() - 1
    }

    fn add_end(&mut self, connection: Connection<Length>) -> usize {
        self.add(Role::End(Box::new(End {
            connection,
            to_send: Vec::new(),
            closes: false,
            read: Vec::new(),
            frame_bytes: 1024,
        })))
    }

    /// Adds the end that opens the connection.
    pub(crate) fn initiator(&mut self, config: AcpConfig) -> usize {
        self.add_end(Connection::connect(config, 7, Time::ZERO).expect("a valid initiator"))
    }

    /// Adds an end that accepts a connection.
    pub(crate) fn acceptor(&mut self, config: AcpConfig) -> usize {
        self.add_end(Connection::listen(config).expect("a valid acceptor"))
    }

    /// Adds a switch. Its peer must be connected first, and then its members in order.
    pub(crate) fn switch(&mut self, config: SwitchConfig, members: usize) -> usize {
        self.switch_with(config, Box::<RoundRobin>::default(), members)
    }

    pub(crate) fn switch_with(
        &mut self,
        config: SwitchConfig,
        policy: Box<dyn Policy<Length>>,
        members: usize,
    ) -> usize {
        let switch = Switch::new(config, policy, members).expect("a valid switch");
        self.add(Role::Switch(Box::new(switch)))
    }

    /// Connects two nodes by links of this kind.
    pub(crate) fn connect(&mut self, one: usize, other: usize, link: &LinkConfig) {
        for (from, to) in [(one, other), (other, one)] {
            self.seed += 1;
            self.nodes[from].neighbours.push(to);
            let link = Link::new(link.clone(), self.seed);
            self.links.push((from, to, link));
        }
    }

    pub(crate) fn end(&mut self, node: usize) -> &mut End {
        match &mut self.nodes[node].role {
            Role::End(end) => end,
            Role::Switch(_) => panic!("node {node} is a switch"),
        }
    }

    /// Adds a node to the members of a switch.
    pub(crate) fn join(&mut self, switch: usize, member: usize, link: &LinkConfig) {
        self.connect(switch, member, link);
        let now = self.now;
        self.switch_at(switch).join(now);
    }

    pub(crate) fn leave(&mut self, switch: usize, member: u16) {
        let now = self.now;
        self.switch_at(switch).leave(now, MemberId(member));
    }

    fn switch_at(&mut self, node: usize) -> &mut Switch<Length> {
        match &mut self.nodes[node].role {
            Role::Switch(switch) => switch,
            Role::End(_) => panic!("node {node} is an end"),
        }
    }

    /// Replaces a switch by one without any state.
    pub(crate) fn restart(&mut self, node: usize, members: usize) {
        let policy = Box::<RoundRobin>::default();
        let switch = Switch::new(SwitchConfig::default(), policy, members);
        *self.switch_at(node) = switch.expect("a valid switch");
    }

    pub(crate) fn count(&self, node: usize, event: Event) -> usize {
        let events = self.nodes[node].events.iter();
        events.filter(|(_, seen)| *seen == event).count()
    }

    /// Runs until `end`, or until no event is left.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        self.run_nodes();
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    /// Runs until an end has read this many frames.
    pub(crate) fn run_until_read(&mut self, node: usize, frames: usize) {
        self.run_nodes();
        while self.end(node).read.len() < frames {
            self.now = self
                .now
                .max(self.next_time().expect("an event that is due"));
            self.step();
        }
    }

    fn next_time(&self) -> Option<Time> {
        let links = self
            .links
            .iter()
            .filter_map(|(_, _, link)| link.next_time());
        let alive = self.nodes.iter().filter(|node| !node.is_dead);
        let timers = alive.filter_map(|node| match &node.role {
            Role::End(end) => end.connection.poll_timeout(),
            Role::Switch(switch) => switch.poll_timeout(),
        });
        links.chain(timers).min()
    }

    fn run_nodes(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.run_node(node));
    }

    fn step(&mut self) {
        let now = self.now;
        for node in self.nodes.iter_mut().filter(|node| !node.is_dead) {
            match &mut node.role {
                Role::End(end) => end.connection.handle_timeout(now),
                Role::Switch(switch) => switch.handle_timeout(now),
            }
        }
        self.run_nodes();
        for place in 0..self.links.len() {
            while let Some(Datagram(segment, payload)) = self.links[place].2.pop_ready(now) {
                let (from, to, _) = self.links[place];
                self.deliver(from, to, &segment, payload);
                self.run_node(to);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize, segment: &Segment, payload: Length) {
        let now = self.now;
        let node = &mut self.nodes[to];
        if node.is_dead {
            return;
        }
        let place = node.neighbours.iter().position(|other| *other == from);
        let leg = match place.expect("links connect neighbours") {
            0 => Leg::Peer,
            member => Leg::Member(MemberId(member as u16 - 1)),
        };
        match &mut node.role {
            Role::End(end) => end.connection.handle_segment(now, segment, payload),
            Role::Switch(switch) => switch.handle_segment(now, leg, segment, payload),
        }
    }

    /// Sends everything that the node has to send.
    fn run_node(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        if node.is_dead {
            return;
        }
        let mut out = Vec::new();
        match &mut node.role {
            Role::End(end) => {
                end.run(now);
                while let Some((segment, payload)) = end.connection.poll_transmit(now) {
                    let payload = payload.unwrap_or_default();
                    out.push((node.neighbours[0], Datagram(segment, payload)));
                }
                let next = || end.connection.poll_event();
                node.events
                    .extend(std::iter::from_fn(next).map(|e| (now, e)));
            }
            Role::Switch(switch) => {
                while let Some((to, segment, payload)) = switch.poll_transmit() {
                    let place = match to {
                        Leg::Peer => 0,
                        Leg::Member(MemberId(member)) => usize::from(member) + 1,
                    };
                    out.push((node.neighbours[place], Datagram(segment, payload)));
                }
                let next = || switch.poll_event();
                node.events
                    .extend(std::iter::from_fn(next).map(|e| (now, e)));
            }
        }
        for (to, datagram) in out {
            let bytes = datagram.0.wire_bytes() + datagram.1.0;
            let mut links = self.links.iter_mut();
            let link = links.find(|(from, at, _)| (*from, *at) == (index, to));
            let _ = link
                .expect("neighbours have links")
                .2
                .push(now, &datagram, bytes);
        }
    }
}
