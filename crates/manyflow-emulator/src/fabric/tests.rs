mod ipv6;
mod queries;

use std::net::Ipv4Addr;
use std::time::Duration;

use etherparse::{IpNumber, Ipv4Header, Ipv4Slice, PacketBuilder};
use manyflow_amt::Family;
use manyflow_amt::membership::{GroupRecord, RecordType, Report};
use manyflow_core::Rate;
use manyflow_core::link::{
    LinkConfig, LossModel, Marking, Overload, QueueLimit, RedConfig, RedVariant,
};
use proptest::prelude::*;

use super::*;

const LEAVE_LATENCY: Duration = Duration::from_millis(100);
const GROUP: [u8; 4] = [232, 1, 1, 1];

fn ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// A packet that a host has received.
#[derive(Clone, Debug, PartialEq)]
struct Delivered {
    due: Time,
    node: NodeId,
    packet: Vec<u8>,
}

/// The packets that hosts have received.
#[derive(Default)]
struct Inbox {
    delivered: Vec<Delivered>,
    queries: Vec<(NodeId, Vec<u8>)>,
}

impl Outlet for Inbox {
    fn deliver(&mut self, due: Time, node: NodeId, packet: &[u8]) {
        let packet = packet.to_vec();
        self.delivered.push(Delivered { due, node, packet });
    }

    fn query(&mut self, node: NodeId, packet: &[u8]) {
        self.queries.push((node, packet.to_vec()));
    }
}

/// Host 0, routers 1 and 2, and hosts 3 and 4 behind router 2. Each link has a delay of 10 ms.
struct Line {
    fabric: Fabric,
    inbox: Inbox,
}

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(3);
const C: NodeId = NodeId(4);

impl Line {
    fn new(middle: LinkConfig) -> Line {
        let mut network = Network::new(1);
        let nodes = ["A", "r1", "r2", "B", "C"].map(|name| network.add_node(name));
        let plain = LinkConfig {
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        };
        network.add_duplex(nodes[0], nodes[1], plain.clone());
        network.add_duplex(nodes[1], nodes[2], middle);
        network.add_duplex(nodes[2], nodes[3], plain.clone());
        network.add_duplex(nodes[2], nodes[4], plain);
        network.set_leave_latency(LEAVE_LATENCY);
        Line {
            fabric: Fabric::new(network, 5, &[A, B, C], Addresses::of_scenario()),
            inbox: Inbox::default(),
        }
    }

    fn plain() -> Line {
        Line::new(LinkConfig {
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        })
    }

    fn push(&mut self, now: Time, node: NodeId, packet: &[u8]) {
        self.advance(now);
        let mut outside = Outside {
            outlet: &mut self.inbox,
            observer: &mut (),
        };
        self.fabric.push(node, packet, &mut outside);
    }

    fn advance(&mut self, now: Time) {
        let mut outside = Outside {
            outlet: &mut self.inbox,
            observer: &mut (),
        };
        self.fabric.advance(now, &mut outside).unwrap();
        self.fabric.network().check_accounting().unwrap();
    }

    fn report(&mut self, now: Time, node: NodeId, kind: RecordType, sources: &[NodeId]) {
        let sources = sources.iter().map(|&node| address(node).into());
        self.report_group(now, node, kind, GROUP.into(), sources.collect());
    }

    fn report_group(
        &mut self,
        now: Time,
        node: NodeId,
        kind: RecordType,
        group: IpAddr,
        sources: Vec<IpAddr>,
    ) {
        let mut packet = Vec::new();
        Report {
            family: Family::of(group),
            records: vec![GroupRecord {
                kind,
                group,
                sources,
            }],
        }
        .encode(&mut packet);
        self.push(now, node, &packet);
    }

    /// The times and nodes of all deliveries.
    fn arrivals(&self) -> Vec<(Time, NodeId)> {
        let delivered = self.inbox.delivered.iter();
        delivered.map(|one| (one.due, one.node)).collect()
    }
}

fn address(node: NodeId) -> Ipv4Addr {
    Addresses::of_scenario().of(node).v4
}

fn udp(from: NodeId, to: [u8; 4], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ipv4(address(from).octets(), to, ttl).udp(4000, 5000);
    let mut packet = vec![0; builder.size(payload.len())];
    builder.write_to_slice(&mut packet, payload).unwrap();
    packet
}

fn ttl(packet: &[u8]) -> u8 {
    let (header, _) = Ipv4Header::from_slice(packet).unwrap();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    header.time_to_live
}

#[test]
fn a_packet_arrives_after_the_delays_of_its_path_with_a_smaller_ttl() {
    let mut line = Line::plain();
    line.push(ms(5), A, &udp(A, address(B).octets(), 64, b"hello"));
    line.advance(ms(34));
    assert_eq!(line.inbox.delivered, []);
    line.advance(ms(40));
    let [arrived] = line.inbox.delivered.as_slice() else {
        panic!("{:?}", line.inbox.delivered);
    };
    assert_eq!((arrived.due, arrived.node), (ms(35), B));
    assert_eq!(ttl(&arrived.packet), 62);
    let udp = Ipv4Slice::from_slice(&arrived.packet).unwrap();
    assert!(udp.payload().payload.ends_with(b"hello"));
}

#[test]
fn routers_on_the_path_report_that_a_ttl_has_expired() {
    for (ttl, router, due) in [(1, 1, 20), (2, 2, 40)] {
        let mut line = Line::plain();
        line.push(ms(0), A, &udp(A, address(B).octets(), ttl, b"probe"));
        line.advance(ms(100));
        let [error] = line.inbox.delivered.as_slice() else {
            panic!("{:?}", line.inbox.delivered);
        };
        assert_eq!((error.due, error.node), (ms(due), A));
        let ip = Ipv4Slice::from_slice(&error.packet).unwrap();
        assert_eq!(ip.header().source_addr(), address(NodeId(router)));
        assert_eq!(ip.header().protocol(), IpNumber::ICMP);
        assert_eq!(line.fabric.counts().expired, 1);
    }
}

#[test]
fn an_unknown_destination_is_reported_as_unreachable() {
    let mut line = Line::plain();
    line.push(ms(3), A, &udp(A, [10, 0, 0, 99], 64, b""));
    assert_eq!(line.inbox.delivered[0].node, A);
    assert_eq!(line.fabric.counts().refused, 1);
    line.push(ms(4), A, &[0x60; 40]);
    assert_eq!(
        (line.inbox.delivered.len(), line.fabric.counts().refused),
        (1, 2)
    );
}

#[test]
fn a_source_specific_join_travels_hop_by_hop_and_a_leave_takes_its_latency() {
    let mut line = Line::plain();
    let data = |line: &mut Line, at| line.push(ms(at), A, &udp(A, GROUP, 8, b"data"));
    data(&mut line, 0);
    line.report(ms(10), B, RecordType::Allow, &[A]);
    // The join reaches the source's node at 40 ms.
    data(&mut line, 39);
    data(&mut line, 41);
    line.advance(ms(100));
    assert_eq!(line.arrivals(), [(ms(71), B)]);
    assert_eq!(ttl(&line.inbox.delivered[0].packet), 6);
    // A second member joins at the next router.
    line.report(ms(100), C, RecordType::ToExclude, &[]);
    data(&mut line, 100);
    line.advance(ms(150));
    assert_eq!(line.inbox.delivered.len(), 3);
    line.report(ms(200), B, RecordType::Block, &[A]);
    line.report(ms(200), C, RecordType::ToInclude, &[]);
    // Each link still carries the data until the latency is over, but the hosts take none.
    data(&mut line, 200);
    line.advance(ms(500));
    assert_eq!(line.inbox.delivered.len(), 3);
    let delivered = |line: &Line| line.fabric.network().link_counters(LinkId(2)).delivered;
    let before = delivered(&line);
    data(&mut line, 500);
    line.advance(ms(600));
    assert_eq!(delivered(&line), before);
}

#[test]
fn a_packet_to_a_group_does_not_cross_more_routers_than_its_ttl_allows() {
    let mut line = Line::plain();
    line.report(ms(0), C, RecordType::ToExclude, &[]);
    line.push(ms(100), A, &udp(A, GROUP, 2, b"near"));
    line.push(ms(100), B, &udp(B, GROUP, 2, b"near"));
    line.advance(ms(200));
    assert_eq!(line.inbox.delivered.len(), 1);
    assert_eq!(line.fabric.counts().expired, 1);
}

/// A line whose middle link marks.
fn marking_line(marking: Marking, overload: Overload) -> Line {
    let red = RedConfig {
        minimum_packets: 1.0,
        maximum_packets: 3.0,
        maximum_probability: 1.0,
        weight: 1.0,
        ecn: true,
        mean_packet_bytes: 500,
        marking,
        overload,
        variant: RedVariant::Paper,
    };
    Line::new(LinkConfig {
        rate: Some(Rate::from_bits_per_s(1_000_000)),
        red: Some(red),
        ..LinkConfig::default()
    })
}

/// Returns a packet that supports ECN.
fn with_ecn(mut packet: Vec<u8>) -> Vec<u8> {
    packet[1] |= 2;
    let (mut header, _) = Ipv4Header::from_slice(&packet).unwrap();
    header.header_checksum = header.calc_header_checksum();
    packet[..20].copy_from_slice(&header.to_bytes());
    packet
}

#[test]
fn red_marks_only_the_group_that_was_joined_last_if_it_marks_by_groups() {
    let mut line = marking_line(Marking::TopGroup, Overload::Mark);
    // The group that is joined first has the higher address.
    let groups = [[232, 1, 1, 9], [232, 1, 1, 1]];
    for (at, group) in (0..).zip(groups) {
        let group = IpAddr::from(group);
        line.report_group(ms(at), B, RecordType::ToExclude, group, vec![]);
    }
    for _ in 0..20 {
        for group in groups {
            line.push(ms(100), A, &with_ecn(udp(A, group, 64, &[0; 472])));
        }
    }
    line.advance(ms(1000));
    let marked = |group: [u8; 4]| {
        let delivered = line.inbox.delivered.iter();
        let of_group = delivered.filter(|one| one.packet[16..20] == group);
        of_group.filter(|one| one.packet[1] & 3 == 3).count()
    };
    assert_eq!(marked(groups[0]), 0);
    assert!(marked(groups[1]) > 0);
}

#[test]
fn red_marks_packets_that_support_ecn() {
    let mut line = marking_line(Marking::All, Overload::default());
    let packet = with_ecn(udp(A, address(B).octets(), 64, &[0; 472]));
    (0..20).for_each(|_| line.push(ms(0), A, &packet));
    line.advance(ms(1000));
    let marked = line.inbox.delivered.iter().filter(|one| {
        ttl(&one.packet);
        one.packet[1] & 3 == 3
    });
    let marked = marked.count() as u64;
    let counters = line.fabric.network().link_counters(LinkId(2));
    assert!(marked > 0);
    assert_eq!(marked, counters.marked);
}

proptest! {
    #[test]
    fn no_bytes_of_a_program_make_the_network_panic(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..20),
        is_igmp: bool,
        is_v6: bool,
    ) {
        let mut line = Line::plain();
        for (at, mut packet) in (0..).zip(packets) {
            let length = packet.len();
            if length >= 24 {
                // A plausible beginning leads further into the decoders.
                packet[..4].copy_from_slice(&[0x46, 0xc0, 0, length as u8]);
                packet[16..18].copy_from_slice(&[10, 0]);
                packet[9] = if is_igmp { 2 } else { packet[9] };
            }
            if length >= 48 && is_v6 {
                packet[..7].copy_from_slice(&[0x60, 0, 0, 0, 0, length as u8 - 40, 0]);
                packet[24..40].copy_from_slice(&ipv6::address(B).octets());
                packet[40..42].copy_from_slice(&[58, 0]);
            }
            line.push(ms(at), A, &packet);
        }
        line.advance(ms(1000));
    }

    #[test]
    fn packets_are_conserved_at_all_times(
        steps in proptest::collection::vec((0..3_u64, 0..6_usize, 0..1472_usize), 1..200),
        queue in 0..20_u32,
        loss in 0.0..0.5_f64,
        duplication in 0.0..0.5_f64,
    ) {
        let mut line = Line::new(LinkConfig {
            rate: Some(Rate::from_bits_per_s(2_000_000)),
            delay: Duration::from_millis(7),
            queue: QueueLimit::Packets(queue),
            loss: LossModel::Bernoulli(loss),
            duplication,
            ..LinkConfig::default()
        });
        let ways = [(A, B), (A, C), (B, A), (B, C), (C, A), (C, B)];
        let mut now = 0;
        let check = |line: &Line| {
            let counts = line.fabric.counts();
            let (mut copies, mut gone, mut carried) = (0, 0, 0);
            for link in 0..8 {
                let link = line.fabric.network().link_counters(LinkId(link));
                let over = link.dropped + link.lost + link.delivered;
                copies += link.duplicated;
                gone += link.dropped + link.lost;
                carried += link.pushed + link.duplicated - over;
            }
            prop_assert_eq!(counts.entered + copies, counts.left + gone + carried);
            prop_assert_eq!(counts.left, line.inbox.delivered.len() as u64);
            Ok(())
        };
        for (wait, way, bytes) in steps {
            now += wait;
            let (from, to) = ways[way];
            line.push(ms(now), from, &udp(from, address(to).octets(), 64, &vec![0; bytes]));
            check(&line)?;
        }
        for _ in 0..50 {
            now += 100;
            line.advance(ms(now));
            check(&line)?;
        }
        let counts = line.fabric.counts();
        let next = line.fabric.network_mut().next_time();
        prop_assert_eq!(next.is_none(), true, "{:?}", counts);
    }
}
