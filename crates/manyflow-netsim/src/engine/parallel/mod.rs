//! Several threads run one network, with the same result as one thread.
//!
//! The nodes are divided into parts (`partition.rs`). Each part is a network of its own, with the
//! links that begin at its nodes, its endpoints, its packets and its pending events. Parts affect
//! each other only by packets, joins and leaves on links between them. The shortest delay of these
//! links is the *lookahead* L.
//!
//! # Windows
//!
//! Let t be the time of the earliest pending event. A packet or join that a part sends from t on
//! reaches another part at t + L or later. So all parts can handle their events in the window from
//! t to just before t + L at the same time (conservative synchronisation with lower bounds on time
//! stamps: Chandy and Misra, "Distributed simulation", 1979; Nicol, "The cost of conservative
//! synchronization in parallel discrete event simulations", 1993). A change of the network ends a
//! window, and is made while no part runs. So does the end of the run.
//!
//! # The order of events
//!
//! One thread handles events by time and, at equal times, in the order in which they were added:
//! each event has a number. Several threads must find the same order, since it decides which of two
//! packets enters a queue first, and what observers see first. After each window, the numbers of
//! the events that were added in it are therefore determined as follows.
//!
//! Within the window, a part numbers the events that it adds from the last final number on:
//! *provisional* numbers. Each part logs the events that it handles, with the numbers that each of
//! them has taken. Then `merge.rs` merges the logs of all parts by time and final number. Events
//! take their final numbers in this order.
//!
//! **The merged order is that of one thread.** By induction over the merged events: the final
//! numbers before the window are in the order of one thread. Of two events at one time that were
//! added before the window, the one with the smaller final number comes first. One that was added
//! in the window comes after all that were added before it; its provisional number is larger than
//! all final ones. Two that were added in the window compare as the events that added them, which
//! precede them in their logs and have been merged already, and then by their order within that
//! event. This is what one thread does, because it takes numbers in the order in which it handles
//! events. Within a part the provisional order is the final one: a part handles its events in the
//! order in which one thread would, as all that could come between was known at the beginning of
//! the window.
//!
//! Events after the end of the window wait apart until their numbers are final, so no pending event
//! has to be found and changed.
//!
//! # Links between parts
//!
//! The part where a link begins has its queue. Such a link has no managed queue, no jitter, and
//! never changes, so an accepted packet has a certain arrival time. The packet leaves for the other
//! part at once, with a number. One thread has a single pending event for a link, which is added by
//! the packet if nothing is on the link, and otherwise at the end of the arrival before. The
//! receiving part takes a number there, too. **The event of an arrival has the larger one of the
//! two numbers**: if the packet's is larger, the arrival before was over when the packet was
//! accepted, so nothing was on the link; if it is smaller, the packet was on the link by then.
//!
//! # Observers, limits, threads
//!
//! Parts log the calls of observers as well; the merge makes them in order. Limits of a whole run
//! are shared by the parts. If a part reaches its share, one thread has to make the run again
//! ([`Halt::OneThread`]), which then ends, or does not, as it always has. This also happens if
//! windows have too few events for several threads to be faster.
//!
//! | file | contents |
//! |---|---|
//! | `partition.rs` | the choice of parts |
//! | `split.rs` | makes the parts of a network that has not run yet |
//! | `border.rs` | packets and joins between parts |
//! | `log.rs` | the events of a part in a window, and its calls of observers |
//! | `merge.rs` | final numbers, and the calls of observers |
//! | `drive.rs` | windows, and changes between them |
//! | `threads.rs` | threads that run the parts of a window |

mod border;
mod drive;
mod log;
mod merge;
mod partition;
mod split;
#[cfg(test)]
mod tests;
mod threads;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use manyflow_core::link::Counters;
use manyflow_core::{EndpointId, Header, Time};

use super::accounting::{AccountingError, check};
use super::routing::Graph;
use super::{Change, Halt, LinkEntry, LinkId, Network, Observer, Received};
pub(super) use border::Border;
use border::{Crossing, Map};
use log::Log;

/// The number of events for each part below which one thread runs a window. It takes about as long
/// to make the others begin and to learn that they have ended.
const EVENTS_MIN: u64 = 32;
/// Numbers of events have 31 bits. They are given again well before they end, because a window
/// takes numbers without a check.
const NUMBER_MAX: u32 = 1 << 30;
/// The number of windows after which it is known whether several threads are faster than one.
const WINDOWS_MIN: u64 = 1000;
/// The number of events of a window for each part from which on several threads are faster.
const PAYING: u64 = 50;
/// Stands for the base of a part whose numbers are all final.
const FINAL: u32 = u32::MAX - 1;

/// The functions of a network that several threads run. They need events that can be copied and
/// sent, which a network of one thread does not.
pub(super) struct Drive<H, E> {
    threads: usize,
    /// Numbers are given again from 1 when they exceed this.
    number_max: u32,
    /// One thread runs a window if the one before had fewer events for each part.
    events_min: u64,
    pub(super) run: RunUntil<H, E>,
    pub(super) wake: Wake<H, E>,
}

type RunUntil<H, E> = fn(&mut Network<H, E>, Time, &mut dyn Observer<H, E>) -> Result<(), Halt>;
type Wake<H, E> = fn(&mut Network<H, E>, EndpointId, &mut dyn Observer<H, E>);

impl<H, E> Clone for Drive<H, E> {
    fn clone(&self) -> Drive<H, E> {
        *self
    }
}

impl<H, E> Copy for Drive<H, E> {}

/// A network in parts.
pub(super) struct Parallel<H, E> {
    parts: Vec<Part<H, E>>,
    map: Arc<Map>,
    pub(super) graph: Arc<Graph>,
    lookahead: Duration,
    /// The last final number.
    number: u32,
    counts: Windows,
    /// The number of events in the last window.
    events: u64,
}

/// The work of several threads so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Windows {
    /// The number of parts.
    pub parts: usize,
    /// The shortest delay between parts, which is the length of a window.
    pub lookahead: Duration,
    /// The number of windows.
    pub windows: u64,
    /// The number of events that all parts have handled.
    pub events: u64,
    /// The sum over all windows of the largest number of events that a part has handled. `events`
    /// divided by it is the speed-up that the balance of the parts allows.
    pub longest: u64,
    /// The number of packets, joins and leaves that went from part to part.
    pub crossings: u64,
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = |count: u64| count as f64 / self.windows.max(1) as f64;
        write!(
            f,
            "{} parts: {} windows of {:?} with {:.1} events each, {:.1} of them in the busiest part, and {:.1} crossings",
            self.parts,
            self.windows,
            self.lookahead,
            each(self.events),
            each(self.longest),
            each(self.crossings)
        )
    }
}

impl Windows {
    /// Returns whether several threads are slower than one so far: a window has too few events to
    /// make up for the time in which threads wait for each other. Nothing is known before there
    /// have been a thousand windows.
    pub fn are_too_short(&self) -> bool {
        let enough = PAYING * self.parts as u64 * self.windows;
        self.windows >= WINDOWS_MIN && self.events < enough
    }
}

/// A part of a network, and its state between windows.
struct Part<H, E> {
    network: Network<H, E>,
    log: Log<H, E>,
    /// The final numbers of the last window, by provisional number.
    numbers: Vec<u32>,
    /// The last final number before the window of `numbers`, or [`FINAL`].
    base: u32,
    /// The last time of the current window, and the last final number before it.
    window: (Time, u32),
    /// The packets, joins and leaves that were sent to this part in the last window.
    inbox: Vec<Crossing<H>>,
    /// The time of the first arrival in the inbox.
    inbox_from: Time,
    /// Whether a limit was reached, or the run is stopped.
    is_over: bool,
}

impl<H: Header, E: Clone + Send> Network<H, E> {
    /// Divides the network into this many parts when it runs for the first time, for as many
    /// threads, but at most one for each processor. The results are those of one thread, which runs
    /// the network if it cannot be divided, for example because no link has a delay.
    ///
    /// A run may end with [`Halt::OneThread`]: then a new network with one thread must be run.
    pub fn set_threads(&mut self, threads: usize) {
        assert!(self.parallel.is_none(), "threads are set before a run");
        self.drive = (threads > 1).then_some(Drive {
            threads,
            number_max: NUMBER_MAX,
            events_min: EVENTS_MIN,
            run: Network::run_in_parts,
            wake: Network::wake_in_part,
        });
    }
}

impl<H: Header, E> Network<H, E> {
    /// Keeps both ends of a link in one part of the network. Links that are going to
    /// [change](Network::at) need this if several threads run the network.
    pub fn keep_whole(&mut self, link: LinkId) {
        self.whole.insert(link);
    }

    /// Returns the work of several threads so far; `None` if one thread runs the network.
    pub fn windows(&self) -> Option<Windows> {
        self.parallel.as_ref().map(|parallel| parallel.counts)
    }

    /// Returns the number of links and of endpoints.
    #[cfg(test)]
    fn map_len(&self) -> (u32, u32) {
        let (links, endpoints) = match &self.parallel {
            None => (self.links.len(), self.endpoints.len()),
            Some(parallel) => (parallel.map.links.len(), parallel.map.endpoints.len()),
        };
        (links as u32, endpoints as u32)
    }

    pub(super) fn check_change(&self, change: &Change) {
        let (Change::Configure(link, _) | Change::Cut(link, _)) = change;
        if let Some(parallel) = &self.parallel {
            let (part, index) = parallel.map.link(*link);
            assert!(
                index < parallel.parts[part].network.exits_from,
                "link {} is between two parts of the network and cannot change: call `keep_whole` before the run",
                self.link_name(*link)
            );
        }
    }

    /// Returns the opposite direction of a link, which may be in a part of the network.
    pub(super) fn reverse_of(&self, link: LinkId) -> Option<LinkId> {
        let entry = self.link_entry(link);
        match &self.parallel {
            None => entry.reverse,
            Some(parallel) => {
                let part = &parallel.parts[parallel.map.part(entry.to)];
                entry.reverse.map(|link| part.border().link(link))
            }
        }
    }
}

impl<H, E> Part<H, E> {
    fn border_mut(&mut self) -> &mut Border<H> {
        self.network.border.as_mut().expect("parts have borders")
    }

    fn border(&self) -> &Border<H> {
        self.network.border.as_ref().expect("parts have borders")
    }
}

impl<H: Header, E> Parallel<H, E> {
    pub(super) fn received(&self, endpoint: EndpointId) -> Received {
        let (part, index) = self.map.endpoint(endpoint);
        self.parts[part].network.endpoints[index as usize].received
    }

    pub(super) fn link_entry(&self, link: LinkId) -> &LinkEntry {
        let (part, index) = self.map.link(link);
        &self.parts[part].network.links[index as usize]
    }

    pub(super) fn link_entry_mut(&mut self, link: LinkId) -> &mut LinkEntry {
        let (part, index) = self.map.link(link);
        &mut self.parts[part].network.links[index as usize]
    }

    /// Returns the counters of a link. A link between parts counts packets as delivered when they
    /// leave for the other part, but they have yet to arrive.
    pub(super) fn link_counters(&self, link: LinkId) -> Counters {
        let mut counters = self.link_entry(link).link.counters();
        let (packets, bytes) = self.on_the_way(link);
        counters.delivered -= packets;
        counters.delivered_bytes -= bytes;
        counters
    }

    /// Returns the number and the bytes of the packets that are on their way to another part.
    fn on_the_way(&self, link: LinkId) -> (u64, u64) {
        let (part, index) = self.map.link(link);
        let exit = index.checked_sub(self.parts[part].network.exits_from);
        let exit = exit.map(|exit| self.parts[part].border().exits[exit as usize]);
        let Some((part, place)) = exit else {
            return (0, 0);
        };
        let arrivals = &self.parts[part as usize].border().arrivals[place as usize];
        let bytes = arrivals.packets.iter();
        let bytes = bytes.map(|(_, packet)| u64::from(packet.wire_bytes()));
        (arrivals.packets.len() as u64, bytes.sum())
    }

    fn links(&self) -> impl Iterator<Item = LinkId> {
        (0..self.map.links.len() as u32).map(LinkId)
    }

    pub(super) fn transmissions(&self) -> u64 {
        let links = self.links();
        links.map(|link| self.link_counters(link).delivered).sum()
    }

    pub(super) fn unroutable(&self) -> u64 {
        let parts = self.parts.iter();
        parts.map(|part| part.network.unroutable).sum()
    }

    pub(super) fn check_accounting(
        &self,
        name: impl Fn(LinkId) -> String,
    ) -> Result<(), AccountingError> {
        let carried = |link| self.link_entry(link).link.carried() + self.on_the_way(link).0;
        let counted = self.parts.iter().map(|part| part.network.limits.carried);
        debug_assert_eq!(self.links().map(carried).sum::<u64>(), counted.sum::<u64>());
        for link in self.links() {
            check(&self.link_counters(link), carried(link), || name(link))?;
        }
        Ok(())
    }

    /// Returns the time of the next event of all parts.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        let parts = self.parts.iter_mut();
        let next = parts.map(Part::next_time).min();
        next.filter(|time| *time < Time::MAX)
    }
}
