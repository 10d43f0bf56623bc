//! Captures, traces and progress of one run.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use manyflow_core::{EndpointId, Time};
use manyflow_overlay::DaemonId;

use crate::plan::sessions::PlannedSession;
use crate::protocols::{AnyEvent, AnyHeader, Packet, kind};
use crate::record::feed::{Feed, SAMPLES, Watch};
use crate::record::recorder::Recorder;
use crate::scene::Scene;
use crate::schema::Cell;
use crate::world::World;
use manyflow_model::error::Fault;
use manyflow_netsim::capture::{Addresses, Capture, End};
use manyflow_netsim::trace::{Names, Trace};
use manyflow_netsim::{Halt, Incident, LinkId, NodeId, Observer};

/// The outputs of a run. By default there are none. Writers are called for each packet or line, so
/// they should be buffered.
#[derive(Default)]
pub struct Inspection<'a> {
    /// The links whose delivered packets are captured, and a writer for the pcap file.
    pub capture: Option<(BTreeSet<LinkId>, &'a mut dyn Write)>,
    /// A writer for events of protocols and links: one JSON object per line.
    pub trace: Option<&'a mut dyn Write>,
    /// A callback that receives the time that was simulated since its last call.
    pub progress: Option<&'a mut dyn FnMut(Duration)>,
    /// A callback that receives the series and links while they grow, some hundred times in a run.
    pub watch: Option<&'a mut Watch<'a>>,
}

/// The number of progress reports in a run.
const PROGRESS_STEPS: u32 = 100;

/// Writes the outputs of an [`Inspection`].
#[derive(Default)]
pub(crate) struct Inspector<'a> {
    capture: Option<Capture<'a>>,
    trace: Option<Trace<'a>>,
    progress: Option<&'a mut dyn FnMut(Duration)>,
    feed: Option<Feed<'a>>,
    /// The simulated time between progress reports or samples.
    step: Duration,
    /// The simulated time since the last progress report.
    unreported: Duration,
    /// The first output that could not be written, with its error. Nothing is written after it.
    failure: Option<(&'static str, io::Error)>,
}

impl<'a> Inspector<'a> {
    /// Begins the outputs.
    ///
    /// # Errors
    /// Returns an error if a capture cannot be begun.
    pub(crate) fn new(
        inspection: Inspection<'a>,
        cell: &Cell,
        recorder: &Recorder,
        scene: &mut Scene,
    ) -> Result<Inspector<'a>, Fault> {
        let duration = cell.schema.run.duration.duration();
        let feed = inspection.watch;
        let feed = feed.map(|watch| Feed::new(watch, recorder, scene));
        let steps = if feed.is_some() {
            SAMPLES
        } else {
            PROGRESS_STEPS
        };
        let mut inspector = Inspector {
            progress: inspection.progress,
            feed,
            step: (duration / steps).max(Duration::from_nanos(1)),
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

    /// Returns whether all events are written or watched.
    pub(crate) fn needs_all_events(&self) -> bool {
        self.trace.is_some() || self.feed.is_some()
    }

    /// Returns the maximum simulated time between calls of [`advance`](Inspector::advance).
    pub(crate) fn step(&self) -> Duration {
        self.step
    }

    /// Handles the passage of simulated time. Reports progress if it is due.
    pub(crate) fn advance(&mut self, passed: Duration) {
        self.unreported += passed;
        if self.unreported >= self.step
            && let Some(progress) = &mut self.progress
        {
            progress(core::mem::take(&mut self.unreported));
        }
    }

    /// Takes the last sample, and flushes the outputs.
    ///
    /// # Errors
    /// Returns the first error of an output.
    pub(crate) fn finish(
        mut self,
        recorder: &Recorder,
        network: &mut dyn World,
    ) -> Result<(), Fault> {
        if let Some(feed) = &mut self.feed {
            feed.sample(&recorder.probes, network, self.step, true);
        }
        if let Some(progress) = &mut self.progress {
            progress(self.unreported);
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

    /// Keeps the first error, and ends all outputs.
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

/// The reason why a run ended before its time.
pub(crate) enum Ended {
    Halted(Halt),
    /// The watcher of the run has stopped it.
    Stopped,
}

/// The two observers of a run.
pub(crate) struct Watchers<'r, 'a> {
    pub(crate) recorder: &'r mut Recorder,
    pub(crate) inspector: &'r mut Inspector<'a>,
}

impl Watchers<'_, '_> {
    /// Takes a sample, if one is due.
    ///
    /// # Errors
    /// Returns [`Ended::Stopped`] if the watcher of the run stops it.
    pub(super) fn sample(&mut self, network: &mut dyn World) -> Result<(), Ended> {
        let step = self.inspector.step;
        let Some(feed) = &mut self.inspector.feed else {
            return Ok(());
        };
        feed.sample(&self.recorder.probes, network, step, false);
        match feed.is_stopped() {
            true => Err(Ended::Stopped),
            false => Ok(()),
        }
    }
}

impl Observer<AnyHeader, AnyEvent> for Watchers<'_, '_> {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &AnyEvent) {
        self.recorder.on_event(now, endpoint, event);
        if let Some(feed) = &mut self.inspector.feed {
            feed.on_event(endpoint, event);
        }
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
        self.recorder.on_incident(now, incident);
        if let Some(trace) = &mut self.inspector.trace {
            let written = trace.on_incident(now, incident);
            self.inspector.note("trace", written);
        }
    }
}

/// Returns the addresses of all endpoints that send packets. WEBRC receivers are left out, because
/// they only join and leave.
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
        ends.extend(scene.staff(index).iter().copied().map(end));
        if kind(session.protocol).receivers_send() {
            ends.extend(scene.hosts(index).map(|(id, node, _)| end((id, node))));
        }
    }
    let sources = multicast_sessions(scene).map(|session| NodeId(session.sender));
    let sources: Vec<_> = sources.collect();
    Addresses::new(scene.plan.topology.nodes.len(), ends, &sources).map_err(Fault::value)
}

/// Returns the daemons of all overlays, with their nodes and the names of their overlays.
fn daemons(scene: &Scene) -> impl Iterator<Item = (EndpointId, NodeId, &str)> {
    let overlays = scene.plan.overlays.0.iter().enumerate();
    overlays.flat_map(move |(index, overlay)| {
        overlay.nodes.iter().zip(0u16..).map(move |(node, daemon)| {
            let endpoint = scene.daemon(index, DaemonId(daemon));
            (endpoint, NodeId(*node), overlay.name.as_str())
        })
    })
}

/// Returns the names of endpoints, sessions and links, as measures use them.
pub(crate) fn names(scene: &Scene) -> Names {
    let mut endpoints = vec![(String::new(), String::new()); scene.plan.endpoints];
    let node_name = |node: NodeId| scene.plan.topology.nodes.get(node.0).to_owned();
    for (id, node, overlay) in daemons(scene) {
        endpoints[id.0 as usize] = (node_name(node), overlay.to_owned());
    }
    for (index, session) in scene.plan.sessions.0.iter().enumerate() {
        for &(id, node) in scene.staff(index) {
            endpoints[id.0 as usize] = (node_name(node), session.name.clone());
        }
        for (number, (id, node, receiver)) in scene.hosts(index).enumerate() {
            let of = scene.name_at(index as u32, receiver.0);
            if session.is_point_to_point() {
                let (id, node) = scene.staff(index)[number];
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

/// Returns the multicast sessions, which the network numbers in this order.
fn multicast_sessions(scene: &Scene) -> impl Iterator<Item = &PlannedSession> {
    let sessions = scene.plan.sessions.0.iter();
    sessions.filter(|session| session.protocol.is_multicast())
}
