//! Three daemons in a line, a client that sends at the first, and a client that reads at the last.
//! Each frame takes a millisecond.

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::{Ecn, Length, Time};
use manyflow_overlay::controller::Open;
use manyflow_overlay::hop::{DatagramHop, Hop, StreamHop};
use manyflow_overlay::{
    ClientFrame, ClientId, Daemon, DaemonId, Frame, GroupId, LinkKind, OverlayConfig, Topology,
    Transmit,
};

const GROUP: GroupId = GroupId(1);
const DELAY: Duration = Duration::from_millis(1);

pub(crate) struct Line {
    now: Time,
    daemons: Vec<Daemon<Length>>,
    sender: ClientId,
    /// Frames in transit, and those sent in the current step: source, destination, frame and
    /// payload.
    frames: Vec<(DaemonId, DaemonId, Frame, Length)>,
    next: Vec<(DaemonId, DaemonId, Frame, Length)>,
    /// The number of messages that the last client has read.
    pub(crate) read: u64,
}

fn hop(links: &LinkKind) -> Box<dyn Hop<Length>> {
    match links {
        LinkKind::Streams(tcp) => Box::new(StreamHop::new(tcp.clone(), 1).expect("a stream")),
        LinkKind::Datagrams => Box::new(DatagramHop::new()),
    }
}

impl Line {
    pub(crate) fn new(links: LinkKind) -> Line {
        let ends = [(0, 1), (1, 2)].map(|(a, b)| (DaemonId(a), DaemonId(b), 1));
        let topology = Arc::new(Topology::new(3, &ends).expect("a line"));
        let config = OverlayConfig::default();
        let daemon = |here| {
            let neighbours = topology.neighbours(DaemonId(here)).iter();
            let hops = neighbours.map(|_| hop(&links)).collect();
            let (config, topology) = (config.clone(), topology.clone());
            Daemon::new(config, Box::new(Open), DaemonId(here), topology, hops).expect("a daemon")
        };
        let mut daemons: Vec<_> = (0..3).map(daemon).collect();
        let member = daemons[2].connect(Time::ZERO, 100);
        let join = ClientFrame::Join(GROUP);
        daemons[2].handle_client(Time::ZERO, member, &join, Length(0));
        let mut line = Line {
            now: Time::ZERO,
            sender: daemons[0].connect(Time::ZERO, 100),
            daemons,
            frames: Vec::new(),
            next: Vec::new(),
            read: 0,
        };
        (0..100).for_each(|_| line.step());
        line
    }

    /// Sends a message and steps until the last client has read it.
    pub(crate) fn message(&mut self) {
        let send = ClientFrame::Send {
            group: GROUP,
            sent_us: 0,
        };
        self.daemons[0].handle_client(self.now, self.sender, &send, Length(1000));
        let read = self.read;
        while self.read == read {
            self.step();
        }
    }

    /// Advances time by a millisecond.
    fn step(&mut self) {
        for place in 0..3 {
            self.drain(place);
        }
        self.now += DELAY;
        core::mem::swap(&mut self.frames, &mut self.next);
        while let Some((from, to, frame, payload)) = self.frames.pop() {
            let daemon = &mut self.daemons[usize::from(to.0)];
            daemon.handle_frame(self.now, from, &frame, Ecn::NotCapable, payload);
        }
        for daemon in &mut self.daemons {
            if daemon.poll_timeout().is_some_and(|due| due <= self.now) {
                daemon.handle_timeout(self.now);
            }
        }
    }

    fn drain(&mut self, place: usize) {
        let here = DaemonId(place as u16);
        while let Some(transmit) = self.daemons[place].poll_transmit() {
            match transmit {
                Transmit::Daemon(to, frame, payload) => self.next.push((here, to, frame, payload)),
                Transmit::Client(client, ClientFrame::Deliver { .. }, _) => {
                    self.read += 1;
                    let took = ClientFrame::Took { messages: 1 };
                    self.daemons[place].handle_client(self.now, client, &took, Length(0));
                }
                Transmit::Client(..) => {}
            }
        }
        while self.daemons[place].poll_event().is_some() {}
    }
}
