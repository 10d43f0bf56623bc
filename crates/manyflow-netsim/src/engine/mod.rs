//! The engine: nodes, links, endpoints, and the order of events.
//!
//! | file | contents |
//! |---|---|
//! | `build.rs` | methods that add nodes, links, endpoints and changes |
//! | `pairs.rs` | an index of links by their ends, which exists while a network is built |
//! | `events.rs` | the queue of pending events |
//! | `lift.rs` | adapters for endpoints of one protocol in a network of several |
//! | `run.rs` | the main loop, and the path of a packet |
//! | `packets.rs` | the packets, which links carry by number |
//! | `routing.rs` | unicast routes, computed when the first packet is sent to a destination |
//! | `multicast.rs` | joins and leaves that travel hop by hop, and branches |
//! | `limits.rs` | limits that end a run: no advance of time, too many packets, a stop |
//! | `parallel` | several threads that run one network |
//! | `accounting.rs` | the check that each link accounts for all packets |

mod accounting;
mod build;
mod events;
mod lift;
mod limits;
mod multicast;
mod packets;
mod pairs;
mod parallel;
mod routing;
mod run;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_limits;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use accounting::AccountingError;
use events::Events;
pub use lift::{Holds, Lift};
use limits::Limits;
pub use limits::{Halt, Stop};
use manyflow_core::link::{Dropped, Link, LinkConfig};
use manyflow_core::{Channel, Endpoint, EndpointId, Packet, Time};
use multicast::{Groups, Message};
use packets::{PacketId, Packets};
use pairs::Pairs;
pub use parallel::Windows;
use parallel::{Border, Drive, Parallel};

use crate::names::Names;

/// The number of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// The number of one direction of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A change of the network at a given time.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Changes the configuration of the link.
    Configure(LinkId, Arc<LinkConfig>),
    /// Cuts the link (`true`) or restores it (`false`).
    Cut(LinkId, bool),
}

/// An event inside the network, for traces.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Incident<'a, H> {
    /// The link dropped a packet instead of queuing it.
    Dropped(LinkId, Dropped, &'a Packet<H>),
    /// The link accepted a packet and is going to lose it on the wire, or carried it when it was
    /// cut.
    Lost(LinkId, &'a Packet<H>),
    /// The link's queue marked a packet with congestion experienced.
    Marked(LinkId, &'a Packet<H>),
    /// A join arrived: the channel is now forwarded onto the link.
    Grafted(LinkId, Channel),
    /// A leave took effect: the channel is no longer forwarded onto the link.
    Pruned(LinkId, Channel),
    /// A change of the network was made.
    Changed(&'a Change),
}

/// Observes a run.
pub trait Observer<H, E> {
    /// Handles an event that an endpoint reported.
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &E);

    /// Handles a packet that a [tapped](Network::tap) link delivers.
    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet<H>);

    /// Handles an incident inside a [traced](Network::trace) network.
    fn on_incident(&mut self, _now: Time, _incident: &Incident<H>) {}
}

/// The observer that ignores everything.
impl<H, E> Observer<H, E> for () {
    fn on_event(&mut self, _now: Time, _endpoint: EndpointId, _event: &E) {}

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<H>) {}
}

/// The packets that an endpoint has received.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The number of packets.
    pub packets: u64,
    /// The bytes of these packets on the wire.
    pub bytes: u64,
}

/// An endpoint, as a network stores it.
pub type BoxedEndpoint<H, E> = Box<dyn Endpoint<Rx = H, Tx = H, Event = E>>;

/// A network, and the state of its run. Its packets have headers `H`, and its endpoints report
/// events `E`.
///
/// Both types belong to one protocol, or are sums over several protocols: see [`Lift`].
pub struct Network<H, E> {
    now: Time,
    seed: u64,
    events: Events,
    names: Names,
    nodes: Vec<Node>,
    links: Vec<LinkEntry>,
    packets: Packets<H>,
    /// The index of links by their ends, while the network is being built.
    pairs: Option<Pairs>,
    endpoints: Vec<EndpointEntry<H, E>>,
    /// The endpoints that wait until another one at their node has been drained.
    waiting: Vec<u32>,
    /// The node of each multicast session's source.
    sources: Vec<NodeId>,
    /// For each destination, the link towards it at each node. Empty until the first packet is sent
    /// there.
    routes: Vec<Vec<u32>>,
    /// The changes that are not yet due.
    changes: Vec<Change>,
    free_changes: Vec<u32>,
    /// The joins and leaves that have not yet arrived.
    messages: Vec<Message>,
    free_messages: Vec<u32>,
    leave_latency: Duration,
    /// The branches whose leave latency has begun, by node, channel and target, with the number of
    /// the message that will remove them. A join removes a branch from this map.
    lingering: BTreeMap<(NodeId, u64, u32), u32>,
    limits: Limits,
    /// The number of packets that were discarded because no path led to their destination.
    unroutable: u64,
    /// Whether incidents are reported to the observer.
    traced: bool,
    /// How several threads run this network.
    drive: Option<Drive<H, E>>,
    /// The links whose ends must be in one part.
    whole: BTreeSet<LinkId>,
    /// The first of the links that leave this part of a network. They are its last links.
    exits_from: u32,
    /// The border of this part of a network.
    border: Option<Box<Border<H>>>,
    /// The parts of this network. They have its links and endpoints.
    parallel: Option<Box<Parallel<H, E>>>,
}

/// A node, and the channels that pass through it.
#[derive(Default)]
struct Node {
    groups: Groups,
}

/// A link with its two ends.
struct LinkEntry {
    link: Link<PacketId>,
    from: NodeId,
    to: NodeId,
    /// The opposite direction, for joins and leaves.
    reverse: Option<LinkId>,
    /// The time of the pending event, or `Time::MAX` if there is none.
    pending: Time,
    tapped: bool,
}

impl LinkEntry {
    /// Returns the time of the next arrival if it precedes the pending event, and makes it the
    /// pending event.
    #[inline]
    fn earlier_event(&mut self) -> Option<Time> {
        let next = self.link.next_time()?;
        (next < self.pending).then(|| {
            self.pending = next;
            next
        })
    }
}

/// An endpoint with its node.
struct EndpointEntry<H, E> {
    endpoint: BoxedEndpoint<H, E>,
    node: NodeId,
    /// The time of the earliest pending event, or `Time::MAX` if there is none.
    armed: Time,
    received: Received,
    /// Whether its events are not reported to the observer.
    muted: bool,
}
