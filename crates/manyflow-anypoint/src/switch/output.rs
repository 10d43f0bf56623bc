//! The segments and events that the switch has to deliver.

use std::collections::VecDeque;

use super::Leg;
use crate::Event;
use crate::{Body, Segment};

/// Segments and events that wait to be polled.
#[derive(Debug)]
pub(super) struct Output<P> {
    transmits: VecDeque<(Leg, Segment, P)>,
    events: VecDeque<Event>,
}

impl<P> Output<P> {
    pub(super) fn new() -> Output<P> {
        Output {
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Queues a segment and its payload.
    pub(super) fn push(&mut self, to: Leg, segment: Segment, payload: P) {
        self.transmits.push_back((to, segment, payload));
    }

    /// Queues everything that waits in `other`.
    pub(super) fn append(&mut self, mut other: Output<P>) {
        self.transmits.append(&mut other.transmits);
        self.events.append(&mut other.events);
    }

    pub(super) fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        self.transmits.pop_front()
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// The output of one connection. It writes the connection's number into each segment.
#[derive(Debug)]
pub(super) struct Outbox<P> {
    connection: u32,
    output: Output<P>,
}

impl<P> Outbox<P> {
    /// Creates the empty output of a connection with this number.
    pub(super) fn new(connection: u32) -> Outbox<P> {
        Outbox {
            connection,
            output: Output::new(),
        }
    }

    /// Returns the connection's number.
    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    /// Queues a packet with a payload.
    pub(super) fn send_with(&mut self, to: Leg, body: Body, payload: P) {
        let connection = self.connection;
        self.output.push(to, Segment { connection, body }, payload);
    }

    /// Queues an event.
    pub(super) fn report(&mut self, event: Event) {
        self.output.events.push_back(event);
    }

    pub(super) fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        self.output.poll_transmit()
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.output.poll_event()
    }

    /// Returns the output that still waits when the connection is over.
    pub(super) fn into_output(self) -> Output<P> {
        self.output
    }
}

impl<P: Default> Outbox<P> {
    /// Queues a packet without a payload.
    pub(super) fn send(&mut self, to: Leg, body: Body) {
        self.send_with(to, body, P::default());
    }
}
