//! Daemons with their controllers, links that take time, and clients that always have a message
//! ready. This is the smallest overlay that shows the effect of a flow control. Links lose no
//! messages, and daemons forward at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_overlay::controller::{Controller, Request, Site};
use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::groups::Groups;
use manyflow_overlay::{
    Body, ChangeSeq, ClientId, Control, CostUpdate, DaemonId, Frame, GroupId, LinkId, LinkSeq,
    Message, Topology,
};

/// The bytes of a message of 1000 bytes with all headers.
pub(crate) const MESSAGE_BYTES: u32 = 1060;
/// The number of messages that a link's transport holds besides those in transit. They are not in
/// the daemon's queue.
const TRANSPORT_MESSAGES: usize = 3;

#[derive(Copy, Clone, Debug)]
struct Parcel {
    origin: DaemonId,
    group: GroupId,
}

#[derive(Copy, Clone, Debug)]
enum Event {
    Start(usize),
    Timer(DaemonId),
    Sent(LinkId),
    MessageArrives(DaemonId, Parcel),
    UpdateArrives(DaemonId, DaemonId, CostUpdate),
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Line {
    per_message: Duration,
    delay: Duration,
    transport: VecDeque<Parcel>,
    room: usize,
    queue: VecDeque<Parcel>,
    /// The longest queue in the daemon since [`World::mark`].
    /// The number of messages sent since [`World::mark`].
    pub(crate) peak: usize,
    pub(crate) sent: u64,
    /// The bytes of control messages since [`World::mark`]. They take no time on the link.
    pub(crate) control_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) site: Site,
    pub(crate) controller: CostBenefit,
    timer: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct Client {
    daemon: DaemonId,
    id: ClientId,
    group: GroupId,
    priority: f64,
    /// The number of messages sent since [`World::mark`].
    pub(crate) sent: u64,
}

/// A link: its two ends, its rate in Mbit/s, and its delay in milliseconds.
pub(crate) type Span = (u16, u16, f64, u64);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    topology: Arc<Topology>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) lines: Vec<Line>,
    pub(crate) clients: Vec<Client>,
    events: BinaryHeap<Reverse<(Time, usize)>>,
    store: Vec<Event>,
    free: Vec<usize>,
    marked: Time,
}

impl World {
    /// Returns a world of daemons and links. `groups` lists the daemons with members of groups 0, 1
    /// and so on.
    pub(crate) fn new(
        daemons: usize,
        spans: &[Span],
        groups: &[Vec<u16>],
        config: CostBenefitConfig,
        seed: u64,
    ) -> World {
        let links: Vec<_> = spans
            .iter()
            .map(|span| (DaemonId(span.0), DaemonId(span.1), 1))
            .collect();
        let topology = Arc::new(Topology::new(daemons, &links).expect("the topology is valid"));
        let mut members = Groups::default();
        for (group, daemons) in groups.iter().enumerate() {
            for daemon in daemons {
                members.join(GroupId(group as u32), DaemonId(*daemon), ChangeSeq(1));
            }
        }
        let node = |here| Node {
            site: Site {
                here,
                topology: topology.clone(),
                groups: members.clone(),
            },
            controller: CostBenefit::new(config.clone(), here, seed)
                .expect("the parameters are in range"),
            timer: None,
        };
        World {
            now: Time::ZERO,
            nodes: (0..daemons)
                .map(|here| node(DaemonId(here as u16)))
                .collect(),
            lines: spans
                .iter()
                .flat_map(|span| [Line::new(span), Line::new(span)])
                .collect(),
            topology,
            clients: Vec::new(),
            events: BinaryHeap::new(),
            store: Vec::new(),
            free: Vec::new(),
            marked: Time::ZERO,
        }
    }

    /// Adds a client at a daemon that sends to a group from `start_s` on.
    pub(crate) fn client(&mut self, daemon: u16, group: u32, start_s: f64) {
        self.client_of_priority(daemon, group, start_s, 1.0);
    }

    pub(crate) fn client_of_priority(
        &mut self,
        daemon: u16,
        group: u32,
        start_s: f64,
        priority: f64,
    ) {
        let index = self.clients.len();
        self.clients.push(Client {
            daemon: DaemonId(daemon),
            id: ClientId(index as u32),
            group: GroupId(group),
            priority,
            sent: 0,
        });
        self.schedule(Time::from_secs_f64(start_s), Event::Start(index));
    }

    pub(crate) fn run(&mut self, until_s: f64) {
        let until = Time::from_secs_f64(until_s);
        while let Some(&Reverse((time, place))) = self.events.peek()
            && time <= until
        {
            self.events.pop();
            self.now = time;
            self.free.push(place);
            self.handle_event(self.store[place]);
        }
        self.now = until;
    }

    /// Resets all counts.
    pub(crate) fn mark(&mut self) {
        self.marked = self.now;
        for line in &mut self.lines {
            (line.sent, line.control_bytes, line.peak) = (0, 0, line.queue.len());
        }
        for client in &mut self.clients {
            client.sent = 0;
        }
    }

    pub(crate) fn link(&self, from: u16, to: u16) -> usize {
        let link = self.topology.link(DaemonId(from), DaemonId(to));
        usize::from(link.expect("they are neighbours").0)
    }

    /// Returns the share of time for which a link was busy.
    pub(crate) fn utilisation(&self, link: usize) -> f64 {
        let line = &self.lines[link];
        line.sent as f64 * line.per_message.as_secs_f64() / (self.now - self.marked).as_secs_f64()
    }

    /// Returns the share of a link's capacity that control messages use.
    pub(crate) fn control_share(&self, link: usize) -> f64 {
        let line = &self.lines[link];
        let messages = line.control_bytes as f64 / f64::from(MESSAGE_BYTES);
        messages * line.per_message.as_secs_f64() / (self.now - self.marked).as_secs_f64()
    }

    /// Returns the longest queue of any link.
    pub(crate) fn peak(&self) -> usize {
        self.lines.iter().map(|line| line.peak).max().unwrap_or(0)
    }

    fn schedule(&mut self, time: Time, event: Event) {
        let place = self.free.pop().unwrap_or(self.store.len());
        if place == self.store.len() {
            self.store.push(event);
        }
        self.store[place] = event;
        self.events.push(Reverse((time, place)));
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Start(index) => {
                let Client {
                    daemon,
                    id,
                    priority,
                    ..
                } = self.clients[index];
                let now = self.now;
                self.node(daemon).controller.add_client(now, id, priority);
                self.offer_messages(index);
                self.drain(daemon);
            }
            Event::Timer(daemon) => {
                let now = self.now;
                let node = self.node(daemon);
                if node.timer.is_none_or(|timer| timer > now) {
                    return;
                }
                node.timer = None;
                node.controller.handle_timeout(now, &node.site);
                self.drain(daemon);
            }
            Event::Sent(link) => self.finish_transmission(link),
            Event::MessageArrives(daemon, parcel) => self.forward(daemon, parcel),
            Event::UpdateArrives(daemon, from, update) => {
                let now = self.now;
                let node = self.node(daemon);
                node.controller
                    .on_control(now, from, &Control::Cost(update), &node.site);
                self.drain(daemon);
            }
        }
    }

    fn node(&mut self, daemon: DaemonId) -> &mut Node {
        &mut self.nodes[usize::from(daemon.0)]
    }

    /// Offers a client's messages until it must wait.
    fn offer_messages(&mut self, index: usize) {
        let Client {
            daemon, id, group, ..
        } = self.clients[index];
        let now = self.now;
        let request = Request {
            client: id,
            group,
            bytes: MESSAGE_BYTES,
        };
        loop {
            let node = self.node(daemon);
            if !node.controller.try_admit(now, &request, &node.site) {
                return;
            }
            self.clients[index].sent += 1;
            self.forward(
                daemon,
                Parcel {
                    origin: daemon,
                    group,
                },
            );
        }
    }

    fn drain(&mut self, daemon: DaemonId) {
        while let Some(client) = self.node(daemon).controller.poll_ready() {
            self.offer_messages(client.0 as usize);
        }
        while let Some((_, control)) = self.node(daemon).controller.poll_control() {
            if let Control::Cost(update) = control {
                self.flood(daemon, update);
            }
        }
        let node = self.node(daemon);
        let wanted = node.controller.poll_timeout();
        if let Some(at) = wanted
            && node.timer.is_none_or(|timer| at < timer)
        {
            node.timer = Some(at);
            self.schedule(at, Event::Timer(daemon));
        }
    }

    /// Floods a cost update. Control messages bypass the queues.
    fn flood(&mut self, origin: DaemonId, update: CostUpdate) {
        let body = Body::Control(Control::Cost(update));
        let message = Message {
            origin,
            repaired: false,
            body,
        };
        let bytes = Frame::Segment {
            sequence: LinkSeq(0),
            message,
        }
        .wire_bytes();
        let topology = self.topology.clone();
        let mut open = vec![(origin, self.now)];
        while let Some((above, when)) = open.pop() {
            let tree = topology.tree(origin);
            for &(child, link) in topology.neighbours(above) {
                if tree.parent(child) != Some(above) {
                    continue;
                }
                let line = &mut self.lines[usize::from(link.0)];
                line.control_bytes += u64::from(bytes);
                let heard = when + line.delay;
                self.schedule(heard, Event::UpdateArrives(child, origin, update));
                open.push((child, heard));
            }
        }
    }

    /// Puts a message into the queue of each link that leads to members.
    fn forward(&mut self, daemon: DaemonId, parcel: Parcel) {
        let topology = self.topology.clone();
        let tree = topology.tree(parcel.origin);
        for &(next, link) in topology.neighbours(daemon) {
            let groups = &self.node(daemon).site.groups;
            if tree.parent(next) == Some(daemon)
                && groups
                    .daemons(parcel.group)
                    .any(|member| tree.is_below(next, member))
            {
                self.lines[usize::from(link.0)].queue.push_back(parcel);
                self.refill(daemon, link);
            }
        }
    }

    /// Moves messages from a link's queue into its transport while there is room, and reports the
    /// queue to the controller.
    fn refill(&mut self, daemon: DaemonId, link: LinkId) {
        let now = self.now;
        let line = &mut self.lines[usize::from(link.0)];
        let idle = line.transport.is_empty();
        while line.transport.len() < line.room
            && let Some(parcel) = line.queue.pop_front()
        {
            line.transport.push_back(parcel);
        }
        line.peak = line.peak.max(line.queue.len());
        let (waiting, busy, done) = (
            line.queue.len(),
            !line.transport.is_empty(),
            now + line.per_message,
        );
        if idle && busy {
            self.schedule(done, Event::Sent(link));
        }
        self.node(daemon).controller.on_queue(now, link, waiting);
        self.drain(daemon);
    }

    fn finish_transmission(&mut self, link: LinkId) {
        let (from, to) = self.topology.ends(link).expect("the link exists");
        let line = &mut self.lines[usize::from(link.0)];
        let parcel = line
            .transport
            .pop_front()
            .expect("a message was in transmission");
        line.sent += 1;
        let (arrival, next) = (self.now + line.delay, self.now + line.per_message);
        let more = !line.transport.is_empty();
        self.schedule(arrival, Event::MessageArrives(to, parcel));
        if more {
            self.schedule(next, Event::Sent(link));
        }
        self.refill(from, link);
    }
}

impl Line {
    fn new(span: &Span) -> Line {
        let per_message = f64::from(MESSAGE_BYTES) * 8.0 / (span.2 * 1e6);
        let round_trip_s = 2.0 * span.3 as f64 / 1e3;
        Line {
            per_message: Duration::from_secs_f64(per_message),
            delay: Duration::from_millis(span.3),
            transport: VecDeque::new(),
            room: TRANSPORT_MESSAGES + (round_trip_s / per_message) as usize,
            queue: VecDeque::new(),
            peak: 0,
            sent: 0,
            control_bytes: 0,
        }
    }

    /// Halves the rate from now on.
    pub(crate) fn halve(&mut self) {
        self.per_message *= 2;
    }
}
