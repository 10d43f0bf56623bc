//! Watching a run: which series the measures and plots need, and how they are recorded.

mod place;

use std::collections::BTreeMap;
use std::ops::Range;

use manyflow_core::link::Counters;
use manyflow_core::time::seconds;
use manyflow_core::{Destination, EndpointId, Time};

pub(crate) use place::Topic;
use place::{Place, daemons_that_tell, places};

use super::audience::Audience;
use super::build::World;
use super::cells::Cell;
use super::error::Fault;
use super::inspect::{Inspector, Watchers};
use super::observables::{Observable, Subject};
use super::protocols::{AnyEvent, AnyHeader, Network, Observed, Packet};
use manyflow_netsim::{Halt, LinkId, Observer};

/// Values of one observable of one receiver or link over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What was observed.
    pub what: Observable,
    /// The session and the receiver's node, `webrc/R`, or the link, `A-B`.
    pub of: String,
    /// For a rate on a multicast channel: its number.
    pub channel: Option<u16>,
    /// The length of the intervals in seconds; `None` where a value stands at the time of its
    /// event.
    pub bin_s: Option<f64>,
    /// Times in seconds, of an interval its end, and values in the observable's unit.
    pub points: Vec<(f64, f64)>,
    /// When a level ends, in seconds and in order: its receiver left, or its connection ended. It
    /// has no value until the next point.
    pub ends_s: Vec<f64>,
}

impl Series {
    /// Whether each value stands until the next one.
    pub(crate) fn is_level(&self) -> bool {
        self.bin_s.is_none() && self.what.is_level()
    }
}

/// The length of an observable's intervals; values at the times of events have none.
fn interval_ns(what: Observable, bin_s: f64) -> u64 {
    match what.is_event() {
        true => 0,
        false => seconds(bin_s).as_nanos() as u64,
    }
}

/// The series of a run, while they grow.
#[derive(Default)]
pub(crate) struct Recorder {
    probes: Vec<Probe>,
    /// The probes of an observable, by interval and by the name of what is observed.
    watched: BTreeMap<(u64, Observable, String), Range<usize>>,
    /// For each endpoint the probes that its events concern.
    by_endpoint: Vec<Vec<u32>>,
    by_link: BTreeMap<LinkId, Vec<u32>>,
    audiences: Vec<Audience>,
    /// For each endpoint the audiences that it is in, and the number of its receiver there.
    by_listener: BTreeMap<EndpointId, Vec<(u32, u32)>>,
}

/// The bits of a packet that is there for an overlay's own sake.
fn control_bits(packet: &Packet) -> f64 {
    match packet.header {
        AnyHeader::Overlay(frame) if frame.is_control() => f64::from(packet.wire_bytes()) * 8.0,
        _ => 0.0,
    }
}

/// One series while it grows. There may be one for each of a million receivers.
struct Probe {
    bin_ns: u64,
    what: Observable,
    subject: Place,
    topic: Topic,
    values: Vec<f64>,
    /// When each value was told; empty where values stand at the ends of intervals.
    times: Vec<f64>,
    /// When a level ends.
    ends_s: Vec<f64>,
    /// A count of events, or what is joined.
    count: f64,
    /// The count at the end of the last interval.
    last: f64,
    /// Of each multicast channel the bits in the present interval, and times and values.
    channels: BTreeMap<u16, (f64, Vec<(f64, f64)>)>,
}

/// Runs a network until `end`, with pauses in which its progress is told, and which change nothing.
fn advance(network: &mut Network, end: Time, watchers: &mut Watchers) -> Result<(), Halt> {
    loop {
        let began = network.now();
        let next = end.min(began + watchers.inspector.step());
        network.run_until(next, watchers)?;
        watchers.inspector.advance(next - began);
        if next == end {
            return Ok(());
        }
    }
}

impl Recorder {
    /// Watches what the measures and plots of a cell need.
    pub(crate) fn new(cell: &Cell, world: &mut World) -> Result<Recorder, Fault> {
        let mut recorder = Recorder::default();
        let common = cell.schema.run.bin;
        for measure in &cell.schema.measure {
            for of in measure.of.0.iter().filter(|_| measure.what.is_some()) {
                let what = measure.what.expect("filtered for it");
                recorder.watch(world, what, of, measure.bin.unwrap_or(common).0)?;
            }
            if let Some(against) = &measure.against {
                for of in &against.of.0 {
                    recorder.watch(world, against.what, of, measure.bin.unwrap_or(common).0)?;
                }
            }
        }
        for series in cell.schema.plots.iter().flat_map(|plot| &plot.series) {
            let bin = series.bin.unwrap_or(common).0;
            recorder.watch(world, series.what, &series.of, bin)?;
        }
        Ok(recorder)
    }

    fn watch(
        &mut self,
        world: &mut World,
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
            Subject::Audience => vec![self.add_audience(world, of)?],
            _ => places(world, what, of)?,
        };
        let first = self.probes.len();
        self.watched.insert(key, first..first + places.len());
        self.probes.reserve_exact(places.len());
        for subject in places {
            self.attach(world, what, subject);
            self.probes.push(Probe {
                bin_ns,
                what,
                subject,
                topic: Topic::of(world, what, subject),
                values: Vec::new(),
                times: Vec::new(),
                ends_s: match what.is_level() {
                    true => subject.ends_s(world),
                    false => Vec::new(),
                },
                count: 0.0,
                last: 0.0,
                channels: BTreeMap::new(),
            });
        }
        Ok(())
    }

    /// Each observable has an audience of its own, which counts from interval to interval.
    fn add_audience(&mut self, world: &mut World, of: &str) -> Result<Place, Fault> {
        let receivers = places(world, Observable::ReceivedRate, of)?;
        let receivers = receivers.into_iter().filter_map(|place| match place {
            Place::Receiver(session, receiver) => Some((session, receiver)),
            _ => None,
        });
        let audience = Audience::new(of, &receivers.collect::<Vec<_>>(), world);
        let number = self.audiences.len() as u32;
        for (listener, endpoints) in audience.endpoints(world).into_iter().enumerate() {
            for endpoint in endpoints {
                let entry = self.by_listener.entry(endpoint).or_default();
                entry.push((number, listener as u32));
            }
        }
        self.audiences.push(audience);
        Ok(Place::Audience(number))
    }

    /// Leads events and packets to the probe that is going to be the next.
    fn attach(&mut self, world: &mut World, what: Observable, subject: Place) {
        let number = self.probes.len() as u32;
        match subject {
            Place::Receiver(session, receiver) if what.is_told() => {
                for endpoint in world.member(session, receiver).all() {
                    self.hear(endpoint, number);
                }
            }
            Place::Sender(session) => {
                for &(id, _) in &world.staff[session as usize] {
                    self.hear(id, number);
                }
            }
            Place::Staff(session, node) if what.is_told() => {
                for id in world.staff_at(session, node) {
                    self.hear(id, number);
                }
            }
            Place::Client(session, client) => {
                let (id, _) = world.staff[session as usize][client as usize];
                self.hear(id, number);
            }
            Place::Daemon(overlay, daemon) if what.is_told() => {
                self.hear(world.daemon(overlay as usize, daemon), number);
            }
            Place::OverlayLink(overlay, link) => {
                let (overlay, links) = (overlay as usize, &world.overlays.0[overlay as usize]);
                let (from, _) = links.topology.ends(link).expect("it was found by its name");
                self.hear(world.daemon(overlay, from), number);
            }
            Place::Group(_) | Place::Reporter(..) => {
                for id in daemons_that_tell(world, what, subject) {
                    self.hear(id, number);
                }
            }
            Place::Link(link)
                if matches!(what, Observable::ChannelRate | Observable::ControlRate) =>
            {
                world.network.tap(LinkId(link));
                self.by_link.entry(LinkId(link)).or_default().push(number);
            }
            _ => {}
        }
    }

    /// Leads an endpoint's events to a probe.
    fn hear(&mut self, endpoint: EndpointId, probe: u32) {
        let index = endpoint.0 as usize;
        if self.by_endpoint.len() <= index {
            self.by_endpoint.resize_with(index + 1, Vec::new);
        }
        self.by_endpoint[index].push(probe);
    }

    /// Runs the network to its end and records. It pauses at each change, so that what lies between
    /// is all alike.
    ///
    /// # Errors
    /// Where the network gives up.
    pub(super) fn run(
        &mut self,
        world: &mut World,
        end: Time,
        inspector: &mut Inspector,
    ) -> Result<(), Halt> {
        let mut bins: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, probe) in self.probes.iter().enumerate() {
            if probe.bin_ns > 0 {
                bins.entry(probe.bin_ns).or_default().push(index);
            }
        }
        let next = |bin: u64, now: Time| Time::from_nanos((now.as_nanos() / bin + 1) * bin);
        let mut now = Time::ZERO;
        while now < end {
            let ends = bins.keys().map(|&bin| next(bin, now));
            let until = ends.chain(world.schedule.next_time()).min();
            let until = until.unwrap_or(end).min(end);
            world.schedule.announce(&mut world.network, until);
            for audience in &mut self.audiences {
                audience.advance(&world.network, now, until);
            }
            now = until;
            let mut watchers = Watchers {
                recorder: self,
                inspector,
            };
            advance(&mut world.network, now, &mut watchers)?;
            let over = bins.iter().filter(|(bin, _)| is_end(**bin, now));
            for &probe in over.flat_map(|(_, probes)| probes) {
                self.end_interval(probe, world, now);
            }
        }
        Ok(())
    }

    fn end_interval(&mut self, probe: usize, world: &mut World, now: Time) {
        let probe = &mut self.probes[probe];
        let Place::Audience(number) = probe.subject else {
            probe.sample(world, now);
            return;
        };
        let audience = &mut self.audiences[number as usize];
        probe.values.push(match probe.what {
            Observable::Efficiency => audience.efficiency(world),
            _ => audience.instability(),
        });
    }

    /// The series of an observable, of one `of`; each is made when it is asked for.
    pub(crate) fn series(
        &self,
        world: &World,
        what: Observable,
        of: &str,
        bin_s: f64,
    ) -> impl Iterator<Item = Series> {
        let key = (interval_ns(what, bin_s), what, of.to_owned());
        let probes = self.watched.get(&key).cloned().unwrap_or_default();
        self.probes[probes]
            .iter()
            .flat_map(|probe| probe.series(probe.subject.name(world, &self.audiences)))
    }
}

/// Whether an interval of this length ends now.
fn is_end(bin_ns: u64, now: Time) -> bool {
    now > Time::ZERO && now.as_nanos().is_multiple_of(bin_ns)
}

impl Probe {
    /// Ends an interval.
    fn sample(&mut self, world: &mut World, now: Time) {
        let time_s = now.as_secs_f64();
        let bin_s = self.bin_ns as f64 / 1e9;
        if self.what == Observable::ChannelRate {
            for (bits, points) in self.channels.values_mut() {
                points.push((time_s, std::mem::take(bits) / bin_s));
            }
            return;
        }
        let total = self.total(world);
        let value = match self.what {
            Observable::Queue => total,
            Observable::OverlayQueue => std::mem::take(&mut self.count),
            Observable::ReceivedRate
            | Observable::Goodput
            | Observable::LinkRate
            | Observable::SentRate
            | Observable::ControlRate => (total - self.last) / bin_s,
            Observable::Utilisation => (total - self.last) / bin_s / self.capacity(&world.network),
            _ => total - self.last,
        };
        self.last = total;
        self.values.push(value);
    }

    /// What has been counted so far.
    fn total(&self, world: &mut World) -> f64 {
        let link = match self.subject {
            Place::Link(_) if self.what == Observable::ControlRate => return self.count,
            Place::Link(link) => LinkId(link),
            Place::Daemon(overlay, daemon) => {
                let endpoint = world.daemon(overlay as usize, daemon);
                return self.received(world, std::iter::once(endpoint));
            }
            Place::Sender(_)
            | Place::Audience(_)
            | Place::Client(..)
            | Place::OverlayLink(..)
            | Place::Group(_)
            | Place::Reporter(..) => return self.count,
            Place::Receiver(session, receiver) => {
                return self.received(world, world.member(session, receiver).receiving());
            }
            Place::Staff(session, node) => {
                return self.received(world, world.staff_at(session, node));
            }
        };
        let counters: Counters = world.network.link_counters(link);
        match self.what {
            Observable::Queue => world.network.queue_packets(link) as f64,
            Observable::DeliveredPackets => counters.delivered as f64,
            Observable::Drops => counters.dropped as f64,
            Observable::Losses => counters.lost as f64,
            Observable::Marks => counters.marked as f64,
            _ => counters.delivered_bytes as f64 * 8.0,
        }
    }

    /// What has been counted at these endpoints so far, by the network or by their events.
    fn received(&self, world: &World, ends: impl Iterator<Item = EndpointId>) -> f64 {
        let received = ends.map(|id| world.network.received(id));
        match self.what {
            Observable::ReceivedRate => received.map(|all| all.bytes).sum::<u64>() as f64 * 8.0,
            Observable::ReceivedPackets => received.map(|all| all.packets).sum::<u64>() as f64,
            _ => self.count,
        }
    }

    /// The rate of the link; NaN, no number, where it has no limit.
    fn capacity(&self, network: &Network) -> f64 {
        let rate = match self.subject {
            Place::Link(link) => network.link_config(LinkId(link)).rate,
            _ => None,
        };
        rate.map_or(f64::NAN, |rate| rate.bits_per_s() as f64)
    }

    fn on_event(&mut self, now: Time, event: &AnyEvent) {
        if !event.is_about(self.topic) {
            return;
        }
        if self.what.is_level() && event.is_end() {
            self.ends_s.push(now.as_secs_f64());
        }
        let value = match event.observe(self.what) {
            None => return,
            Some(Observed::Value(value)) => value,
            Some(Observed::Step(by)) => {
                self.count += by;
                self.count
            }
            Some(Observed::Count(by)) => {
                self.count += by;
                return;
            }
            Some(Observed::AtLeast(value)) => {
                self.count = self.count.max(value);
                return;
            }
            Some(Observed::OfGroup(group, value)) => {
                let (_, points) = self.channels.entry(u16::from(group)).or_default();
                points.push((now.as_secs_f64(), value));
                return;
            }
        };
        self.times.push(now.as_secs_f64());
        self.values.push(value);
    }

    /// Times and values.
    fn points(&self) -> Vec<(f64, f64)> {
        let values = self.values.iter().copied();
        if self.bin_ns == 0 {
            return self.times.iter().copied().zip(values).collect();
        }
        let ends = (1..).map(|bin| Time::from_nanos(bin * self.bin_ns).as_secs_f64());
        let points = ends.zip(values);
        match self.what.subject() {
            // Where nobody is there, nothing is observed.
            Subject::Audience => points.filter(|(_, value)| !value.is_nan()).collect(),
            _ => points.collect(),
        }
    }

    fn series(&self, of: String) -> Vec<Series> {
        let bin_s = (self.bin_ns > 0).then_some(self.bin_ns as f64 / 1e9);
        let mut ends_s = self.ends_s.clone();
        ends_s.sort_by(f64::total_cmp);
        let series = |channel, points| Series {
            what: self.what,
            of: of.clone(),
            channel,
            bin_s,
            points,
            ends_s: ends_s.clone(),
        };
        match self.what {
            Observable::ChannelRate | Observable::GroupRate => self
                .channels
                .iter()
                .map(|(&channel, (_, points))| series(Some(channel), points.clone()))
                .collect(),
            _ => vec![series(None, self.points())],
        }
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
            let probe = &mut self.probes[probe as usize];
            if probe.what == Observable::ControlRate {
                probe.count += control_bits(packet);
                continue;
            }
            let Destination::Channel(channel) = packet.destination else {
                continue;
            };
            let bin_s = probe.bin_ns as f64 / 1e9;
            let entry = probe.channels.entry(channel.number).or_insert_with(|| {
                // Nothing came in the intervals before.
                let earlier = (now.as_nanos() / probe.bin_ns) as u32;
                let zeros = (1..=earlier).map(|bin| (f64::from(bin) * bin_s, 0.0));
                (0.0, zeros.collect())
            });
            entry.0 += f64::from(packet.wire_bytes()) * 8.0;
        }
    }
}
