//! A packet as bytes, with the headers that the simulator only counts.
//!
//! `etherparse` writes IPv4 and UDP headers and all checksums; LCT and the protocols' headers are written by the code that ships.

use etherparse::{IpEcn, IpNumber, Ipv4Header, TcpSlice, UdpHeader};
use manyflow_core::{Ecn, Header, Packet, overlay, webrc};
use manyflow_object::alc::PAYLOAD_ID_BYTES;
use manyflow_object::lct;

use super::addresses::Flow;

/// A common host's default. The simulator has no hop limits, so it is the same on every link.
const TTL: u8 = 64;
const IP_BYTES: usize = Ipv4Header::MIN_LEN;
/// Where TCP has its checksum (RFC 9293 section 3.1).
const TCP_CHECKSUM: usize = IP_BYTES + 16;
/// All of a session's data belongs to one object. 0 would be the table of files (RFC 6726 section 3.1).
pub(super) const TOI: u32 = 1;
/// FEC Encoding ID 0, no code (RFC 5445 section 3.2): the symbols are zeros, so nothing can be decoded from them.
const NO_CODE: u8 = 0;

/// Writes a packet to `frame`, whose old content goes. The length is what links charge.
///
/// # Panics
/// If the packet is longer than IPv4 allows, or shorter than its headers: the protocols' configurations exclude both.
pub(super) fn encode(packet: &Packet, flow: &Flow, frame: &mut Vec<u8>) {
    let length = packet.wire_bytes() as usize;
    let ip = ip_header(packet, flow, length);
    frame.clear();
    frame.extend_from_slice(&ip.to_bytes());
    match &packet.header {
        Header::Tcp(segment) => {
            let [source, destination] = [flow.source, flow.destination].map(|end| end.port());
            let header = segment.encode(source, destination, flow.segment_bytes);
            frame.extend_from_slice(header.as_bytes());
            pad(frame, length);
            seal_tcp(&ip, frame);
        }
        Header::Webrc(cci) => {
            frame.extend_from_slice(&[0; UdpHeader::LEN]);
            encode_alc(cci, flow.session, frame);
            pad(frame, length);
            seal_udp(&ip, flow, frame);
        }
        Header::Layered(message) => {
            frame.extend_from_slice(&[0; UdpHeader::LEN]);
            frame.extend_from_slice(message.encode().as_bytes());
            pad(frame, length);
            seal_udp(&ip, flow, frame);
        }
        Header::Anypoint(segment) => {
            frame.extend_from_slice(&[0; UdpHeader::LEN]);
            frame.extend_from_slice(segment.encode().as_bytes());
            pad(frame, length);
            seal_udp(&ip, flow, frame);
        }
        Header::Overlay(message) => encode_overlay(message, &ip, flow, length, frame),
        Header::Cbr(datagram) => {
            frame.extend_from_slice(&[0; UdpHeader::LEN]);
            // A payload below 4 bytes has no room for it.
            if packet.payload_bytes >= 4 {
                frame.extend_from_slice(&datagram.sequence.to_be_bytes());
            }
            pad(frame, length);
            seal_udp(&ip, flow, frame);
        }
    }
}

fn ip_header(packet: &Packet, flow: &Flow, length: usize) -> Ipv4Header {
    let protocol = match packet.header {
        Header::Tcp(_)
        | Header::Overlay(overlay::Frame::Segment { .. } | overlay::Frame::Ack(_)) => IpNumber::TCP,
        Header::Webrc(_)
        | Header::Cbr(_)
        | Header::Layered(_)
        | Header::Anypoint(_)
        | Header::Overlay(_) => IpNumber::UDP,
    };
    let mut ip = Ipv4Header {
        total_len: u16::try_from(length).expect("no protocol has packets above 65,535 bytes"),
        dont_fragment: true,
        time_to_live: TTL,
        protocol,
        source: flow.source.ip().octets(),
        destination: flow.destination.ip().octets(),
        ecn: match packet.ecn {
            Ecn::NotCapable => IpEcn::NotEct,
            Ecn::Capable => IpEcn::Ect0,
            Ecn::Marked => IpEcn::CongestionExperienced,
        },
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    ip
}

/// What daemons of an overlay say to each other: its streams are TCP, all else is UDP.
fn encode_overlay(
    message: &overlay::Frame,
    ip: &Ipv4Header,
    flow: &Flow,
    length: usize,
    frame: &mut Vec<u8>,
) {
    let payload_bytes = length as u32 - message.wire_bytes();
    let encoded = message.encode(payload_bytes);
    let encoded = encoded.expect("the longest message was checked when the session was");
    let [source, destination] = [flow.source, flow.destination].map(|end| end.port());
    if let Some(header) = message.encode_tcp(source, destination) {
        frame.extend_from_slice(header.as_bytes());
        frame.extend_from_slice(encoded.as_bytes());
        pad(frame, length);
        seal_tcp(ip, frame);
    } else {
        frame.extend_from_slice(&[0; UdpHeader::LEN]);
        frame.extend_from_slice(encoded.as_bytes());
        pad(frame, length);
        seal_udp(ip, flow, frame);
    }
}

/// The LCT header around the CCI, and the FEC Payload ID of the first symbol.
fn encode_alc(cci: &webrc::Cci, session: u32, frame: &mut Vec<u8>) {
    let (field, length) = cci.encode();
    let header = lct::Fields {
        cci: &field[..length],
        tsi: session,
        toi: Some(TOI),
        close_session: false,
        codepoint: NO_CODE,
        extensions: &[],
    };
    header.encode(frame);
    frame.extend_from_slice(&[0; PAYLOAD_ID_BYTES]);
}

/// Adds the zeros of the payload.
fn pad(frame: &mut Vec<u8>, length: usize) {
    assert!(
        frame.len() <= length,
        "no protocol has packets shorter than their headers"
    );
    frame.resize(length, 0);
}

fn seal_tcp(ip: &Ipv4Header, frame: &mut [u8]) {
    let segment = TcpSlice::from_slice(&frame[IP_BYTES..]).expect("a whole header was written");
    let checksum = segment.calc_checksum_ipv4(ip.source, ip.destination);
    let checksum = checksum.expect("IPv4 holds the segment");
    frame[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn seal_udp(ip: &Ipv4Header, flow: &Flow, frame: &mut [u8]) {
    let (header, payload) = frame[IP_BYTES..].split_at_mut(UdpHeader::LEN);
    let [source, destination] = [flow.source, flow.destination].map(|end| end.port());
    let udp = UdpHeader::with_ipv4_checksum(source, destination, ip, payload);
    let udp = udp.expect("IPv4 holds the datagram");
    header.copy_from_slice(&udp.to_bytes());
}
