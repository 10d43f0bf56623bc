//! The IPv4 addresses of nodes: consecutive, so that a packet's node is found without a table.

use std::net::Ipv4Addr;

use manyflow_netsim::NodeId;
use manyflow_netsim::capture::node_address;

/// The addresses of a network's nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    first: Ipv4Addr,
    /// The node that packets for all other addresses are sent to.
    beyond: Option<NodeId>,
}

impl Addresses {
    /// Returns the addresses of a scenario's nodes, which are those of its captures: node `i` has
    /// 10.0.0.0 + `i` + 1. Packets for other addresses are refused.
    pub fn of_scenario() -> Addresses {
        Addresses {
            first: node_address(NodeId(0)),
            beyond: None,
        }
    }

    /// Returns consecutive addresses from `first`, the address of node 0, which also takes the
    /// packets for all other addresses.
    pub fn with_gateway(first: Ipv4Addr) -> Addresses {
        Addresses {
            first,
            beyond: Some(NodeId(0)),
        }
    }

    /// Returns a node's address.
    pub fn of(&self, node: NodeId) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits().wrapping_add(node.0))
    }

    /// Returns the node that has this address, in a network of `nodes`, or the gateway.
    pub(super) fn node_of(&self, address: Ipv4Addr, nodes: u32) -> Option<NodeId> {
        let number = address.to_bits().wrapping_sub(self.first.to_bits());
        let known = (number < nodes).then_some(NodeId(number));
        known.or(self.beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_their_addresses() {
        let addresses = Addresses::of_scenario();
        assert_eq!(addresses.of(NodeId(6)), Ipv4Addr::new(10, 0, 0, 7));
        assert_eq!(
            addresses.node_of(addresses.of(NodeId(6)), 7),
            Some(NodeId(6))
        );
        assert_eq!(addresses.node_of(addresses.of(NodeId(7)), 7), None);
        let gateway = Addresses::with_gateway(Ipv4Addr::new(100, 64, 0, 1));
        let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(gateway.node_of(elsewhere, 2), Some(NodeId(0)));
        assert_eq!(
            gateway.node_of(Ipv4Addr::new(100, 64, 0, 2), 2),
            Some(NodeId(1))
        );
    }
}
