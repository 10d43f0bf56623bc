//! Messages of clients on their way into the overlay.
//!
//! The messages of a client enter the overlay one after the other. While one waits, the daemon
//! holds those that the client has sent behind it and reads on, so that the client's other
//! operations act at once. It stops reading when the messages that it holds take too much memory.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_overlay::{ClientFrame, GroupSet};

use super::{DaemonCore, SessionKey};
use crate::fragment;
use crate::nats::errors::{Reason, publish_refused};
use crate::nats::layers;
use crate::nats::ordered::OrderedSubject;
use crate::nats::parse::Published;

/// The maximum number of bytes that are held for a client: as many as the kernel's buffers of a
/// connection take, so that the daemon sees an operation behind messages which fill these.
const CLIENT_HELD_BYTES_MAX: usize = 8 << 20;
/// The maximum number of bytes that are held for all clients, besides one message of each.
const HELD_BYTES_MAX: usize = 64 << 20;
/// The memory that a held message takes besides its bytes.
const MESSAGE_BYTES: usize = size_of::<Held>();

/// A message that is held.
#[derive(Debug)]
struct Held {
    message: Published,
    /// The bytes of the client's operations from this message to the next one. They can share
    /// buffers with the message, which keeps these alive.
    bytes: usize,
}

/// The messages that a client has sent while an earlier one waits to enter.
#[derive(Debug, Default)]
pub(crate) struct HeldMessages {
    messages: VecDeque<Held>,
    bytes: usize,
}

impl HeldMessages {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message.
    fn push(&mut self, message: Published, bytes: usize) -> usize {
        let bytes = MESSAGE_BYTES + bytes;
        self.messages.push_back(Held { message, bytes });
        self.bytes += bytes;
        bytes
    }

    /// Counts bytes behind the last message, if there is one. Returns the number of bytes that
    /// count.
    fn add_bytes(&mut self, bytes: usize) -> usize {
        let Some(last) = self.messages.back_mut() else {
            return 0;
        };
        last.bytes += bytes;
        self.bytes += bytes;
        bytes
    }

    fn pop(&mut self) -> Option<Held> {
        let held = self.messages.pop_front()?;
        self.bytes -= held.bytes;
        Some(held)
    }
}

impl DaemonCore {
    /// Publishes a message to all groups that match its subject, or holds it while an earlier one
    /// waits. Messages to no group vanish. `bytes` of the client's connection were the operation.
    pub(crate) fn publish(&mut self, key: SessionKey, message: Published, bytes: usize) {
        self.counters.published += 1;
        self.counters.published_bytes += message.raw().len() as u64;
        let session = &mut self.sessions[key];
        session.taken += 1;
        session.traffic.in_messages += 1;
        session.traffic.in_bytes += message.content().len() as u64 - 2;
        if session.is_busy() {
            self.held_bytes += session.held.push(message, bytes);
            return;
        }
        self.offer(key, &message);
        self.send_next(key);
        self.pump();
    }

    /// Counts the bytes of an operation that is no message, which can share a buffer with held
    /// messages.
    pub(crate) fn count_operation(&mut self, key: SessionKey, bytes: usize) {
        self.held_bytes += self.sessions[key].held.add_bytes(bytes);
    }

    /// Returns whether the daemon may read more from a client.
    pub(crate) fn has_room_to_hold(&self, key: SessionKey) -> bool {
        // Half of what is left: however many clients take as much as they can, there is room for
        // another.
        let free = HELD_BYTES_MAX.saturating_sub(self.held_bytes);
        let held = &self.sessions[key].held;
        held.len() == 0 || held.bytes < CLIENT_HELD_BYTES_MAX.min(free / 2)
    }

    /// Chooses the groups of a message. As many of them as possible share its copies.
    fn offer(&mut self, key: SessionKey, message: &Published) {
        if let Some(subject) = OrderedSubject::parse(message.subject()) {
            return self.offer_ordered(key, &subject, message);
        }
        let targets = match message.also().next() {
            None => self.interest.targets(message.subject()),
            Some(_) => Rc::new(self.interest.targets_of(message.subjects())),
        };
        let may_report = self.sessions[key].may_report_no_responders(message);
        if targets.is_empty() || may_report && !self.has_responders(key, &targets) {
            return self.sessions[key].report_no_responders(message);
        }
        let mut groups = core::mem::take(&mut self.chosen);
        groups.extend(&targets.groups);
        for circle in &targets.queues {
            let chosen = self.choose(key, circle);
            groups.extend(chosen.filter(|group| !groups.contains(group)));
        }
        let layered = layers::encode(message, self.fragment_bytes).transpose();
        for some in groups.chunks(GroupSet::MAX) {
            let pending = &mut self.sessions[key].pending;
            match (GroupSet::of(some), &layered) {
                (Some(set), Ok(Some(payload))) => pending.push_back((set, payload.clone(), true)),
                (Some(set), Ok(None)) => {
                    let parts = fragment::divide(message.raw(), self.fragment_bytes);
                    pending.extend(parts.map(|part| (set, part, false)));
                }
                _ => {}
            }
        }
        if let Err(error) = layered {
            let refused = publish_refused(message.subject(), Reason::Permission);
            self.sessions[key].report(&format!("{refused}: {error}"));
        }
        groups.clear();
        self.chosen = groups;
    }

    /// Hands a client's next message to the daemon, if the last has entered.
    pub(super) fn send_next(&mut self, key: SessionKey) {
        loop {
            let session = &mut self.sessions[key];
            if session.is_sending || session.is_ordering {
                return;
            }
            if let Some(next) = session.pending.pop_front() {
                return self.send(key, next);
            }
            // A message has entered. A PING may be due, and there is more room.
            session.ready.notify_one();
            let Some(held) = session.held.pop() else {
                return;
            };
            self.held_bytes -= held.bytes;
            self.offer(key, &held.message);
        }
    }

    fn send(&mut self, key: SessionKey, (groups, payload, layered): (GroupSet, Bytes, bool)) {
        let session = &mut self.sessions[key];
        session.is_sending = true;
        let (now, client) = (self.clock.now(), session.client);
        let frame = ClientFrame::Send {
            groups,
            sent_us: (now - Time::ZERO).as_micros() as u32,
            layered,
        };
        self.daemon.handle_client(now, client, &frame, payload);
    }

    /// Forgets the messages that are held for a client.
    pub(super) fn drop_held(&mut self, held: &HeldMessages) {
        self.held_bytes -= held.bytes;
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::nats::parse::{Operation, parse};

    fn message(text: &str) -> Published {
        match parse(&mut BytesMut::from(text), 100) {
            Ok(Some(Operation::Publish(message))) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn operations_between_held_messages_count_as_memory_that_is_held() {
        let mut held = HeldMessages::default();
        assert_eq!(held.add_bytes(100), 0, "nothing is held");
        held.push(message("PUB a 1\r\nx\r\n"), 12);
        assert_eq!(held.add_bytes(4000), 4000);
        held.push(message("PUB a 1\r\ny\r\n"), 12);
        assert_eq!(held.bytes, 2 * MESSAGE_BYTES + 4024);
        let first = held.pop().unwrap();
        assert_eq!(&first.message.payload()[..1], b"x");
        assert_eq!(held.bytes, MESSAGE_BYTES + 12);
        held.pop().unwrap();
        assert!(held.pop().is_none());
        assert_eq!((held.len(), held.bytes), (0, 0));
    }
}
