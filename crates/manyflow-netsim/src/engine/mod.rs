//! The engine: nodes, links, endpoints, and the order in which things happen.
//!
//! | file | what it holds |
//! |---|---|
//! | `build.rs` | nodes, links, endpoints, changes to come |
//! | `pairs.rs` | which links join the same two nodes, while a network is built |
//! | `events.rs` | the queue of pending events |
//! | `lift.rs` | endpoints of one protocol in a network of several |
//! | `run.rs` | the loop, and the way of a packet |
//! | `routing.rs` | unicast routes, built for a destination when the first packet goes there |
//! | `multicast.rs` | joins and leaves that travel hop by hop, and the branches they leave behind |
//! | `limits.rs` | when a run is given up |
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
use manyflow_core::{Channel, Endpoint, EndpointId, Packet, Time};
use multicast::{Groups, Message};
use pairs::Pairs;

use crate::names::Names;

/// A host or router, by its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One direction of a link, by its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Something that is done to the network at a given time.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The link is like this from now on.
    Configure(LinkId, Arc<LinkConfig>),
    /// The link is cut, or restored.
    Cut(LinkId, bool),
}

/// What happens inside the network, for traces.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Incident<'a, H> {
    /// The link did not take a packet.
    Dropped(LinkId, Dropped, &'a Packet<H>),
    /// The link took a packet and is going to lose it on the wire.
    Lost(LinkId, &'a Packet<H>),
    /// The link's queue marked a packet: congestion experienced.
    Marked(LinkId, &'a Packet<H>),
    /// A join arrived: the channel's packets go onto this link from now on.
    Grafted(LinkId, Channel),
    /// A leave took effect: they no longer do.
    Pruned(LinkId, Channel),
    /// A change was made.
    Changed(&'a Change),
}

/// Whoever watches a run.
pub trait Observer<H, E> {
    /// An endpoint told of an event.
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &E);

    /// A link that is tapped delivers a packet.
    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet<H>);

    /// Something happened inside a network that is [traced](Network::trace).
    fn on_incident(&mut self, _now: Time, _incident: &Incident<H>) {}
}

/// Nobody watches.
impl<H, E> Observer<H, E> for () {
    fn on_event(&mut self, _now: Time, _endpoint: EndpointId, _event: &E) {}

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<H>) {}
}

/// What an endpoint has received.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

/// An endpoint as a network keeps it.
pub type BoxedEndpoint<H, E> = Box<dyn Endpoint<Rx = H, Tx = H, Event = E>>;

/// A network whose packets have headers `H` and whose endpoints report events `E`, and the state of its run.
///
/// Both are those of one protocol, or sums over several: see [`Lift`].
pub struct Network<H, E> {
    now: Time,
    seed: u64,
    events: Events,
    names: Names,
    nodes: Vec<Node>,
    links: Vec<Wire<H>>,
    /// Which links join the same nodes; `None` unless the network is being built.
    pairs: Option<Pairs>,
    endpoints: Vec<Host<H, E>>,
    /// The node of each multicast session's source.
    sources: Vec<NodeId>,
    /// For a destination node: at each node, the link towards it. Empty until a packet goes there.
    routes: Vec<Vec<u32>>,
    /// Changes that wait for their time.
    changes: Vec<Change>,
    free_changes: Vec<u32>,
    /// Joins and leaves on their way.
    messages: Vec<Message>,
    free_messages: Vec<u32>,
    leave_latency: Duration,
    /// Branches that a router keeps until the leave latency is over, unless they are joined again: the message that will
    /// say so.
    lingering: BTreeMap<(NodeId, u64, u32), u32>,
    limits: Limits,
    /// Packets that no route led on.
    unroutable: u64,
    /// Whether the observer hears of incidents.
    traced: bool,
}

/// A host or router.
#[derive(Default)]
struct Node {
    groups: Groups,
}

/// A link, and where it leads.
struct Wire<H> {
    link: Link<Packet<H>>,
    from: NodeId,
    to: NodeId,
    /// The other direction, for joins and leaves.
    reverse: Option<LinkId>,
    /// When its pending event is; `Time::MAX` where there is none.
    pending: Time,
    tapped: bool,
}

/// An endpoint, and where it lives.
struct Host<H, E> {
    endpoint: BoxedEndpoint<H, E>,
    node: NodeId,
    /// The earliest event that is pending for it; `Time::MAX` where there is none.
    armed: Time,
    received: Received,
}
