//! Daemons of an overlay in the simulator, each at a node of its own, and their clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::LinkConfig;
use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_netsim::{Network, NodeId, Probe};
use manyflow_overlay::controller::Controller;
use manyflow_overlay::hop::{DatagramHop, Hop, StreamHop};
use manyflow_overlay::{
    Addresses, ClientFrame, Daemon, DaemonEndpoint, DaemonId, Event, Frame, LinkId, LinkKind,
    OverlayConfig, Topology,
};

pub(crate) struct World {
    pub(crate) network: Network<Frame, Event>,
    pub(crate) daemons: Vec<Probe<DaemonEndpoint>>,
    pub(crate) topology: Arc<Topology>,
}

impl World {
    /// Creates `daemons` daemons and an overlay link for each of `links`, with a link of the
    /// network each way. `hop` makes the hop for each direction of an overlay link.
    pub(crate) fn new(
        daemons: u16,
        links: &[(u16, u16, LinkConfig)],
        mut hop: impl FnMut(LinkId) -> Box<dyn Hop<Contents>>,
        mut controller: impl FnMut(DaemonId) -> Box<dyn Controller>,
    ) -> World {
        let mut network = Network::new(1);
        for daemon in 0..daemons {
            network.add_node(&format!("daemon-{daemon}"));
        }
        for (a, b, link) in links {
            let [a, b] = [*a, *b].map(|daemon| NodeId(daemon.into()));
            network.add_duplex(a, b, link.clone());
        }
        let ends: Vec<_> = links
            .iter()
            .map(|(a, b, _)| (DaemonId(*a), DaemonId(*b), 1))
            .collect();
        let topology =
            Arc::new(Topology::new((0..daemons).map(DaemonId), &ends).expect("a valid topology"));
        let addresses = (0..daemons.into()).map(EndpointId).collect();
        let addresses = Arc::new(Addresses::new(addresses));
        let mut daemon = |here| {
            let neighbours = topology.neighbours(here).iter();
            let hops = neighbours
                .map(|&to| hop(LinkId { from: here, to }))
                .collect();
            let (config, topology) = (OverlayConfig::default(), topology.clone());
            let daemon = Daemon::fixed(config, controller(here), here, topology, hops);
            let daemon =
                DaemonEndpoint::of_daemon(daemon.expect("a valid daemon"), addresses.clone());
            Probe::add(&mut network, NodeId(here.0.into()), daemon)
        };
        World {
            daemons: (0..daemons).map(|here| daemon(DaemonId(here))).collect(),
            network,
            topology,
        }
    }

    /// Adds a client of a daemon. `client` makes it from the daemon's endpoint.
    pub(crate) fn add_client<X>(
        &mut self,
        at: u16,
        client: impl FnOnce(EndpointId) -> X,
    ) -> Probe<X>
    where
        X: Endpoint<Rx = Frame, Tx = Frame, Event = Event> + 'static,
    {
        let daemon = EndpointId(at.into());
        Probe::add(&mut self.network, NodeId(at.into()), client(daemon))
    }

    /// Makes a client send frames to its daemon.
    pub(crate) fn send<const N: usize>(
        &mut self,
        client: &Probe<Puppet>,
        frames: [ClientFrame; N],
    ) {
        client.get().frames.extend(frames);
        self.network.wake(client.id(), &mut ());
    }

    /// Runs for this long, and forgets the daemons' events.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.network.now() + span;
        self.network.run_until(end, &mut ()).expect("time advances");
        self.daemons.iter().for_each(Probe::clear_events);
    }
}

/// Returns an end of an overlay link of this kind.
pub(crate) fn hop(links: &LinkKind, seed: u64) -> Box<dyn Hop<Contents>> {
    match links {
        LinkKind::Streams(tcp) => Box::new(StreamHop::new(tcp.clone(), seed).expect("a stream")),
        LinkKind::Datagrams => Box::new(DatagramHop::new()),
    }
}

/// A client that sends the frames that a test gives it, and reads at once.
pub(crate) struct Puppet {
    daemon: EndpointId,
    frames: VecDeque<ClientFrame>,
    message_bytes: u32,
    /// The number of messages that the daemon has accepted.
    pub(crate) accepted: u32,
    /// The number of messages that the client has read.
    pub(crate) read: u64,
}

impl Puppet {
    /// Returns a client of a daemon. Its messages have `message_bytes` bytes.
    pub(crate) fn new(daemon: EndpointId, message_bytes: u32) -> Puppet {
        Puppet {
            daemon,
            frames: VecDeque::new(),
            message_bytes,
            accepted: 0,
            read: 0,
        }
    }
}

impl Endpoint for Puppet {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, _now: Time, packet: &Packet<Frame>) {
        match packet.header {
            Frame::Client(ClientFrame::Ready) => self.accepted += 1,
            Frame::Client(ClientFrame::Deliver { .. }) => {
                self.read += 1;
                self.frames.push_back(ClientFrame::Took { messages: 1 });
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        let frame = self.frames.pop_front()?;
        let payload_bytes = match frame {
            ClientFrame::Send { .. } => self.message_bytes,
            _ => 0,
        };
        let daemon = Destination::Endpoint(self.daemon);
        Some(Action::Send(Packet::new(
            daemon,
            Frame::Client(frame),
            payload_bytes,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
