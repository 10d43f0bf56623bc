//! The switch of clients that share one connection to a service.
//!
//! ```text
//!   clients --UDP--> [ front ] -- Group: InitiatorSwitch<Bytes> -- [ back ] --UDP--> service
//! ```
//!
//! The service is a server or the switch of others. Clients join the connection that is open; the
//! first one opens it. A [`Prefix`](manyflow_anypoint::switch::Prefix) in the key of each answer
//! says which client it is for. Once all clients of a connection have closed it, or it has had as
//! many as there are prefixes, the next client opens another one.

use std::collections::HashMap;
use std::net::SocketAddr;

use bytes::Bytes;
use manyflow_anypoint::switch::MemberId;
use manyflow_anypoint::{Body, Reason, Segment};
use manyflow_core::time::Time;
use manyflow_net::udp::Arrival;
use rand::rngs::StdRng;
use slab::Slab;

use super::config::{MemberConfig, PolicyName, ServiceConfig, SwitchOptions};
use super::gate::Gate;
use super::group::Group;
use super::hub::{NO_SLOT, number_of};
use super::members::{Member, Members};
use super::output::Wires;
use super::server::{Target, Traffic};
use super::status::SwitchStatus;
use super::upkeep::{SILENCE_MAX, probe_members};
use crate::anypoint::envelope::{self, Cookie, Datagram, PATH_HEADER_BYTES, Part};
use crate::anypoint::timers::Timers;
use crate::anypoint::way::{Parts, Path};
use crate::anypoint::{Number, rng};

/// The name of the service in the log and in the status.
const SERVICE: &str = "service";

/// The connections of a switch of initiators.
pub(super) struct Initiators {
    gate: Gate,
    /// The service, and those that were the service before.
    services: Members,
    groups: Slab<Group>,
    /// The connection that further clients join.
    current: Option<usize>,
    /// The connection of each client, and its number there, by its address and its own number.
    places: HashMap<(SocketAddr, Number), (usize, MemberId)>,
    timers: Timers,
    client_parts: Parts,
    service_parts: Parts,
    rng: StdRng,
    clients_max: usize,
    is_draining: bool,
}

impl Initiators {
    pub(super) fn new(
        now: Time,
        wires: Wires,
        service: SocketAddr,
        options: &SwitchOptions,
    ) -> Self {
        let mut initiators = Initiators {
            gate: Gate::new(wires),
            services: Members::default(),
            groups: Slab::new(),
            current: None,
            places: HashMap::new(),
            timers: Timers::default(),
            client_parts: Parts::default(),
            service_parts: Parts::default(),
            rng: rng(),
            clients_max: options.connections_max,
            is_draining: false,
        };
        initiators.set_service(now, service);
        initiators
    }

    /// Sets the address of the service for further connections.
    fn set_service(&mut self, now: Time, address: SocketAddr) {
        let is_it = |(_, service): (u16, &Member)| service.address == address;
        if self.services.present().any(is_it) {
            return;
        }
        let service = MemberConfig {
            name: SERVICE.to_owned(),
            address,
            weight: 1.0,
            keys: Vec::new(),
        };
        let config = ServiceConfig {
            members: vec![service],
            policy: PolicyName::default(),
        };
        self.services.set(now, &config);
        self.current = None;
    }

    fn handle_client_segment(&mut self, now: Time, path: Path, segment: &Segment, frame: &[u8]) {
        let number = segment.connection;
        let Some((slot, id)) = self.find(path.remote, number) else {
            return self.gate.answer_peer(now, path, number, segment.body);
        };
        let payload = self.gate.payload(segment, frame);
        self.groups[slot].handle_client(now, id, segment.body, payload);
        self.finish(now, slot);
    }

    fn handle_client_part(&mut self, now: Time, path: Path, part: &Part, bytes: &[u8]) {
        if self.find(path.remote, part.connection).is_none() {
            return self
                .gate
                .answer_peer(now, path, part.connection, Body::Probe);
        }
        if let Some(whole) = self.client_parts.join(path.remote, part, bytes) {
            if let Ok(Datagram::Segment(segment, header)) = envelope::decode(&whole) {
                self.handle_client_segment(now, path, &segment, &whole[header..]);
            }
            self.client_parts.recycle(whole);
        }
    }

    fn find(&self, remote: SocketAddr, number: Number) -> Option<(usize, MemberId)> {
        self.places.get(&(remote, number)).copied()
    }

    fn handle_open(&mut self, now: Time, path: Path, open: &Segment, cookie: &Cookie) {
        let number = open.connection;
        let (slot, id) = match self.find(path.remote, number) {
            Some(place) => place,
            None if !self.gate.lets_in(now, path, number, cookie) => return,
            None => match self.admit(now, path, number) {
                Some(place) => place,
                None => return self.gate.refuse(now, path, number),
            },
        };
        self.groups[slot].handle_client(now, id, open.body, Bytes::new());
        self.finish(now, slot);
    }

    /// Adds a client to the connection that takes clients.
    fn admit(&mut self, now: Time, path: Path, number: Number) -> Option<(usize, MemberId)> {
        if self.is_draining || self.places.len() >= self.clients_max {
            return None;
        }
        let slot = match self.current {
            Some(slot) if self.groups[slot].takes_clients() => slot,
            _ => self.begin()?,
        };
        let id = self.groups[slot].join(now, path, number);
        self.places.insert((path.remote, number), (slot, id));
        self.gate.counters.opened += 1;
        Some((slot, id))
    }

    /// Creates a connection to the present service.
    fn begin(&mut self) -> Option<usize> {
        let (service, _) = self.services.present().next()?;
        if self.groups.len() >= NO_SLOT as usize {
            return None;
        }
        let entry = self.groups.vacant_entry();
        let slot = entry.key();
        entry.insert(Group::new(service, number_of(slot, &mut self.rng)).ok()?);
        self.current = Some(slot);
        Some(slot)
    }

    /// Returns the slot of the connection that has this number at the service.
    fn find_group(&self, service: u16, number: Number) -> Option<usize> {
        let slot = (number & NO_SLOT) as usize;
        let group = self.groups.get(slot)?;
        (group.service == service && group.number == number).then_some(slot)
    }

    fn handle_service_segment(&mut self, now: Time, service: u16, segment: &Segment, frame: &[u8]) {
        let number = segment.connection;
        let Some(slot) = self.find_group(service, number) else {
            let address = self.services.get_mut(service).address;
            return self.gate.answer_member(now, address, number, segment.body);
        };
        if let Body::Data(_) = segment.body {
            self.services
                .get_mut(service)
                .status
                .count_from(frame.len());
        }
        let payload = self.gate.payload(segment, frame);
        self.groups[slot].handle_service(now, segment.body, payload);
        self.finish(now, slot);
    }

    fn handle_service_part(&mut self, now: Time, service: u16, part: &Part, bytes: &[u8]) {
        let address = self.services.get_mut(service).address;
        if self.find_group(service, part.connection).is_none() {
            let number = part.connection;
            return self.gate.answer_member(now, address, number, Body::Probe);
        }
        if let Some(whole) = self.service_parts.join(address, part, bytes) {
            if let Ok(Datagram::Segment(segment, header)) = envelope::decode(&whole) {
                self.handle_service_segment(now, service, &segment, &whole[header..]);
            }
            self.service_parts.recycle(whole);
        }
    }

    /// Repeats the Open of a connection with the service's cookie.
    fn handle_challenge(&mut self, service: u16, number: Number, cookie: Cookie) {
        let slot = self.find_group(service, number);
        if let Some(open) = slot.and_then(|slot| self.groups[slot].open) {
            let service = self.services.get_mut(service);
            service.cookie = cookie;
            let header = envelope::encode(&open, &cookie);
            self.gate.wires.send_to_member(service.address, &header);
        }
    }

    /// Ends a connection whose other end is a switch of initiators, too. That switch gives one
    /// prefix to this connection, and so could not tell its clients apart.
    fn handle_admission(&mut self, service: u16, number: Number) {
        if let Some(slot) = self.find_group(service, number) {
            tracing::error!(
                "{} is a switch of initiators, too; name the service or its own switch instead",
                self.services.get_mut(service).address
            );
            self.reset(slot, Reason::Refused);
        }
    }

    /// Sends what a connection has to send, sets its timer, and forgets it if it is over.
    fn finish(&mut self, now: Time, slot: usize) {
        let group = &mut self.groups[slot];
        let service = self.services.get_mut(group.service);
        // An event can end a client's part, and so have further output.
        group.handle_events(now);
        group.send_output(now, &mut self.gate.wires, service);
        group.handle_events(now);
        group.send_output(now, &mut self.gate.wires, service);
        if group.switch.is_idle() {
            self.remove(slot);
        } else {
            let due = group.switch.poll_timeout();
            self.timers.set(&mut group.timer, slot, due);
        }
    }

    fn remove(&mut self, slot: usize) {
        let group = self.groups.remove(slot);
        self.gate.counters.dropped += group.dropped;
        for client in &group.clients {
            self.places.remove(&(client.path.remote, client.number));
        }
        self.current.take_if(|current| *current == slot);
    }

    fn reset(&mut self, slot: usize, reason: Reason) {
        let group = &mut self.groups[slot];
        let address = self.services.get_mut(group.service).address;
        group.reset(reason, &mut self.gate.wires, address);
        self.remove(slot);
    }

    fn slots(&self) -> Vec<usize> {
        self.groups.iter().map(|(slot, _)| slot).collect()
    }
}

impl Traffic for Initiators {
    fn wires(&self) -> &Wires {
        &self.gate.wires
    }

    /// Handles a datagram of a client.
    fn handle_front(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let path = Path {
            remote: arrival.source,
            local: arrival.destination,
        };
        match envelope::decode(bytes) {
            Ok(Datagram::Open(open, cookie)) => self.handle_open(now, path, &open, &cookie),
            Ok(Datagram::Segment(segment, header)) => {
                self.handle_client_segment(now, path, &segment, &bytes[header..]);
            }
            Ok(Datagram::PathProbe(number, id, size)) => {
                if let Some((slot, _)) = self.find(path.remote, number)
                    && self.groups[slot].service_carries(
                        now,
                        size,
                        &self.gate.wires,
                        &mut self.services,
                    )
                {
                    let answer = envelope::encode_path_answer(number, id, size);
                    self.gate.wires.send_to_peer(path, &answer);
                }
            }
            Ok(Datagram::PathAnswer(number, id, size)) => {
                if let Some((slot, client)) = self.find(path.remote, number) {
                    let client = &mut self.groups[slot].clients[client.index()];
                    client.way.handle_answer(now, id, size);
                }
            }
            Ok(Datagram::Part(part)) => {
                self.handle_client_part(now, path, &part, &bytes[PATH_HEADER_BYTES..]);
            }
            Ok(Datagram::Challenge(..) | Datagram::Admission(..)) | Err(_) => {
                self.gate.counters.invalid += 1;
            }
        }
    }

    /// Handles a datagram of the service. Datagrams from other addresses are ignored.
    fn handle_back(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let Some(service) = self.services.find(arrival.source) else {
            self.gate.counters.invalid += 1;
            return;
        };
        let Ok(datagram) = envelope::decode(bytes) else {
            self.gate.counters.invalid += 1;
            return;
        };
        self.services.note_heard(now, service);
        match datagram {
            Datagram::Segment(segment, header) => {
                self.handle_service_segment(now, service, &segment, &bytes[header..]);
            }
            Datagram::Challenge(number, cookie) => self.handle_challenge(service, number, cookie),
            Datagram::PathProbe(number, id, size) => {
                if let Some(slot) = self.find_group(service, number)
                    && self.groups[slot].clients_carry(now, size, &self.gate.wires)
                {
                    let answer = envelope::encode_path_answer(number, id, size);
                    self.gate.wires.send_to_member(arrival.source, &answer);
                }
            }
            Datagram::PathAnswer(_, id, size) => {
                let way = &mut self.services.get_mut(service).way;
                way.handle_answer(now, id, size);
            }
            Datagram::Part(part) => {
                self.handle_service_part(now, service, &part, &bytes[PATH_HEADER_BYTES..]);
            }
            Datagram::Admission(number, ..) => self.handle_admission(service, number),
            Datagram::Open(..) => self.gate.counters.invalid += 1,
        }
    }

    fn handle_timeouts(&mut self, now: Time) {
        while let Some((due, slot)) = self.timers.take_due(now) {
            if let Some(group) = self.groups.get_mut(slot)
                && group.timer.expire(due)
            {
                group.switch.handle_timeout(now);
                self.finish(now, slot);
            }
        }
    }

    fn handle_tick(&mut self, now: Time) {
        self.services.check_health(now);
        probe_members(&self.services, &mut self.gate.wires, &mut self.rng);
        for slot in self.slots() {
            self.gate.counters.silent += self.groups[slot].give_up_silent(now, SILENCE_MAX);
            self.finish(now, slot);
        }
    }

    fn flush(&mut self, now: Time) {
        self.gate.wires.flush();
        while let Some((remote, length)) = self.gate.wires.take_too_long_for_peer() {
            let groups = self.groups.iter_mut();
            let clients = groups.flat_map(|(_, group)| &mut group.clients);
            for client in clients.filter(|client| client.path.remote == remote) {
                client.way.handle_too_long(now, remote, length);
            }
        }
        while let Some((remote, length)) = self.gate.wires.take_too_long_for_member() {
            if let Some(service) = self.services.find(remote) {
                let way = &mut self.services.get_mut(service).way;
                way.handle_too_long(now, remote, length);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    fn set_target(&mut self, now: Time, target: &Target) {
        if let Target::Peer(address) = target {
            self.set_service(now, *address);
        }
    }

    fn begin_draining(&mut self) {
        self.is_draining = true;
    }

    fn is_finished(&self) -> bool {
        let mut groups = self.groups.iter();
        groups.all(|(_, group)| group.switch.is_finished())
    }

    fn reset_all(&mut self) {
        for slot in self.slots() {
            self.reset(slot, Reason::Aborted);
        }
        self.gate.wires.flush();
    }

    fn status(&self) -> SwitchStatus {
        let mut status = SwitchStatus {
            connections: 0,
            is_draining: self.is_draining,
            window_bytes: 0,
            counters: self.gate.counters,
            members: self.services.statuses(),
        };
        status.counters.unsent = self.gate.wires.unsent();
        status.counters.too_long = self.gate.wires.too_long();
        for (_, group) in &self.groups {
            status.counters.dropped += group.dropped;
            status.connections += group.active().count() as u64;
            let windows = group.active().map(|client| u64::from(client.window));
            status.window_bytes += windows.sum::<u64>();
            let service = &mut status.members[usize::from(group.service)];
            service.connections += 1;
            service.outstanding += u64::from(group.sent - group.acknowledged);
        }
        status
    }
}
