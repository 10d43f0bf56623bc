//! Encodes packets in wire format, with the headers that the simulator only counts.
//!
//! `etherparse` writes IPv4 and UDP headers and all checksums. The protocols' own encoders write
//! LCT and the protocols' headers.

use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header, TcpSlice, UdpHeader};
use manyflow_core::{Ecn, Header, Packet};

use super::addresses::Flow;

/// The default of common hosts. The simulator has no hop limits, so the value is the same on every
/// link.
const TTL: u8 = 64;
const IP_BYTES: usize = Ipv4Header::MIN_LEN;
/// The offset of the checksum in a TCP segment (RFC 9293 section 3.1).
const TCP_CHECKSUM: usize = IP_BYTES + 16;

/// A header that can be captured.
pub trait Framed {
    /// Returns whether packets are TCP segments. Otherwise they are UDP datagrams.
    fn is_tcp(&self) -> bool {
        false
    }

    /// Returns whether the payload is a complete IP packet, so that captures add no headers.
    fn is_whole(&self) -> bool {
        false
    }

    /// Changes the ports if a protocol analyser would otherwise mistake the packet for one of
    /// another protocol or flow.
    fn adjust_ports(&self, _flow: &mut Flow) {}

    /// Writes the bytes that follow the UDP header or, for a TCP segment, the IP header.
    fn encode(&self, flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>);
}

/// Replaces the contents of `frame` by a packet in wire format. Its length is the one that links
/// count.
///
/// # Panics
/// Panics if the packet is longer than IPv4 allows, or shorter than its headers. The protocols'
/// configurations exclude both.
pub fn encode<H: Header + Framed>(packet: &Packet<H>, flow: &Flow, frame: &mut Vec<u8>) {
    let length = packet.wire_bytes() as usize;
    let is_tcp = packet.header.is_tcp();
    let ip = ip_header(packet.ecn, is_tcp, flow, length);
    frame.clear();
    frame.extend_from_slice(&ip.to_bytes());
    if !is_tcp {
        frame.extend_from_slice(&[0; UdpHeader::LEN]);
    }
    packet.header.encode(flow, packet.payload_bytes(), frame);
    write_payload(packet.contents().unwrap_or_default(), length, frame);
    match is_tcp {
        true => seal_tcp(&ip, frame),
        false => seal_udp(&ip, flow, frame),
    }
}

/// Replaces the contents of `frame` by a payload that is an IPv4 or IPv6 packet, with the packet's
/// ECN field and a new IPv4 header checksum.
pub(super) fn copy_whole<H>(packet: &Packet<H>, frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend_from_slice(packet.contents().unwrap_or_default());
    if let Ok((mut ip, _)) = Ipv4Header::from_slice(frame) {
        ip.ecn = ip_ecn(packet.ecn);
        ip.header_checksum = ip.calc_header_checksum();
        let header = ip.to_bytes();
        frame[..header.len()].copy_from_slice(&header);
    } else if let Ok((mut ip, _)) = Ipv6Header::from_slice(frame) {
        ip.set_ecn(ip_ecn(packet.ecn));
        frame[..Ipv6Header::LEN].copy_from_slice(&ip.to_bytes());
    }
}

fn ip_ecn(ecn: Ecn) -> IpEcn {
    match ecn {
        Ecn::NotCapable => IpEcn::NotEct,
        Ecn::Capable => IpEcn::Ect0,
        Ecn::L4s => IpEcn::Ect1,
        Ecn::Marked => IpEcn::CongestionExperienced,
    }
}

fn ip_header(ecn: Ecn, is_tcp: bool, flow: &Flow, length: usize) -> Ipv4Header {
    let protocol = match is_tcp {
        true => IpNumber::TCP,
        false => IpNumber::UDP,
    };
    let mut ip = Ipv4Header {
        total_len: u16::try_from(length).expect("no protocol has packets above 65,535 bytes"),
        dont_fragment: true,
        time_to_live: TTL,
        protocol,
        source: flow.source.ip().octets(),
        destination: flow.destination.ip().octets(),
        ecn: ip_ecn(ecn),
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    ip
}

/// Writes the payload up to the packet's length: its bytes if there are any, and then zeros.
fn write_payload(contents: &[u8], length: usize, frame: &mut Vec<u8>) {
    assert!(
        frame.len() <= length,
        "no protocol has packets shorter than their headers"
    );
    let room = length - frame.len();
    frame.extend_from_slice(&contents[..contents.len().min(room)]);
    frame.resize(length, 0);
}

fn seal_tcp(ip: &Ipv4Header, frame: &mut [u8]) {
    let segment = TcpSlice::from_slice(&frame[IP_BYTES..]).expect("the header is complete");
    let checksum = segment.calc_checksum_ipv4(ip.source, ip.destination);
    let checksum = checksum.expect("the segment fits into an IPv4 packet");
    frame[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn seal_udp(ip: &Ipv4Header, flow: &Flow, frame: &mut [u8]) {
    let (header, payload) = frame[IP_BYTES..].split_at_mut(UdpHeader::LEN);
    let [source, destination] = [flow.source, flow.destination].map(|end| end.port());
    let udp = UdpHeader::with_ipv4_checksum(source, destination, ip, payload);
    let udp = udp.expect("the datagram fits into an IPv4 packet");
    header.copy_from_slice(&udp.to_bytes());
}
