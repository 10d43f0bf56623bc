//! All connections of a switch, and the datagrams of peers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use manyflow_anypoint::{Body, Segment};
use manyflow_core::time::Time;
use manyflow_net::udp::Arrival;
use rand::RngExt as _;
use rand::rngs::StdRng;
use slab::Slab;

use super::config::{ServiceConfig, SwitchOptions};
use super::gate::Gate;
use super::members::Members;
use super::output::Wires;
use super::routing::Rules;
use super::server::{Target, Traffic as _};
use super::session::SwitchSession;
use crate::anypoint::envelope::{self, Cookie, Datagram, PATH_HEADER_BYTES, Part};
use crate::anypoint::timers::Timers;
use crate::anypoint::way::Parts;
use crate::anypoint::way::Path;
use crate::anypoint::{Number, rng};

/// The low bits of a number toward members, which give the connection's slot. The others are
/// random.
pub(super) const SLOT_BITS: u32 = 17;
/// The slot of no connection, for probes of members.
pub(super) const NO_SLOT: Number = (1 << SLOT_BITS) - 1;

/// All connections of a switch.
pub(super) struct Hub {
    pub(super) gate: Gate,
    pub(super) members: Members,
    pub(super) rules: Arc<Rules>,
    pub(super) sessions: Slab<SwitchSession>,
    /// The slot of each connection by the peer's address and number.
    pub(super) places: HashMap<(SocketAddr, Number), usize>,
    /// The connection of the peers' last datagram: most come in a row.
    last: Option<((SocketAddr, Number), usize)>,
    pub(super) timers: Timers,
    /// The parts of peers' datagrams, and those of members'.
    peer_parts: Parts,
    pub(super) member_parts: Parts,
    pub(super) rng: StdRng,
    connections_max: usize,
    pub(super) is_draining: bool,
}

impl Hub {
    pub(super) fn new(wires: Wires, options: &SwitchOptions) -> Hub {
        Hub {
            gate: Gate::new(wires),
            members: Members::default(),
            rules: Arc::default(),
            sessions: Slab::new(),
            places: HashMap::new(),
            last: None,
            timers: Timers::default(),
            peer_parts: Parts::default(),
            member_parts: Parts::default(),
            rng: rng(),
            connections_max: options.connections_max.min(NO_SLOT as usize),
            is_draining: false,
        }
    }

    /// Creates a hub with the members of a target.
    pub(super) fn with_target(
        now: Time,
        wires: Wires,
        target: &Target,
        options: &SwitchOptions,
    ) -> Hub {
        let mut hub = Hub::new(wires, options);
        hub.set_target(now, target);
        hub
    }

    /// Takes over a service: its members join or leave every connection.
    pub(super) fn set_service(&mut self, now: Time, config: &ServiceConfig) {
        let numbers = self.members.set(now, config);
        self.rules = Arc::new(Rules::new(config, |place| numbers[place], &self.rules));
        for (_, session) in &mut self.sessions {
            session.switch.policy_mut().set_rules(&self.rules);
        }
        self.reconcile(now);
    }

    /// Handles a datagram of a peer.
    pub(super) fn handle_peer(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let path = Path {
            remote: arrival.source,
            local: arrival.destination,
        };
        match envelope::decode(bytes) {
            Ok(Datagram::Open(open, cookie)) => self.handle_open(now, path, &open, &cookie),
            Ok(Datagram::Segment(segment, header)) => {
                self.handle_peer_segment(now, path, &segment, &bytes[header..]);
            }
            Ok(Datagram::PathProbe(number, id, size)) => {
                if let Some(slot) = self.find(path.remote, number)
                    && self.sessions[slot].members_carry(
                        now,
                        size,
                        &self.gate.wires,
                        &mut self.members,
                    )
                {
                    let answer = envelope::encode_path_answer(number, id, size);
                    self.gate.wires.send_to_peer(path, &answer);
                }
            }
            Ok(Datagram::PathAnswer(number, id, size)) => {
                if let Some(slot) = self.find(path.remote, number) {
                    self.sessions[slot].way.handle_answer(now, id, size);
                }
            }
            Ok(Datagram::Part(part)) => {
                self.handle_peer_part(now, path, &part, &bytes[PATH_HEADER_BYTES..]);
            }
            // Peers accept no connections, so they challenge nobody.
            Ok(Datagram::Challenge(..) | Datagram::Admission(..)) | Err(_) => {
                self.gate.counters.invalid += 1;
            }
        }
    }

    fn handle_peer_segment(&mut self, now: Time, path: Path, segment: &Segment, frame: &[u8]) {
        let number = segment.connection;
        let Some(slot) = self.find(path.remote, number) else {
            return self.gate.answer_peer(now, path, number, segment.body);
        };
        let payload = self.gate.payload(segment, frame);
        self.sessions[slot].handle_peer(now, segment.body, payload);
        self.finish(now, slot);
    }

    fn handle_peer_part(&mut self, now: Time, path: Path, part: &Part, bytes: &[u8]) {
        if self.find(path.remote, part.connection).is_none() {
            return self
                .gate
                .answer_peer(now, path, part.connection, Body::Probe);
        }
        if let Some(whole) = self.peer_parts.join(path.remote, part, bytes) {
            if let Ok(Datagram::Segment(segment, header)) = envelope::decode(&whole) {
                self.handle_peer_segment(now, path, &segment, &whole[header..]);
            }
            self.peer_parts.recycle(whole);
        }
    }

    fn find(&mut self, remote: SocketAddr, number: Number) -> Option<usize> {
        let key = (remote, number);
        if let Some((last, slot)) = self.last
            && last == key
        {
            return Some(slot);
        }
        let slot = self.places.get(&key).copied()?;
        self.last = Some((key, slot));
        Some(slot)
    }

    fn handle_open(&mut self, now: Time, path: Path, open: &Segment, cookie: &Cookie) {
        let number = open.connection;
        let slot = match self.find(path.remote, number) {
            Some(slot) => slot,
            None if !self.gate.lets_in(now, path, number, cookie) => return,
            None => match self.admit(now, path, number) {
                Some(slot) => slot,
                None => return self.gate.refuse(now, path, number),
            },
        };
        self.sessions[slot].handle_peer(now, open.body, Bytes::new());
        self.finish(now, slot);
    }

    /// Creates a connection, if there is room for it and a member.
    fn admit(&mut self, now: Time, path: Path, number: Number) -> Option<usize> {
        let members = self.members.for_connection(now);
        let is_full = self.sessions.len() >= self.connections_max;
        if self.is_draining || is_full || members.is_empty() {
            return None;
        }
        let entry = self.sessions.vacant_entry();
        let slot = entry.key();
        let draw = || number_of(slot, &mut self.rng);
        let session = SwitchSession::new(now, path, number, &self.rules, members, draw).ok()?;
        entry.insert(session);
        self.places.insert((path.remote, number), slot);
        self.gate.counters.opened += 1;
        Some(slot)
    }

    /// Sends what a connection has to send, sets its timer, and forgets it if it is over.
    pub(super) fn finish(&mut self, now: Time, slot: usize) {
        let session = &mut self.sessions[slot];
        session.send_output(now, &mut self.gate.wires, &mut self.members);
        self.gate.counters.failures += session.handle_events(now, &mut self.members);
        if session.is_over() {
            self.remove(slot);
        } else {
            let due = session.switch.poll_timeout();
            self.timers.set(&mut session.timer, slot, due);
        }
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let session = self.sessions.remove(slot);
        self.places.remove(&(session.path.remote, session.number));
        self.last = None;
    }
}

/// Draws a number toward members for the connection in this slot.
pub(super) fn number_of(slot: usize, rng: &mut StdRng) -> Number {
    debug_assert!(slot < NO_SLOT as usize);
    rng.random::<Number>() << SLOT_BITS | slot as Number
}
