//! Methods that build a network.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::{Endpoint, EndpointId, Header, Time};

use super::events::{Due, Events};
use super::limits::Limits;
use super::packets::Packets;
use super::pairs::Pairs;
use super::{
    BoxedEndpoint, Change, EndpointEntry, Holds, Lift, LinkEntry, LinkId, Network, Node, NodeId,
    Received,
};
use crate::names::Names;

/// The message of a panic.
const GROWS: &str = "a network that several threads run cannot grow";

impl<H: Header, E> Network<H, E> {
    /// Creates a network without nodes. Its random choices depend on `seed`.
    pub fn new(seed: u64) -> Network<H, E> {
        Network {
            now: Time::ZERO,
            seed,
            events: Events::default(),
            names: Names::default(),
            nodes: Vec::new(),
            links: Vec::new(),
            packets: Packets::default(),
            pairs: None,
            endpoints: Vec::new(),
            waiting: Vec::new(),
            sources: Vec::new(),
            routes: Vec::new(),
            changes: Vec::new(),
            free_changes: Vec::new(),
            messages: Vec::new(),
            free_messages: Vec::new(),
            leave_latency: Duration::ZERO,
            lingering: BTreeMap::new(),
            limits: Limits::default(),
            unroutable: 0,
            traced: false,
            drive: None,
            whole: BTreeSet::new(),
            exits_from: u32::MAX,
            border: None,
            parallel: None,
        }
    }

    /// Reserves memory for a large network. Growth by doubling would take up to twice the memory.
    pub fn reserve(&mut self, nodes: usize, links: usize, endpoints: usize) {
        self.nodes.reserve_exact(nodes);
        self.routes.reserve_exact(nodes);
        self.links.reserve_exact(links);
        self.endpoints.reserve_exact(endpoints);
    }

    /// Adds a node, which is a host or a router.
    ///
    /// # Panics
    /// Nodes, links and endpoints cannot be added once several threads run the network.
    pub fn add_node(&mut self, name: &str) -> NodeId {
        assert!(self.parallel.is_none(), "{GROWS}");
        self.names.push(name);
        self.nodes.push(Node::default());
        self.routes.push(Vec::new());
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds one direction of a link. Its random stream depends only on the seed and on the names of
    /// its ends, so other links do not change its draws.
    pub fn add_link(
        &mut self,
        from: NodeId,
        to: NodeId,
        config: impl Into<Arc<LinkConfig>>,
    ) -> LinkId {
        assert!(self.parallel.is_none(), "{GROWS}");
        let name = format!("{}-{}", self.name(from), self.name(to));
        let id = LinkId(self.links.len() as u32);
        let links = self.links.iter();
        let known = links.map(|entry| (entry.from, entry.to, entry.reverse));
        let pairs = self.pairs.get_or_insert_with(|| Pairs::of(known));
        let (parallel, reverse) = pairs.add(id, from, to);
        let link = Link::new(config, self.stream(&name).wrapping_add(parallel.into()));
        if let Some(other) = reverse {
            self.links[other.0 as usize].reverse = Some(id);
        }
        self.links.push(LinkEntry {
            link,
            from,
            to,
            reverse,
            pending: Time::MAX,
            tapped: false,
        });
        id
    }

    /// Adds both directions of a link. Returns them as (`a` to `b`, `b` to `a`).
    pub fn add_duplex(
        &mut self,
        a: NodeId,
        b: NodeId,
        config: impl Into<Arc<LinkConfig>>,
    ) -> (LinkId, LinkId) {
        let config = config.into();
        (
            self.add_link(a, b, config.clone()),
            self.add_link(b, a, config),
        )
    }

    /// Adds an endpoint at a node. Returns its number, which is the destination of unicast packets
    /// to it. Multicast packets reach the endpoint after it has joined their channel.
    pub fn add_endpoint(&mut self, node: NodeId, endpoint: BoxedEndpoint<H, E>) -> EndpointId {
        assert!(self.parallel.is_none(), "{GROWS}");
        let id = self.endpoints.len() as u32;
        let armed = endpoint.poll_timeout();
        if let Some(time) = armed {
            self.events.push(time.max(self.now), Due::Timer(id));
        }
        self.endpoints.push(EndpointEntry {
            endpoint,
            node,
            armed: armed.unwrap_or(Time::MAX),
            received: Received::default(),
            muted: false,
        });
        EndpointId(id)
    }

    /// Adds an endpoint of one protocol, as [`add_endpoint`](Network::add_endpoint) does.
    pub fn add<X>(&mut self, node: NodeId, endpoint: X) -> EndpointId
    where
        X: Endpoint + 'static,
        H: Holds<X::Rx> + From<X::Tx> + 'static,
        E: From<X::Event> + 'static,
    {
        self.add_endpoint(node, Box::new(Lift::new(endpoint)))
    }

    /// Returns the number of the endpoint that is added next. Pairs of endpoints need it to name
    /// each other.
    pub fn next_endpoint(&self) -> EndpointId {
        EndpointId(self.endpoints.len() as u32)
    }

    /// Opens a multicast session whose packets come from `source`. Returns the session's number,
    /// which is part of its channels.
    pub fn open_session(&mut self, source: NodeId) -> u32 {
        self.sources.push(source);
        self.sources.len() as u32 - 1
    }

    /// Sets the time for which a router still forwards a channel to a host that has left it, as
    /// with IGMP.
    pub fn set_leave_latency(&mut self, latency: Duration) {
        self.leave_latency = latency;
    }

    /// Schedules a change. At equal times, changes precede all other events.
    ///
    /// # Panics
    /// Panics if several threads run the network, and the link is between two of its parts. Call
    /// [`keep_whole`](Network::keep_whole) for links that are going to change.
    pub fn at(&mut self, time: Time, change: Change) {
        self.check_change(&change);
        let index = match self.free_changes.pop() {
            Some(index) => {
                self.changes[index as usize] = change;
                index
            }
            None => {
                self.changes.push(change);
                self.changes.len() as u32 - 1
            }
        };
        self.events.push(time.max(self.now), Due::Change(index));
    }

    /// Returns the number of scheduled changes that have not been made.
    #[cfg(test)]
    pub(super) fn pending_changes(&self) -> usize {
        self.changes.len() - self.free_changes.len()
    }

    /// Reports the packets that this link delivers to the observer.
    pub fn tap(&mut self, link: LinkId) {
        assert!(self.parallel.is_none(), "links are tapped before a run");
        self.links[link.0 as usize].tapped = true;
    }

    /// Reports no events of this endpoint to the observer, which saves time if the observer would
    /// ignore them.
    pub fn mute(&mut self, endpoint: EndpointId) {
        assert!(self.parallel.is_none(), "endpoints are muted before a run");
        self.endpoints[endpoint.0 as usize].muted = true;
    }

    /// Reports every [incident](super::Incident) to the observer.
    pub fn trace(&mut self) {
        assert!(self.parallel.is_none(), "a trace begins before a run");
        self.traced = true;
    }

    /// Returns a seed for the random stream of `name`. It does not depend on the rest of the
    /// network.
    pub fn stream(&self, name: &str) -> u64 {
        // FNV-1a, finalised as in SplitMix64, so that similar names get unrelated streams.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64 ^ self.seed, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a node's name.
    pub fn name(&self, node: NodeId) -> &str {
        self.names.get(node.0)
    }

    /// Returns a link's name: the names of its ends, joined by a dash.
    pub fn link_name(&self, link: LinkId) -> String {
        let entry = self.link_entry(link);
        format!("{}-{}", self.name(entry.from), self.name(entry.to))
    }

    /// Returns a link, which may be in a part of the network.
    pub(super) fn link_entry(&self, link: LinkId) -> &LinkEntry {
        match &self.parallel {
            None => &self.links[link.0 as usize],
            Some(parallel) => parallel.link_entry(link),
        }
    }

    pub(super) fn link_entry_mut(&mut self, link: LinkId) -> &mut LinkEntry {
        match &mut self.parallel {
            None => &mut self.links[link.0 as usize],
            Some(parallel) => parallel.link_entry_mut(link),
        }
    }
}
