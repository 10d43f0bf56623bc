//! IPv4 packets as a router sees them: the fields that it reads, and the two that it writes.

use std::net::Ipv4Addr;

use etherparse::{IpNumber, Ipv4HeaderSlice};
use manyflow_core::Ecn;

/// The longest packet that a device hands over or takes: its MTU.
pub const MTU: usize = 1500;

/// The offsets of fields in an IPv4 header (RFC 791 section 3.1).
const TRAFFIC_CLASS: usize = 1;
const TTL: usize = 8;
const CHECKSUM: usize = 10;

/// The fields of an IPv4 packet that a router reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) ttl: u8,
    pub(crate) ecn: Ecn,
    pub(crate) protocol: IpNumber,
    /// The destination port of a TCP segment whose header is in this packet.
    pub(crate) tcp_port: Option<u16>,
}

/// Reads the fields of a packet. Returns `None` unless it is a complete IPv4 packet.
pub(crate) fn read_fields(packet: &[u8]) -> Option<Fields> {
    let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
    if usize::from(header.total_len()) != packet.len() {
        return None;
    }
    let is_first = header.fragments_offset().value() == 0;
    let is_tcp = header.protocol() == IpNumber::TCP && is_first;
    let ports = packet[header.slice().len()..].first_chunk::<4>();
    let ports = ports.filter(|_| is_tcp);
    Some(Fields {
        source: header.source_addr(),
        destination: header.destination_addr(),
        ttl: header.ttl(),
        ecn: match header.ecn().value() {
            0 => Ecn::NotCapable,
            3 => Ecn::Marked,
            _ => Ecn::Capable,
        },
        protocol: header.protocol(),
        tcp_port: ports.map(|ports| u16::from_be_bytes([ports[2], ports[3]])),
    })
}

/// Takes `hops` from the TTL of an IPv4 packet, sets its mark, and corrects the header checksum.
/// Returns false if the packet may not cross as many hops, or is shorter than a header.
pub(crate) fn forward(packet: &mut [u8], hops: u8, ecn: Ecn) -> bool {
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
    use etherparse::{IpEcn, Ipv4Header, PacketBuilder};
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
        assert_eq!((fields.ttl, fields.tcp_port), (9, Some(5000)));
        assert_eq!(fields.ecn, Ecn::NotCapable);
        for length in 0..packet.len() {
            assert_eq!(read_fields(&packet[..length]), None, "cut at {length}");
        }
    }

    #[test]
    fn a_packet_does_not_cross_more_hops_than_its_ttl_allows() {
        assert!(forward(&mut tcp(3), 2, Ecn::NotCapable));
        assert!(!forward(&mut tcp(3), 3, Ecn::NotCapable));
        assert!(!forward(&mut [0; 19], 0, Ecn::NotCapable));
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
