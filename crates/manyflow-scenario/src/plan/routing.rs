//! The paths of packets through a topology.

use manyflow_netsim::NodeId;

use crate::plan::topology::Topology;
use crate::protocols::Network;

/// The paths of packets through a topology, as the simulator routes them.
pub struct Paths<'a> {
    topology: &'a Topology,
    network: Network,
}

impl Paths<'_> {
    /// Prepares the search in this network.
    pub fn new(topology: &Topology) -> Paths<'_> {
        let mut network = Network::new(0);
        for name in topology.nodes.iter() {
            network.add_node(name);
        }
        for link in &topology.links {
            network.add_link(NodeId(link.from), NodeId(link.to), link.config.clone());
        }
        Paths { topology, network }
    }

    /// Returns the links over which multicast packets from `sender` reach a node, the last link
    /// first.
    pub fn find_links(&mut self, sender: u32, node: u32) -> Vec<u32> {
        let branch = self.network.branch(NodeId(sender), NodeId(node));
        branch.into_iter().map(|link| link.0).collect()
    }

    /// Returns the nodes on the way of unicast packets, from the sender's to the receiver's.
    pub fn find_unicast(&mut self, sender: u32, node: u32) -> Vec<u32> {
        let way = self.network.path(NodeId(sender), NodeId(node)).into_iter();
        std::iter::once(sender)
            .chain(way.map(|node| node.0))
            .collect()
    }

    /// Returns a node and the nodes over which multicast packets from `sender` reach it, up to
    /// the sender's.
    pub fn find_path(&mut self, sender: u32, node: u32) -> Vec<u32> {
        let branch = self.network.branch(NodeId(sender), NodeId(node));
        let from = |link: manyflow_netsim::LinkId| self.topology.links[link.0 as usize].from;
        let above = branch.into_iter().map(from);
        std::iter::once(node).chain(above).collect()
    }
}
