//! The IPv4 and IPv6 addresses of nodes: consecutive, so that a packet's node is found without a
//! table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manyflow_netsim::NodeId;
use manyflow_netsim::capture::node_address;

/// The network of all IPv6 addresses: unique local unicast addresses (RFC 4193), which no packet
/// carries to another network.
const UNIQUE_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x6d66, 0, 0, 0, 0, 0, 0);

/// The addresses of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
}

/// The addresses of a network's nodes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    first: Ipv4Addr,
    first_v6: Ipv6Addr,
    /// The node that packets for all other addresses are sent to.
    beyond: Option<NodeId>,
}

impl Addresses {
    /// Returns the addresses of a scenario's nodes, which are those of its captures: node `i` has
    /// 10.0.0.0 + `i` + 1, and fd00:6d66:: + `i` + 1. Packets for other addresses are refused.
    pub fn of_scenario() -> Addresses {
        Addresses {
            first: node_address(NodeId(0)),
            first_v6: plus(UNIQUE_LOCAL, 1),
            beyond: None,
        }
    }

    /// Returns consecutive addresses from `first`, the address of node 0, which also takes the
    /// packets for all other addresses. The last 32 bits of the IPv6 addresses are the IPv4
    /// addresses, so networks with different IPv4 addresses have different IPv6 addresses, too.
    pub fn with_gateway(first: Ipv4Addr) -> Addresses {
        Addresses {
            first,
            first_v6: plus(UNIQUE_LOCAL, first.to_bits()),
            beyond: Some(NodeId(0)),
        }
    }

    /// Returns a node's addresses.
    pub fn of(&self, node: NodeId) -> NodeAddresses {
        NodeAddresses {
            v4: Ipv4Addr::from_bits(self.first.to_bits().wrapping_add(node.0)),
            v6: plus(self.first_v6, node.0),
        }
    }

    /// Returns the node that has this address, in a network of `nodes`, or the gateway.
    pub(super) fn node_of(&self, address: IpAddr, nodes: u32) -> Option<NodeId> {
        let number = match address {
            IpAddr::V4(address) => address.to_bits().wrapping_sub(self.first.to_bits()).into(),
            IpAddr::V6(address) => address.to_bits().wrapping_sub(self.first_v6.to_bits()),
        };
        let known = (number < nodes.into()).then_some(NodeId(number as u32));
        known.or(self.beyond)
    }
}

/// Returns the address that is `number` after this one.
fn plus(address: Ipv6Addr, number: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits().wrapping_add(number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_their_addresses() {
        let addresses = Addresses::of_scenario();
        let NodeAddresses { v4, v6 } = addresses.of(NodeId(6));
        assert_eq!(v4, Ipv4Addr::new(10, 0, 0, 7));
        assert_eq!(v6.to_string(), "fd00:6d66::7");
        for address in [v4.into(), v6.into()] {
            assert_eq!(addresses.node_of(address, 7), Some(NodeId(6)));
            assert_eq!(addresses.node_of(address, 6), None);
        }
    }

    #[test]
    fn a_gateway_takes_the_packets_for_all_other_addresses() {
        let addresses = Addresses::with_gateway(Ipv4Addr::new(100, 64, 0, 1));
        assert_eq!(addresses.of(NodeId(1)).v6.to_string(), "fd00:6d66::6440:2");
        let node_of = |address: &str| addresses.node_of(address.parse().unwrap(), 2);
        for inside in ["100.64.0.2", "fd00:6d66::6440:2"] {
            assert_eq!(node_of(inside), Some(NodeId(1)));
        }
        for elsewhere in ["192.0.2.1", "2001:db8::1"] {
            assert_eq!(node_of(elsewhere), Some(NodeId(0)));
        }
    }
}
