//! Looking inside one run: captures of links, and traces.

use std::collections::BTreeSet;
use std::io::{self, Write};

use manyflow_core::{EndpointId, Event, Packet, Time};

use super::build::World;
use super::cells::{Cell, Scenario};
use super::error::{Fault, Problem};
use super::observe::Recorder;
use super::sessions::Session;
use super::topology::Topology;
use crate::capture::{Addresses, Capture, Connection};
use crate::trace::{Names, Trace};
use crate::{Incident, LinkId, NodeId, Observer};

/// What is written of a run while it goes on; by default nothing. Writers are called for each packet or line: buffer them.
#[derive(Default)]
pub struct Inspection<'a> {
    /// A capture file in pcap format, of the packets that these links deliver.
    pub capture: Option<(BTreeSet<LinkId>, &'a mut dyn Write)>,
    /// Events of protocols and links, one JSON object a line.
    pub trace: Option<&'a mut dyn Write>,
}

impl Scenario {
    /// The links of a cell that these names stand for. The name of an entry means its links in both directions, `A-B` one.
    /// Without names it is the only link that is limited in its rate, or the only link, in both directions.
    ///
    /// # Errors
    /// An unknown name; or no name where several links could be meant.
    pub fn links_to_capture(
        &self,
        cell: usize,
        names: &[String],
    ) -> Result<BTreeSet<LinkId>, Problem> {
        let cell = self.cell(cell).map_err(|error| error.problem)?;
        let topology = Topology::new(&cell.schema).map_err(|fault| fault.problem)?;
        if names.is_empty() {
            return Ok(topology.bottleneck()?.into_iter().map(LinkId).collect());
        }
        let mut chosen = BTreeSet::new();
        for name in names {
            chosen.extend(topology.both_directions(name)?.into_iter().map(LinkId));
        }
        Ok(chosen)
    }
}

/// Writes what an [`Inspection`] asks for.
#[derive(Default)]
pub(super) struct Inspector<'a> {
    capture: Option<Capture<'a>>,
    trace: Option<Trace<'a>>,
    /// What could not be written first; nothing is written after it.
    failure: Option<(&'static str, io::Error)>,
}

impl<'a> Inspector<'a> {
    /// # Errors
    /// Where a capture cannot be begun.
    pub(super) fn new(
        inspection: Inspection<'a>,
        cell: &Cell,
        world: &mut World,
    ) -> Result<Inspector<'a>, Fault> {
        let mut inspector = Inspector::default();
        if let Some((links, out)) = inspection.capture {
            links.iter().for_each(|&link| world.network.tap(link));
            let addresses = addresses(cell, world)?;
            let capture = Capture::new(links, addresses, out);
            inspector.capture = Some(capture.map_err(|error| unwritten("capture", &error))?);
        }
        if let Some(out) = inspection.trace {
            world.network.trace();
            inspector.trace = Some(Trace::new(names(cell, world), out));
        }
        Ok(inspector)
    }

    /// Writes what is left in buffers.
    ///
    /// # Errors
    /// What could not be written.
    pub(super) fn finish(mut self) -> Result<(), Fault> {
        let captured = self.capture.as_mut().map_or(Ok(()), Capture::flush);
        self.note("capture", captured);
        let traced = self.trace.as_mut().map_or(Ok(()), Trace::flush);
        self.note("trace", traced);
        match self.failure {
            Some((what, error)) => Err(unwritten(what, &error)),
            None => Ok(()),
        }
    }

    /// Keeps the first failure and ends its output.
    fn note(&mut self, what: &'static str, written: io::Result<()>) {
        if let Err(error) = written {
            self.failure.get_or_insert((what, error));
            (self.capture, self.trace) = (None, None);
        }
    }
}

fn unwritten(what: &str, error: &io::Error) -> Fault {
    Fault::value(format!("cannot write the {what}: {error}"))
}

/// A run's two observers.
pub(super) struct Watchers<'r, 'a> {
    pub(super) recorder: &'r mut Recorder,
    pub(super) inspector: &'r mut Inspector<'a>,
}

impl Observer for Watchers<'_, '_> {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &Event) {
        self.recorder.on_event(now, endpoint, event);
        if let Some(trace) = &mut self.inspector.trace {
            let written = trace.on_event(now, endpoint, event);
            self.inspector.note("trace", written);
        }
    }

    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet) {
        self.recorder.on_tapped(now, link, packet);
        if let Some(capture) = &mut self.inspector.capture {
            let written = capture.on_tapped(now, link, packet);
            self.inspector.note("capture", written);
        }
    }

    fn on_incident(&mut self, now: Time, incident: &Incident) {
        if let Some(trace) = &mut self.inspector.trace {
            let written = trace.on_incident(now, incident);
            self.inspector.note("trace", written);
        }
    }
}

fn addresses(cell: &Cell, world: &World) -> Result<Addresses, Fault> {
    let mut connections = Vec::new();
    for (session, members) in world.sessions.0.iter().zip(&world.members) {
        let segment_bytes = cell.schema.sessions[session.table]
            .tcp
            .config()
            .segment_bytes;
        for (receiver, member) in session.receivers.iter().zip(members) {
            // Of a multicast session there are no sending ends.
            for (sending, receiving) in member.sending().zip(member.receiving()) {
                let sender = (sending, NodeId(session.sender));
                let receiver = (receiving, NodeId(receiver.node));
                connections.push(Connection {
                    ends: [sender, receiver],
                    segment_bytes,
                });
            }
        }
    }
    let multicast = multicast_sessions(cell, world);
    let sources: Vec<_> = multicast.map(|session| NodeId(session.sender)).collect();
    let nodes = world.topology.nodes.len();
    let staff: Vec<_> = world.staff.iter().flatten().copied().collect();
    Addresses::new(nodes, &connections, &staff, &sources).map_err(Fault::value)
}

fn names(cell: &Cell, world: &World) -> Names {
    let count = world.network.next_endpoint().0 as usize;
    let mut endpoints = vec![(String::new(), String::new()); count];
    for (session, members) in world.sessions.0.iter().zip(&world.members) {
        let sender = world.topology.nodes.get(session.sender);
        for (receiver, member) in session.receivers.iter().zip(members) {
            let node = world.topology.nodes.get(receiver.node);
            let of = format!("{}/{node}", session.name);
            let sending = member.sending().map(|id| (id, sender));
            let receiving = member.receiving().map(|id| (id, node));
            for (id, node) in sending.chain(receiving) {
                endpoints[id.0 as usize] = (node.to_owned(), of.clone());
            }
        }
    }
    for (session, staff) in world.sessions.0.iter().zip(&world.staff) {
        for (id, node) in staff {
            let node = world.topology.nodes.get(node.0);
            endpoints[id.0 as usize] = (node.to_owned(), session.name.clone());
        }
    }
    let links = 0..world.topology.links.len() as u32;
    Names {
        endpoints,
        sessions: multicast_sessions(cell, world)
            .map(|session| session.name.clone())
            .collect(),
        links: links.map(|link| world.topology.link_name(link)).collect(),
    }
}

/// The sessions that the network numbers, in that order.
fn multicast_sessions<'w>(cell: &'w Cell, world: &'w World) -> impl Iterator<Item = &'w Session> {
    let protocol = |session: &Session| cell.schema.sessions[session.table].protocol;
    let sessions = world.sessions.0.iter();
    sessions.filter(move |session| protocol(session).is_multicast())
}
