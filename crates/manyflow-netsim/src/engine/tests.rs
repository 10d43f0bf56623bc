//! Tests of the engine with real protocols.

use core::time::Duration;
use std::sync::Arc;

use manyflow_core::link::{
    LinkConfig, LossModel, Marking, Overload, QueueLimit, RedConfig, RedVariant,
};
use manyflow_core::time::seconds;
use manyflow_core::{Action, Channel, Destination, Ecn, Endpoint, EndpointId, Packet, Time};
use manyflow_layered::{self as layered, Data, Message};
use manyflow_tcp::cbr::{Pattern, Sink, Source, SourceConfig};
use manyflow_webrc::{self as webrc, Receiver, ReceiverConfig, Sender, Session, SessionConfig};

use super::{Change, LinkId, NodeId, Observer};
use manyflow_tcp::cbr;

crate::protocols! {
    /// The header of a packet.
    pub(super) enum AnyHeader;
    /// An event of an endpoint.
    pub(super) enum AnyEvent;
    /// WEBRC.
    Webrc: webrc::Cci, webrc::Event;
    /// TCP.
    Tcp: manyflow_tcp::Segment, manyflow_tcp::Event;
    /// Sources without congestion control.
    Cbr: cbr::Datagram, cbr::Event;
    /// Layered multicast.
    Layered: layered::Message, layered::Event;
}

pub(super) type Network = super::Network<AnyHeader, AnyEvent>;

/// Records the last average of each endpoint's round-trip time.
#[derive(Default)]
struct Rtts(Vec<(EndpointId, f64)>);

impl Observer<AnyHeader, AnyEvent> for Rtts {
    fn on_event(&mut self, _now: Time, endpoint: EndpointId, event: &AnyEvent) {
        if let AnyEvent::Webrc(webrc::Event::Rtt { average_s, .. }) = event {
            self.0.retain(|(other, _)| *other != endpoint);
            self.0.push((endpoint, *average_s));
        }
    }

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<AnyHeader>) {}
}

impl Rtts {
    fn of(&self, endpoint: EndpointId) -> f64 {
        self.0
            .iter()
            .find(|(other, _)| *other == endpoint)
            .expect("the endpoint has measured")
            .1
    }
}

fn wire(delay_s: f64) -> LinkConfig {
    LinkConfig {
        delay: seconds(delay_s),
        ..LinkConfig::default()
    }
}

fn session() -> Session {
    Session::new(SessionConfig::wan("20 Mbit/s".parse().unwrap())).unwrap()
}

fn add_receiver(network: &mut Network, node: NodeId, id: u32, start_s: f64) -> EndpointId {
    let start = Time::from_secs_f64(start_s);
    let receiver = Receiver::new(
        Arc::new(session()),
        Arc::new(ReceiverConfig::default()),
        id,
        start,
    );
    network.add(node, receiver.unwrap())
}

/// The network of Fig. 3 of the WEBRC paper: a sender, a distant router behind a link with 1 %
/// loss, and receivers at 50 and 100 ms from it.
fn two_receivers(seed: u64, starts_s: &[f64]) -> (Network, Vec<EndpointId>) {
    let mut network = Network::new(seed);
    let [sender, router] = ["S", "r"].map(|name| network.add_node(name));
    network.add_link(
        sender,
        router,
        LinkConfig {
            loss: LossModel::Bernoulli(0.01),
            ..wire(0.1)
        },
    );
    network.add_link(router, sender, wire(0.1));
    let id = network.open_session(sender);
    network.add(sender, Sender::new(session(), id, Time::ZERO));
    let sites = ["A", "B"]
        .map(|name| network.add_node(name))
        .into_iter()
        .zip([0.025, 0.05])
        .zip(starts_s);
    let endpoints = sites.map(|((node, delay_s), start_s)| {
        network.add_duplex(router, node, wire(delay_s));
        add_receiver(&mut network, node, id, *start_s)
    });
    let endpoints: Vec<_> = endpoints.collect();
    network.set_leave_latency(seconds(2.0));
    (network, endpoints)
}

#[test]
fn two_receivers_share_their_round_trip_time() {
    // Alone A measures 0.25 s. Together, because joins meet at the router, both measure (0.2 + 0.05
    // + 0.1) / 2 = 0.175 s.
    let (mut network, endpoints) = two_receivers(1, &[8.0]);
    let mut rtts = Rtts::default();
    network
        .run_until(Time::from_secs_f64(400.0), &mut rtts)
        .unwrap();
    assert!(
        (rtts.of(endpoints[0]) - 0.25).abs() < 0.02,
        "{}",
        rtts.of(endpoints[0])
    );
    let (mut network, endpoints) = two_receivers(1, &[8.0, 20.0]);
    let mut rtts = Rtts::default();
    network
        .run_until(Time::from_secs_f64(400.0), &mut rtts)
        .unwrap();
    let both: Vec<f64> = endpoints
        .iter()
        .map(|endpoint| rtts.of(*endpoint))
        .collect();
    assert!(
        both.iter().all(|rtt| (rtt - 0.175).abs() < 0.03),
        "{both:?}"
    );
    network.check_accounting().unwrap();
}

#[test]
fn a_run_is_a_pure_function_of_its_seed() {
    let run = |seed| {
        let (mut network, endpoints) = two_receivers(seed, &[1.0, 3.0]);
        network
            .run_until(Time::from_secs_f64(60.0), &mut ())
            .unwrap();
        endpoints
            .iter()
            .map(|endpoint| network.received(*endpoint))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn another_node_changes_no_random_draw() {
    let run = |extra: bool| {
        let (mut network, endpoints) = two_receivers(4, &[1.0]);
        if extra {
            let (x, y) = (network.add_node("x"), network.add_node("y"));
            network.add_duplex(
                x,
                y,
                LinkConfig {
                    loss: LossModel::Bernoulli(0.5),
                    ..wire(0.1)
                },
            );
        }
        network
            .run_until(Time::from_secs_f64(60.0), &mut ())
            .unwrap();
        network.received(endpoints[0])
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn packets_flow_only_where_a_channel_is_joined() {
    let mut network = Network::new(1);
    let [sender, router, a, b] = ["S", "r", "a", "b"].map(|name| network.add_node(name));
    network.add_duplex(sender, router, wire(0.01));
    let (to_a, _) = network.add_duplex(router, a, wire(0.01));
    let (to_b, _) = network.add_duplex(router, b, wire(0.01));
    let id = network.open_session(sender);
    network.add(sender, Sender::new(session(), id, Time::ZERO));
    add_receiver(&mut network, a, id, 1.0);
    network
        .run_until(Time::from_secs_f64(30.0), &mut ())
        .unwrap();
    assert!(network.link_counters(to_a).delivered > 100);
    assert_eq!(network.link_counters(to_b).pushed, 0);
}

/// A chain S - a - b - h with hosts g at b and x at a. Each link has a different delay. A source
/// sends 1000 packets/s.
fn grafting() -> (Network, [NodeId; 6], Channel) {
    let mut network = Network::new(1);
    let nodes = ["S", "a", "b", "h", "g", "x"].map(|name| network.add_node(name));
    let [s, a, b, h, g, x] = nodes;
    for (from, to, delay_s) in [
        (s, a, 0.01),
        (a, b, 0.02),
        (b, h, 0.03),
        (b, g, 0.04),
        (a, x, 0.05),
    ] {
        network.add_duplex(from, to, wire(delay_s));
    }
    let channel = Channel {
        session: network.open_session(s),
        number: 0,
    };
    let config = SourceConfig {
        destination: Destination::Channel(channel),
        rate: "8 Mbit/s".parse().unwrap(),
        packet_bytes: 1000,
        pattern: Pattern::Constant,
        start: Time::ZERO,
        stop: None,
    };
    network.add(s, Source::new(config, 1).unwrap());
    (network, nodes, channel)
}

fn add_sink(
    network: &mut Network,
    node: NodeId,
    channel: Channel,
    times_s: [f64; 2],
) -> EndpointId {
    let [start, stop] = times_s.map(Time::from_secs_f64);
    network.add(node, Sink::new(Some(channel), start, Some(stop)))
}

#[test]
fn a_join_travels_hop_by_hop_to_the_nearest_branch() {
    let (mut network, [_, _, _, h, g, _], channel) = grafting();
    let to_h = add_sink(&mut network, h, channel, [1.0, 9.0]);
    let to_g = add_sink(&mut network, g, channel, [2.0, 9.0]);
    // h's join takes 60 ms to S, and the packets take 60 ms back. g's join takes 40 ms to b, and
    // the packets take 40 ms back.
    for (endpoint, first_s) in [(to_h, 1.0 + 2.0 * 0.06), (to_g, 2.0 + 2.0 * 0.04)] {
        network
            .run_until(Time::from_secs_f64(first_s - 0.0005), &mut ())
            .unwrap();
        assert_eq!(network.received(endpoint).packets, 0);
        network
            .run_until(Time::from_secs_f64(first_s + 0.0015), &mut ())
            .unwrap();
        assert!((1..=2).contains(&network.received(endpoint).packets));
    }
}

#[test]
fn only_nodes_on_the_path_of_a_channel_have_state() {
    let (mut network, nodes, channel) = grafting();
    add_sink(&mut network, nodes[3], channel, [1.0, 3.0]);
    add_sink(&mut network, nodes[4], channel, [2.0, 4.0]);
    network.set_leave_latency(seconds(0.5));
    let mut knowing = |time_s: f64| {
        network
            .run_until(Time::from_secs_f64(time_s), &mut ())
            .unwrap();
        nodes.map(|node| network.nodes[node.0 as usize].groups.channels())
    };
    // The nodes are S, a, b, h, g and x.
    assert_eq!(knowing(0.9), [0, 0, 0, 0, 0, 0]);
    assert_eq!(knowing(1.04), [0, 0, 1, 1, 0, 0]);
    assert_eq!(knowing(1.9), [1, 1, 1, 1, 0, 0]);
    assert_eq!(knowing(2.9), [1, 1, 1, 1, 1, 0]);
    assert_eq!(knowing(3.9), [1, 1, 1, 0, 1, 0]);
    assert_eq!(knowing(4.4), [1, 1, 1, 0, 0, 0]);
    assert_eq!(knowing(4.55), [1, 1, 0, 0, 0, 0]);
    assert_eq!(knowing(4.9), [0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_leave_takes_the_configured_latency() {
    let after_silence = |latency_s: f64| {
        let mut network = Network::new(1);
        let [sender, router, host] = ["S", "r", "h"].map(|name| network.add_node(name));
        network.add_duplex(sender, router, wire(0.01));
        let (down, up) = network.add_duplex(router, host, wire(0.01));
        let id = network.open_session(sender);
        network.add(sender, Sender::new(session(), id, Time::ZERO));
        let config = ReceiverConfig {
            slot_timeout: Some(Duration::from_secs(5)),
            ..ReceiverConfig::default()
        };
        let receiver = Receiver::new(Arc::new(session()), Arc::new(config), id, Time::ZERO);
        // The receiver leaves after 5 s, in the first slot, while waves and base channel continue.
        network.add(host, receiver.unwrap());
        network.set_leave_latency(seconds(latency_s));
        network
            .run_until(Time::from_secs_f64(60.0), &mut ())
            .unwrap();
        let _ = up;
        network.link_counters(down).delivered
    };
    assert!(after_silence(3.0) > after_silence(0.0) + 10);
}

#[test]
fn changes_happen_at_their_time() {
    let mut network = Network::new(1);
    let [sender, host] = ["S", "h"].map(|name| network.add_node(name));
    let limited = LinkConfig {
        rate: Some("1 Mbit/s".parse().unwrap()),
        queue: QueueLimit::Packets(50),
        ..wire(0.01)
    };
    let (down, _) = network.add_duplex(sender, host, limited.clone());
    let id = network.open_session(sender);
    network.add(sender, Sender::new(session(), id, Time::ZERO));
    add_receiver(&mut network, host, id, 0.0);
    network.at(Time::from_secs_f64(100.0), Change::Cut(down, true));
    network.at(Time::from_secs_f64(103.0), Change::Cut(down, false));
    let doubled = LinkConfig {
        rate: Some("2 Mbit/s".parse().unwrap()),
        ..limited
    };
    network.at(
        Time::from_secs_f64(200.0),
        Change::Configure(down, doubled.into()),
    );
    assert_eq!(network.pending_changes(), 3);
    let mut delivered = |from_s: f64, to_s: f64| {
        network
            .run_until(Time::from_secs_f64(from_s), &mut ())
            .unwrap();
        let before = network.link_counters(down).delivered_bytes;
        network
            .run_until(Time::from_secs_f64(to_s), &mut ())
            .unwrap();
        (network.link_counters(down).delivered_bytes - before) as f64 * 8.0 / (to_s - from_s)
    };
    assert!(delivered(60.0, 100.0) > 0.9e6);
    assert_eq!(delivered(100.1, 103.0), 0.0);
    assert!(delivered(150.0, 200.0) > 0.9e6);
    let after = delivered(300.0, 400.0);
    assert!((1.7e6..2.01e6).contains(&after), "{after}");
    network.check_accounting().unwrap();
    assert_eq!(network.pending_changes(), 0);
}

/// Returns a configuration that marks every packet of the top subscribed group.
fn marks_by_group() -> RedConfig {
    RedConfig {
        minimum_packets: 0.0,
        maximum_packets: 0.0,
        marking: Marking::TopGroup,
        overload: Overload::Mark,
        variant: RedVariant::Paper,
        ..RedConfig::default()
    }
}

/// Builds a sender of groups 0 and 1 behind a router. Returns the configured link, the receiving
/// host and the groups.
fn two_groups(config: LinkConfig) -> (Network, LinkId, NodeId, [Channel; 2]) {
    let mut network = Network::new(1);
    let [sender, router, host] = ["S", "r", "h"].map(|name| network.add_node(name));
    let (link, _) = network.add_duplex(sender, router, config);
    network.add_duplex(router, host, wire(0.01));
    let session = network.open_session(sender);
    let groups = [0, 1].map(|number| Channel { session, number });
    for group in groups {
        network.add(
            sender,
            Layer {
                group,
                due: Time::ZERO,
                is_due: false,
            },
        );
    }
    (network, link, host, groups)
}

/// Sends a packet of a group every 10 ms.
struct Layer {
    group: Channel,
    due: Time,
    is_due: bool,
}

impl Endpoint for Layer {
    type Rx = Message;
    type Tx = Message;
    type Event = layered::Event;

    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Message>) {}

    fn handle_timeout(&mut self, _now: Time) {
        self.due += Duration::from_millis(10);
        self.is_due = true;
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        let packet = Packet::new(
            Destination::Channel(self.group),
            Message::Data(Data {
                group: self.group.number as u8,
                sequence: 0,
                request: 0,
                is_for_group: false,
                rate: 0,
                rtt_us: 0,
                next_rate: 0,
                is_pair: false,
            }),
            100,
        )
        .with_ecn(Ecn::Capable);
        std::mem::take(&mut self.is_due).then_some(Action::Send(packet))
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.due)
    }

    fn poll_event(&mut self) -> Option<layered::Event> {
        None
    }
}

#[test]
fn a_link_marks_the_top_group_that_is_joined_behind_it() {
    let config = LinkConfig {
        rate: Some("10 Mbit/s".parse().unwrap()),
        red: Some(marks_by_group()),
        ..wire(0.01)
    };
    let (mut network, link, host, [low, high]) = two_groups(config);
    add_sink(&mut network, host, low, [1.0, 9.0]);
    add_sink(&mut network, host, high, [3.0, 6.0]);
    let mut marked = |from_s: f64, to_s: f64| {
        network
            .run_until(Time::from_secs_f64(from_s), &mut ())
            .unwrap();
        let before = network.link_counters(link);
        network
            .run_until(Time::from_secs_f64(to_s), &mut ())
            .unwrap();
        let after = network.link_counters(link);
        (after.pushed - before.pushed, after.marked - before.marked)
    };
    // The phases have one group, which is marked; two groups, of which the upper one is marked; one
    // group; and no group.
    assert_eq!(marked(1.5, 2.5), (100, 100));
    assert_eq!(marked(3.5, 4.5), (200, 100));
    assert_eq!(marked(6.5, 7.5), (100, 100));
    assert_eq!(marked(9.5, 10.5), (0, 0));
}

#[test]
fn a_link_that_begins_to_mark_by_group_knows_the_joined_groups() {
    let plain = LinkConfig {
        rate: Some("10 Mbit/s".parse().unwrap()),
        ..wire(0.01)
    };
    let (mut network, link, host, groups) = two_groups(plain.clone());
    for group in groups {
        add_sink(&mut network, host, group, [1.0, 9.0]);
    }
    let marking = LinkConfig {
        red: Some(marks_by_group()),
        ..plain
    };
    network.at(
        Time::from_secs_f64(2.005),
        Change::Configure(link, marking.into()),
    );
    network
        .run_until(Time::from_secs_f64(3.005), &mut ())
        .unwrap();
    assert_eq!(network.link_counters(link).marked, 100);
}

#[test]
fn a_branch_leads_from_the_source_to_the_node() {
    let (mut network, [s, _, _, h, _, _], _) = grafting();
    let links = network.branch(s, h).into_iter();
    let names: Vec<_> = links.map(|link| network.link_name(link)).collect();
    assert_eq!(names, ["b-h", "a-b", "S-a"]);
    assert_eq!(network.branch(s, s), []);
}
