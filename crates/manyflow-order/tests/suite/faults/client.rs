//! A client: its messages on their way into the stream, and its trace.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use manyflow_order::check::{End, Trace, TraceEvent};
use manyflow_order::{ClientId, Delivery, Event, is_last_part};

/// A connected client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) name: Arc<str>,
    pub(super) groups: Vec<Arc<str>>,
    /// Parts of messages that have not entered.
    pub(super) pending: VecDeque<Bytes>,
    /// Whether some parts of a message have entered, and others not.
    pub(super) is_amid: bool,
    pub(super) events: Vec<TraceEvent>,
}

impl Client {
    pub(super) fn new(id: ClientId, name: Arc<str>) -> Client {
        Client {
            id,
            name,
            groups: Vec::new(),
            pending: VecDeque::new(),
            is_amid: false,
            events: Vec::new(),
        }
    }

    /// Takes the next part.
    pub(super) fn pop_part(&mut self) -> Option<Bytes> {
        let part = self.pending.pop_front()?;
        self.is_amid = !is_last_part(&part);
        Some(part)
    }

    /// Adds an event to the trace.
    pub(super) fn see(&mut self, event: Event) {
        self.events.push(TraceEvent::seen(event, number_of));
    }

    pub(super) fn trace(self, end: End) -> Trace {
        Trace {
            member: self.name,
            events: self.events,
            end,
        }
    }
}

/// Returns the number that the sender of a message has put into it.
fn number_of(delivery: &Delivery) -> u64 {
    u64::from_be_bytes(delivery.payload[..8].try_into().unwrap())
}
