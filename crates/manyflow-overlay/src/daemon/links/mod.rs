//! The links of a daemon: a hop and two queues for each neighbour.
//!
//! ```text
//!   handle_frame -> hop -> poll_arrival
//!                  route -> enqueue -> queues -> fill_hop -> hop -> poll_transmit
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | [`Links`]: what the daemon calls; full queues, timers, neighbours with work to do |
//! | `neighbour.rs` | one neighbour's queues and hop |
//! | `routing.rs` | the neighbours that a message goes to |
//!
//! **Back-pressure.** Nothing is dropped. While a queue is full, only the link that this queue
//! leads back to is read, so that the queues before it fill, and so on back to the clients.

mod neighbour;
mod routing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::hop::{Arrival, Hop};
use crate::message::{DaemonId, Frame, LinkId, Message};
use crate::topology::Topology;
use manyflow_core::ConfigError;
use manyflow_core::Ecn;
use manyflow_core::Payload;
use manyflow_core::time::Time;
use neighbour::Neighbour;
use routing::Route;

/// A neighbour, by its place among the daemon's neighbours.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NeighbourIndex(u16);

impl NeighbourIndex {
    fn place(self) -> usize {
        usize::from(self.0)
    }
}

/// How many of clients' messages wait for a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueLength {
    pub(super) link: LinkId,
    pub(super) messages: usize,
}

/// What filling a hop has changed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Filled {
    /// The hop took messages.
    pub(super) any: bool,
    /// The link's queue, if clients' messages left it.
    pub(super) queue: Option<QueueLength>,
    /// This was the last queue that was half full.
    pub(super) is_relieved: bool,
}

/// The links of a daemon.
#[derive(Debug)]
pub(super) struct Links<P> {
    /// In the order of their daemons' numbers.
    neighbours: Vec<Neighbour<P>>,
    /// Clients' messages in a full queue.
    queue_messages: usize,
    /// How many queues are full.
    full: usize,
    /// How many queues are at least half full, full ones included.
    half_full: usize,
    /// Neighbours that have to be served, and the same as a flag for each neighbour.
    dirty: Vec<NeighbourIndex>,
    is_dirty: Vec<bool>,
    /// When hops want to be called, and the same for each neighbour.
    timers: BTreeSet<(Time, NeighbourIndex)>,
    armed: Vec<Option<Time>>,
    route: Route,
    overhead_bytes: u32,
}

impl<P: Payload + Default> Links<P> {
    /// The links of daemon `here`, with a hop for each neighbour in the order of their numbers.
    ///
    /// # Errors
    /// Returns an error if there are more or fewer hops than neighbours.
    pub(super) fn new(
        topology: &Topology,
        here: DaemonId,
        hops: Vec<Box<dyn Hop<P>>>,
        queue_messages: usize,
    ) -> Result<Links<P>, ConfigError> {
        let mut ends = topology.neighbours(here).to_vec();
        ends.sort_unstable();
        ConfigError::first_of([(
            "a daemon's hops",
            "as many as its neighbours",
            ends.len() == hops.len(),
        )])?;
        let neighbours: Vec<_> = ends
            .into_iter()
            .zip(hops)
            .map(|((id, link), hop)| Neighbour::new(id, link, hop))
            .collect();
        let overheads = neighbours.iter().map(Neighbour::overhead_bytes);
        Ok(Links {
            overhead_bytes: overheads.max().unwrap_or(0),
            queue_messages,
            full: 0,
            half_full: 0,
            dirty: Vec::new(),
            is_dirty: vec![false; neighbours.len()],
            timers: BTreeSet::new(),
            armed: vec![None; neighbours.len()],
            route: Route::new(neighbours.len()),
            neighbours,
        })
    }

    /// Bytes that a message takes on a link besides its own header and payload; the maximum, if
    /// links differ.
    pub(super) fn overhead_bytes(&self) -> u32 {
        self.overhead_bytes
    }

    /// Whether the queue of any link is at least half full.
    pub(super) fn are_half_full(&self) -> bool {
        self.half_full > 0
    }

    /// Messages that wait for any hop.
    pub(super) fn waiting(&self) -> usize {
        self.neighbours.iter().map(Neighbour::waiting).sum()
    }

    /// Handles a frame from a neighbour; ignores those of other daemons.
    pub(super) fn handle_frame(
        &mut self,
        now: Time,
        from: DaemonId,
        frame: &Frame,
        ecn: Ecn,
        payload: P,
    ) {
        if let Some(index) = self.find_neighbour(from) {
            self.neighbours[index.place()].handle_frame(now, frame, ecn, payload);
            self.mark_dirty(index);
        }
    }

    /// The socket that leads to a neighbour takes bytes again; ignores other daemons.
    pub(super) fn handle_writable(&mut self, now: Time, neighbour: DaemonId) {
        if let Some(index) = self.find_neighbour(neighbour) {
            self.neighbours[index.place()].handle_writable(now);
            self.mark_dirty(index);
        }
    }

    /// Calls the hops whose time has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(time, index)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            self.armed[index.place()] = None;
            self.neighbours[index.place()].handle_timeout(now);
            self.mark_dirty(index);
        }
    }

    /// When [`handle_timeout`](Links::handle_timeout) is wanted next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// A neighbour that has to be served, if there is any.
    pub(super) fn pop_dirty(&mut self) -> Option<NeighbourIndex> {
        let index = self.dirty.pop()?;
        debug_assert!(self.is_dirty[index.place()], "{index:?} is listed twice");
        self.is_dirty[index.place()] = false;
        Some(index)
    }

    /// The next message that has arrived from a neighbour, unless another neighbour's queue is
    /// full.
    pub(super) fn poll_arrival(&mut self, now: Time, index: NeighbourIndex) -> Option<Arrival<P>> {
        let neighbour = &mut self.neighbours[index.place()];
        let own = usize::from(neighbour.waiting_data() >= self.queue_messages);
        if self.full > own {
            return None;
        }
        neighbour.poll_arrival(now)
    }

    /// Queues a message for a neighbour; returns the queue's length if it is a client's message.
    pub(super) fn enqueue(
        &mut self,
        index: NeighbourIndex,
        message: Message,
        payload: P,
    ) -> Option<QueueLength> {
        let neighbour = &mut self.neighbours[index.place()];
        let length = message.is_data().then(|| QueueLength {
            link: neighbour.link(),
            messages: neighbour.waiting_data() + 1,
        });
        if let Some(QueueLength { messages, .. }) = length {
            neighbour.push_data(message, payload);
            self.full += usize::from(messages == self.queue_messages);
            self.half_full += usize::from(messages == self.half());
        } else {
            neighbour.push_control(message);
        }
        self.check_counts();
        self.mark_dirty(index);
        length
    }

    /// Hands waiting messages to a neighbour's hop while it has room, control first.
    pub(super) fn fill_hop(&mut self, now: Time, index: NeighbourIndex) -> Filled {
        let neighbour = &mut self.neighbours[index.place()];
        let before = neighbour.waiting_data();
        let any = neighbour.fill_hop(now);
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

    /// Counts queues that are no longer full, and then reads all links again, or half full; returns
    /// whether no queue is half full any more.
    fn relieve(&mut self, before: usize, after: usize) -> bool {
        let crossed = |limit: usize| before >= limit && after < limit;
        if crossed(self.queue_messages) {
            self.full -= 1;
            for place in 0..self.neighbours.len() {
                self.mark_dirty(NeighbourIndex(place as u16));
            }
        }
        let is_no_longer_half_full = crossed(self.half());
        self.half_full -= usize::from(is_no_longer_half_full);
        self.check_counts();
        is_no_longer_half_full && self.half_full == 0
    }

    /// The next frame for a neighbour, with its destination and payload.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        index: NeighbourIndex,
    ) -> Option<(DaemonId, Frame, P)> {
        let neighbour = &mut self.neighbours[index.place()];
        let (frame, payload) = neighbour.poll_transmit(now)?;
        Some((neighbour.id(), frame, payload))
    }

    /// Notes when a neighbour's hop wants to be called next.
    pub(super) fn rearm_timer(&mut self, index: NeighbourIndex) {
        let wanted = self.neighbours[index.place()].poll_timeout();
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

    /// Messages that make a queue half full.
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

    fn find_neighbour(&self, daemon: DaemonId) -> Option<NeighbourIndex> {
        let found = self.neighbours.binary_search_by_key(&daemon, Neighbour::id);
        found.ok().map(|place| NeighbourIndex(place as u16))
    }

    /// The counts are kept by hand: a mistake would stop the daemon's reading, or its clients, for
    /// ever.
    fn check_counts(&self) {
        let count = |limit| {
            let queues = self.neighbours.iter().map(Neighbour::waiting_data);
            queues.filter(|messages| *messages >= limit).count()
        };
        debug_assert_eq!(self.full, count(self.queue_messages), "full queues");
        debug_assert_eq!(self.half_full, count(self.half()), "half-full queues");
    }
}
