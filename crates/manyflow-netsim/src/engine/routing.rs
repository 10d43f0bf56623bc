//! Unicast routes, by the shortest delay and then by the fewest hops. The routes to a destination
//! are computed when the first packet is sent there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyflow_core::Header;

use super::{LinkEntry, LinkId, Network, NodeId};

/// The index that stands for no link.
pub(super) const NONE: u32 = u32::MAX;

impl<H: Header, E> Network<H, E> {
    /// Returns the link on which a packet for `to` leaves `at`.
    #[inline]
    pub(super) fn next_hop(&mut self, at: NodeId, to: NodeId) -> Option<LinkId> {
        let link = match self.routes[to.0 as usize].get(at.0 as usize) {
            Some(&link) => link,
            None => {
                self.routes[to.0 as usize] = self.routes_to(to);
                self.routes[to.0 as usize][at.0 as usize]
            }
        };
        (link != NONE).then_some(LinkId(link))
    }

    /// Returns whether a path leads from one node to another.
    pub fn is_connected(&mut self, from: NodeId, to: NodeId) -> bool {
        from == to || self.next_hop(from, to).is_some()
    }

    /// Returns the nodes that a unicast packet passes on its way, with its destination and without
    /// its origin; empty if no path leads there.
    pub fn path(&mut self, from: NodeId, to: NodeId) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        let mut here = from;
        while here != to {
            let Some(link) = self.next_hop(here, to) else {
                return Vec::new();
            };
            here = self.link_entry(link).to;
            nodes.push(here);
        }
        nodes
    }

    /// Returns the first link of the path from each node to a destination.
    #[cold]
    fn routes_to(&self, to: NodeId) -> Vec<u32> {
        if let Some(border) = &self.border {
            return border.routes_to(to);
        }
        if let Some(parallel) = &self.parallel {
            return parallel.graph.routes_to(to);
        }
        let link = |link: u32| {
            let entry = &self.links[link as usize];
            let delay = entry.link.config().delay.as_nanos() as u64;
            (entry.from.0, delay)
        };
        shortest_paths(self.nodes.len(), &self.inbound(), to, link)
    }

    /// Returns the graph of the links.
    pub(super) fn graph(&self) -> Graph {
        let links = self.links.iter();
        let delay = |entry: &LinkEntry| entry.link.config().delay.as_nanos() as u64;
        Graph {
            nodes: self.nodes.len(),
            inbound: self.inbound(),
            links: links.map(|entry| (entry.from.0, delay(entry))).collect(),
        }
    }

    /// Returns the end and the number of each link, sorted, so that the links to one node are
    /// adjacent.
    fn inbound(&self) -> Vec<(u32, u32)> {
        let ends = self.links.iter().enumerate();
        let mut inbound: Vec<_> = ends
            .map(|(index, entry)| (entry.to.0, index as u32))
            .collect();
        inbound.sort_unstable();
        inbound
    }
}

/// The links of a network that is divided into parts.
#[derive(Clone)]
pub(super) struct Graph {
    nodes: usize,
    inbound: Vec<(u32, u32)>,
    /// The beginning of each link, and its delay in nanoseconds.
    pub(super) links: Vec<(u32, u64)>,
}

impl Graph {
    pub(super) fn routes_to(&self, to: NodeId) -> Vec<u32> {
        shortest_paths(self.nodes, &self.inbound, to, |link| {
            self.links[link as usize]
        })
    }
}

/// Runs Dijkstra's algorithm from the destination, against the direction of the links. `inbound`
/// has the end and the number of each link, sorted; `link` returns its beginning and its delay in
/// nanoseconds.
fn shortest_paths(
    nodes: usize,
    inbound: &[(u32, u32)],
    to: NodeId,
    link: impl Fn(u32) -> (u32, u64),
) -> Vec<u32> {
    let mut next = vec![NONE; nodes];
    let mut best = vec![(u64::MAX, u32::MAX); nodes];
    let mut open = BinaryHeap::from([Reverse(((0, 0), to.0))]);
    best[to.0 as usize] = (0, 0);
    while let Some(Reverse((cost, node))) = open.pop() {
        if cost > best[node as usize] {
            continue;
        }
        let first = inbound.partition_point(|&(to, _)| to < node);
        let towards = inbound[first..].iter().take_while(|(to, _)| *to == node);
        for &(_, number) in towards {
            let (from, delay) = link(number);
            let through = (cost.0 + delay, cost.1 + 1);
            if through < best[from as usize] {
                best[from as usize] = through;
                next[from as usize] = number;
                open.push(Reverse((through, from)));
            }
        }
    }
    next
}
