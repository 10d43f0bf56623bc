//! Reports the series and links of a run while they grow.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

use manyflow_core::{EndpointId, Time};
use manyflow_netsim::LinkId;
use manyflow_overlay::cost_benefit::{CostBenefitConfig, price};
use manyflow_overlay::{self as overlay, Event};
use serde::Serialize;

use super::probe::Probe;
use super::recorder::{Recorder, interval_ns};
use crate::protocols::AnyEvent;
use crate::scene::Scene;
use crate::schema::Observable;
use crate::world::World;

/// The number of samples of a run that is watched.
pub(super) const SAMPLES: u32 = 600;
/// The maximum number of directions of links that are watched. Of larger networks, none are.
const LINKS_MAX: usize = 1000;

/// Receives the samples of a run. The run ends with an error if it returns `Break`.
pub type Watch<'a> = dyn FnMut(Sample) -> ControlFlow<()> + 'a;

/// The part of a run's series that is new since the sample before, and the state of its links.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// The simulated time in seconds.
    pub time_s: f64,
    /// The series that begin with this sample, each with the number of the series before plus 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Beginning>,
    /// The new points: the number of a series, and times in seconds with values in its unit. All
    /// samples of a run together have the points that the [`Run`](crate::Run) has in the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<(u32, Vec<(f64, f64)>)>,
    /// The state of each direction of each link, in the order of [`Map`](crate::Map)'s links; empty
    /// in networks with more than a thousand of them.
    pub links: Vec<LinkState>,
    /// The state of the links of each overlay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<Vec<OverlayLinkState>>,
}

/// A series that begins.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beginning {
    /// The index of the plot among all plots of the scenario.
    pub plot: usize,
    /// The index of the entry in the plot's `series`.
    pub line: usize,
    /// The name of the subject, such as `webrc/R`.
    pub of: String,
    /// The number of the channel or group, for observables of each of them.
    pub channel: Option<u16>,
    /// The length of the intervals in seconds, or `None` for values at the times of events.
    pub bin_s: Option<f64>,
    /// Whether each value holds until the next one.
    pub is_level: bool,
}

/// The state of a link: the packets that wait, and the counters since the beginning of the run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
#[serde(into = "[u64; 5]")]
pub struct LinkState {
    /// The number of packets that wait.
    pub queue_packets: u64,
    /// The number of bytes delivered.
    pub delivered_bytes: u64,
    /// The number of packets that the queue dropped.
    pub dropped: u64,
    /// The number of packets lost on the wire.
    pub lost: u64,
    /// The number of packets that the queue marked.
    pub marked: u64,
}

impl From<LinkState> for [u64; 5] {
    fn from(link: LinkState) -> [u64; 5] {
        [
            link.queue_packets,
            link.delivered_bytes,
            link.dropped,
            link.lost,
            link.marked,
        ]
    }
}

/// The state of a link of an overlay since the sample before.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
#[serde(into = "(u32, Option<f64>)")]
pub struct OverlayLinkState {
    /// The maximum number of messages that waited.
    pub waiting: u32,
    /// The price in dollars with that number; `None` without the controller Cost-Benefit.
    pub price_dollars: Option<f64>,
}

impl From<OverlayLinkState> for (u32, Option<f64>) {
    fn from(link: OverlayLinkState) -> (u32, Option<f64>) {
        (link.waiting, link.price_dollars)
    }
}

/// The state of a watched run.
pub(super) struct Feed<'a> {
    watch: &'a mut Watch<'a>,
    lines: Vec<Line>,
    /// The number of the next series.
    next: u32,
    links: usize,
    overlays: Vec<OverlayFeed>,
    /// The time of the last sample.
    sampled: Time,
    is_stopped: bool,
}

/// An entry of `series` of a plot.
struct Line {
    plot: usize,
    line: usize,
    probes: Range<usize>,
    /// For each probe, the name of its subject and what has been reported.
    reported: Vec<(String, BTreeMap<Option<u16>, Reported>)>,
}

/// The number of a series, and the number of its values that have been reported.
struct Reported {
    number: u32,
    values: usize,
}

/// The links of an overlay.
struct OverlayFeed {
    prices: Option<CostBenefitConfig>,
    /// The endpoints of its daemons, by which its events are known.
    daemons: Range<u32>,
    places: BTreeMap<overlay::LinkId, usize>,
    /// For each link, the maximum number of messages since the last sample.
    waiting: Vec<u32>,
    /// These numbers in the last sample.
    sampled: Vec<u32>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(watch: &'a mut Watch<'a>, recorder: &Recorder, scene: &Scene) -> Feed<'a> {
        let links = scene.plan.topology.links.len();
        Feed {
            watch,
            lines: lines(recorder, scene),
            next: 0,
            links: if links > LINKS_MAX { 0 } else { links },
            overlays: overlays(scene),
            sampled: Time::ZERO,
            is_stopped: false,
        }
    }

    /// Notes how many messages wait for a link of an overlay.
    pub(super) fn on_event(&mut self, endpoint: EndpointId, event: &AnyEvent) {
        let AnyEvent::Overlay(Event::Queue { link, messages }) = event else {
            return;
        };
        let own = |overlay: &&mut OverlayFeed| overlay.daemons.contains(&endpoint.0);
        if let Some(overlay) = self.overlays.iter_mut().find(own)
            && let Some(&place) = overlay.places.get(link)
        {
            overlay.waiting[place] = overlay.waiting[place].max(*messages);
        }
    }

    /// Returns whether the watcher wants the run to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Reports what is new since the last sample, if it is `step` ago, or if the run `is_over`.
    pub(super) fn sample(
        &mut self,
        probes: &[Probe],
        network: &mut dyn World,
        step: Duration,
        is_over: bool,
    ) {
        let now = network.now();
        let is_due = now - self.sampled >= step;
        if self.is_stopped || !(is_due || is_over) {
            return;
        }
        self.sampled = now;
        let mut sample = Sample {
            time_s: now.as_secs_f64(),
            ..Sample::default()
        };
        for line in &mut self.lines {
            line.report(probes, &mut self.next, &mut sample);
        }
        let links = 0..self.links as u32;
        sample.links = links.map(|link| state(LinkId(link), network)).collect();
        let overlays = self.overlays.iter_mut();
        sample.overlays = overlays.map(|overlay| overlay.states(is_due)).collect();
        self.is_stopped = (self.watch)(sample).is_break();
    }
}

impl Line {
    fn report(&mut self, probes: &[Probe], next: &mut u32, sample: &mut Sample) {
        let own = &probes[self.probes.clone()];
        for (probe, (of, reported)) in own.iter().zip(&mut self.reported) {
            for channel in probe.channel_numbers() {
                let known = reported.entry(channel).or_insert_with(|| {
                    sample.series.push(Beginning {
                        plot: self.plot,
                        line: self.line,
                        of: of.clone(),
                        channel,
                        bin_s: probe.bin_s(),
                        is_level: probe.what.is_level(),
                    });
                    *next += 1;
                    Reported {
                        number: *next - 1,
                        values: 0,
                    }
                });
                let (points, values) = probe.points_from(channel, known.values);
                known.values = values;
                if !points.is_empty() {
                    sample.points.push((known.number, points));
                }
            }
        }
    }
}

impl OverlayFeed {
    /// Returns the states since the last sample. The last sample of a run can follow another one
    /// immediately; then the states since the sample before count, too.
    fn states(&mut self, is_due: bool) -> Vec<OverlayLinkState> {
        for (sampled, waiting) in self.sampled.iter_mut().zip(&mut self.waiting) {
            let before = if is_due { 0 } else { *sampled };
            *sampled = before.max(core::mem::take(waiting));
        }
        let prices = self.prices.as_ref();
        let state = |waiting: &u32| OverlayLinkState {
            waiting: *waiting,
            price_dollars: prices.map(|config| price(f64::from(*waiting), config)),
        };
        self.sampled.iter().map(state).collect()
    }
}

fn lines(recorder: &Recorder, scene: &Scene) -> Vec<Line> {
    let schema = &scene.plan.cell.schema;
    let common = schema.run.bin;
    let plots = schema.plots.iter().enumerate();
    let lines = plots.flat_map(|(plot, table)| {
        let series = table.series.iter().enumerate();
        series.map(move |(line, series)| (plot, line, series))
    });
    let line = |(plot, line, series): (usize, usize, &crate::schema::SeriesTable)| {
        let bin_ns = interval_ns(series.what, series.bin.unwrap_or(common).0);
        let key = (bin_ns, series.what, series.of.clone());
        let probes = recorder.watched.get(&key).cloned().unwrap_or_default();
        let names = recorder.probes[probes.clone()].iter();
        let names = names.map(|probe| probe.subject.name(scene, &recorder.audiences));
        Line {
            plot,
            line,
            reported: names.map(|name| (name, BTreeMap::new())).collect(),
            probes,
        }
    };
    lines.map(line).collect()
}

fn overlays(scene: &Scene) -> Vec<OverlayFeed> {
    let tables = scene.plan.cell.schema.overlays.iter();
    let made = scene.plan.overlays.0.iter().zip(tables);
    let feed = |(overlay, table): (
        &crate::plan::overlays::Overlay,
        &crate::protocols::OverlayTable,
    )| {
        let places: BTreeMap<_, _> = overlay.topology.links().zip(0..).collect();
        let ids: Vec<u32> = overlay.endpoints.iter().map(|id| id.0).collect();
        let first = ids.first().copied().unwrap_or(0);
        OverlayFeed {
            prices: table.prices(),
            daemons: first..first + ids.len() as u32,
            waiting: vec![0; places.len()],
            sampled: vec![0; places.len()],
            places,
        }
    };
    made.map(feed).collect()
}

fn state(link: LinkId, network: &mut dyn World) -> LinkState {
    let counters = network.link_counters(link);
    LinkState {
        queue_packets: network.queue_packets(link) as u64,
        delivered_bytes: counters.delivered_bytes,
        dropped: counters.dropped,
        lost: counters.lost,
        marked: counters.marked,
    }
}

impl Probe {
    /// Returns the channels of the probe's series; `None` stands for the only series of an
    /// observable that does not distinguish channels.
    fn channel_numbers(&self) -> Vec<Option<u16>> {
        match self.what {
            Observable::ChannelRate | Observable::GroupRate => {
                self.channels.keys().copied().map(Some).collect()
            }
            _ => vec![None],
        }
    }

    /// Returns the length of the intervals in seconds, or `None` for values at events.
    fn bin_s(&self) -> Option<f64> {
        (self.bin_ns > 0).then_some(self.bin_ns as f64 / 1e9)
    }

    /// Returns the points of one series from this value on, and the number of all values so far.
    fn points_from(&self, channel: Option<u16>, from: usize) -> (Vec<(f64, f64)>, usize) {
        if let Some(channel) = channel {
            let points = self.channels.get(&channel);
            let points = points.map_or(&[][..], |(_, points)| points);
            return (points[from..].to_vec(), points.len());
        }
        (self.points(from), self.values.len())
    }
}
