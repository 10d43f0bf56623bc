//! One overlay link in the simulator, with a hop at each end. An application at each end pushes
//! numbered messages and reads. A test can stop the reader at an end.

use std::convert::Infallible;
use std::time::Duration;

use manyflow_core::link::LinkConfig;
use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_netsim::{Network, Probe};
use manyflow_overlay::hop::{Hop, StreamHop};
use manyflow_overlay::{Body, ClientId, DaemonId, Data, Frame, GroupId, Message, OriginSeq};
use manyflow_tcp::TcpConfig;

/// The payload of each message in bytes.
const PAYLOAD: u32 = 976;

/// Returns the application's message with this number, from 1.
fn message(sequence: u32) -> Message {
    Message {
        origin: DaemonId(0),
        copy: Default::default(),
        body: Body::Data(Data {
            group: GroupId(1),
            version: 0,
            sequence: OriginSeq::new(sequence.into()),
            sender: ClientId(1),
            sent_us: 0,
        }),
    }
}

pub(crate) struct End {
    hop: StreamHop<Contents>,
    remote: EndpointId,
    /// The number of messages that the application has produced; `pushed` of them have been pushed.
    pub(crate) supply: u32,
    pub(crate) pushed: u32,
    /// Whether the application reads; `read` is the number of messages that it has read.
    pub(crate) reads: bool,
    pub(crate) read: u32,
}

impl End {
    fn new(tcp: TcpConfig, remote: u32, seed: u64) -> End {
        End {
            hop: StreamHop::new(tcp, seed).expect("a valid stream"),
            remote: EndpointId(remote),
            supply: 0,
            pushed: 0,
            reads: true,
            read: 0,
        }
    }

    fn push_one(&mut self, now: Time) -> bool {
        if self.pushed == self.supply || !self.hop.has_room() {
            return false;
        }
        self.pushed += 1;
        self.hop.push(now, message(self.pushed), PAYLOAD.into());
        true
    }

    /// Reads arrivals and asserts that each message arrives once and in order.
    fn read_arrivals(&mut self, now: Time) {
        while self.reads
            && let Some(arrival) = self.hop.poll_arrival(now)
        {
            self.read += 1;
            assert_eq!(arrival.message, message(self.read));
            assert_eq!(arrival.payload, PAYLOAD.into());
        }
    }
}

impl Endpoint for End {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Infallible;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let (frame, payload) = (&packet.header, packet.payload());
        self.hop.handle_frame(now, frame, packet.ecn, payload);
        self.read_arrivals(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.hop.handle_timeout(now);
        self.read_arrivals(now);
    }

    /// Drains the hop and fills it, as a daemon does, until nothing moves.
    fn poll_action(&mut self, now: Time) -> Option<Action<Frame>> {
        loop {
            if let Some((frame, payload)) = self.hop.poll_transmit(now) {
                let remote = Destination::Endpoint(self.remote);
                return Some(Action::Send(Packet::new(remote, frame, payload)));
            }
            if !self.push_one(now) {
                return None;
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.hop.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
}

pub(crate) struct World {
    network: Network<Frame, Infallible>,
    pub(crate) ends: [Probe<End>; 2],
}

impl World {
    pub(crate) fn new(tcp: TcpConfig, [there, back]: [LinkConfig; 2], seed: u64) -> World {
        let mut network = Network::new(seed);
        let nodes = ["first", "second"].map(|name| network.add_node(name));
        network.add_link(nodes[0], nodes[1], there);
        network.add_link(nodes[1], nodes[0], back);
        let ends = [(0, 1), (1, 0)].map(|(end, remote)| {
            let hop = End::new(tcp.clone(), remote, seed + end as u64);
            Probe::add(&mut network, nodes[end], hop)
        });
        World { network, ends }
    }

    /// Runs until `end`. Messages that are supplied meanwhile are pushed when there is room.
    pub(crate) fn run_until(&mut self, end: Duration) {
        for end in &self.ends {
            self.network.wake(end.id(), &mut ());
        }
        self.network
            .run_until(Time::ZERO + end, &mut ())
            .expect("time advances");
    }

    /// Returns the number of messages that each end has read.
    pub(crate) fn read(&self) -> [u32; 2] {
        self.ends.each_ref().map(|end| end.get().read)
    }
}
