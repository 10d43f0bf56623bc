//! Addresses of nodes, endpoints and channels. Node `i` is 10.0.0.0 + `i` + 1, its endpoints have
//! dynamic ports, and channels are groups of source-specific multicast.
//!
//! Every flow has an address of its own, so that a captured packet can be traced back to its
//! endpoints.

use std::net::{Ipv4Addr, SocketAddrV4};

use manyflow_core::{Channel, Destination, EndpointId, Packet};

use super::Framed;
use crate::NodeId;

/// The first dynamic port (RFC 6335 section 6). Dynamic ports are not registered, so no protocol
/// analyser takes zeros for some protocol.
const FIRST_PORT: u16 = 49_152;
/// The port of channels, as in `manyflow send`.
const CHANNEL_PORT: u16 = 5445;
/// The number of sessions on one port, which differ by their group. 232.0.0.0/24 is reserved (RFC
/// 4607 section 1).
const SESSIONS_PER_PORT: u32 = 255;

/// An endpoint that sends or receives unicast packets.
#[derive(Copy, Clone, Debug)]
pub struct End {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The node of the endpoint.
    pub node: NodeId,
    /// The payload bytes of a full TCP segment.
    pub segment_bytes: u32,
}

/// The error for a node with more endpoints than a host has dynamic ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} has more endpoints than the 16,384 ports of a host: a capture cannot tell them apart; spread them over more nodes", node_address(*.0))]
pub struct PortsExhausted(pub NodeId);

/// The addresses in a packet's headers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The source address and port.
    pub source: SocketAddrV4,
    /// The destination address and port.
    pub destination: SocketAddrV4,
    /// The payload bytes of a full TCP segment.
    pub segment_bytes: u32,
    /// The number of the multicast session; 0 for unicast packets.
    pub session: u32,
}

/// The addresses of a network.
#[derive(Debug)]
pub struct Addresses {
    /// The socket of each endpoint and its TCP segment size, or `None` for an endpoint without
    /// unicast packets.
    sockets: Vec<Option<(SocketAddrV4, u32)>>,
    /// The source of each multicast session.
    sources: Vec<Ipv4Addr>,
}

impl Addresses {
    /// Assigns ports to the endpoints of each node, in the order of `ends`. `sources` are the nodes
    /// of the multicast sessions' sources, in the order of the sessions.
    ///
    /// # Errors
    /// Returns an error if a node has more endpoints than a host has dynamic ports.
    pub fn new(
        nodes: usize,
        ends: impl IntoIterator<Item = End>,
        sources: &[NodeId],
    ) -> Result<Addresses, PortsExhausted> {
        let mut taken = vec![0; nodes];
        let mut sockets = Vec::new();
        for end in ends {
            let index = end.endpoint.0 as usize;
            if sockets.len() <= index {
                sockets.resize(index + 1, None);
            }
            let socket = next_socket(end.node, &mut taken)?;
            sockets[index] = Some((socket, end.segment_bytes));
        }
        let sources = sources.iter().map(|&node| node_address(node)).collect();
        Ok(Addresses { sockets, sources })
    }

    /// Returns the addresses of a packet.
    ///
    /// # Panics
    /// Panics if the source or destination is not among the known endpoints and sessions.
    pub fn flow_of<H: Framed>(&self, packet: &Packet<H>) -> Flow {
        let mut flow = self.flow(packet.source, packet.destination);
        packet.header.adjust_ports(&mut flow);
        flow
    }

    /// Returns the addresses of packets from one endpoint to another, or to a channel, before
    /// [`Framed::adjust_ports`].
    ///
    /// # Panics
    /// Panics if an endpoint or a session is unknown.
    pub fn flow(&self, source: EndpointId, destination: Destination) -> Flow {
        match destination {
            Destination::Endpoint(id) => {
                let (destination, segment_bytes) = self.end(id);
                let (source, _) = self.end(source);
                Flow {
                    source,
                    destination,
                    segment_bytes,
                    session: 0,
                }
            }
            Destination::Channel(channel) => {
                let destination = channel_socket(channel);
                let source = self.sources[channel.session as usize];
                Flow {
                    source: SocketAddrV4::new(source, destination.port()),
                    destination,
                    segment_bytes: 0,
                    session: channel.session,
                }
            }
        }
    }

    fn end(&self, id: EndpointId) -> (SocketAddrV4, u32) {
        let end = self.sockets.get(id.0 as usize).copied().flatten();
        end.expect("unicast packets go from one known endpoint to another")
    }
}

/// Returns the address of a node: 10.0.0.0 + its number + 1.
pub fn node_address(node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 0, 0, 0]) + node.0 + 1)
}

fn next_socket(node: NodeId, taken: &mut [u16]) -> Result<SocketAddrV4, PortsExhausted> {
    let taken = &mut taken[node.0 as usize];
    let port = FIRST_PORT.checked_add(*taken).ok_or(PortsExhausted(node))?;
    *taken += 1;
    Ok(SocketAddrV4::new(node_address(node), port))
}

fn channel_socket(Channel { session, number }: Channel) -> SocketAddrV4 {
    let [high, low] = number.to_be_bytes();
    let group = (session % SESSIONS_PER_PORT) as u8 + 1;
    let port = CHANNEL_PORT.wrapping_add((session / SESSIONS_PER_PORT) as u16);
    SocketAddrV4::new(Ipv4Addr::new(232, group, high, low), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(endpoint: u32, node: u32) -> End {
        End {
            endpoint: EndpointId(endpoint),
            node: NodeId(node),
            segment_bytes: 1000,
        }
    }

    #[test]
    fn both_directions_of_a_connection_have_the_same_two_sockets() {
        let ends = [end(0, 0), end(1, 300), end(2, 0), end(3, 1)];
        let addresses = Addresses::new(301, ends, &[]).unwrap();
        let flow =
            |from, to| addresses.flow(EndpointId(from), Destination::Endpoint(EndpointId(to)));
        let (there, back) = (flow(0, 1), flow(1, 0));
        assert_eq!(there.source, "10.0.0.1:49152".parse().unwrap());
        assert_eq!(there.destination, "10.0.1.45:49152".parse().unwrap());
        assert_eq!(
            (back.source, back.destination),
            (there.destination, there.source)
        );
        assert_eq!(flow(2, 3).source, "10.0.0.1:49153".parse().unwrap());
    }

    #[test]
    fn channels_are_groups_outside_the_reserved_range() {
        let addresses = Addresses::new(1, [], &[NodeId(0); 300]).unwrap();
        let group = |session, number| {
            let channel = Destination::Channel(Channel { session, number });
            addresses.flow(EndpointId::UNSET, channel).destination
        };
        assert_eq!(group(0, 0), "232.1.0.0:5445".parse().unwrap());
        assert_eq!(group(254, 300), "232.255.1.44:5445".parse().unwrap());
        assert_eq!(group(255, 7), "232.1.0.7:5446".parse().unwrap());
    }

    #[test]
    fn more_endpoints_than_ports_are_refused() {
        let many = |count| (0..count).map(|i| end(i, 2));
        let error = Addresses::new(3, many(16_385), &[]).unwrap_err();
        assert_eq!(error, PortsExhausted(NodeId(2)));
        assert!(Addresses::new(3, many(16_384), &[]).is_ok());
    }
}
