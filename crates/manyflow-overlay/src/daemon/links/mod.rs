//! The links of a daemon: a hop and two queues for each neighbour.
//!
//! ```text
//!   handle_frame -> hop -> poll_arrival
//!                  route -> enqueue -> queues -> fill_hop -> hop -> poll_transmit
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Links`]: the interface to the daemon; full queues, timers, neighbours that need service |
//! | `neighbour.rs` | one neighbour's queues and hop |
//! | `routing.rs` | the choice of the neighbours that a message goes to |
//!
//! **Back-pressure.** Nothing is dropped. While a queue is full, the daemon reads only the link in
//! the opposite direction of that queue's link. The queues of other daemons that lead here then
//! fill as well, and so on back to the clients.

mod neighbour;
mod routing;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeSet;

use crate::hop::{Arrival, Hop};
use crate::message::{DaemonId, Frame, LinkId, Message};
use crate::sequence::LinkSeq;
use manyflow_core::Ecn;
use manyflow_core::Payload;
use manyflow_core::time::Time;
use neighbour::Neighbour;
use routing::Route;

/// A neighbour, identified by the place that it keeps as long as its link is up.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NeighbourIndex(u16);

impl NeighbourIndex {
    fn place(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of clients' messages that wait for a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueLength {
    pub(super) link: LinkId,
    pub(super) messages: usize,
}

/// The effects of [`Links::fill_hop`].
#[derive(Copy, Clone, Debug)]
pub(super) struct Filled {
    /// Whether the hop took messages.
    pub(super) any: bool,
    /// The length of the link's queue; `None` if no client's message left it.
    pub(super) queue: Option<QueueLength>,
    /// Whether the last queue that was half full no longer is.
    pub(super) is_relieved: bool,
}

/// All links of a daemon.
/// Messages of one origin to several groups with the same payload. The number is this daemon's own.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share(u64);

#[derive(Debug)]
pub(super) struct Links<P> {
    here: DaemonId,
    /// The neighbour at each place; `None` if the place is free.
    neighbours: Vec<Option<Neighbour<P>>>,
    /// The places of all neighbours, sorted by the daemons' numbers.
    places: Vec<(DaemonId, NeighbourIndex)>,
    /// The number of clients' messages in a full queue.
    queue_messages: usize,
    /// The number of full queues.
    full: usize,
    /// The number of queues that are at least half full, full ones included.
    half_full: usize,
    /// Neighbours that need service. `is_dirty` holds the same as a flag for each neighbour.
    dirty: Vec<NeighbourIndex>,
    is_dirty: Vec<bool>,
    /// The times at which hops want to be called. `armed` holds the same for each neighbour.
    timers: BTreeSet<(Time, NeighbourIndex)>,
    armed: Vec<Option<Time>>,
    route: Route,
    overhead_bytes: u32,
    /// The last share.
    share: Share,
    /// A neighbour that does not take its control messages.
    overflowed: Option<DaemonId>,
}

impl<P: Payload + Default> Links<P> {
    /// Returns the links of daemon `here`, which has no neighbours yet.
    pub(super) fn new(here: DaemonId, queue_messages: usize) -> Links<P> {
        Links {
            here,
            neighbours: Vec::new(),
            places: Vec::new(),
            overhead_bytes: 0,
            queue_messages,
            full: 0,
            half_full: 0,
            dirty: Vec::new(),
            is_dirty: Vec::new(),
            timers: BTreeSet::new(),
            armed: Vec::new(),
            route: Route::default(),
            share: Share::default(),
            overflowed: None,
        }
    }

    /// Adds a neighbour, which must not be one already.
    pub(super) fn add(&mut self, to: DaemonId, hop: Box<dyn Hop<P>>) -> NeighbourIndex {
        let link = LinkId {
            from: self.here,
            to,
        };
        let neighbour = Neighbour::new(link, hop);
        self.overhead_bytes = self.overhead_bytes.max(neighbour.overhead_bytes());
        let free = self.neighbours.iter().position(Option::is_none);
        let place = free.unwrap_or(self.neighbours.len());
        if free.is_none() {
            self.neighbours.push(None);
            self.is_dirty.push(false);
            self.armed.push(None);
            self.route.add_place();
        }
        self.neighbours[place] = Some(neighbour);
        let index = NeighbourIndex(place as u16);
        let gap = self.places.binary_search_by_key(&to, |(id, _)| *id);
        debug_assert!(gap.is_err(), "{to:?} is a neighbour already");
        let (Ok(gap) | Err(gap)) = gap;
        self.places.insert(gap, (to, index));
        self.mark_dirty(index);
        index
    }

    /// Removes a neighbour, its hop and the messages that wait for it. Returns its link, and
    /// whether the last queue that was half full no longer is; `None` if there is no such
    /// neighbour.
    pub(super) fn remove(&mut self, to: DaemonId) -> Option<(LinkId, bool)> {
        let index = self.find_neighbour(to)?;
        let neighbour = self.neighbours[index.place()].take()?;
        self.places.retain(|(id, _)| *id != to);
        if let Some(time) = self.armed[index.place()].take() {
            self.timers.remove(&(time, index));
        }
        self.dirty.retain(|other| *other != index);
        self.is_dirty[index.place()] = false;
        let overheads = self.neighbours.iter().flatten();
        let overheads = overheads.map(Neighbour::overhead_bytes);
        self.overhead_bytes = overheads.max().unwrap_or(0);
        let is_relieved = self.relieve(neighbour.waiting_data(), 0);
        Some((neighbour.link(), is_relieved))
    }

    /// Returns the daemon at a place that is in use.
    pub(super) fn id(&mut self, index: NeighbourIndex) -> DaemonId {
        self.at(index).id()
    }

    /// Returns the number of neighbours.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of bytes that a message takes on a link besides its own header and
    /// payload. If links differ, returns the maximum.
    pub(super) fn overhead_bytes(&self) -> u32 {
        self.overhead_bytes
    }

    /// Returns whether the queue of any link is at least half full.
    pub(super) fn are_half_full(&self) -> bool {
        self.half_full > 0
    }

    /// Returns the number of messages that wait for any hop.
    pub(super) fn waiting(&self) -> usize {
        let neighbours = self.neighbours.iter().flatten();
        neighbours.map(Neighbour::waiting).sum()
    }

    /// Handles a frame from a neighbour. Ignores frames from other daemons.
    pub(super) fn handle_frame(
        &mut self,
        now: Time,
        from: DaemonId,
        frame: &Frame,
        ecn: Ecn,
        payload: P,
    ) {
        if let Some(index) = self.find_neighbour(from) {
            self.at(index).handle_frame(now, frame, ecn, payload);
            self.mark_dirty(index);
        }
    }

    /// Handles the drain of a neighbour's socket buffer that was full. Ignores other daemons.
    pub(super) fn keep_alive(&mut self, now: Time, neighbour: DaemonId) {
        if let Some(index) = self.find_neighbour(neighbour) {
            self.at(index).keep_alive(now);
            self.mark_dirty(index);
        }
    }

    pub(super) fn handle_writable(&mut self, now: Time, neighbour: DaemonId) {
        if let Some(index) = self.find_neighbour(neighbour) {
            self.at(index).handle_writable(now);
            self.mark_dirty(index);
        }
    }

    /// Handles a new connection to a neighbour. Ignores other daemons.
    pub(super) fn handle_connected(&mut self, now: Time, neighbour: DaemonId, received: LinkSeq) {
        if let Some(index) = self.find_neighbour(neighbour) {
            self.at(index).handle_connected(now, received);
            self.mark_dirty(index);
        }
    }

    /// Handles the end of a neighbour's connection. Ignores other daemons.
    pub(super) fn handle_disconnected(&mut self, neighbour: DaemonId) {
        if let Some(index) = self.find_neighbour(neighbour) {
            self.at(index).handle_disconnected();
            self.mark_dirty(index);
        }
    }

    /// Returns the hop that leads to a neighbour.
    pub(super) fn hop(&self, neighbour: DaemonId) -> Option<&dyn Hop<P>> {
        let index = self.find_neighbour(neighbour)?;
        self.neighbours[index.place()].as_ref().map(Neighbour::hop)
    }

    /// Returns the number of clients' messages that wait for the link to a neighbour.
    pub(super) fn queue_messages(&self, neighbour: DaemonId) -> Option<usize> {
        let index = self.find_neighbour(neighbour)?;
        let neighbour = self.neighbours[index.place()].as_ref();
        neighbour.map(Neighbour::waiting_data)
    }

    /// Calls the hops whose time has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(time, index)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            self.armed[index.place()] = None;
            self.at(index).handle_timeout(now);
            self.mark_dirty(index);
        }
    }

    /// Returns when [`handle_timeout`](Links::handle_timeout) is wanted next, if at all.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Returns a neighbour that needs service, if there is any.
    pub(super) fn pop_dirty(&mut self) -> Option<NeighbourIndex> {
        let index = self.dirty.pop()?;
        debug_assert!(self.is_dirty[index.place()], "{index:?} is listed twice");
        self.is_dirty[index.place()] = false;
        Some(index)
    }

    /// Returns the next message that has arrived from a neighbour. Returns `None` while the queue
    /// of another neighbour is full.
    pub(super) fn poll_arrival(
        &mut self,
        now: Time,
        index: NeighbourIndex,
    ) -> Option<(Arrival<P>, Option<Share>)> {
        let (full, limit) = (self.full, self.queue_messages);
        let next = Share(self.share.0 + 1);
        let neighbour = self.at(index);
        let own = usize::from(neighbour.waiting_data() >= limit);
        if full > own {
            return None;
        }
        let (arrival, share) = neighbour.poll_arrival(now, next)?;
        self.share = self.share.max(share.unwrap_or_default());
        Some((arrival, share))
    }

    /// Begins a share: messages with the same payload, which each link carries once.
    pub(super) fn begin_share(&mut self) -> Share {
        self.share.0 += 1;
        self.share
    }

    /// Queues a message, which can be one of a share, for a neighbour. Returns the queue's length
    /// if the message waits with clients' messages.
    pub(super) fn enqueue(
        &mut self,
        index: NeighbourIndex,
        message: Message,
        payload: &P,
        share: Option<Share>,
    ) -> Option<QueueLength> {
        let neighbour = self.at(index);
        let length = message.waits_with_data().then(|| QueueLength {
            link: neighbour.link(),
            messages: neighbour.waiting_data() + 1,
        });
        if let Some(QueueLength { messages, .. }) = length {
            neighbour.push_data(message, payload, share);
            self.full += usize::from(messages == self.queue_messages);
            self.half_full += usize::from(messages == self.half());
            self.check_counts();
        } else {
            neighbour.push_control(message, payload.clone());
            if neighbour.has_overflowed() {
                self.overflowed = Some(neighbour.id());
            }
        }
        self.mark_dirty(index);
        length
    }

    /// Returns a neighbour that does not take its control messages.
    pub(super) fn pop_overflowed(&mut self) -> Option<DaemonId> {
        self.overflowed.take()
    }

    /// Notes that a neighbour wants the state of a daemon.
    pub(super) fn request_state(&mut self, index: NeighbourIndex, origin: DaemonId) {
        self.at(index).request(origin);
        self.mark_dirty(index);
    }

    /// Returns the next daemon whose state a neighbour wants, when it can be sent.
    pub(super) fn pop_request(&mut self, index: NeighbourIndex) -> Option<DaemonId> {
        self.at(index).pop_request()
    }

    /// Queues the messages of a daemon's state for a neighbour.
    pub(super) fn enqueue_state(
        &mut self,
        index: NeighbourIndex,
        messages: impl Iterator<Item = (Message, P)>,
    ) {
        self.at(index).push_state(messages);
    }

    /// Queues a control message for all neighbours except one.
    pub(super) fn enqueue_for_all(
        &mut self,
        except: Option<NeighbourIndex>,
        message: Message,
        payload: &P,
    ) {
        for place in 0..self.places.len() {
            let index = self.places[place].1;
            if Some(index) != except {
                self.enqueue(index, message, payload, None);
            }
        }
    }

    /// Hands waiting messages to a neighbour's hop while it has room, control messages first. `cut`
    /// returns what the link carries of a message's payload.
    #[inline]
    pub(super) fn fill_hop(
        &mut self,
        now: Time,
        index: NeighbourIndex,
        cut: impl FnMut(LinkId, &Message, P) -> P,
    ) -> Filled {
        let neighbour = self.at(index);
        let before = neighbour.waiting_data();
        let any = neighbour.fill_hop(now, cut);
        let queue = QueueLength {
            link: neighbour.link(),
            messages: neighbour.waiting_data(),
        };
        Filled {
            any,
            queue: (queue.messages < before).then_some(queue),
            is_relieved: self.relieve(before, queue.messages),
        }
    }

    /// Updates the counts of full and half-full queues after a queue has gone from `before` to
    /// `after` messages. If the queue was full, all links are read again. Returns whether this was
    /// the last queue that was half full.
    fn relieve(&mut self, before: usize, after: usize) -> bool {
        if after == before {
            return false;
        }
        let crossed = |limit: usize| before >= limit && after < limit;
        if crossed(self.queue_messages) {
            self.full -= 1;
            for place in 0..self.places.len() {
                self.mark_dirty(self.places[place].1);
            }
        }
        let is_no_longer_half_full = crossed(self.half());
        self.half_full -= usize::from(is_no_longer_half_full);
        self.check_counts();
        is_no_longer_half_full && self.half_full == 0
    }

    /// Returns the next frame for a neighbour, with its destination and payload.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        index: NeighbourIndex,
    ) -> Option<(DaemonId, Frame, P)> {
        let neighbour = self.at(index);
        let (frame, payload) = neighbour.poll_transmit(now)?;
        Some((neighbour.id(), frame, payload))
    }

    /// Returns a new measurement of the time for which messages wait below a neighbour's hop, with
    /// the link.
    pub(super) fn poll_delay(&mut self, index: NeighbourIndex) -> Option<(LinkId, Duration)> {
        let neighbour = self.at(index);
        let delay = neighbour.poll_delay()?;
        Some((neighbour.link(), delay))
    }

    /// Updates the timer of a neighbour's hop.
    pub(super) fn rearm_timer(&mut self, index: NeighbourIndex) {
        let wanted = self.at(index).poll_timeout();
        let armed = &mut self.armed[index.place()];
        if *armed == wanted {
            return;
        }
        if let Some(time) = *armed {
            let was_listed = self.timers.remove(&(time, index));
            debug_assert!(was_listed, "{index:?} was armed without a timer");
        }
        *armed = wanted;
        if let Some(time) = wanted {
            self.timers.insert((time, index));
        }
    }

    /// Returns the number of messages that make a queue half full.
    fn half(&self) -> usize {
        self.queue_messages.div_ceil(2)
    }

    fn mark_dirty(&mut self, index: NeighbourIndex) {
        let is_dirty = &mut self.is_dirty[index.place()];
        if !*is_dirty {
            *is_dirty = true;
            self.dirty.push(index);
        }
    }

    pub(super) fn find_neighbour(&self, daemon: DaemonId) -> Option<NeighbourIndex> {
        let found = self.places.binary_search_by_key(&daemon, |(id, _)| *id);
        found.ok().map(|found| self.places[found].1)
    }

    /// Returns the neighbour at a place that is in use.
    #[inline]
    fn at(&mut self, index: NeighbourIndex) -> &mut Neighbour<P> {
        let neighbour = self.neighbours[index.place()].as_mut();
        neighbour.expect("an index is dropped when its neighbour is removed")
    }

    /// Asserts that the counts of full and half-full queues are right. A wrong count would stop the
    /// daemon from reading its links or its clients forever.
    fn check_counts(&self) {
        let count = |limit| {
            let queues = self.neighbours.iter().flatten();
            let queues = queues.map(Neighbour::waiting_data);
            queues.filter(|messages| *messages >= limit).count()
        };
        debug_assert_eq!(self.full, count(self.queue_messages), "full queues");
        debug_assert_eq!(self.half_full, count(self.half()), "half-full queues");
    }
}
