//! Ends of ACP connections, and switches, in the simulator. Each node has one endpoint, and both
//! have the same number.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use manyflow_anypoint::switch::{Policy, RateAware, RoundRobin, SwitchConfig};
use manyflow_anypoint::{AcpConfig, Connection, Event, Frame, Segment};
use manyflow_core::link::LinkConfig;
use manyflow_core::{Contents, EndpointId, Time};
use manyflow_netsim::models::anypoint::{Application, MemberChange, ModelledEnd, SwitchEndpoint};
use manyflow_netsim::{Change, LinkId, Network, NodeId, Probe, Probed};

/// An application that sends its frames as fast as the connection accepts them.
#[derive(Default)]
pub(crate) struct Frames {
    /// The frames to send, last first.
    pub(crate) to_send: Vec<Frame<Contents>>,
    /// Whether the application closes after the last frame.
    pub(crate) closes: bool,
    /// The time that the application spends on each frame that it reads.
    pub(crate) service: Duration,
    pub(crate) read: Vec<Frame<Contents>>,
}

impl Application for Frames {
    fn next_frame_at(&self) -> Option<Time> {
        (!self.to_send.is_empty()).then_some(Time::ZERO)
    }

    fn next_frame_bytes(&self) -> u32 {
        let next = self.to_send.last();
        next.map_or(0, |frame| frame.payload.length())
    }

    fn take_frame(&mut self, _now: Time) -> Option<Frame<Contents>> {
        self.to_send.pop()
    }

    fn has_sent_all(&self) -> bool {
        self.closes && self.to_send.is_empty()
    }

    fn read_frame(&mut self, _now: Time, frame: Frame<Contents>) -> Duration {
        self.read.push(frame);
        self.service
    }

    fn stop_sending(&mut self) {
        (self.to_send, self.closes) = (Vec::new(), true);
    }
}

/// Returns frames of 1024 bytes with these keys, last first.
pub(crate) fn frames(keys: impl DoubleEndedIterator<Item = u32>) -> Vec<Frame<Contents>> {
    let frame = |key| Frame {
        key,
        payload: Contents::from(1024),
    };
    keys.rev().map(frame).collect()
}

type End = ModelledEnd<Frames>;

pub(crate) struct World {
    pub(crate) network: Network<Segment, Event>,
    ends: BTreeMap<u32, Probe<End>>,
    switches: BTreeMap<u32, Probe<SwitchEndpoint>>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World {
            network: Network::new(seed),
            ends: BTreeMap::new(),
            switches: BTreeMap::new(),
        }
    }

    /// Creates an initiator (0) and an acceptor (1), with a link like `link` each way.
    pub(crate) fn pair(configs: [AcpConfig; 2], link: &LinkConfig, seed: u64) -> World {
        let mut world = World::new(seed);
        let [first, second] = configs;
        world.initiator(first, 1);
        world.acceptor(second, 0);
        world.connect(0, 1, link);
        world
    }

    fn add_node(&mut self) -> NodeId {
        let name = self.network.next_endpoint().0.to_string();
        self.network.add_node(&name)
    }

    fn add_end(&mut self, end: End) -> u32 {
        let node = self.add_node();
        let end = Probe::add(&mut self.network, node, end);
        let number = end.id().0;
        self.ends.insert(number, end);
        number
    }

    /// Adds the end that opens the connection to another end or to a switch.
    pub(crate) fn initiator(&mut self, config: AcpConfig, remote: u32) -> u32 {
        let (frames, remote) = (Frames::default(), EndpointId(remote));
        let end = End::initiator(config, frames, remote, 7, Time::ZERO);
        self.add_end(end.expect("a valid initiator"))
    }

    /// Adds an end that accepts a connection from another end or from a switch.
    pub(crate) fn acceptor(&mut self, config: AcpConfig, remote: u32) -> u32 {
        let end = End::acceptor(config, Frames::default(), EndpointId(remote));
        self.add_end(end.expect("a valid acceptor"))
    }

    /// Adds a switch between a peer and members that take turns.
    pub(crate) fn switch(&mut self, config: SwitchConfig, peer: u32, members: Range<u32>) -> u32 {
        self.add_switch(switch(config, Box::<RoundRobin>::default(), peer, members))
    }

    /// Adds a switch that learns what each member's path carries.
    pub(crate) fn learning_switch(
        &mut self,
        policy: RateAware,
        peer: u32,
        members: Range<u32>,
    ) -> u32 {
        self.add_switch(switch(
            SwitchConfig::default(),
            Box::new(policy),
            peer,
            members,
        ))
    }

    fn add_switch(&mut self, switch: SwitchEndpoint) -> u32 {
        let node = self.add_node();
        let switch = Probe::add(&mut self.network, node, switch);
        let number = switch.id().0;
        self.switches.insert(number, switch);
        number
    }

    /// Connects two nodes by links of this kind.
    pub(crate) fn connect(&mut self, one: u32, other: u32, link: &LinkConfig) {
        let [one, other] = [one, other].map(NodeId);
        self.network.add_duplex(one, other, link.clone());
    }

    /// Changes the members of a switch.
    pub(crate) fn change(&mut self, switch: u32, change: MemberChange) {
        let now = self.network.now();
        self.switches[&switch].get().change(now, change);
    }

    /// Replaces a switch by one without any state.
    pub(crate) fn restart(&mut self, number: u32, peer: u32, members: Range<u32>) {
        let policy = Box::<RoundRobin>::default();
        *self.switches[&number].get() = switch(SwitchConfig::default(), policy, peer, members);
    }

    /// Cuts the link from this end of a pair, or restores it.
    pub(crate) fn set_cut(&mut self, end: u32, cut: bool) {
        let change = Change::Cut(LinkId(end), cut);
        self.network.at(self.network.now(), change);
    }

    pub(crate) fn stop(&self, end: u32) {
        self.ends[&end].stop();
    }

    pub(crate) fn end(&self, number: u32) -> Probed<'_, End> {
        self.ends[&number].get()
    }

    /// Applies `see` to the connection of an end.
    pub(crate) fn connection<T>(
        &self,
        end: u32,
        see: impl FnOnce(&mut Connection<Contents>) -> T,
    ) -> T {
        see(self.end(end).connection().expect("the end has started"))
    }

    /// Gives an end frames to send.
    pub(crate) fn give(&self, end: u32, frames: Vec<Frame<Contents>>) {
        self.end(end).application().to_send = frames;
    }

    /// Makes the application of an end close after its last frame.
    pub(crate) fn close(&self, end: u32) {
        self.end(end).application().closes = true;
    }

    /// Returns the keys of the frames that an end has read.
    pub(crate) fn read(&self, end: u32) -> Vec<u32> {
        let mut end = self.end(end);
        let read = end.application().read.iter();
        read.map(|frame| frame.key).collect()
    }

    /// Returns the events of an end or a switch, with their times.
    pub(crate) fn events(&self, number: u32) -> Vec<(Time, Event)> {
        match self.ends.get(&number) {
            Some(end) => end.events(),
            None => self.switches[&number].events(),
        }
    }

    pub(crate) fn count(&self, number: u32, event: Event) -> usize {
        let events = self.events(number).into_iter();
        events.filter(|(_, seen)| *seen == event).count()
    }

    /// Runs until `end`. Ends and switches notice first what a test has changed.
    pub(crate) fn run_until(&mut self, end: Duration) {
        for number in 0..self.network.next_endpoint().0 {
            self.network.wake(EndpointId(number), &mut ());
        }
        self.network
            .run_until(Time::ZERO + end, &mut ())
            .expect("time advances");
    }

    /// Runs until an end has read this many frames.
    pub(crate) fn run_until_read(&mut self, end: u32, frames: usize) {
        while self.read(end).len() < frames {
            let now = self.network.now() - Time::ZERO;
            self.run_until(now + Duration::from_micros(100));
        }
    }
}

fn switch(
    config: SwitchConfig,
    policy: Box<dyn Policy<Contents>>,
    peer: u32,
    members: Range<u32>,
) -> SwitchEndpoint {
    let members = members.map(EndpointId).collect();
    SwitchEndpoint::new(config, policy, EndpointId(peer), members, Vec::new())
        .expect("a valid switch")
}
