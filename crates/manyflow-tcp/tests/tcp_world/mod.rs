//! A world of one TCP connection: a sender, a receiver, and a [`Link`] each way. Tests can change
//! or remove packets before they enter a link.

use std::collections::BTreeSet;
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::{Action, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig};

const SENDER: EndpointId = EndpointId(1);
const RECEIVER: EndpointId = EndpointId(2);

/// Sees each packet before its link does, and may change it. Returns false to remove it.
pub(crate) type Tamper = Box<dyn FnMut(Time, &mut Packet<Segment>) -> bool>;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) data: Link<Packet<Segment>>,
    pub(crate) acks: Link<Packet<Segment>>,
    pub(crate) on_data: Tamper,
    pub(crate) events: Vec<(Time, Event)>,
    /// The number of segments that the receiver must have delivered, and the segments that arrived
    /// ahead of them.
    expected: u32,
    ahead: BTreeSet<u32>,
}

impl World {
    /// Creates a connection over a link like `there` for data and one like `back` for
    /// acknowledgements.
    pub(crate) fn new(tcp: TcpConfig, there: LinkConfig, back: LinkConfig, seed: u64) -> World {
        World {
            now: Time::ZERO,
            sender: Sender::new(tcp.clone(), RECEIVER, seed).expect("a valid sender"),
            receiver: Receiver::new(tcp, SENDER).expect("a valid receiver"),
            data: Link::new(there, seed),
            acks: Link::new(back, seed + 1000),
            on_data: Box::new(|_, _| true),
            events: Vec::new(),
            expected: 0,
            ahead: BTreeSet::new(),
        }
    }

    /// Runs until `end`, or until no event is left.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Time> {
        let ends = [
            self.sender.poll_timeout(),
            self.receiver.poll_timeout(),
            self.data.next_time(),
            self.acks.next_time(),
        ];
        ends.into_iter().flatten().min()
    }

    fn step(&mut self) {
        let now = self.now;
        self.sender.handle_timeout(now);
        self.drain_sender();
        self.receiver.handle_timeout(now);
        self.drain_receiver();
        while let Some(packet) = self.data.pop_ready(now) {
            assert_eq!(packet.destination, Destination::Endpoint(RECEIVER));
            self.receiver.handle_packet(now, &packet);
            self.check_delivery(packet.header.sequence);
            self.drain_receiver();
        }
        while let Some(packet) = self.acks.pop_ready(now) {
            assert_eq!(packet.destination, Destination::Endpoint(SENDER));
            self.sender.handle_packet(now, &packet);
            self.drain_sender();
        }
    }

    /// Checks that the receiver has delivered exactly the segments that arrived without a gap, in
    /// order and once.
    fn check_delivery(&mut self, arrived: u32) {
        if arrived >= self.expected {
            self.ahead.insert(arrived);
        }
        while self.ahead.remove(&self.expected) {
            self.expected += 1;
        }
        assert_eq!(self.receiver.delivered_segments(), self.expected);
    }

    fn drain_sender(&mut self) {
        while let Some(action) = self.sender.poll_action(self.now) {
            let Action::Send(mut packet) = action else {
                unreachable!("TCP joins nothing")
            };
            if (self.on_data)(self.now, &mut packet) {
                let bytes = packet.wire_bytes();
                let _ = self.data.push(self.now, &packet, bytes);
            }
        }
        while let Some(event) = self.sender.poll_event() {
            self.events.push((self.now, event));
        }
    }

    fn drain_receiver(&mut self) {
        while let Some(Action::Send(packet)) = self.receiver.poll_action(self.now) {
            let bytes = packet.wire_bytes();
            let _ = self.acks.push(self.now, &packet, bytes);
        }
    }
}

/// Returns a link without limits, with a delay.
pub(crate) fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}
