//! Tests that read captured frames back with `etherparse` and the project's decoders.

use std::collections::BTreeSet;

use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv4Slice, Ipv6Header, TcpSlice, UdpSlice};
use manyflow_anypoint::{self as anypoint, Ack, Body, Gap, Reason};
use manyflow_core::{Channel, Destination, Ecn, EndpointId, Time};
use manyflow_layered::{Data, Experiment, Feedback, Message};
use manyflow_object::alc;
use manyflow_overlay::{
    self as overlay, ChangeSeq, ClientFrame, ClientId, CopyFlags, DaemonId, Frame, GroupId,
    LinkSeq, OriginSeq, Welcome,
};
use manyflow_tcp::Segment;
use manyflow_tcp::cbr::Datagram;
use manyflow_webrc::{Cci, CciFormat};
use proptest::prelude::*;

use manyflow_netsim::capture::{Addresses, Capture, End, encode};
use manyflow_netsim::{LinkId, NodeId};

use manyflow_core::xcp::{self, Congestion};
use manyflow_scenario::protocols::{AnyHeader, IpPacket, Packet, TOI};

const SEGMENT_BYTES: u32 = 1000;
const SESSIONS: u32 = 600;

/// Returns the other end of a connection. Endpoints 0 and 1 are connected, and 2 and 3.
fn other(endpoint: u32) -> EndpointId {
    EndpointId(endpoint ^ 1)
}

/// Returns the addresses of two connections between two nodes, and of many multicast sessions.
fn addresses() -> Addresses {
    let nodes = [NodeId(0), NodeId(70_000)];
    let ends = (0..4).map(|endpoint| End {
        endpoint: EndpointId(endpoint),
        node: nodes[endpoint as usize % 2],
        segment_bytes: SEGMENT_BYTES,
    });
    Addresses::new(70_001, ends, &[nodes[0]; SESSIONS as usize]).unwrap()
}

/// Returns the sender of packets to `destination`.
fn source_of(destination: Destination) -> EndpointId {
    match destination {
        Destination::Endpoint(id) => other(id.0),
        Destination::Channel(_) => EndpointId::UNSET,
    }
}

/// Decodes a frame. Panics if a length or checksum is wrong.
fn decode(
    frame: &[u8],
    decode_body: DecodeBody,
    known: &Addresses,
    destinations: &[Destination],
) -> Packet {
    let ip = Ipv4Slice::from_slice(frame).unwrap();
    let ip_header = ip.header().to_header();
    assert_eq!(usize::from(ip_header.total_len), frame.len());
    assert_eq!(ip_header.header_checksum, ip_header.calc_header_checksum());
    let body = ip.payload().payload;
    let (ports, body) = match ip_header.protocol {
        IpNumber::TCP => open_tcp(&ip_header, body),
        _ => open_udp(&ip_header, body),
    };
    let (header, payload_bytes) = decode_body(body);
    let found = destinations.iter().copied().find(|&destination| {
        let flow = known.flow(source_of(destination), destination);
        let addresses = [flow.source, flow.destination].map(|end| end.ip().octets());
        addresses == [ip_header.source, ip_header.destination]
            && ports == [flow.source, flow.destination].map(|end| end.port())
    });
    let destination = found.expect("the addresses are those of a flow");
    Packet::new(destination, header, payload_bytes)
        .with_source(source_of(destination))
        .with_ecn(match ip_header.ecn {
            IpEcn::NotEct => Ecn::NotCapable,
            IpEcn::CongestionExperienced => Ecn::Marked,
            _ => Ecn::Capable,
        })
}

/// Returns the ports of a TCP segment, and the whole segment.
fn open_tcp<'a>(ip: &Ipv4Header, body: &'a [u8]) -> ([u16; 2], &'a [u8]) {
    let tcp = TcpSlice::from_slice(body).unwrap();
    let checksum = tcp.calc_checksum_ipv4(ip.source, ip.destination).unwrap();
    assert_eq!(tcp.checksum(), checksum);
    ([tcp.source_port(), tcp.destination_port()], body)
}

/// Returns the ports of a UDP datagram, and its payload.
fn open_udp<'a>(ip: &Ipv4Header, body: &'a [u8]) -> ([u16; 2], &'a [u8]) {
    let udp = UdpSlice::from_slice(body).unwrap();
    let checksum = udp.to_header().calc_checksum_ipv4(ip, udp.payload());
    assert_eq!(udp.checksum(), checksum.unwrap());
    ([udp.source_port(), udp.destination_port()], udp.payload())
}

/// A decoder of a datagram's payload or of a TCP segment. It returns the protocol's header and the
/// length of the payload behind it. As on any network, only the receiving end knows the protocol.
type DecodeBody = fn(&[u8]) -> (AnyHeader, u32);

fn decode_tcp(segment: &[u8]) -> (AnyHeader, u32) {
    let tcp = TcpSlice::from_slice(segment).unwrap();
    let (_, _, segment) = Segment::decode(tcp.header_slice(), SEGMENT_BYTES).unwrap();
    (AnyHeader::Tcp(segment), tcp.payload().len() as u32)
}

fn decode_overlay_stream(segment: &[u8]) -> (AnyHeader, u32) {
    let (frame, header) = Frame::decode_tcp(segment).unwrap();
    (AnyHeader::Overlay(frame), (segment.len() - header) as u32)
}

fn decode_overlay_datagram(datagram: &[u8]) -> (AnyHeader, u32) {
    let (frame, header) = Frame::decode(datagram).unwrap();
    (AnyHeader::Overlay(frame), (datagram.len() - header) as u32)
}

fn decode_cbr(datagram: &[u8]) -> (AnyHeader, u32) {
    let number = datagram
        .first_chunk()
        .expect("the payload begins with a sequence number");
    let sequence = u32::from_be_bytes(*number);
    (AnyHeader::Cbr(Datagram { sequence }), datagram.len() as u32)
}

fn decode_layered(datagram: &[u8]) -> (AnyHeader, u32) {
    let message = Message::decode(datagram).unwrap();
    let whole = 28 + datagram.len() as u32;
    (
        AnyHeader::Layered(message),
        whole - manyflow_core::Header::wire_bytes(&message),
    )
}

fn decode_tfmcc(datagram: &[u8]) -> (AnyHeader, u32) {
    let message = manyflow_tfmcc::Message::decode(datagram).unwrap();
    let whole = (28 + datagram.len()) as u32;
    (
        AnyHeader::Tfmcc(message),
        whole - manyflow_core::Header::wire_bytes(&message),
    )
}

fn decode_anypoint(datagram: &[u8]) -> (AnyHeader, u32) {
    let (segment, header) = anypoint::Segment::decode(datagram).unwrap();
    (
        AnyHeader::Anypoint(segment),
        (datagram.len() - header) as u32,
    )
}

fn decode_webrc(datagram: &[u8]) -> (AnyHeader, u32) {
    let packet = alc::Packet::decode(datagram).unwrap();
    let symbol = packet.symbol.unwrap();
    assert_eq!(
        (symbol.toi, symbol.payload_id),
        (u128::from(TOI), [0; alc::PAYLOAD_ID_BYTES])
    );
    let cci = Cci::decode(packet.cci()).unwrap();
    let whole = 28 + datagram.len() as u32;
    (AnyHeader::Webrc(cci), whole - cci.wire_bytes())
}

fn any_ecn() -> impl Strategy<Value = Ecn> {
    prop_oneof![Just(Ecn::NotCapable), Just(Ecn::Capable), Just(Ecn::Marked)]
}

fn any_tcp() -> impl Strategy<Value = Packet> {
    let number = 0..u32::MAX / SEGMENT_BYTES / 2;
    let block = (number.clone(), 1..1000u32).prop_map(|(from, length)| (from, from + length));
    let blocks = prop::collection::vec(block, 0..=3);
    let rest = (any::<u16>(), any::<bool>(), any::<bool>());
    let segment = (number.clone(), number, blocks, rest).prop_map(
        |(sequence, acknowledgement, blocks, (window, ecn_echo, window_reduced))| {
            let mut sack = [(0, 0); 3];
            sack[..blocks.len()].copy_from_slice(&blocks);
            Segment {
                sequence,
                acknowledgement,
                window,
                sack,
                ecn_echo: ecn_echo.into(),
                window_reduced,
            }
        },
    );
    (
        segment,
        any_ecn(),
        0..4u32,
        prop_oneof![Just(0), 1..65_468u32],
    )
        .prop_map(|(segment, ecn, endpoint, payload_bytes)| {
            Packet::new(
                Destination::Endpoint(EndpointId(endpoint)),
                AnyHeader::Tcp(segment),
                payload_bytes,
            )
            .with_source(other(endpoint))
            .with_ecn(ecn)
        })
}

fn any_webrc() -> impl Strategy<Value = Packet> {
    let format = prop_oneof![Just(CciFormat::Short), Just(CciFormat::Long)];
    let numbers = (any::<u16>(), any::<u16>(), any::<u32>());
    let rest = (0..SESSIONS, 64..=65_535u32, any_ecn());
    (format, numbers, rest).prop_map(|(format, (ctsi, channel, psn), (session, bytes, ecn))| {
        let (channels, numbers) = match format {
            CciFormat::Short => (0xff, 0xffff),
            CciFormat::Long => (u16::MAX, u32::MAX),
        };
        let cci = Cci {
            ctsi: ctsi & channels,
            channel: channel & channels,
            psn: psn & numbers,
            format,
        };
        Packet::new(
            Destination::Channel(Channel {
                session,
                number: cci.channel,
            }),
            AnyHeader::Webrc(cci),
            bytes - cci.wire_bytes(),
        )
        .with_ecn(ecn)
    })
}

fn any_cbr() -> impl Strategy<Value = Packet> {
    (any::<u32>(), any_ecn(), 0..4u32, 4..=65_507u32).prop_map(
        |(sequence, ecn, endpoint, payload_bytes)| {
            Packet::new(
                Destination::Endpoint(EndpointId(endpoint)),
                AnyHeader::Cbr(Datagram { sequence }),
                payload_bytes,
            )
            .with_source(other(endpoint))
            .with_ecn(ecn)
        },
    )
}

/// Generates any message, on a channel or to an endpoint.
fn any_layered() -> impl Strategy<Value = Packet> {
    let to_channel = (0..32u8, 0..SESSIONS).prop_map(|(group, session)| {
        let number = group.into();
        Destination::Channel(Channel { session, number })
    });
    let to_endpoint = (0..4u32).prop_map(|id| Destination::Endpoint(EndpointId(id)));
    let data = (0..32u8, any::<[u32; 4]>(), any::<u16>(), any::<bool>()).prop_map(
        |(group, [sequence, rate, rtt_us, next_rate], request, is_pair)| {
            Message::Data(Data {
                group,
                sequence,
                request,
                is_for_group: false,
                rate,
                rtt_us,
                next_rate,
                is_pair,
            })
        },
    );
    let feedback = (0..32u8, any::<[u32; 9]>(), any::<u16>(), any::<bool>()).prop_map(
        |(group, [source, session, a, b, c, d, population, hold_us, rtt_us], request, more)| {
            Message::Feedback(Feedback {
                source,
                session,
                group,
                more,
                request,
                reports: a.max(b),
                congested: a.min(b),
                minimum: c.min(d),
                maximum: c.max(d),
                population,
                hold_us,
                rtt_us,
            })
        },
    );
    let experiment = (any::<u32>(), 0..32u8)
        .prop_map(|(session, group)| Message::Experiment(Experiment { session, group }));
    (
        prop_oneof![data, feedback, experiment],
        prop_oneof![to_channel, to_endpoint],
        any_ecn(),
        0..=65_467u32,
    )
        .prop_map(|(message, destination, ecn, payload_bytes)| {
            Packet::new(destination, AnyHeader::Layered(message), payload_bytes)
                .with_source(source_of(destination))
                .with_ecn(ecn)
        })
}

/// Generates any segment. Only frames have a payload.
fn any_anypoint() -> impl Strategy<Value = Packet> {
    let numbers = (any::<[u32; 4]>(), any::<i32>(), any::<[u16; 3]>());
    let packet = |(connection, kind, frame_bytes, (words, feedback, gap), ecn, id)| {
        let body = any_body(kind, words, xcp::WindowChange(feedback), gap);
        let payload_bytes = match body {
            Body::Data(_) => frame_bytes,
            _ => 0,
        };
        Packet::new(
            Destination::Endpoint(EndpointId(id)),
            AnyHeader::Anypoint(anypoint::Segment { connection, body }),
            payload_bytes,
        )
        .with_source(other(id))
        .with_ecn(ecn)
    };
    (
        any::<u32>(),
        0..8u8,
        1..60_000u32,
        numbers,
        any_ecn(),
        0..4u32,
    )
        .prop_map(packet)
}

fn any_body(kind: u8, [a, b, c, d]: [u32; 4], feedback: xcp::WindowChange, gap: [u16; 3]) -> Body {
    let congestion = Congestion {
        cwnd: c,
        rtt_us: d,
        feedback,
        answered: a % 2 == 1,
    };
    // A received frame lies between the gaps, and the last gap ends within 65,536 frames.
    let [first, between, last] = gap.map(|frames| 1 + frames % 20_000);
    let missing = [(0, first), (first + between, last), (0, 0)]
        .map(|(offset, frames)| Gap { offset, frames });
    match kind {
        0 => Body::Open { credit: a },
        1 => Body::Accept { credit: a },
        2 => Body::Data(anypoint::Data {
            sequence: a,
            key: b,
            congestion,
        }),
        3 => Body::Ack(Ack {
            cumulative: a,
            of: b,
            credit: c,
            feedback: xcp::Feedback {
                change: feedback,
                answered: a % 2 == 1,
                averaged: b % 2 == 1,
            },
            missing,
        }),
        4 => Body::Close { sequence: a },
        5 => Body::Probe,
        6 => Body::Alive,
        _ => Body::Reset(Reason::TimedOut),
    }
}

/// Generates any frame of an overlay. Only clients' messages have a payload.
fn any_overlay() -> impl Strategy<Value = Packet> {
    let numbers = (any::<[u32; 3]>(), 1..1_000_000u32, any::<u16>());
    let packet = |(kind, (words, sequence, half), is_data, payload_bytes, ecn, id)| {
        let frame = any_frame(kind, words, sequence, half, is_data);
        let has_payload = match frame {
            Frame::Segment { .. }
            | Frame::Stream(_)
            | Frame::Datagram { .. }
            | Frame::Direct(_) => is_data,
            Frame::Client(frame) => frame.has_payload(),
            Frame::Ack(_) | Frame::Feedback(_) | Frame::Delay(_) => false,
        };
        Packet::new(
            Destination::Endpoint(EndpointId(id)),
            AnyHeader::Overlay(frame),
            if has_payload { payload_bytes } else { 0 },
        )
        .with_source(other(id))
        .with_ecn(ecn)
    };
    (
        0..7u8,
        numbers,
        any::<bool>(),
        0..=overlay::PAYLOAD_BYTES_MAX,
        any_ecn(),
        0..4u32,
    )
        .prop_map(packet)
}

fn any_frame(kind: u8, [a, b, c]: [u32; 3], sequence: u32, half: u16, is_data: bool) -> Frame {
    let (origin, group) = (DaemonId(half), GroupId(a));
    let data = overlay::Data {
        group,
        version: half,
        sequence: OriginSeq::new(sequence.into()),
        sender: ClientId(b),
        sent_us: c,
    };
    let welcome = Welcome {
        to: origin,
        version: half,
        group,
        change: ChangeSeq(b.max(1)),
        start: OriginSeq::new(sequence.into()),
        next: OriginSeq::new(u64::from(sequence) + 1),
    };
    let message = overlay::Message {
        origin,
        copy: match half % 3 {
            0 => CopyFlags::REPAIRED,
            1 => CopyFlags::MARKED,
            _ => CopyFlags::default(),
        },
        body: match is_data {
            true => overlay::Body::Data(data),
            false => overlay::Body::Welcome(welcome),
        },
    };
    let ranges = [
        (sequence, sequence + 1),
        (sequence + 2, sequence + 9),
        (0, 0),
    ]
    .map(|(begin, end)| (LinkSeq(begin), LinkSeq(end)));
    match kind {
        0 => Frame::Segment {
            sequence: LinkSeq(c),
            message,
        },
        1 => Frame::Ack(overlay::Ack {
            acknowledgement: LinkSeq(sequence - 1),
            window: half,
            sack: ranges,
        }),
        2 => Frame::Datagram {
            number: LinkSeq(c),
            message,
        },
        3 => Frame::Feedback(overlay::Feedback {
            expected: LinkSeq(sequence),
            missing: ranges,
        }),
        4 => Frame::Direct(message),
        5 => Frame::Client(ClientFrame::Send {
            groups: group.into(),
            sent_us: c,
            layered: false,
        }),
        _ => Frame::Client(ClientFrame::Deliver {
            origin,
            data,
            layered: false,
        }),
    }
}

proptest! {
    #[test]
    fn encoded_packets_decode_to_themselves_and_have_their_wire_length(
        packet in prop_oneof![any_tcp(), any_webrc(), any_cbr(), any_layered(), any_anypoint(), any_overlay()],
        others in prop::collection::vec(0..SESSIONS, 3),
    ) {
        let addresses = addresses();
        let mut frame = vec![0xff; 100];
        encode(&packet, &addresses.flow(packet.source, packet.destination), &mut frame);
        prop_assert_eq!(frame.len() as u32, packet.wire_bytes());
        let mut destinations: Vec<_> = (0..4).map(|id| Destination::Endpoint(EndpointId(id))).collect();
        for session in others {
            if let Destination::Channel(channel) = packet.destination {
                destinations.push(Destination::Channel(Channel { session, ..channel }));
                destinations.push(Destination::Channel(Channel { number: channel.number ^ 1, ..channel }));
            }
        }
        destinations.push(packet.destination);
        let decode_body = match packet.header {
            AnyHeader::Webrc(_) => decode_webrc,
            AnyHeader::Layered(_) => decode_layered,
            AnyHeader::Anypoint(_) => decode_anypoint,
            AnyHeader::Overlay(Frame::Segment { .. } | Frame::Ack(_)) => decode_overlay_stream,
            AnyHeader::Overlay(_) => decode_overlay_datagram,
            AnyHeader::Tcp(_) => decode_tcp,
            AnyHeader::Cbr(_) => decode_cbr,
            AnyHeader::Tfmcc(_) => decode_tfmcc,
            AnyHeader::Ip(_) => unreachable!("no simulated endpoint sends IP packets"),
        };
        prop_assert_eq!(decode(&frame, decode_body, &addresses, &destinations), packet);
    }
}

#[test]
fn a_whole_ip_packet_is_captured_as_it_is_with_its_mark() {
    let mut ip = Ipv4Header {
        total_len: 24,
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let frame = capture_marked(&[&ip.to_bytes()[..], b"data"].concat());
    let (captured, data) = Ipv4Header::from_slice(&frame).unwrap();
    assert_eq!(captured.ecn, IpEcn::CongestionExperienced);
    assert_eq!(captured.header_checksum, captured.calc_header_checksum());
    assert_eq!(data, b"data");
}

#[test]
fn a_payload_that_is_an_ipv6_packet_keeps_all_but_the_ecn_field() {
    let mut ip = Ipv6Header {
        payload_length: 4,
        hop_limit: 7,
        ..Ipv6Header::default()
    };
    let frame = capture_marked(&[&ip.to_bytes()[..], b"data"].concat());
    ip.set_ecn(IpEcn::CongestionExperienced);
    assert_eq!(frame, [&ip.to_bytes()[..], b"data"].concat());
}

/// Returns the captured frame of an IP packet that a queue has marked.
fn capture_marked(whole: &[u8]) -> Vec<u8> {
    let header = AnyHeader::Ip(IpPacket::DATA);
    let packet = Packet::new(Destination::Endpoint(EndpointId(77)), header, whole);
    let links = BTreeSet::from([LinkId(0)]);
    let mut file = Vec::new();
    let mut capture = Capture::new(links, addresses(), &mut file).unwrap();
    let marked = packet.with_ecn(Ecn::Marked);
    capture.on_tapped(Time::ZERO, LinkId(0), &marked).unwrap();
    file.split_off(file.len() - whole.len())
}

#[test]
fn a_payload_too_short_for_a_sequence_number_is_zeros() {
    let addresses = addresses();
    let packet = Packet::new(
        Destination::Endpoint(EndpointId(0)),
        AnyHeader::Cbr(Datagram { sequence: 7 }),
        3,
    )
    .with_source(other(0));
    let mut frame = Vec::new();
    encode(&packet, &addresses.flow_of(&packet), &mut frame);
    assert_eq!((frame.len(), &frame[28..]), (31, &[0; 3][..]));
}

#[test]
fn the_streams_between_two_daemons_are_two_connections() {
    let end = |number| End {
        endpoint: EndpointId(number),
        node: NodeId(number),
        segment_bytes: 1000,
    };
    let addresses = Addresses::new(2, [0, 1].map(end), &[]).unwrap();
    let data = overlay::Data {
        group: GroupId(1),
        version: 0,
        sequence: OriginSeq::new(1),
        sender: ClientId(0),
        sent_us: 0,
    };
    let message = overlay::Message {
        origin: DaemonId(0),
        copy: Default::default(),
        body: overlay::Body::Data(data),
    };
    let sequence = LinkSeq(0);
    let segment = Frame::Segment { sequence, message };
    let ack = Frame::Ack(overlay::Ack {
        acknowledgement: LinkSeq(1),
        window: 1,
        sack: [(LinkSeq(0), LinkSeq(0)); 3],
    });
    let ends = |from: u32, frame| {
        let flow = addresses.flow_of(
            &Packet::new(
                Destination::Endpoint(EndpointId(1 - from)),
                AnyHeader::Overlay(frame),
                0,
            )
            .with_source(EndpointId(from)),
        );
        (flow.source, flow.destination)
    };
    let (there, acknowledged) = (ends(0, segment), ends(1, ack));
    assert_eq!((acknowledged.1, acknowledged.0), there);
    let back = ends(1, segment);
    assert_ne!((back.1, back.0), there);
}
