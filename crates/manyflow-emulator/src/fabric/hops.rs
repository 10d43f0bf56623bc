//! The number of routers between nodes, by which TTLs decrease.

use manyflow_netsim::NodeId;
use manyflow_scenario::Network;

/// The value of a pair that has not been looked up.
const UNKNOWN: u8 = u8::MAX;

/// A table of the routers between each pair of nodes. It is filled when a packet or a join first
/// needs a pair.
pub(super) struct Hops {
    nodes: usize,
    between: Vec<u8>,
}

impl Hops {
    pub(super) fn new(nodes: usize) -> Hops {
        Hops {
            nodes,
            between: vec![UNKNOWN; nodes * nodes],
        }
    }

    fn place(&self, from: NodeId, to: NodeId) -> usize {
        from.0 as usize * self.nodes + to.0 as usize
    }

    /// Returns the number of routers between two nodes, from the network's routes. Returns `None`
    /// if no path leads there.
    pub(super) fn look_up(
        &mut self,
        network: &mut Network,
        from: NodeId,
        to: NodeId,
    ) -> Option<u8> {
        let place = self.place(from, to);
        if self.between[place] == UNKNOWN {
            let links = network.path(from, to).len();
            let routers = links.checked_sub(1)?;
            self.between[place] = routers.min(usize::from(UNKNOWN) - 1) as u8;
        }
        Some(self.between[place])
    }

    /// Returns the number of routers between two nodes that have been looked up; 0 for others.
    pub(super) fn known(&self, from: NodeId, to: NodeId) -> u8 {
        match self.between[self.place(from, to)] {
            UNKNOWN => 0,
            routers => routers,
        }
    }
}
