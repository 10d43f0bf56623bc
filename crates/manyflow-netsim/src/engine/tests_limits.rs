//! Tests of the limits that end a run early.

use core::time::Duration;

use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::{Action, Channel, Destination, Endpoint, EndpointId, Header, Packet, Time};
use manyflow_tcp::cbr::{Pattern, Sink, Source, SourceConfig};
use manyflow_tcp::{Receiver, Sender, TcpConfig};

use super::tests::Network;
use super::{Change, Halt, LinkId, NodeId, Observer, Stop};

fn at_s(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// Adds a connection. The sender's number precedes the receiver's.
fn add_connection(network: &mut Network, from: NodeId, to: NodeId) {
    let sender = network.next_endpoint();
    let receiver = EndpointId(sender.0 + 1);
    let config = TcpConfig {
        start: at_s(0.5),
        ..TcpConfig::default()
    };
    let sending = Sender::new(config.clone(), receiver, 1).unwrap();
    network.add(from, sending);
    let receiving = Receiver::new(config, sender).unwrap();
    network.add(to, receiving);
}

/// Adds a source of packets of 1000 bytes.
fn add_source(network: &mut Network, node: NodeId, destination: Destination, rate: &str) {
    let config = SourceConfig {
        destination,
        rate: rate.parse().unwrap(),
        packet_bytes: 1000,
        pattern: Pattern::Constant,
        start: Time::ZERO,
        stop: None,
    };
    network.add(node, Source::new(config, 1).unwrap());
}

#[test]
fn a_connection_over_links_without_delay_is_reported() {
    let mut network = Network::new(1);
    let [s, r, x] = ["S", "R", "X"].map(|name| network.add_node(name));
    network.add_duplex(s, r, LinkConfig::default());
    network.add_duplex(s, x, LinkConfig::default());
    add_connection(&mut network, s, r);
    let halt = network.run_until(at_s(10.0), &mut ()).unwrap_err();
    let Halt::ZeroTimeLoop { at, endpoints, .. } = &halt else {
        panic!("{halt}");
    };
    assert_eq!((*at, endpoints.len()), (at_s(0.5), 2));
    let text = halt.to_string();
    for part in [
        "0.5 s",
        "endpoint 0 at S",
        "endpoint 1 at R",
        "link S-R",
        "link R-S",
        "`delay`",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("X"), "{text}");
}

#[test]
fn endpoints_that_answer_each_other_at_one_node_are_reported() {
    let mut network = Network::new(1);
    let node = network.add_node("S");
    add_connection(&mut network, node, node);
    let halt = network.run_until(at_s(10.0), &mut ()).unwrap_err();
    let text = halt.to_string();
    for part in ["endpoint 0 at S", "endpoint 1 at S", "different nodes"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn many_receivers_at_one_instant_are_not_a_loop() {
    const RECEIVERS: u32 = 100_000;
    let mut network = Network::new(1);
    let hub = network.add_node("S");
    let channel = Channel {
        session: network.open_session(hub),
        number: 0,
    };
    for i in 0..RECEIVERS {
        let host = network.add_node(&format!("h{i}"));
        network.add_duplex(hub, host, LinkConfig::default());
        network.add(host, Sink::new(Some(channel), Time::ZERO, None));
    }
    add_source(&mut network, hub, Destination::Channel(channel), "8 kbit/s");
    network.run_until(at_s(4.5), &mut ()).unwrap();
    let received = (0..RECEIVERS).map(|id| network.received(EndpointId(id)).packets);
    assert!(received.min().unwrap() >= 4);
    network.check_accounting().unwrap();
}

/// Builds a source of 100 packets/s over a link.
fn over(config: LinkConfig) -> (Network, LinkId) {
    let mut network = Network::new(1);
    let [s, r] = ["S", "R"].map(|name| network.add_node(name));
    let (link, _) = network.add_duplex(s, r, config);
    let sink = network.add(r, Sink::new(None, Time::ZERO, None));
    add_source(&mut network, s, Destination::Endpoint(sink), "800 kbit/s");
    (network, link)
}

#[test]
fn a_link_that_carries_too_many_packets_is_reported() {
    let slow = LinkConfig {
        rate: Some("8 kbit/s".parse().unwrap()),
        queue: QueueLimit::Unlimited,
        ..LinkConfig::default()
    };
    let far = LinkConfig {
        delay: Duration::from_secs(1_000_000_000),
        ..LinkConfig::default()
    };
    for config in [slow, far] {
        let (mut network, _) = over(config);
        network.set_carried_max(1000);
        let halt = network.run_until(at_s(1000.0), &mut ()).unwrap_err();
        let expected = Halt::TooManyCarried {
            limit: 1000,
            link: "S-R".to_owned(),
            packets: 1001,
        };
        assert_eq!(halt, expected);
        assert!((10.0..11.0).contains(&network.now().as_secs_f64()));
    }
}

/// Stops the run when the tenth packet is delivered.
struct Tenth(Stop, u32);

impl<H: Header, E> Observer<H, E> for Tenth {
    fn on_event(&mut self, _now: Time, _endpoint: EndpointId, _event: &E) {}

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<H>) {
        self.1 += 1;
        if self.1 == 10 {
            self.0.request();
        }
    }
}

#[test]
fn a_stop_ends_the_run_after_the_present_event() {
    let (mut network, link) = over(LinkConfig::default());
    let stop = Stop::default();
    network.set_stop(stop.clone());
    network.tap(link);
    network.run_until(at_s(0.05), &mut ()).unwrap();
    let mut tenth = Tenth(stop, 0);
    let halt = network.run_until(at_s(1000.0), &mut tenth).unwrap_err();
    assert_eq!((halt, tenth.1), (Halt::Stopped, 10));
    assert!(network.now() < at_s(1.0));
}

#[test]
fn packets_lost_by_a_cut_are_no_longer_carried() {
    let (mut network, link) = over(LinkConfig {
        delay: Duration::from_secs(9),
        duplication: 0.5,
        ..LinkConfig::default()
    });
    network.set_carried_max(1500);
    for second in [8.0, 16.0, 24.0] {
        network.at(at_s(second), Change::Cut(link, true));
        network.at(at_s(second), Change::Cut(link, false));
    }
    network.run_until(at_s(31.0), &mut ()).unwrap();
    network.check_accounting().unwrap();
    assert_eq!(
        network.limits.carried,
        network.link_entry(link).link.carried()
    );
}

/// The number of answers that are left.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Volley(u32);

impl Header for Volley {
    fn wire_bytes(&self) -> u32 {
        40
    }
}

/// Answers each packet at once, until no answers are left.
struct Player {
    other: Destination,
    hears: Option<Channel>,
    serves: u32,
}

impl Endpoint for Player {
    type Rx = Volley;
    type Tx = Volley;
    type Event = ();

    fn handle_packet(&mut self, _now: Time, packet: &Packet<Volley>) {
        self.serves = packet.header.0;
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action<Volley>> {
        if let Some(channel) = self.hears.take() {
            return Some(Action::Join(channel));
        }
        let left = core::mem::take(&mut self.serves).checked_sub(1)?;
        let packet = Packet::new(self.other, Volley(left), 0);
        Some(Action::Send(packet))
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.serves > 0 || self.hears.is_some()).then_some(Time::ZERO)
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// Lets two endpoints at one node answer each other. Returns the packets of the first one.
fn play(serves: u32, by_multicast: bool) -> Result<u64, Halt> {
    let mut network = crate::Network::<Volley, ()>::new(1);
    let node = network.add_node("S");
    let session = network.open_session(node);
    for own in 0..2 {
        let channel = |number| Channel { session, number };
        network.add(
            node,
            Player {
                other: match by_multicast {
                    true => Destination::Channel(channel(1 - own)),
                    false => Destination::Endpoint(EndpointId(1 - u32::from(own))),
                },
                hears: by_multicast.then_some(channel(own)),
                serves: if own == 1 { serves } else { 0 },
            },
        );
    }
    network.run_until(at_s(1.0), &mut ())?;
    Ok(network.received(EndpointId(0)).packets)
}

#[test]
fn endpoints_at_one_node_may_answer_each_other_many_times() {
    assert_eq!(play(200_000, false), Ok(100_000));
    assert_eq!(play(800, true), Ok(400));
}

#[test]
fn an_endless_exchange_by_multicast_at_one_node_is_reported() {
    let halt = play(u32::MAX, true).unwrap_err();
    assert!(matches!(halt, Halt::ZeroTimeLoop { .. }), "{halt}");
}
