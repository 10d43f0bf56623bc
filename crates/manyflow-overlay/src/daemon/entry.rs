//! The entry of messages into the overlay: each client's waiting message, and the order in which
//! these are offered to the controller.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::controller::{Controller, Request, Site};
use crate::message::{ClientId, DATA_BYTES, GroupId, GroupSet};
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// A client's message that waits for admission. Its client sends no other message in the meantime.
#[derive(Clone, Debug)]
struct Waiting<P> {
    groups: GroupSet,
    sent_us: u32,
    /// The purse of a layered message.
    purse: Option<Duration>,
    payload: P,
}

/// A message that the controller has admitted.
#[derive(Debug)]
pub(super) struct Admitted<P> {
    pub(super) sender: ClientId,
    pub(super) groups: GroupSet,
    pub(super) sent_us: u32,
    /// The purse of a layered message.
    pub(super) purse: Option<Duration>,
    pub(super) payload: P,
    /// Bytes that the message takes on a link.
    pub(super) bytes: u32,
}

/// The connected clients and their waiting messages.
#[derive(Debug)]
pub(super) struct Entry<P> {
    clients: BTreeMap<ClientId, Option<Waiting<P>>>,
    next_client: ClientId,
    /// The client whose message entered last. The next turn begins with the client after it.
    last_sender: ClientId,
    /// Clients whose messages are offered to the controller next, in this order.
    turns: VecDeque<ClientId>,
    /// Groups to which no message may enter.
    held: BTreeSet<GroupId>,
}

impl<P> Default for Entry<P> {
    fn default() -> Entry<P> {
        Entry {
            clients: BTreeMap::new(),
            next_client: ClientId(0),
            last_sender: ClientId(0),
            turns: VecDeque::new(),
            held: BTreeSet::new(),
        }
    }
}

impl<P: Payload> Entry<P> {
    /// Adds a client. Returns its number, which no other client of this daemon has had.
    pub(super) fn connect(&mut self) -> ClientId {
        let client = self.next_client;
        self.next_client.0 += 1;
        let known = self.clients.insert(client, None);
        debug_assert!(known.is_none(), "{client:?} is connected twice");
        client
    }

    /// Removes a client and its waiting message.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    pub(super) fn is_connected(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Takes a client's waiting message.
    pub(super) fn take_waiting(&mut self, client: ClientId) -> Option<P> {
        let waiting = self.clients.get_mut(&client)?.take()?;
        Some(waiting.payload)
    }

    /// Notes whether messages to a group must wait. Returns whether this is new.
    pub(super) fn set_held(&mut self, group: GroupId, is_held: bool) -> bool {
        match is_held {
            true => self.held.insert(group),
            false => self.held.remove(&group),
        }
    }

    pub(super) fn is_held(&self, group: GroupId) -> bool {
        self.held.contains(&group)
    }

    /// Returns the number of connected clients.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Accepts a client's message and returns `true`. Returns `false` if the client violates the
    /// protocol: it is unknown, or another of its messages still waits.
    pub(super) fn offer(
        &mut self,
        client: ClientId,
        groups: GroupSet,
        sent_us: u32,
        purse: Option<Duration>,
        payload: P,
    ) -> bool {
        let Some(slot @ None) = self.clients.get_mut(&client) else {
            return false;
        };
        *slot = Some(Waiting {
            groups,
            sent_us,
            purse,
            payload,
        });
        true
    }

    /// Returns the groups of a client's waiting message, if there is one.
    pub(super) fn waiting_groups(&self, client: ClientId) -> Option<GroupSet> {
        let waiting = self.clients.get(&client)?.as_ref()?;
        Some(waiting.groups)
    }

    /// Offers a client's waiting message to the controller for some of its groups. Returns the
    /// message if the controller admits it; it then waits for its other groups only.
    pub(super) fn try_admit(
        &mut self,
        now: Time,
        client: ClientId,
        groups: GroupSet,
        overhead_bytes: u32,
        controller: &mut dyn Controller,
        site: &Site,
    ) -> Option<Admitted<P>> {
        let slot = self.clients.get_mut(&client)?;
        let waiting = slot.as_ref()?;
        // Each group has a header of its own, and the payload is sent once.
        let count = groups.as_slice().len() as u32;
        let request = Request {
            client,
            groups,
            bytes: waiting.payload.length() + count * (DATA_BYTES + overhead_bytes),
            purse: waiting.purse,
        };
        if !controller.try_admit(now, &request, site) {
            return None;
        }
        self.last_sender = client;
        let waiting = slot.take()?;
        let (sent_us, purse) = (waiting.sent_us, waiting.purse);
        if let Some(groups) = waiting.groups.without(&groups) {
            let payload = waiting.payload.clone();
            *slot = Some(Waiting {
                groups,
                sent_us,
                purse,
                payload,
            });
        }
        Some(Admitted {
            sender: client,
            groups,
            sent_us,
            purse,
            payload: waiting.payload,
            bytes: request.bytes,
        })
    }

    /// Queues a turn for each client with a waiting message to a `concerned` group. Turns begin
    /// after the last sender, because there may be room for only one message.
    /// [`pop_turn`](Entry::pop_turn) returns the clients.
    pub(super) fn queue_turns(&mut self, concerned: impl Fn(GroupId) -> bool) {
        debug_assert!(self.turns.is_empty(), "the last turns were not drained");
        let last = self.last_sender;
        let after = (Bound::Excluded(last), Bound::Unbounded);
        let in_turn = self.clients.range(after).chain(self.clients.range(..=last));
        let waiting = in_turn.filter(|(_, slot)| {
            let waiting = slot.as_ref();
            let groups = waiting.map_or(&[][..], |waiting| waiting.groups.as_slice());
            groups.iter().any(|group| concerned(*group))
        });
        self.turns.extend(waiting.map(|(client, _)| *client));
    }

    pub(super) fn pop_turn(&mut self) -> Option<ClientId> {
        self.turns.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::Length;

    const G: GroupId = GroupId(1);

    #[test]
    fn turns_begin_after_the_last_sender_and_skip_clients_without_a_message() {
        let mut entry = Entry::default();
        let clients: Vec<_> = (0..4).map(|_| entry.connect()).collect();
        for client in [clients[0], clients[1], clients[3]] {
            assert!(entry.offer(client, G.into(), 0, None, Length(1)));
            assert!(
                !entry.offer(client, G.into(), 0, None, Length(2)),
                "a message already waits"
            );
        }
        entry.last_sender = clients[1];
        entry.queue_turns(|group| group == G);
        let turns: Vec<_> = core::iter::from_fn(|| entry.pop_turn()).collect();
        assert_eq!(turns, [clients[3], clients[0], clients[1]]);
        entry.disconnect(clients[3]);
        assert_eq!(entry.waiting_groups(clients[3]), None);
    }
}
