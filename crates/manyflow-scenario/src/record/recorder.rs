//! The series of a run while they grow.

use std::collections::BTreeMap;
use std::ops::Range;

use manyflow_core::link::Dropped;
use manyflow_core::time::seconds;
use manyflow_core::{Destination, EndpointId, Time};

use super::audience::Audience;
use super::place::{Place, places, reporting_daemons};
use super::probe::Probe;
use crate::protocols::{AnyEvent, AnyHeader, Packet};
use crate::scene::Scene;
use crate::schema::Cell;
use crate::schema::{Observable, Subject};
use manyflow_model::Series;
use manyflow_model::error::Fault;
use manyflow_netsim::{Incident, LinkId, Observer};

/// Returns the length of an observable's intervals, or 0 for values at the times of events.
pub(super) fn interval_ns(what: Observable, bin_s: f64) -> u64 {
    match what.is_event() {
        true => 0,
        false => seconds(bin_s).as_nanos() as u64,
    }
}

/// Records the series of a run that measures and plots need.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(super) probes: Vec<Probe>,
    /// The range of probes for each interval, observable and name of a subject.
    pub(super) watched: BTreeMap<(u64, Observable, String), Range<usize>>,
    /// The probes that depend on the events of each endpoint.
    by_endpoint: Vec<Vec<u32>>,
    by_link: BTreeMap<LinkId, Vec<u32>>,
    /// The probes that count the packets to each endpoint that are dropped or lost.
    by_destination: BTreeMap<EndpointId, Vec<u32>>,
    pub(super) audiences: Vec<Audience>,
    /// The audiences of each endpoint, each with the index of the endpoint's receiver there.
    by_listener: BTreeMap<EndpointId, Vec<(u32, u32)>>,
}

impl Recorder {
    /// Creates probes for everything that the measures and plots of a cell need.
    pub(crate) fn new(cell: &Cell, scene: &mut Scene) -> Result<Recorder, Fault> {
        let mut recorder = Recorder::default();
        let common = cell.schema.run.bin;
        for measure in &cell.schema.measure {
            for of in measure.of.0.iter().filter(|_| measure.what.is_some()) {
                let what = measure
                    .what
                    .expect("measures without an observable are filtered out");
                recorder.watch(scene, what, of, measure.bin.unwrap_or(common).0)?;
            }
            if let Some(against) = &measure.against {
                for of in &against.of.0 {
                    recorder.watch(scene, against.what, of, measure.bin.unwrap_or(common).0)?;
                }
            }
        }
        for series in cell.schema.plots.iter().flat_map(|plot| &plot.series) {
            let bin = series.bin.unwrap_or(common).0;
            recorder.watch(scene, series.what, &series.of, bin)?;
        }
        Ok(recorder)
    }

    fn watch(
        &mut self,
        scene: &mut Scene,
        what: Observable,
        of: &str,
        bin_s: f64,
    ) -> Result<(), Fault> {
        let bin_ns = interval_ns(what, bin_s);
        let key = (bin_ns, what, of.to_owned());
        if self.watched.contains_key(&key) {
            return Ok(());
        }
        let places = match what.subject() {
            Subject::Audience => vec![self.add_audience(scene, of)?],
            _ => places(scene, what, of)?,
        };
        let first = self.probes.len();
        self.watched.insert(key, first..first + places.len());
        self.probes.reserve_exact(places.len());
        for subject in places {
            self.attach(scene, what, subject);
            self.probes.push(Probe::new(scene, what, subject, bin_ns));
        }
        Ok(())
    }

    /// Adds an audience. Each observable needs its own, because an audience counts per interval.
    fn add_audience(&mut self, scene: &mut Scene, of: &str) -> Result<Place, Fault> {
        let receivers = places(scene, Observable::ReceivedRate, of)?;
        let receivers = receivers.into_iter().filter_map(|place| match place {
            Place::Receiver(session, receiver) => Some((session, receiver)),
            _ => None,
        });
        let audience = Audience::new(of, &receivers.collect::<Vec<_>>(), scene);
        let number = self.audiences.len() as u32;
        for (listener, endpoints) in audience.endpoints(scene).into_iter().enumerate() {
            for endpoint in endpoints {
                let entry = self.by_listener.entry(endpoint).or_default();
                entry.push((number, listener as u32));
            }
        }
        self.audiences.push(audience);
        Ok(Place::Audience(number))
    }

    /// Connects the next probe to its events and packets.
    fn attach(&mut self, scene: &mut Scene, what: Observable, subject: Place) {
        let number = self.probes.len() as u32;
        match subject {
            Place::Receiver(session, receiver) if what.is_of_lost_packets() => {
                self.watch_losses(scene, scene.ends(session, receiver).receiving(), number);
                // Receivers of multicast sessions report what they miss.
                for endpoint in scene.ends(session, receiver).receiving() {
                    self.connect(endpoint, number);
                }
            }
            Place::Staff(session, node) if what.is_of_lost_packets() => {
                let here: Vec<_> = scene.staff_at(session, node).collect();
                self.watch_losses(scene, here.into_iter(), number);
            }
            Place::Pair(session, _, receiver) => {
                for endpoint in scene.ends(session, receiver).receiving() {
                    self.connect(endpoint, number);
                }
            }
            Place::Receiver(session, receiver) if what.is_reported() => {
                for (endpoint, _) in scene.ends(session, receiver).all() {
                    self.connect(endpoint, number);
                }
            }
            Place::Sender(session) => {
                for &(id, _) in scene.staff(session as usize) {
                    self.connect(id, number);
                }
            }
            Place::Staff(session, node) if what.is_reported() => {
                for id in scene.staff_at(session, node) {
                    self.connect(id, number);
                }
            }
            Place::Client(session, client) => {
                let (id, _) = scene.staff(session as usize)[client as usize];
                self.connect(id, number);
            }
            Place::Daemon(overlay, daemon) if what.is_reported() => {
                self.connect(scene.daemon(overlay as usize, daemon), number);
            }
            Place::OverlayLink(overlay, link) => {
                self.connect(scene.daemon(overlay as usize, link.from), number);
            }
            Place::Group(_) | Place::Reporter(..) => {
                for id in reporting_daemons(scene, what, subject) {
                    self.connect(id, number);
                }
            }
            Place::Link(link)
                if matches!(what, Observable::ChannelRate | Observable::ControlRate) =>
            {
                scene.network.tap(LinkId(link));
                self.by_link.entry(LinkId(link)).or_default().push(number);
            }
            _ => {}
        }
    }

    /// Connects the incidents of packets to endpoints with a probe.
    fn watch_losses(
        &mut self,
        scene: &mut Scene,
        endpoints: impl Iterator<Item = EndpointId>,
        probe: u32,
    ) {
        scene.network.trace();
        for endpoint in endpoints {
            self.by_destination.entry(endpoint).or_default().push(probe);
        }
    }

    /// Connects an endpoint's events to a probe.
    fn connect(&mut self, endpoint: EndpointId, probe: u32) {
        let index = endpoint.0 as usize;
        if self.by_endpoint.len() <= index {
            self.by_endpoint.resize_with(index + 1, Vec::new);
        }
        self.by_endpoint[index].push(probe);
    }

    /// Mutes the endpoints whose events no probe needs.
    pub(crate) fn mute_others(&self, scene: &mut Scene) {
        for id in (0..scene.plan.endpoints as u32).map(EndpointId) {
            let probes = self.by_endpoint.get(id.0 as usize);
            let is_unheard = probes.is_none_or(Vec::is_empty);
            if is_unheard && !self.by_listener.contains_key(&id) {
                scene.network.mute(id);
            }
        }
    }

    /// Ends an interval of a probe.
    pub(super) fn end_interval(&mut self, probe: usize, scene: &mut Scene, now: Time) {
        let probe = &mut self.probes[probe];
        match probe.subject {
            Place::Audience(number) => probe.measure(&mut self.audiences[number as usize], scene),
            _ => probe.sample(scene, now),
        }
    }

    /// Returns the series of an observable for one `of`. Each series is made on demand.
    pub(crate) fn series(
        &self,
        scene: &Scene,
        what: Observable,
        of: &str,
        bin_s: f64,
    ) -> impl Iterator<Item = Series> {
        let key = (interval_ns(what, bin_s), what, of.to_owned());
        let probes = self.watched.get(&key).cloned().unwrap_or_default();
        self.probes[probes]
            .iter()
            .flat_map(|probe| probe.series(probe.subject.name(scene, &self.audiences)))
    }
}

impl Observer<AnyHeader, AnyEvent> for Recorder {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &AnyEvent) {
        let concerned = self.by_endpoint.get(endpoint.0 as usize);
        for &probe in concerned.into_iter().flatten() {
            self.probes[probe as usize].on_event(now, event);
        }
        for &(audience, listener) in self.by_listener.get(&endpoint).into_iter().flatten() {
            self.audiences[audience as usize].on_event(now, listener as usize, event);
        }
    }

    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet) {
        for &probe in self.by_link.get(&link).into_iter().flatten() {
            self.probes[probe as usize].on_tapped(now, packet);
        }
    }

    fn on_incident(&mut self, _now: Time, incident: &Incident<AnyHeader>) {
        let (packet, is_drop) = match incident {
            Incident::Dropped(_, why, packet) => (packet, *why != Dropped::Cut),
            Incident::Lost(_, packet) => (packet, false),
            _ => return,
        };
        let Destination::Endpoint(id) = packet.destination else {
            return;
        };
        for &probe in self.by_destination.get(&id).into_iter().flatten() {
            self.probes[probe as usize].on_lost(is_drop);
        }
    }
}
