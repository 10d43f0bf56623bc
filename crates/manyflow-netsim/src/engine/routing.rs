//! Unicast routes, by the shortest delay and then by the fewest hops. The routes to a destination
//! are computed when the first packet is sent there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use manyflow_core::Header;

use super::{LinkId, Network, NodeId};

/// The index that stands for no link.
const NONE: u32 = u32::MAX;

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

    /// Runs Dijkstra's algorithm from the destination, against the direction of the links.
    #[cold]
    fn routes_to(&self, to: NodeId) -> Vec<u32> {
        let inbound = self.inbound();
        let mut next = vec![NONE; self.nodes.len()];
        let mut best = vec![(u64::MAX, u32::MAX); self.nodes.len()];
        let mut open = BinaryHeap::from([Reverse(((0, 0), to.0))]);
        best[to.0 as usize] = (0, 0);
        while let Some(Reverse((cost, node))) = open.pop() {
            if cost > best[node as usize] {
                continue;
            }
            let first = inbound.partition_point(|&(to, _)| to < node);
            let towards = inbound[first..].iter().take_while(|(to, _)| *to == node);
            for &(_, link) in towards {
                let entry = &self.links[link as usize];
                let delay = entry.link.config().delay.as_nanos() as u64;
                let through = (cost.0 + delay, cost.1 + 1);
                let from = entry.from.0 as usize;
                if through < best[from] {
                    best[from] = through;
                    next[from] = link;
                    open.push(Reverse((through, entry.from.0)));
                }
            }
        }
        next
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
