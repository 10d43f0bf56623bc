//! A member of the service as an endpoint.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use manyflow_anypoint::{AcpConfig, Body, Connection, Event, Segment};
use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_store::{
    Address, Held, Member, MemberName, MemoryShelf, Request, Shelf, ShelfError, Usage,
};

/// A disk that survives its member, and that the checks read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<MemoryShelf>>);

impl Disk {
    /// Loses everything.
    fn erase(&self) {
        *self.0.lock().unwrap() = MemoryShelf::default();
    }

    pub(crate) fn read(&self, address: Address) -> Option<Bytes> {
        self.0.lock().unwrap().get(address).unwrap()
    }
}

impl Shelf for Disk {
    fn put(&self, address: Address, bytes: &Bytes) -> Result<(), ShelfError> {
        self.0.lock().unwrap().put(address, bytes)
    }

    fn get(&self, address: Address) -> Result<Option<Bytes>, ShelfError> {
        self.0.lock().unwrap().get(address)
    }

    fn find(&self, address: Address) -> Result<Option<Held>, ShelfError> {
        self.0.lock().unwrap().find(address)
    }

    fn refresh(&self, address: Address) -> Result<bool, ShelfError> {
        self.0.lock().unwrap().refresh(address)
    }

    fn remove(&self, address: Address, age: Duration) -> Result<Option<u64>, ShelfError> {
        self.0.lock().unwrap().remove(address, age)
    }

    fn list(&self) -> Result<Vec<Address>, ShelfError> {
        self.0.lock().unwrap().list()
    }

    fn usage(&self) -> Result<Usage, ShelfError> {
        self.0.lock().unwrap().usage()
    }
}

/// A change of a member's state.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Change {
    Crash,
    Return { keeps_disk: bool },
}

pub(crate) fn member_name(place: usize) -> MemberName {
    MemberName::new(&format!("m{place}")).unwrap()
}

/// A member that accepts the latest connection of the switch, and answers requests.
pub(crate) struct MemberEnd {
    config: AcpConfig,
    switch: EndpointId,
    member: Member<Disk>,
    disk: Disk,
    /// `None` while the member is down.
    connection: Option<Connection<Contents>>,
    /// The number of the connection; 0 before the first one.
    number: u32,
    answers: VecDeque<(u32, Contents)>,
    changes: VecDeque<(Time, Change)>,
}

impl MemberEnd {
    /// Creates a member; `changes` must be in the order of their times.
    pub(crate) fn new(
        config: AcpConfig,
        switch: EndpointId,
        place: usize,
        disk: &Disk,
        changes: VecDeque<(Time, Change)>,
    ) -> MemberEnd {
        let mut end = MemberEnd {
            config,
            switch,
            member: Member::new(member_name(place), disk.clone()),
            disk: disk.clone(),
            connection: None,
            number: 0,
            answers: VecDeque::new(),
            changes,
        };
        end.listen();
        end
    }

    fn listen(&mut self) {
        self.connection = Some(Connection::listen(self.config.clone()).unwrap());
        self.answers.clear();
        self.number = 0;
    }

    fn change_if_due(&mut self, now: Time) {
        while self.changes.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, change)) = self.changes.pop_front() else {
                break;
            };
            match change {
                Change::Crash => self.connection = None,
                Change::Return { keeps_disk } => {
                    if !keeps_disk {
                        self.disk.erase();
                    }
                    self.listen();
                }
            }
        }
    }

    /// Prepares for a connection with a higher number: the switch has lost the present one.
    fn note_open(&mut self, segment: &Segment) {
        let is_open = matches!(segment.body, Body::Open { .. });
        if is_open && self.connection.is_some() && segment.connection > self.number {
            self.listen();
            self.number = segment.connection;
        }
    }

    /// Answers requests, as long as the connection takes the answers.
    fn serve(&mut self, now: Time) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        loop {
            while let Some((key, answer)) = self.answers.pop_front() {
                if answer.length() > connection.room() {
                    self.answers.push_front((key, answer));
                    break;
                }
                connection.send(key, answer).unwrap_or_default();
            }
            let frame = self.answers.is_empty().then(|| connection.receive(now));
            let Some(frame) = frame.flatten() else {
                return;
            };
            let bytes = Bytes::copy_from_slice(frame.payload.bytes().unwrap());
            let request = Request::decode(&bytes).unwrap();
            let answer = self.member.handle_request(&request).encode();
            self.answers
                .push_back((frame.key, Contents::from(&answer[..])));
        }
    }
}

impl Endpoint for MemberEnd {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.change_if_due(now);
        self.note_open(&packet.header);
        if let Some(connection) = &mut self.connection {
            connection.handle_segment(now, &packet.header, packet.payload());
        }
        self.serve(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.change_if_due(now);
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
        self.serve(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        let (segment, payload) = self.connection.as_mut()?.poll_transmit(now)?;
        let destination = Destination::Endpoint(self.switch);
        let packet = Packet::new(destination, segment, payload.unwrap_or_default());
        Some(Action::Send(packet))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let change = self.changes.front().map(|(at, _)| *at);
        let timer = self.connection.as_ref().and_then(Connection::poll_timeout);
        [change, timer].into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.connection.as_mut()?.poll_event()
    }
}
