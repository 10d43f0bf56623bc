//! Daemons under Cost-Benefit, clients that always have a message ready, and links that lose no
//! messages. Each overlay link has the rate and the delay of its [`Span`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::{Contents, Destination, Ecn, EndpointId, Packet, Rate, Time};
use manyflow_netsim::models::overlay::{Application, ClientEndpoint, Source};
use manyflow_netsim::{NodeId, Probe};
use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::hop::{Arrival, Hop};
use manyflow_overlay::{DaemonId, Event, Frame, GroupId, LinkId, LinkSeq, Message};

use crate::world;

/// The bytes of a message of 1000 bytes with all headers.
pub(crate) const MESSAGE_BYTES: u32 = 1060;
const PAYLOAD: u32 = 1000;
const OVERHEAD: u32 = 40;
/// The number of messages that a link's transport holds besides those in transit. They are not in
/// the daemon's queue.
const TRANSPORT_MESSAGES: u64 = 3;
/// The time at which the first clients send, when all daemons know the members.
const FIRST: f64 = 0.2;

/// A link: its two ends, its rate in Mbit/s, and its delay in milliseconds.
pub(crate) type Span = (u16, u16, f64, u64);

/// One direction of an overlay link, which loses nothing.
#[derive(Debug)]
struct Line {
    /// The messages in the transport, which leave it at the link's rate.
    transport: Link<Packet<Frame>>,
    room: u64,
    /// The bytes of control messages since [`World::mark`]. They take no time on the link.
    control_bytes: u64,
    /// The number of messages that had been sent at [`World::mark`].
    marked: u64,
}

impl Line {
    fn new(span: &Span, seed: u64) -> Line {
        let per_message_s = f64::from(MESSAGE_BYTES) * 8.0 / (span.2 * 1e6);
        let round_trip_s = 2.0 * span.3 as f64 / 1e3;
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_s((span.2 * 1e6) as u64)),
            ..LinkConfig::default()
        };
        Line {
            transport: Link::new(config, seed),
            room: TRANSPORT_MESSAGES + (round_trip_s / per_message_s) as u64,
            control_bytes: 0,
            marked: 0,
        }
    }

    fn bits_per_s(&self) -> f64 {
        let rate = self.transport.config().rate;
        rate.expect("each line has a rate").bits_per_s() as f64
    }
}

type SharedLine = Arc<Mutex<Line>>;

fn lock(line: &SharedLine) -> MutexGuard<'_, Line> {
    line.lock().expect("no test has panicked")
}

/// A hop that sends over a line.
#[derive(Debug)]
struct Paced {
    line: SharedLine,
    control: VecDeque<Message>,
    arrived: VecDeque<Arrival<Contents>>,
}

fn segment(message: Message) -> Frame {
    let sequence = LinkSeq(0);
    Frame::Segment { sequence, message }
}

impl Hop<Contents> for Paced {
    fn overhead_bytes(&self) -> u32 {
        OVERHEAD
    }

    fn has_room(&self) -> bool {
        let line = lock(&self.line);
        line.transport.carried() < line.room
    }

    fn push(&mut self, now: Time, message: Message, payload: Contents) {
        let mut line = lock(&self.line);
        if message.is_data() {
            let anywhere = Destination::Endpoint(EndpointId::UNSET);
            let packet = Packet::new(anywhere, segment(message), payload);
            let pushed = line.transport.push(now, packet, MESSAGE_BYTES);
            pushed.expect("the transport has no limit of its own");
        } else {
            line.control_bytes += u64::from(message.wire_bytes() + OVERHEAD);
            self.control.push_back(message);
        }
    }

    fn handle_frame(&mut self, _now: Time, frame: &Frame, _ecn: Ecn, payload: Contents) {
        if let Frame::Segment { message, .. } = *frame {
            self.arrived.push_back(Arrival { message, payload });
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        lock(&self.line).transport.next_time()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, Contents)> {
        if let Some(message) = self.control.pop_front() {
            return Some((segment(message), Contents::default()));
        }
        let packet = lock(&self.line).transport.pop_ready(now)?;
        Some((packet.header, packet.payload()))
    }

    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<Contents>> {
        self.arrived.pop_front()
    }
}

pub(crate) struct World {
    overlay: world::World,
    lines: BTreeMap<LinkId, SharedLine>,
    clients: Vec<Probe<ClientEndpoint>>,
    marked: Time,
}

impl World {
    /// Returns a world of daemons and links. `groups` lists the daemons with members of groups 0, 1
    /// and so on.
    pub(crate) fn new(
        daemons: u16,
        spans: &[Span],
        groups: &[Vec<u16>],
        config: &CostBenefitConfig,
        seed: u64,
    ) -> World {
        let ends = |span: &Span| [(span.0, span.1), (span.1, span.0)];
        let both = spans
            .iter()
            .flat_map(|span| ends(span).map(|ends| (ends, span)));
        let lines = both.map(|((from, to), span)| {
            let link = LinkId {
                from: DaemonId(from),
                to: DaemonId(to),
            };
            (link, Arc::new(Mutex::new(Line::new(span, seed))))
        });
        let lines: BTreeMap<LinkId, SharedLine> = lines.collect();
        let hop = |link: LinkId| -> Box<dyn Hop<Contents>> {
            Box::new(Paced {
                line: lines[&link].clone(),
                control: VecDeque::new(),
                arrived: VecDeque::new(),
            })
        };
        let delay = |(a, b, _, delay_ms): &Span| {
            let link = LinkConfig {
                delay: Duration::from_millis(*delay_ms),
                ..LinkConfig::default()
            };
            (*a, *b, link)
        };
        let links: Vec<_> = spans.iter().map(delay).collect();
        let mut overlay = world::World::new(daemons, &links, hop, |here| {
            Box::new(CostBenefit::new(config.clone(), here, seed).expect("a budget"))
        });
        for (group, members) in (0..).zip(groups) {
            for daemon in members {
                let application = Application {
                    joins: Some(GroupId(group)),
                    ..Application::default()
                };
                let daemon = u32::from(*daemon);
                let member = ClientEndpoint::new(application, EndpointId(daemon), 0);
                overlay
                    .network
                    .add(NodeId(daemon), member.expect("a valid client"));
            }
        }
        World {
            overlay,
            lines,
            clients: Vec::new(),
            marked: Time::ZERO,
        }
    }

    /// Adds a client at a daemon that sends to a group from `start_s` on.
    pub(crate) fn client(&mut self, daemon: u16, group: u32, start_s: f64) {
        let source = Source {
            group: GroupId(group),
            message_bytes: PAYLOAD,
            rate: None,
            messages: None,
            layers: Vec::new(),
        };
        let application = Application {
            start: Time::from_secs_f64(start_s.max(FIRST)),
            sends: Some(source),
            ..Application::default()
        };
        let client = |daemon| ClientEndpoint::new(application, daemon, 0).expect("a valid client");
        self.clients.push(self.overlay.add_client(daemon, client));
    }

    pub(crate) fn run(&mut self, until_s: f64) {
        let until = Time::from_secs_f64(until_s);
        self.overlay
            .network
            .run_until(until, &mut ())
            .expect("time advances");
    }

    /// Resets all counts.
    pub(crate) fn mark(&mut self) {
        self.marked = self.overlay.network.now();
        for mut line in self.lines.values().map(lock) {
            line.control_bytes = 0;
            line.marked = line.transport.counters().delivered;
        }
        self.overlay.daemons.iter().for_each(Probe::clear_events);
        self.clients.iter().for_each(Probe::clear_events);
    }

    /// Returns the number of messages that each client has sent since [`World::mark`].
    pub(crate) fn sent(&self) -> Vec<u64> {
        let sent = Event::Sent { bytes: PAYLOAD };
        let clients = self.clients.iter();
        clients.map(|client| client.count(&sent) as u64).collect()
    }

    /// Returns the line from one daemon to another, and how many bits it can send in the time since
    /// [`World::mark`].
    fn line(&self, from: u16, to: u16) -> (MutexGuard<'_, Line>, f64) {
        let link = self.overlay.topology.link(DaemonId(from), DaemonId(to));
        let link = link.expect("the daemons are neighbours");
        let line = lock(&self.lines[&link]);
        let span = self.overlay.network.now() - self.marked;
        let bits = line.bits_per_s() * span.as_secs_f64();
        (line, bits)
    }

    /// Halves the rate of a link from now on.
    pub(crate) fn halve(&self, from: u16, to: u16) {
        let (mut line, _) = self.line(from, to);
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_s(line.bits_per_s() as u64 / 2)),
            ..LinkConfig::default()
        };
        line.transport
            .reconfigure(self.overlay.network.now(), config);
    }

    /// Returns the share of time for which a link was busy.
    pub(crate) fn utilisation(&self, from: u16, to: u16) -> f64 {
        let (line, bits) = self.line(from, to);
        let sent = line.transport.counters().delivered - line.marked;
        sent as f64 * f64::from(MESSAGE_BYTES) * 8.0 / bits
    }

    /// Returns the share of a link's capacity that control messages use.
    pub(crate) fn control_share(&self, from: u16, to: u16) -> f64 {
        let (line, bits) = self.line(from, to);
        line.control_bytes as f64 * 8.0 / bits
    }

    /// Returns the longest queue of any link since [`World::mark`], in messages.
    pub(crate) fn peak(&self) -> u32 {
        let events = self.overlay.daemons.iter().flat_map(Probe::events);
        let queues = events.filter_map(|(_, event)| match event {
            Event::Queue { messages, .. } => Some(messages),
            _ => None,
        });
        queues.max().unwrap_or(0)
    }
}
