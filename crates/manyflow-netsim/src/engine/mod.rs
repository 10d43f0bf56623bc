//! The engine: nodes, links, endpoints, and the order in which things happen.
//!
//! | file | what it holds |
//! |---|---|
//! | `build.rs` | nodes, links, endpoints, changes to come |
//! | `pairs.rs` | an index of links by their ends, while a network is built |
//! | `events.rs` | the queue of pending events |
//! | `lift.rs` | endpoints of one protocol in a network of several |
//! | `run.rs` | the main loop, and the path of a packet |
//! | `routing.rs` | unicast routes, built for a destination when the first packet goes there |
//! | `multicast.rs` | joins and leaves that travel hop by hop, and the branches they leave behind |
//! | `limits.rs` | limits that end a run: time that stands still, too many packets |
//! | `accounting.rs` | sent = delivered + dropped + in flight, for each link |

mod accounting;
mod build;
mod events;
mod lift;
mod limits;
mod multicast;
mod pairs;
mod routing;
mod run;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_limits;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use accounting::AccountingError;
use events::Events;
pub use lift::{Holds, Lift};
pub use limits::Halt;
use limits::Limits;
use manyflow_core::link::{Dropped, Link, LinkConfig};
use manyflow_core::{Channel, Endpoint, EndpointId, Header, Packet, Time};
use multicast::{Groups, Message};
use pairs::Pairs;

use crate::names::Names;

/// A host or router, by its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One direction of a link, by its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A change of the network at a given time.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The link has this configuration from now on.
    Configure(LinkId, Arc<LinkConfig>),
    /// The link is cut (`true`) or restored.
    Cut(LinkId, bool),
}

/// An event inside the network, for traces.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Incident<'a, H> {
    /// The link did not take a packet.
    Dropped(LinkId, Dropped, &'a Packet<H>),
    /// The link took a packet and is going to lose it on the wire.
    Lost(LinkId, &'a Packet<H>),
    /// The link's queue marked a packet: congestion experienced.
    Marked(LinkId, &'a Packet<H>),
    /// A join arrived: the channel is forwarded onto the link from now on.
    Grafted(LinkId, Channel),
    /// A leave took effect: the channel is no longer forwarded onto the link.
    Pruned(LinkId, Channel),
    /// A change was made.
    Changed(&'a Change),
}

/// Watches a run.
pub trait Observer<H, E> {
    /// Handles an event that an endpoint reported.
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &E);

    /// Handles a packet that a [tapped](Network::tap) link delivers.
    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet<H>);

    /// Handles an incident inside a [traced](Network::trace) network.
    fn on_incident(&mut self, _now: Time, _incident: &Incident<H>) {}
}

/// Ignores everything.
impl<H, E> Observer<H, E> for () {
    fn on_event(&mut self, _now: Time, _endpoint: EndpointId, _event: &E) {}

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<H>) {}
}

/// Counts the packets that an endpoint has received.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

/// An endpoint as a network keeps it.
pub type BoxedEndpoint<H, E> = Box<dyn Endpoint<Rx = H, Tx = H, Event = E>>;

/// A network whose packets have headers `H` and whose endpoints report events `E`, and the state of
/// its run.
///
/// Both are those of one protocol, or sums over several: see [`Lift`].
pub struct Network<H, E> {
    now: Time,
    seed: u64,
    events: Events,
    names: Names,
    nodes: Vec<Node>,
    links: Vec<LinkEntry<H>>,
    /// The index of links by their ends; `None` unless the network is being built.
    pairs: Option<Pairs>,
    endpoints: Vec<EndpointEntry<H, E>>,
    /// The node of each multicast session's source.
    sources: Vec<NodeId>,
    /// For each destination the link towards it at each node; empty until a packet goes there.
    routes: Vec<Vec<u32>>,
    /// Changes that are not due yet.
    changes: Vec<Change>,
    free_changes: Vec<u32>,
    /// Joins and leaves on their way.
    messages: Vec<Message>,
    free_messages: Vec<u32>,
    leave_latency: Duration,
    /// Branches whose leave latency runs, by node, channel and target, with the number of the
    /// message that will remove them. A join takes a branch out.
    lingering: BTreeMap<(NodeId, u64, u32), u32>,
    limits: Limits,
    /// Packets that were discarded because no path led to their destination.
    unroutable: u64,
    /// Whether incidents are reported to the observer.
    traced: bool,
}

/// A host or router.
#[derive(Default)]
struct Node {
    groups: Groups,
}

/// A link with its two nodes.
struct LinkEntry<H> {
    link: Link<Packet<H>>,
    from: NodeId,
    to: NodeId,
    /// The other direction, for joins and leaves.
    reverse: Option<LinkId>,
    /// The time of its pending event; `Time::MAX` without one.
    pending: Time,
    tapped: bool,
}

impl<H: Header> LinkEntry<H> {
    /// Returns the time of the next arrival if it is earlier than that of the pending event, which
    /// it replaces.
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
    /// The time of its earliest pending event; `Time::MAX` without one.
    armed: Time,
    received: Received,
}
