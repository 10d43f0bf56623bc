//! Looking inside one run: captures of links, and traces.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use manyflow_core::{EndpointId, Time};
use manyflow_overlay::DaemonId;

use crate::error::{Fault, Problem};
use crate::file::cells::{Cell, Scenario};
use crate::plan::sessions::Session;
use crate::plan::topology::Topology;
use crate::protocols::{AnyEvent, AnyHeader, Packet};
use crate::record::Recorder;
use crate::scene::Scene;
use manyflow_netsim::capture::{Addresses, Capture, End};
use manyflow_netsim::trace::{Names, Trace};
use manyflow_netsim::{Incident, LinkId, NodeId, Observer};

/// What is written and told of a run while it goes on; by default nothing. Writers are called for
/// each packet or line: buffer them.
#[derive(Default)]
pub struct Inspection<'a> {
    /// A capture file in pcap format, of the packets that these links deliver.
    pub capture: Option<(BTreeSet<LinkId>, &'a mut dyn Write)>,
    /// Events of protocols and links, one JSON object a line.
    pub trace: Option<&'a mut dyn Write>,
    /// Hears now and then how much more time was simulated.
    pub progress: Option<&'a mut dyn FnMut(Duration)>,
}

/// How often a run tells of its progress.
const PROGRESS_STEPS: u32 = 100;

impl Scenario {
    /// The links of a cell that these names stand for. The name of an entry means its links in both
    /// directions, `A-B` one. Without names it is the only link that is limited in its rate, or the
    /// only link, in both directions.
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
pub(crate) struct Inspector<'a> {
    capture: Option<Capture<'a>>,
    trace: Option<Trace<'a>>,
    progress: Option<&'a mut dyn FnMut(Duration)>,
    /// Simulated time after which progress is told.
    step: Duration,
    /// Simulated time that has not been told.
    untold: Duration,
    /// What could not be written first; nothing is written after it.
    failure: Option<(&'static str, io::Error)>,
}

impl<'a> Inspector<'a> {
    /// # Errors
    /// Where a capture cannot be begun.
    pub(crate) fn new(
        inspection: Inspection<'a>,
        cell: &Cell,
        scene: &mut Scene,
    ) -> Result<Inspector<'a>, Fault> {
        let duration = cell.schema.run.duration.duration();
        let mut inspector = Inspector {
            progress: inspection.progress,
            step: (duration / PROGRESS_STEPS).max(Duration::from_nanos(1)),
            ..Inspector::default()
        };
        if let Some((links, out)) = inspection.capture {
            links.iter().for_each(|&link| scene.network.tap(link));
            let addresses = addresses(cell, scene)?;
            let capture = Capture::new(links, addresses, out);
            inspector.capture = Some(capture.map_err(|error| unwritten("capture", &error))?);
        }
        if let Some(out) = inspection.trace {
            scene.network.trace();
            inspector.trace = Some(Trace::new(names(scene), out));
        }
        Ok(inspector)
    }

    /// For how long a network may run until it is to be asked for its progress.
    pub(crate) fn step(&self) -> Duration {
        self.step
    }

    /// So much more time was simulated.
    pub(crate) fn advance(&mut self, passed: Duration) {
        self.untold += passed;
        if self.untold >= self.step
            && let Some(progress) = &mut self.progress
        {
            progress(core::mem::take(&mut self.untold));
        }
    }

    /// Writes what is left in buffers.
    ///
    /// # Errors
    /// What could not be written.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        if let Some(progress) = &mut self.progress {
            progress(self.untold);
        }
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
pub(crate) struct Watchers<'r, 'a> {
    pub(crate) recorder: &'r mut Recorder,
    pub(crate) inspector: &'r mut Inspector<'a>,
}

impl Observer<AnyHeader, AnyEvent> for Watchers<'_, '_> {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &AnyEvent) {
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

    fn on_incident(&mut self, now: Time, incident: &Incident<AnyHeader>) {
        if let Some(trace) = &mut self.inspector.trace {
            let written = trace.on_incident(now, incident);
            self.inspector.note("trace", written);
        }
    }
}

/// Everyone's address: WEBRC's receivers alone never send anything but joins.
fn addresses(cell: &Cell, scene: &Scene) -> Result<Addresses, Fault> {
    let mut ends: Vec<End> = daemons(scene)
        .map(|(endpoint, node, _)| End {
            endpoint,
            node,
            segment_bytes: 0,
        })
        .collect();
    for (index, session) in scene.plan.sessions.0.iter().enumerate() {
        let tcp = cell.schema.sessions[session.table].tcp.config();
        let end = |(endpoint, node)| End {
            endpoint,
            node,
            segment_bytes: tcp.segment_bytes,
        };
        ends.extend(scene.staff[index].iter().copied().map(end));
        if session.protocol.kind().receivers_send() {
            ends.extend(scene.hosts(index).map(|(id, node, _)| end((id, node))));
        }
    }
    let sources = multicast_sessions(scene).map(|session| NodeId(session.sender));
    let sources: Vec<_> = sources.collect();
    Addresses::new(scene.plan.topology.nodes.len(), ends, &sources).map_err(Fault::value)
}

/// The daemons of all overlays, with their nodes and their overlays' names.
fn daemons(scene: &Scene) -> impl Iterator<Item = (EndpointId, NodeId, &str)> {
    let overlays = scene.plan.overlays.0.iter().enumerate();
    overlays.flat_map(move |(index, overlay)| {
        overlay.nodes.iter().zip(0u16..).map(move |(node, daemon)| {
            let endpoint = scene.daemon(index, DaemonId(daemon));
            (endpoint, NodeId(*node), overlay.name.as_str())
        })
    })
}

/// The names of endpoints, sessions and links, as measures have them.
pub(crate) fn names(scene: &Scene) -> Names {
    let count = scene.network.next_endpoint().0 as usize;
    let mut endpoints = vec![(String::new(), String::new()); count];
    let node_name = |node: NodeId| scene.plan.topology.nodes.get(node.0).to_owned();
    for (id, node, overlay) in daemons(scene) {
        endpoints[id.0 as usize] = (node_name(node), overlay.to_owned());
    }
    for (index, session) in scene.plan.sessions.0.iter().enumerate() {
        for &(id, node) in &scene.staff[index] {
            endpoints[id.0 as usize] = (node_name(node), session.name.clone());
        }
        for (number, (id, node, receiver)) in scene.hosts(index).enumerate() {
            let of = scene.name_at(index as u32, receiver.0);
            if session.is_point_to_point() {
                let (id, node) = scene.staff[index][number];
                endpoints[id.0 as usize] = (node_name(node), of.clone());
            }
            endpoints[id.0 as usize] = (node_name(node), of);
        }
    }
    let links = 0..scene.plan.topology.links.len() as u32;
    Names {
        endpoints,
        sessions: multicast_sessions(scene)
            .map(|session| session.name.clone())
            .collect(),
        links: links
            .map(|link| scene.plan.topology.link_name(link))
            .collect(),
    }
}

/// The sessions that the network numbers, in that order.
fn multicast_sessions(scene: &Scene) -> impl Iterator<Item = &Session> {
    let sessions = scene.plan.sessions.0.iter();
    sessions.filter(|session| session.protocol.kind().is_multicast())
}
