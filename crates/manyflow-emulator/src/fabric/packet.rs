//! IP packets as a router sees them: the fields that it reads, and the two that it writes.

use std::net::IpAddr;

use etherparse::{IpEcn, IpNumber, Ipv4HeaderSlice, Ipv6Header, Ipv6HeaderSlice, Ipv6Slice};
use manyflow_core::Ecn;

/// The longest packet that a device hands over or takes: its MTU.
pub const MTU: usize = 1500;

/// The offsets of fields in an IPv4 header (RFC 791 section 3.1).
const TRAFFIC_CLASS: usize = 1;
const TTL: usize = 8;
const CHECKSUM: usize = 10;

/// The offsets of fields in an IPv6 header (RFC 8200 section 3). The first has the ECN field in its
/// upper half.
const CLASS_AND_LABEL: usize = 1;
const HOP_LIMIT: usize = 7;

/// The types of MLD messages: query, report and done of version 1 (RFC 2710), and the report of
/// version 2 (RFC 3810).
const MLD_TYPES: [u8; 4] = [130, 131, 132, 143];

/// The fields of an IP packet that a router reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// The TTL or hop limit.
    pub(crate) ttl: u8,
    pub(crate) ecn: Ecn,
    /// Whether the packet is an IGMP or MLD message.
    pub(crate) is_membership: bool,
    /// The destination port of a TCP segment over IPv4 whose header is in this packet.
    pub(crate) tcp_port: Option<u16>,
    /// The ports of TCP or UDP, mixed with the protocol; 0 without ports. Queues tell flows between
    /// the same hosts apart by it.
    pub(crate) flow: u32,
}

impl Fields {
    /// Returns whether an address is valid on one link only: routers do not forward such packets
    /// (RFC 4291 section 2.5.6).
    pub(crate) fn is_link_local(&self) -> bool {
        [self.source, self.destination].iter().any(
            |address| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()),
        )
    }
}

/// Reads the fields of a packet. Returns `None` unless it is a complete IPv4 or IPv6 packet.
pub(crate) fn read_fields(packet: &[u8]) -> Option<Fields> {
    match is_v6(packet) {
        true => read_fields_v6(packet),
        false => read_fields_v4(packet),
    }
}

/// Returns whether the version of an IP packet is 6.
pub(super) fn is_v6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

fn read_fields_v4(packet: &[u8]) -> Option<Fields> {
    let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
    if usize::from(header.total_len()) != packet.len() {
        return None;
    }
    let is_first = header.fragments_offset().value() == 0;
    let is_tcp = header.protocol() == IpNumber::TCP && is_first;
    let transport = &packet[header.slice().len()..];
    let ports = transport.first_chunk::<4>().filter(|_| is_tcp);
    let flow = if is_first {
        flow(header.protocol(), transport)
    } else {
        0
    };
    Some(Fields {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        ttl: header.ttl(),
        ecn: ecn(header.ecn()),
        is_membership: header.protocol() == IpNumber::IGMP,
        tcp_port: ports.map(|ports| u16::from_be_bytes([ports[2], ports[3]])),
        flow,
    })
}

/// Returns the ports in a transport header, mixed with the protocol; 0 if it has none.
fn flow(protocol: IpNumber, transport: &[u8]) -> u32 {
    match (protocol, transport.first_chunk::<4>()) {
        (IpNumber::TCP | IpNumber::UDP, Some(ports)) => {
            u32::from_be_bytes(*ports) ^ u32::from(protocol.0) << 24
        }
        _ => 0,
    }
}

fn read_fields_v6(packet: &[u8]) -> Option<Fields> {
    let header = Ipv6HeaderSlice::from_slice(packet).ok()?;
    if Ipv6Header::LEN + usize::from(header.payload_length()) != packet.len() {
        return None;
    }
    Some(Fields {
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
        ttl: header.hop_limit(),
        ecn: ecn(header.ecn()),
        is_membership: is_mld(&header, packet),
        tcp_port: None,
        flow: flow(header.next_header(), &packet[Ipv6Header::LEN..]),
    })
}

/// Returns whether an IPv6 packet is an MLD message. All of them begin with a Hop-by-Hop Options
/// header (RFC 3810 section 5).
fn is_mld(header: &Ipv6HeaderSlice<'_>, packet: &[u8]) -> bool {
    if header.next_header() != IpNumber::IPV6_HEADER_HOP_BY_HOP {
        return false;
    }
    Ipv6Slice::from_slice(packet).is_ok_and(|ip| {
        let payload = ip.payload();
        let kind = payload.payload.first();
        let is_known = kind.is_some_and(|kind| MLD_TYPES.contains(kind));
        payload.ip_number == IpNumber::IPV6_ICMP && is_known
    })
}

fn ecn(field: IpEcn) -> Ecn {
    match field.value() {
        0 => Ecn::NotCapable,
        1 => Ecn::L4s,
        3 => Ecn::Marked,
        _ => Ecn::Capable,
    }
}

/// Lowers the TTL or hop limit of an IP packet by `hops`, sets its mark, and corrects the checksum
/// of an IPv4 header. Returns false if the TTL is lower than `hops` + 1, or if the packet has no
/// complete header.
pub(crate) fn forward(packet: &mut [u8], hops: u8, ecn: Ecn) -> bool {
    match is_v6(packet) {
        true => forward_v6(packet, hops, ecn),
        false => forward_v4(packet, hops, ecn),
    }
}

fn forward_v6(packet: &mut [u8], hops: u8, ecn: Ecn) -> bool {
    let Some(header) = packet.first_chunk_mut::<{ Ipv6Header::LEN }>() else {
        return false;
    };
    let left = header[HOP_LIMIT].checked_sub(hops);
    let Some(hop_limit) = left.filter(|left| *left > 0) else {
        return false;
    };
    header[HOP_LIMIT] = hop_limit;
    if ecn == Ecn::Marked {
        header[CLASS_AND_LABEL] |= 3 << 4;
    }
    true
}

fn forward_v4(packet: &mut [u8], hops: u8, ecn: Ecn) -> bool {
    let Some(header) = packet.first_chunk_mut::<20>() else {
        return false;
    };
    let left = header[TTL].checked_sub(hops);
    let Some(ttl) = left.filter(|ttl| *ttl > 0) else {
        return false;
    };
    let before = words(header);
    header[TTL] = ttl;
    if ecn == Ecn::Marked {
        header[TRAFFIC_CLASS] |= 3;
    }
    let mut sum = !u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
    for (old, new) in before.into_iter().zip(words(header)) {
        sum = add(add(sum, !old), new);
    }
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!sum).to_be_bytes());
    true
}

/// Returns the two words of a header that a router changes.
fn words(header: &[u8; 20]) -> [u16; 2] {
    [
        u16::from_be_bytes([header[0], header[TRAFFIC_CLASS]]),
        u16::from_be_bytes([header[TTL], header[TTL + 1]]),
    ]
}

/// Adds in ones' complement, as the Internet checksum does (RFC 1624 equation 3).
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use etherparse::{IpEcn, Ipv4Header, PacketBuilder};
    use manyflow_amt::Family;
    use manyflow_amt::membership::Report;
    use proptest::prelude::*;

    use super::*;

    fn tcp(ttl: u8) -> Vec<u8> {
        let segment = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], ttl);
        let segment = segment.tcp(4000, 5000, 7, 1000);
        let mut packet = vec![0; segment.size(4)];
        segment.write_to_slice(&mut packet, b"data").unwrap();
        packet
    }

    #[test]
    fn the_fields_of_a_tcp_segment_are_read() {
        let packet = tcp(9);
        let fields = read_fields(&packet).unwrap();
        assert_eq!(fields.destination, Ipv4Addr::new(10, 0, 0, 2));
        assert!(!fields.is_membership);
        assert_eq!((fields.ttl, fields.tcp_port), (9, Some(5000)));
        assert_eq!(fields.ecn, Ecn::NotCapable);
        for length in 0..packet.len() {
            assert_eq!(read_fields(&packet[..length]), None, "cut at {length}");
        }
    }

    fn udp_v6(hop_limit: u8) -> Vec<u8> {
        let [from, to] = [1, 2].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        let datagram = PacketBuilder::ipv6(from.octets(), to.octets(), hop_limit).udp(4000, 5000);
        let mut packet = vec![0; datagram.size(4)];
        datagram.write_to_slice(&mut packet, b"data").unwrap();
        packet
    }

    #[test]
    fn the_fields_of_an_ipv6_packet_are_read() {
        let mut packet = udp_v6(9);
        packet[CLASS_AND_LABEL] |= 2 << 4;
        let fields = read_fields(&packet).unwrap();
        assert_eq!(
            fields.destination,
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)
        );
        assert_eq!((fields.ttl, fields.ecn), (9, Ecn::Capable));
        assert!(!fields.is_membership && !fields.is_link_local());
        for length in 0..packet.len() {
            assert_eq!(read_fields(&packet[..length]), None, "cut at {length}");
        }
        packet[8..10].copy_from_slice(&[0xfe, 0x80]);
        assert!(read_fields(&packet).unwrap().is_link_local());
    }

    #[test]
    fn ports_tell_flows_apart_and_ect_1_is_that_of_l4s() {
        for (packet, ports, class, shift) in [(tcp(9), 20, 1, 0), (udp_v6(9), 40, 1, 4)] {
            let flow = read_fields(&packet).unwrap().flow;
            for changed in [ports, ports + 3] {
                let mut other = packet.clone();
                other[changed] ^= 1;
                assert_ne!(read_fields(&other).unwrap().flow, flow);
            }
            let mut scalable = packet.clone();
            scalable[class] |= 1 << shift;
            let fields = read_fields(&scalable).unwrap();
            assert_eq!((fields.ecn, fields.flow), (Ecn::L4s, flow));
        }
    }

    #[test]
    fn membership_messages_are_recognised() {
        for family in [Family::V4, Family::V6] {
            let mut packet = Vec::new();
            let records = Vec::new();
            Report { family, records }.encode(&mut packet);
            assert!(read_fields(&packet).unwrap().is_membership, "{family}");
        }
    }

    #[test]
    fn a_packet_does_not_cross_more_hops_than_its_ttl_allows() {
        assert!(forward(&mut tcp(3), 2, Ecn::NotCapable));
        assert!(!forward(&mut tcp(3), 3, Ecn::NotCapable));
        assert!(!forward(&mut [0; 19], 0, Ecn::NotCapable));
        assert!(forward(&mut udp_v6(3), 2, Ecn::NotCapable));
        assert!(!forward(&mut udp_v6(3), 3, Ecn::NotCapable));
        assert!(!forward(&mut [0x60; 39], 0, Ecn::NotCapable));
    }

    #[test]
    fn a_router_changes_only_hop_limit_and_mark_of_an_ipv6_packet() {
        let (mut packet, mut expected) = (udp_v6(9), udp_v6(7));
        expected[CLASS_AND_LABEL] |= 3 << 4;
        assert!(forward(&mut packet, 2, Ecn::Marked));
        assert_eq!(packet, expected);
        assert_eq!(read_fields(&packet).unwrap().ecn, Ecn::Marked);
    }

    proptest! {
        #[test]
        fn the_checksum_remains_valid(ttl in 2..=255_u8, hops in 0..255_u8, capable: bool, mark: bool, id: u16) {
            let mut header = Ipv4Header::new(0, ttl, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
            header.identification = id;
            header.ecn = if capable { IpEcn::Ect0 } else { IpEcn::NotEct };
            header.header_checksum = header.calc_header_checksum();
            let mut packet = header.to_bytes().to_vec();
            let ecn = if mark { Ecn::Marked } else { Ecn::NotCapable };
            prop_assume!(hops < ttl);
            prop_assert!(forward(&mut packet, hops, ecn));
            let (after, _) = Ipv4Header::from_slice(&packet).unwrap();
            prop_assert_eq!(after.header_checksum, after.calc_header_checksum());
            prop_assert_eq!(after.time_to_live, ttl - hops);
            prop_assert_eq!(after.ecn == IpEcn::CongestionExperienced, mark);
        }
    }
}
