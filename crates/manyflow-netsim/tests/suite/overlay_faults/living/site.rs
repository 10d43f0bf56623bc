//! A site: a daemon that crashes and restarts, its links, and its clients.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Header, Packet, Time};
use manyflow_overlay::hop::{DatagramHop, Hop, StreamHop};
use manyflow_overlay::{ClientFrame, Daemon, DaemonId, Event, Frame, LinkKind, Transmit};

use super::clients::Person;
use super::ordered::Ordered;
use super::plan::{LAST, Plan};
use crate::overlay_faults::world::controller;

/// A frame of a connection between two daemons. A frame of another connection is dropped, as a
/// socket does.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Numbered {
    connection: u32,
    frame: Frame,
}

impl Header for Numbered {
    fn wire_bytes(&self) -> u32 {
        self.frame.wire_bytes()
    }
}

/// A step of a site's script.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Crash,
    Down(usize),
    Start,
    Up {
        to: usize,
        connection: u32,
        weight: u32,
    },
}

pub(crate) struct Site {
    here: usize,
    plan: Arc<Plan>,
    seed: u64,
    script: VecDeque<(Time, Step)>,
    pub(crate) daemon: Option<Daemon<Contents>>,
    lives: usize,
    connections: BTreeMap<usize, u32>,
    pub(crate) persons: Vec<Person>,
    /// The ordered groups of the site, if it has any.
    pub(crate) ordered: Option<Ordered>,
    packets: VecDeque<Packet<Numbered>>,
}

impl Site {
    pub(crate) fn new(plan: Arc<Plan>, here: usize, seed: u64, persons: Vec<Person>) -> Site {
        let mut script = Vec::new();
        for (start, crash) in &plan.daemons[here].lives {
            script.push((*start, Step::Start));
            script.extend(crash.map(|crash| (crash, Step::Crash)));
        }
        for link in &plan.links {
            let Some(end) = link.ends.iter().position(|end| *end == here) else {
                continue;
            };
            let to = link.ends[1 - end];
            for (connection, times) in (1..).zip(&link.connections) {
                let weight = link.weight;
                let up = Step::Up {
                    to,
                    connection,
                    weight,
                };
                script.push((times.up[end], up));
                script.extend(times.down.map(|down| (down[end], Step::Down(to))));
            }
        }
        script.sort_unstable();
        Site {
            here,
            plan,
            seed,
            script: script.into(),
            daemon: None,
            lives: 0,
            connections: BTreeMap::new(),
            persons,
            ordered: None,
            packets: VecDeque::new(),
        }
    }

    /// Disconnects all clients.
    pub(crate) fn disconnect_all(&mut self, now: Time) {
        for person in &mut self.persons {
            if let (Some((id, _)), Some(daemon)) = (person.connection.take(), &mut self.daemon) {
                let frame = ClientFrame::Disconnect;
                daemon.handle_client(now, id, &frame, Contents::default());
            }
            person.on_crash();
        }
        self.drain(now);
    }

    fn take_steps(&mut self, now: Time) {
        while self.script.front().is_some_and(|(time, _)| *time <= now) {
            let Some((_, step)) = self.script.pop_front() else {
                return;
            };
            match step {
                Step::Start => self.start(now),
                Step::Crash => {
                    self.daemon = None;
                    self.connections.clear();
                    self.persons.iter_mut().for_each(Person::on_crash);
                    if let Some(ordered) = &mut self.ordered {
                        ordered.on_crash();
                    }
                }
                Step::Up {
                    to,
                    connection,
                    weight,
                } => self.add_link(now, to, connection, weight),
                Step::Down(to) => {
                    if let Some(daemon) = &mut self.daemon
                        && self.connections.remove(&to).is_some()
                    {
                        daemon.remove_link(now, self.plan.daemons[to].id);
                    }
                }
            }
        }
    }

    fn start(&mut self, now: Time) {
        self.lives += 1;
        let here = self.plan.daemons[self.here].id;
        let incarnation = match self.plan.is_stale(self.lives - 1) {
            true => 50,
            false => 100 + self.lives as u32,
        };
        let controller = controller(self.plan.control, here, self.plan.seed);
        let daemon = Daemon::new(self.plan.config.clone(), controller, here, incarnation);
        let mut daemon = daemon.unwrap();
        if let Some(ordered) = &mut self.ordered {
            ordered.on_start(now, &mut daemon);
        }
        self.daemon = Some(daemon);
        for person in &mut self.persons {
            person.on_start(now);
        }
    }

    fn add_link(&mut self, now: Time, to: usize, connection: u32, weight: u32) {
        let seed = self.seed ^ u64::from(connection) << 32 ^ to as u64;
        let hop: Box<dyn Hop<Contents>> = match &self.plan.link_kind {
            LinkKind::Streams(tcp) => Box::new(StreamHop::new(tcp.clone(), seed).unwrap()),
            LinkKind::Datagrams => Box::new(DatagramHop::new()),
        };
        if let Some(daemon) = &mut self.daemon {
            self.connections.insert(to, connection);
            daemon.add_link(now, self.plan.daemons[to].id, weight, hop);
        }
    }

    /// Lets the daemon and its clients exchange frames until nothing is left to do.
    fn drain(&mut self, now: Time) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        loop {
            while let Some(transmit) = daemon.poll_transmit() {
                match transmit {
                    Transmit::Daemon(to, frame, payload) => self.send(to, frame, payload),
                    Transmit::Client(client, frame, payload) => {
                        if let Some(ordered) = &mut self.ordered
                            && ordered.handle_frame(now, &mut daemon, client, &frame, &payload)
                        {
                            continue;
                        }
                        let mut persons = self.persons.iter_mut();
                        let person = persons.find(|person| {
                            person
                                .connection
                                .as_ref()
                                .is_some_and(|(id, _)| *id == client)
                        });
                        if let Some(person) = person {
                            person.handle_frame(now, &frame, payload);
                        }
                    }
                }
            }
            while daemon.poll_event().is_some() {}
            while daemon.poll_interest().is_some() {}
            let ordered = self.ordered.as_mut();
            let any = ordered.is_some_and(|ordered| ordered.work(now, &mut daemon));
            if !self.let_clients_work(now, &mut daemon) && !any {
                break;
            }
        }
        self.daemon = Some(daemon);
    }

    /// Returns whether any client has sent a frame.
    fn let_clients_work(&mut self, now: Time, daemon: &mut Daemon<Contents>) -> bool {
        let mut any = false;
        for person in &mut self.persons {
            if person.connects(now) {
                let id = daemon.connect(now, 100);
                person.on_connect(now, id, self.lives - 1);
            }
            person.work(now);
            while let Some((id, client)) = &mut person.connection
                && let Some((frame, payload)) = client.poll_transmit()
            {
                daemon.handle_client(now, *id, &frame, payload);
                any = true;
            }
        }
        any
    }

    fn send(&mut self, to: DaemonId, frame: Frame, payload: Contents) {
        let mut daemons = self.plan.daemons.iter();
        let place = daemons.position(|daemon| daemon.id == to).unwrap();
        let connection = match frame {
            Frame::Direct(_) => Some(0),
            _ => self.connections.get(&place).copied(),
        };
        if let Some(connection) = connection {
            let to = Destination::Endpoint(EndpointId(place as u32));
            let header = Numbered { connection, frame };
            self.packets.push_back(Packet::new(to, header, payload));
        }
    }
}

impl Endpoint for Site {
    type Rx = Numbered;
    type Tx = Numbered;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Numbered>) {
        let from = packet.source.0 as usize;
        let Numbered { connection, frame } = packet.header;
        let is_open = connection == 0 || self.connections.get(&from) == Some(&connection);
        if let Some(daemon) = &mut self.daemon
            && is_open
        {
            let from = self.plan.daemons[from].id;
            daemon.handle_frame(now, from, &frame, packet.ecn, packet.payload());
        }
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.take_steps(now);
        if let Some(daemon) = &mut self.daemon {
            daemon.handle_timeout(now);
        }
        self.drain(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Numbered>> {
        self.packets.pop_front().map(Action::Send)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let step = self.script.front().map(|(time, _)| *time);
        let daemon = self.daemon.as_ref().and_then(Daemon::poll_timeout);
        let persons = self.persons.iter().filter_map(Person::poll_timeout);
        let ordered = self.ordered.as_ref().and_then(Ordered::poll_timeout);
        [step, daemon, ordered]
            .into_iter()
            .flatten()
            .chain(persons)
            .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// Returns whether all steps of all scripts have been taken at this time.
pub(crate) fn is_after_faults(now: Time) -> bool {
    now > LAST
}
