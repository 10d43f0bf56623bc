//! The network with IPv6 packets.

use std::net::Ipv6Addr;

use etherparse::{Icmpv6Slice, Icmpv6Type, Ipv6Slice};

use super::*;

const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8000, 1);

pub(super) fn address(node: NodeId) -> Ipv6Addr {
    Addresses::of_scenario().of(node).v6
}

fn udp(from: NodeId, to: Ipv6Addr, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ipv6(address(from).octets(), to.octets(), hop_limit);
    let builder = builder.udp(4000, 5000);
    let mut packet = vec![0; builder.size(payload.len())];
    builder.write_to_slice(&mut packet, payload).unwrap();
    packet
}

/// The source and type of the only packet that has been delivered, which is an ICMPv6 message to A.
fn only_message(line: &Line) -> (Ipv6Addr, Icmpv6Type) {
    let [message] = line.inbox.delivered.as_slice() else {
        panic!("{:?}", line.inbox.delivered);
    };
    assert_eq!(message.node, A);
    let ip = Ipv6Slice::from_slice(&message.packet).unwrap();
    assert_eq!(ip.header().destination_addr(), address(A));
    let icmp = Icmpv6Slice::from_slice(ip.payload().payload).unwrap();
    (ip.header().source_addr(), icmp.icmp_type())
}

#[test]
fn a_packet_arrives_after_the_delays_of_its_path_with_a_smaller_hop_limit() {
    let mut line = Line::plain();
    let sent = udp(A, address(B), 64, b"hello");
    line.push(ms(5), A, &sent);
    line.advance(ms(40));
    assert_eq!(line.arrivals(), [(ms(35), B)]);
    let mut expected = sent.clone();
    expected[7] = 62;
    assert_eq!(line.inbox.delivered[0].packet, expected);
    let link = line.fabric.network().link_counters(LinkId(0));
    assert_eq!(link.delivered_bytes, sent.len() as u64);
}

#[test]
fn routers_on_the_path_report_that_a_hop_limit_has_expired() {
    for (hop_limit, router, due) in [(1, 1, 20), (2, 2, 40)] {
        let mut line = Line::plain();
        line.push(ms(0), A, &udp(A, address(B), hop_limit, b"probe"));
        line.advance(ms(100));
        let (source, kind) = only_message(&line);
        assert_eq!(source, address(NodeId(router)));
        assert!(matches!(kind, Icmpv6Type::TimeExceeded(_)), "{kind:?}");
        assert_eq!(line.arrivals(), [(ms(due), A)]);
        assert_eq!(line.fabric.counts().expired, 1);
    }
}

#[test]
fn a_router_answers_pings() {
    let mut line = Line::plain();
    let ping = PacketBuilder::ipv6(address(A).octets(), address(NodeId(2)).octets(), 64);
    let ping = ping.icmpv6_echo_request(7, 3);
    let mut packet = vec![0; ping.size(8)];
    ping.write_to_slice(&mut packet, &[9; 8]).unwrap();
    line.push(ms(0), A, &packet);
    line.advance(ms(100));
    let (source, kind) = only_message(&line);
    assert_eq!(source, address(NodeId(2)));
    assert!(matches!(kind, Icmpv6Type::EchoReply(_)), "{kind:?}");
    assert_eq!(line.arrivals(), [(ms(40), A)]);
}

#[test]
fn an_unknown_destination_is_reported_as_unreachable() {
    let mut line = Line::plain();
    line.push(ms(3), A, &udp(A, "fd00:6d66::99".parse().unwrap(), 64, b""));
    let (_, kind) = only_message(&line);
    assert!(matches!(kind, Icmpv6Type::DestinationUnreachable(_)));
    assert_eq!(line.fabric.counts().refused, 1);
}

#[test]
fn packets_of_the_local_link_reach_no_link_of_the_network() {
    let mut line = Line::plain();
    let mut neighbour = udp(A, address(B), 64, b"");
    neighbour[8..10].copy_from_slice(&[0xfe, 0x80]);
    line.push(ms(0), A, &neighbour);
    // A router solicitation goes to all routers of the local link.
    line.push(ms(0), A, &udp(A, "ff02::2".parse().unwrap(), 255, b""));
    let solicited = "ff02::1:ff00:1".parse().unwrap();
    line.report_group(ms(0), A, RecordType::ToExclude, solicited, Vec::new());
    line.advance(ms(100));
    assert_eq!(line.inbox.delivered, []);
    let counts = line.fabric.counts();
    assert_eq!((counts.entered, counts.refused, counts.unjoined), (3, 1, 2));
    let link = line.fabric.network().link_counters(LinkId(0));
    assert_eq!(link.pushed, 0);
}

#[test]
fn a_source_specific_join_travels_hop_by_hop_and_a_leave_takes_its_latency() {
    let mut line = Line::plain();
    let data = |line: &mut Line, at| line.push(ms(at), A, &udp(A, GROUP_V6, 8, b"data"));
    let report = |line: &mut Line, at, kind| {
        let source = address(A).into();
        line.report_group(ms(at), B, kind, GROUP_V6.into(), vec![source]);
    };
    report(&mut line, 10, RecordType::Allow);
    // The join reaches the source's node at 40 ms.
    data(&mut line, 39);
    data(&mut line, 41);
    // Another source's packets to the group do not reach the host.
    line.push(ms(41), C, &udp(C, GROUP_V6, 8, b"other"));
    line.advance(ms(100));
    assert_eq!(line.arrivals(), [(ms(71), B)]);
    assert_eq!(line.inbox.delivered[0].packet[7], 6);
    report(&mut line, 200, RecordType::Block);
    data(&mut line, 200);
    line.advance(ms(500));
    assert_eq!(line.inbox.delivered.len(), 1);
    let delivered = |line: &Line| line.fabric.network().link_counters(LinkId(2)).delivered;
    let before = delivered(&line);
    assert_eq!(before, 2, "the last router forwards for the leave latency");
    data(&mut line, 500);
    line.advance(ms(600));
    assert_eq!(delivered(&line), before);
}

#[test]
fn any_source_joins_of_both_families_do_not_interfere() {
    let mut line = Line::plain();
    line.report_group(ms(0), B, RecordType::ToExclude, GROUP_V6.into(), Vec::new());
    line.report(ms(0), C, RecordType::ToExclude, &[]);
    line.push(ms(100), A, &udp(A, GROUP_V6, 8, b"six"));
    line.push(ms(200), A, &super::udp(A, GROUP, 8, b"four"));
    line.advance(ms(300));
    assert_eq!(line.arrivals(), [(ms(130), B), (ms(230), C)]);
}

#[test]
fn a_mark_of_a_queue_is_written_into_the_traffic_class() {
    let red = RedConfig {
        minimum_packets: 1.0,
        maximum_packets: 3.0,
        maximum_probability: 1.0,
        weight: 1.0,
        ecn: true,
        mean_packet_bytes: 500,
        marking: Default::default(),
        overload: Default::default(),
        variant: RedVariant::Paper,
    };
    let mut line = Line::new(LinkConfig {
        rate: Some(Rate::from_bits_per_s(1_000_000)),
        red: Some(red),
        ..LinkConfig::default()
    });
    let mut packet = udp(A, address(B), 64, &[0; 452]);
    packet[1] |= 2 << 4;
    (0..20).for_each(|_| line.push(ms(0), A, &packet));
    line.advance(ms(1000));
    let marked = line.inbox.delivered.iter();
    let marked = marked.filter(|one| one.packet[1] >> 4 == 3).count() as u64;
    assert!(marked > 0);
    assert_eq!(
        marked,
        line.fabric.network().link_counters(LinkId(2)).marked
    );
}
