//! Watching a run: which series the measures and plots need, and how they are recorded.

use std::collections::BTreeMap;

use manyflow_core::link::Counters;
use manyflow_core::time::seconds;
use manyflow_core::{Destination, EndpointId, Event, Packet, Time};

use super::build::{Member, World};
use super::cells::Cell;
use super::error::Fault;
use super::inspect::{Inspector, Watchers};
use super::observables::{Observable, Subject};
use crate::{LinkId, Network, Observer};

/// Values of one observable of one receiver or link over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What was observed.
    pub what: Observable,
    /// The session and the receiver's node, `webrc/R`, or the link, `A-B`.
    pub of: String,
    /// For a rate on a multicast channel: its number.
    pub channel: Option<u16>,
    /// The length of the intervals in seconds; `None` where a value stands at the time of its event.
    pub bin_s: Option<f64>,
    /// Times in seconds, of an interval its end, and values in the observable's unit.
    pub points: Vec<(f64, f64)>,
}

/// Which series: the same for all measures and plots that need it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    bin_ns: u64,
    what: Observable,
    subject: Place,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Session and receiver.
    Receiver(usize, usize),
    Link(u32),
}

impl Key {
    /// Values at the times of events have no intervals.
    fn new(what: Observable, subject: Place, bin_s: f64) -> Key {
        let bin_ns = match what.is_event() {
            true => 0,
            false => seconds(bin_s).as_nanos() as u64,
        };
        Key {
            bin_ns,
            what,
            subject,
        }
    }
}

/// The series of a run, while they grow.
#[derive(Default)]
pub(crate) struct Recorder {
    probes: Vec<Probe>,
    index: BTreeMap<Key, usize>,
    /// For each endpoint the probes that its events concern.
    by_endpoint: Vec<Vec<u32>>,
    by_link: BTreeMap<LinkId, Vec<u32>>,
}

struct Probe {
    key: Key,
    of: String,
    member: Member,
    points: Vec<(f64, f64)>,
    /// A count of events, or what is joined.
    count: f64,
    /// The count at the end of the last interval.
    last: f64,
    /// Bits of each multicast channel: in the present interval, and in each interval that is over.
    channels: BTreeMap<u16, (f64, Vec<(f64, f64)>)>,
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
        for (of, subject) in places(world, what, of)? {
            let key = Key::new(what, subject, bin_s);
            if self.index.contains_key(&key) {
                continue;
            }
            self.index.insert(key, self.probes.len());
            let member = self.attach(world, key);
            self.probes.push(Probe {
                key,
                of,
                member,
                points: Vec::new(),
                count: 0.0,
                last: 0.0,
                channels: BTreeMap::new(),
            });
        }
        Ok(())
    }

    /// Leads events and packets to the probe that is going to be the next.
    fn attach(&mut self, world: &mut World, key: Key) -> Member {
        let number = self.probes.len() as u32;
        match key.subject {
            Place::Receiver(session, receiver) => {
                let member = world.members[session][receiver].clone();
                for endpoint in member.receiving.iter().chain(&member.sending) {
                    let index = endpoint.0 as usize;
                    if self.by_endpoint.len() <= index {
                        self.by_endpoint.resize_with(index + 1, Vec::new);
                    }
                    self.by_endpoint[index].push(number);
                }
                member
            }
            Place::Link(link) => {
                if key.what == Observable::ChannelRate {
                    world.network.tap(LinkId(link));
                    self.by_link.entry(LinkId(link)).or_default().push(number);
                }
                Member::default()
            }
        }
    }

    /// Runs the network to its end and records.
    pub(super) fn run(&mut self, network: &mut Network, end: Time, inspector: &mut Inspector) {
        let mut bins: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, probe) in self.probes.iter().enumerate() {
            if probe.key.bin_ns > 0 {
                bins.entry(probe.key.bin_ns).or_default().push(index);
            }
        }
        let next = |bin: u64, now: Time| Time::from_nanos((now.as_nanos() / bin + 1) * bin);
        let mut now = Time::ZERO;
        while now < end {
            now = bins
                .keys()
                .map(|&bin| next(bin, now))
                .min()
                .unwrap_or(end)
                .min(end);
            let mut watchers = Watchers {
                recorder: self,
                inspector,
            };
            network.run_until(now, &mut watchers);
            for (bin, probes) in &bins {
                if now.as_nanos().is_multiple_of(*bin) {
                    probes
                        .iter()
                        .for_each(|&index| self.probes[index].sample(network, now));
                }
            }
        }
    }

    /// The series of an observable, of one `of`; a channel's where one is given.
    pub(crate) fn series(
        &self,
        world: &World,
        what: Observable,
        of: &str,
        bin_s: f64,
    ) -> Vec<Series> {
        let places = places(world, what, of).unwrap_or_default();
        let keys = places
            .into_iter()
            .map(|(_, subject)| Key::new(what, subject, bin_s));
        keys.filter_map(|key| self.index.get(&key))
            .flat_map(|&index| self.probes[index].series())
            .collect()
    }
}

/// What a name stands for, each with its own name.
fn places(world: &World, what: Observable, of: &str) -> Result<Vec<(String, Place)>, Fault> {
    let refuse = |problem| Fault::at(&["of"], problem);
    if what.subject() == Subject::Link {
        let links = world.topology.links_named(of).map_err(refuse)?;
        let named = |&link: &u32| (world.topology.link_name(link), Place::Link(link));
        return Ok(links.iter().map(named).collect());
    }
    let receivers = world.sessions.receivers_named(of, &world.topology);
    let named = |(session, receiver): (usize, usize)| {
        let session_name = &world.sessions.0[session].name;
        let node = world.sessions.0[session].receivers[receiver].node;
        let name = format!("{session_name}/{}", world.topology.nodes[node as usize]);
        (name, Place::Receiver(session, receiver))
    };
    Ok(receivers.map_err(refuse)?.into_iter().map(named).collect())
}

impl Probe {
    /// Ends an interval.
    fn sample(&mut self, network: &mut Network, now: Time) {
        let time_s = now.as_secs_f64();
        let bin_s = self.key.bin_ns as f64 / 1e9;
        if self.key.what == Observable::ChannelRate {
            for (bits, points) in self.channels.values_mut() {
                points.push((time_s, std::mem::take(bits) / bin_s));
            }
            return;
        }
        let total = self.total(network);
        let value = match self.key.what {
            Observable::Queue => total,
            Observable::ReceivedRate | Observable::LinkRate => (total - self.last) / bin_s,
            Observable::Utilisation => (total - self.last) / bin_s / self.capacity(network),
            _ => total - self.last,
        };
        self.last = total;
        self.points.push((time_s, value));
    }

    /// What has been counted so far.
    fn total(&self, network: &mut Network) -> f64 {
        let received = |network: &Network| {
            let all = self.member.receiving.iter().map(|&id| network.received(id));
            all.fold((0, 0), |sum, one| (sum.0 + one.packets, sum.1 + one.bytes))
        };
        let Place::Link(link) = self.key.subject else {
            return match self.key.what {
                Observable::ReceivedRate => received(network).1 as f64 * 8.0,
                Observable::ReceivedPackets => received(network).0 as f64,
                _ => self.count,
            };
        };
        let counters: Counters = network.link_counters(LinkId(link));
        match self.key.what {
            Observable::Queue => network.queue_packets(LinkId(link)) as f64,
            Observable::DeliveredPackets => counters.delivered as f64,
            Observable::Drops => counters.dropped as f64,
            Observable::Losses => counters.lost as f64,
            Observable::Marks => counters.marked as f64,
            _ => counters.delivered_bytes as f64 * 8.0,
        }
    }

    /// The rate of the link; NaN, no number, where it has no limit.
    fn capacity(&self, network: &Network) -> f64 {
        let rate = match self.key.subject {
            Place::Link(link) => network.link_config(LinkId(link)).rate,
            Place::Receiver(..) => None,
        };
        rate.map_or(f64::NAN, |rate| rate.bits_per_s() as f64)
    }

    fn on_event(&mut self, now: Time, event: &Event) {
        let value = match (self.key.what, event) {
            (Observable::Rtt, Event::Rtt { average_s, .. }) => *average_s,
            (Observable::RttSample, Event::Rtt { sample_s, .. }) => *sample_s,
            (Observable::TargetRate, Event::Rates { target, .. }) => target.bits_per_s() as f64,
            (Observable::ReportedRate, Event::Rates { received, .. }) => {
                received.bits_per_s() as f64
            }
            (
                Observable::LossProbability,
                Event::Rates {
                    loss_probability, ..
                },
            ) => *loss_probability,
            (Observable::Cwnd, Event::CongestionWindow { packets }) => *packets,
            (Observable::Channels, Event::Joined(_)) => self.counted(1.0),
            (Observable::Channels, Event::Left(_) | Event::JoinTimedOut(_)) => self.counted(-1.0),
            (Observable::Joins, Event::Joined(_))
            | (Observable::LossEvents, Event::LossEvent)
            | (Observable::Timeouts, Event::RetransmissionTimeout) => {
                self.count += 1.0;
                return;
            }
            _ => return,
        };
        self.points.push((now.as_secs_f64(), value));
    }

    fn counted(&mut self, step: f64) -> f64 {
        self.count += step;
        self.count
    }

    fn series(&self) -> Vec<Series> {
        let bin_s = (self.key.bin_ns > 0).then_some(self.key.bin_ns as f64 / 1e9);
        let series = |channel, points: &Vec<(f64, f64)>| Series {
            what: self.key.what,
            of: self.of.clone(),
            channel,
            bin_s,
            points: points.clone(),
        };
        match self.key.what {
            Observable::ChannelRate => self
                .channels
                .iter()
                .map(|(&channel, (_, points))| series(Some(channel), points))
                .collect(),
            _ => vec![series(None, &self.points)],
        }
    }
}

impl Observer for Recorder {
    fn on_event(&mut self, now: Time, endpoint: EndpointId, event: &Event) {
        let concerned = self.by_endpoint.get(endpoint.0 as usize);
        for &probe in concerned.into_iter().flatten() {
            self.probes[probe as usize].on_event(now, event);
        }
    }

    fn on_tapped(&mut self, now: Time, link: LinkId, packet: &Packet) {
        let Destination::Channel(channel) = packet.destination else {
            return;
        };
        for &probe in self.by_link.get(&link).into_iter().flatten() {
            let probe = &mut self.probes[probe as usize];
            let bin_s = probe.key.bin_ns as f64 / 1e9;
            let entry = probe.channels.entry(channel.number).or_insert_with(|| {
                // Nothing came in the intervals before.
                let earlier = (now.as_nanos() / probe.key.bin_ns) as u32;
                let zeros = (1..=earlier).map(|bin| (f64::from(bin) * bin_s, 0.0));
                (0.0, zeros.collect())
            });
            entry.0 += f64::from(packet.wire_bytes()) * 8.0;
        }
    }
}
