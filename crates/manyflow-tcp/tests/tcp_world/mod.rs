//! One TCP connection in the simulator, over a link each way.

use std::collections::BTreeSet;
use std::time::Duration;

use manyflow_core::link::LinkConfig;
use manyflow_core::{Endpoint, EndpointId, Packet, Time};
use manyflow_netsim::{LinkId, Network, Probe};
use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig};

pub(crate) struct World {
    pub(crate) network: Network<Segment, Event>,
    pub(crate) sender: Probe<Sender>,
    pub(crate) receiver: Probe<Receiver>,
    pub(crate) data: LinkId,
    pub(crate) acks: LinkId,
}

impl World {
    /// Creates a connection over a link like `there` for data and one like `back` for
    /// acknowledgements.
    pub(crate) fn new(tcp: TcpConfig, there: LinkConfig, back: LinkConfig, seed: u64) -> World {
        let mut network = Network::new(seed);
        let [a, b] = ["sender", "receiver"].map(|name| network.add_node(name));
        let data = network.add_link(a, b, there);
        let acks = network.add_link(b, a, back);
        let sender = Sender::new(tcp.clone(), EndpointId(1), seed).expect("a valid sender");
        let sender = Probe::add(&mut network, a, sender);
        let receiver = Receiver::new(tcp, sender.id()).expect("a valid receiver");
        let receiver = Probe::add(&mut network, b, receiver);
        receiver.on_packet(checked_delivery());
        World {
            network,
            sender,
            receiver,
            data,
            acks,
        }
    }

    pub(crate) fn run_until(&mut self, end: Duration) {
        self.network
            .run_until(Time::ZERO + end, &mut ())
            .expect("time advances");
    }
}

/// Checks after each arrival that the receiver has delivered exactly the segments that arrived
/// without a gap, in order and once.
fn checked_delivery() -> impl FnMut(&mut Receiver, Time, &Packet<Segment>) + Send {
    // The number of segments that arrived without a gap, and the segments ahead of them.
    let (mut expected, mut ahead) = (0, BTreeSet::new());
    move |receiver, now, packet| {
        receiver.handle_packet(now, packet);
        let arrived = packet.header.sequence;
        if arrived >= expected {
            ahead.insert(arrived);
        }
        while ahead.remove(&expected) {
            expected += 1;
        }
        assert_eq!(receiver.delivered_segments(), expected);
    }
}

/// Returns a link without limits, with a delay.
pub(crate) fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}
