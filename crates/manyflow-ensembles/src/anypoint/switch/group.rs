//! One connection to a service, and the clients that share it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use manyflow_anypoint::switch::{ByPrefix, InitiatorSwitch, Leg, MemberId, Prefix, SwitchConfig};
use manyflow_anypoint::{Body, ConfigError, Event, Reason, Segment};
use manyflow_core::time::Time;

use super::members::{Member, Members, STALLED_AFTER};
use super::output::Wires;
use super::session::{INNER, config};
use crate::anypoint::envelope::{self, NO_COOKIE};
use crate::anypoint::timers::Timer;
use crate::anypoint::way::{Path, Way};
use crate::anypoint::{Number, segment};

/// A connection to the service, and its clients.
pub(super) struct Group {
    pub(super) switch: InitiatorSwitch<Bytes, ByPrefix>,
    /// The service's number among the members that the switch has had.
    pub(super) service: u16,
    /// The number on the wire between switch and service.
    pub(super) number: Number,
    /// The clients, by their numbers in the connection. No number is given twice.
    pub(super) clients: Vec<Client>,
    pub(super) timer: Timer,
    /// The last Open, until the service answers it.
    pub(super) open: Option<Segment>,
    /// The number of frames that were sent to the service, and that it has acknowledged.
    pub(super) sent: u32,
    pub(super) acknowledged: u32,
    /// Frames for clients that are gone.
    pub(super) dropped: u64,
    /// A client is stalled, or was.
    may_have_stalled: bool,
    /// The log has said that the service's answers name no client.
    has_warned: bool,
}

/// A client's part of a connection.
pub(super) struct Client {
    pub(super) path: Path,
    /// The number that the client has chosen.
    pub(super) number: Number,
    pub(super) way: Way,
    /// Whether the client has not failed.
    pub(super) is_active: bool,
    is_stalled: bool,
    /// Whether the log has said that answers to the client were dropped.
    is_reported: bool,
    /// When the last datagram came from the client.
    pub(super) heard: Time,
    /// The client's congestion window in bytes, as its last frame states it.
    pub(super) window: u32,
    /// The number of frames that were sent to it at least once.
    sent: u32,
}

impl Group {
    /// Creates a connection to the service without clients, which has this number on the wire.
    pub(super) fn new(service: u16, number: Number) -> Result<Group, ConfigError> {
        let config = SwitchConfig {
            bound: true,
            ..config()
        };
        Ok(Group {
            switch: InitiatorSwitch::new(config, ByPrefix::default(), 0)?,
            service,
            number,
            clients: Vec::new(),
            timer: Timer::default(),
            open: None,
            sent: 0,
            acknowledged: 0,
            dropped: 0,
            may_have_stalled: false,
            has_warned: false,
        })
    }

    /// Returns whether a further client can take part in the connection.
    pub(super) fn takes_clients(&self) -> bool {
        let has_prefix = self.clients.len() < Prefix::INITIATORS;
        has_prefix && (self.clients.is_empty() || self.switch.takes_members())
    }

    /// Adds a client, and returns its number in the connection.
    pub(super) fn join(&mut self, now: Time, path: Path, number: Number) -> MemberId {
        debug_assert!(self.takes_clients());
        let id = self.switch.join(now);
        debug_assert_eq!(id.index(), self.clients.len());
        self.clients.push(Client {
            path,
            number,
            way: Way::default(),
            is_active: true,
            is_stalled: false,
            is_reported: false,
            heard: now,
            window: 0,
            sent: 0,
        });
        id
    }

    /// Handles a segment of a client.
    pub(super) fn handle_client(&mut self, now: Time, id: MemberId, body: Body, payload: Bytes) {
        let client = &mut self.clients[id.index()];
        client.heard = now;
        if let Body::Data(data) = body {
            client.window = data.congestion.cwnd;
        }
        let segment = segment(INNER, body);
        let from = Leg::Member(id);
        self.switch.handle_segment(now, from, &segment, payload);
        if matches!(body, Body::Reset(_)) {
            // A client that is gone before the service has accepted causes no event.
            self.clients[id.index()].is_active = false;
            self.switch.leave(now, id);
        }
    }

    /// Handles a segment of the service.
    pub(super) fn handle_service(&mut self, now: Time, body: Body, payload: Bytes) {
        self.open = None;
        if let Body::Ack(ack) = body
            && ack.cumulative <= self.sent
        {
            self.acknowledged = ack.cumulative;
        }
        let segment = segment(INNER, body);
        self.switch
            .handle_segment(now, Leg::Peer, &segment, payload);
    }

    /// Gives a client up.
    pub(super) fn give_up(&mut self, now: Time, id: MemberId) {
        let reset = Body::Reset(Reason::TimedOut);
        let heard = self.clients[id.index()].heard;
        self.handle_client(now, id, reset, Bytes::new());
        self.clients[id.index()].heard = heard;
    }

    /// Gives up the clients from which nothing has come for `silence`. Returns their number.
    pub(super) fn give_up_silent(&mut self, now: Time, silence: Duration) -> u64 {
        let mut given_up = 0;
        for place in 0..self.clients.len() {
            let client = &self.clients[place];
            if client.is_active && now - client.heard >= silence {
                self.give_up(now, MemberId(place as u16));
                given_up += 1;
            }
        }
        given_up
    }

    /// Handles the events of the connection.
    pub(super) fn handle_events(&mut self, now: Time) {
        while let Some(event) = self.switch.poll_event() {
            match event {
                Event::MemberStalled(id) => {
                    self.clients[id.index()].is_stalled = true;
                    self.may_have_stalled = true;
                }
                Event::MemberResumed(id) => self.clients[id.index()].is_stalled = false,
                Event::MemberFailed(id) => {
                    let client = &mut self.clients[id.index()];
                    (client.is_active, client.is_stalled) = (false, false);
                }
                Event::FrameDropped { key } => self.note_dropped(key),
                _ => {}
            }
        }
        if self.may_have_stalled {
            self.give_up_stalled(now);
        }
    }

    /// Counts a frame for a client that is gone, and says once for each client that there are some.
    fn note_dropped(&mut self, key: u32) {
        self.dropped += 1;
        let client = Prefix::of_key(key).member();
        let Some(client) = client.and_then(|id| self.clients.get_mut(id.index())) else {
            return self.warn_of_key(key);
        };
        if !std::mem::replace(&mut client.is_reported, true) {
            tracing::info!(
                "the client at {} is gone, and answers to it are dropped from now on",
                client.path.remote
            );
        }
    }

    /// Says once that the service answers with keys that name no client.
    fn warn_of_key(&mut self, key: u32) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "the service answers with the key {key:#010x}, which names no client, and such \
                 answers are dropped; the service's program has to answer with keys that have the \
                 prefix of the request's client"
            );
        }
    }

    /// Gives up clients that take nothing, as long as others wait for them: frames of the service
    /// have one order.
    fn give_up_stalled(&mut self, now: Time) {
        while self.active().count() > 1
            && let Some(place) = self.clients.iter().position(|client| client.is_stalled)
        {
            let client = &mut self.clients[place];
            (client.is_active, client.is_stalled) = (false, false);
            tracing::warn!(
                "the client at {} is alive and has taken no answers for {} s: its connection is \
                 ended, because {} others share it; does its application read?",
                self.clients[place].path.remote,
                STALLED_AFTER.as_secs(),
                self.active().count()
            );
            self.give_up(now, MemberId(place as u16));
        }
        self.may_have_stalled = self.clients.iter().any(|client| client.is_stalled);
    }

    /// Iterates over the clients that are not gone.
    pub(super) fn active(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().filter(|client| client.is_active)
    }

    /// Sends everything that the connection has to send.
    pub(super) fn send_output(&mut self, now: Time, wires: &mut Wires, service: &mut Member) {
        while let Some((to, segment, payload)) = self.switch.poll_transmit() {
            match to {
                Leg::Peer => self.send_to_service(now, (segment, &payload), wires, service),
                Leg::Member(id) => self.send_to_client(now, id, (segment, &payload), wires),
            }
        }
    }

    /// Returns whether the way to the service carries datagrams of this size, as
    /// [`Way::carries`](crate::anypoint::way::Way::carries) has it.
    pub(super) fn service_carries(
        &self,
        now: Time,
        bytes: u16,
        wires: &Wires,
        services: &mut Members,
    ) -> bool {
        let service = services.get_mut(self.service);
        let to = (service.path(), self.number);
        service.way.carries(now, &wires.back, to, bytes)
    }

    /// Returns whether the ways to all clients carry datagrams of this size, in the same way.
    pub(super) fn clients_carry(&mut self, now: Time, bytes: u16, wires: &Wires) -> bool {
        let mut carry = true;
        for client in self.clients.iter_mut().filter(|client| client.is_active) {
            let to = (client.path, client.number);
            carry &= client.way.carries(now, &wires.front, to, bytes);
        }
        carry
    }

    fn send_to_service(
        &mut self,
        now: Time,
        (mut segment, payload): (Segment, &[u8]),
        wires: &mut Wires,
        service: &mut Member,
    ) {
        segment.connection = self.number;
        let mut is_repeated = false;
        match segment.body {
            Body::Open { .. } => self.open = Some(segment),
            Body::Data(data) => {
                is_repeated = data.sequence < self.sent;
                self.sent = self.sent.max(data.sequence.saturating_add(1));
                service.status.frames_to += 1;
                service.status.bytes_to += payload.len() as u64;
            }
            Body::Close { sequence } => self.sent = self.sent.max(sequence.saturating_add(1)),
            _ => {}
        }
        let header = envelope::encode(&segment, &service.cookie);
        let to = (service.path(), self.number);
        let wire = wires.member_wire();
        service
            .way
            .send(now, wire, to, (&header, payload), is_repeated);
    }

    fn send_to_client(
        &mut self,
        now: Time,
        id: MemberId,
        (mut segment, payload): (Segment, &[u8]),
        wires: &mut Wires,
    ) {
        let client = &mut self.clients[id.index()];
        segment.connection = client.number;
        let mut is_repeated = false;
        let header = match (segment.body, Prefix::of_member(id)) {
            (Body::Accept { credit }, Some(prefix)) => {
                envelope::encode_admission(client.number, prefix, credit)
            }
            _ => envelope::encode(&segment, &NO_COOKIE),
        };
        if let Body::Data(data) = segment.body {
            is_repeated = data.sequence < client.sent;
            client.sent = client.sent.max(data.sequence.saturating_add(1));
        }
        let to = (client.path, client.number);
        let wire = wires.peer_wire();
        client
            .way
            .send(now, wire, to, (&header, payload), is_repeated);
    }

    /// Ends the connection for the service and all clients.
    pub(super) fn reset(&mut self, reason: Reason, wires: &mut Wires, service: SocketAddr) {
        let reset = |number| envelope::encode(&segment(number, Body::Reset(reason)), &NO_COOKIE);
        wires.send_to_member(service, &reset(self.number));
        for client in self.active() {
            wires.send_to_peer(client.path, &reset(client.number));
        }
    }
}
