//! One series of a run while it grows.

use std::collections::BTreeMap;

use manyflow_core::link::Counters;
use manyflow_core::{Destination, EndpointId, Time};
use manyflow_netsim::LinkId;

use super::audience::Audience;
use super::place::{Place, topic_of};
use crate::protocols::{AnyEvent, AnyHeader, Observed, Packet, Topic};
use crate::scene::Scene;
use crate::schema::{Observable, Subject};
use crate::world::World;
use manyflow_model::Series;

/// Returns the size in bits of a packet of the overlay's control traffic, or 0 for any other
/// packet.
fn control_bits(packet: &Packet) -> f64 {
    match packet.header {
        AnyHeader::Overlay(frame) if frame.is_control() => f64::from(packet.wire_bytes()) * 8.0,
        _ => 0.0,
    }
}

/// One series while it grows. There may be one for each of a million receivers.
pub(super) struct Probe {
    pub(super) bin_ns: u64,
    pub(super) what: Observable,
    pub(super) subject: Place,
    topic: Topic,
    pub(super) values: Vec<f64>,
    /// The time of each value. Empty for values of intervals.
    times: Vec<f64>,
    /// The times at which a level ends.
    ends_s: Vec<f64>,
    /// The count of events, or the current level.
    count: f64,
    /// The value of the count at the end of the last interval.
    last: f64,
    /// For each multicast channel, the bits in the current interval, and the points so far.
    pub(super) channels: BTreeMap<u16, (f64, Vec<(f64, f64)>)>,
    /// The weights of the values. Few observables have them.
    #[allow(clippy::box_collection, reason = "there may be a million probes")]
    weights: Option<Box<Vec<f64>>>,
    /// Whether the world never reports the observable, so that the series has no points.
    is_unobserved: bool,
}

impl Probe {
    /// Begins a series. `bin_ns` is 0 for values at the times of events.
    pub(super) fn new(scene: &Scene, what: Observable, subject: Place, bin_ns: u64) -> Probe {
        Probe {
            bin_ns,
            what,
            subject,
            topic: topic_of(scene, what, subject),
            values: Vec::new(),
            times: Vec::new(),
            // An exit code still holds when its session stops.
            ends_s: match what.is_level() && what != Observable::ExitCode {
                true => subject.ends_s(scene),
                false => Vec::new(),
            },
            count: 0.0,
            last: 0.0,
            channels: BTreeMap::new(),
            weights: None,
            is_unobserved: !subject.reports(scene, what),
        }
    }

    /// Ends an interval of an audience.
    pub(super) fn measure(&mut self, audience: &mut Audience, scene: &Scene) {
        self.values.push(match self.what {
            Observable::Efficiency => audience.efficiency(scene),
            _ => audience.instability(),
        });
    }

    /// Counts a packet that a tapped link delivers.
    pub(super) fn on_tapped(&mut self, now: Time, packet: &Packet) {
        if self.what == Observable::ControlRate {
            self.count += control_bits(packet);
            return;
        }
        let Destination::Channel(channel) = packet.destination else {
            return;
        };
        let bin_s = self.bin_ns as f64 / 1e9;
        let entry = self.channels.entry(channel.number).or_insert_with(|| {
            // No packet arrived in the previous intervals.
            let earlier = (now.as_nanos() / self.bin_ns) as u32;
            let zeros = (1..=earlier).map(|bin| (f64::from(bin) * bin_s, 0.0));
            (0.0, zeros.collect())
        });
        entry.0 += f64::from(packet.wire_bytes()) * 8.0;
    }

    /// Counts a packet that was lost on its way, or dropped by a queue.
    pub(super) fn on_lost(&mut self, is_drop: bool) {
        if is_drop || self.what == Observable::Loss {
            self.count += 1.0;
        }
    }

    /// Ends an interval of a loss: the packets that were lost, over these and those that arrived.
    /// An interval without packets has no value.
    fn sample_loss(&mut self, arrived: f64) {
        let lost = std::mem::take(&mut self.count);
        let packets = lost + arrived - self.last;
        self.last = arrived;
        self.values.push(lost / packets);
        self.weights.get_or_insert_default().push(packets);
    }

    /// Ends an interval.
    pub(super) fn sample(&mut self, scene: &mut Scene, now: Time) {
        let time_s = now.as_secs_f64();
        let bin_s = self.bin_ns as f64 / 1e9;
        if self.what == Observable::ChannelRate {
            for (bits, points) in self.channels.values_mut() {
                points.push((time_s, std::mem::take(bits) / bin_s));
            }
            return;
        }
        if self.what == Observable::Capacity {
            let capacity = self.offered(scene, bin_s);
            self.values.push(capacity);
            return;
        }
        let total = self.total(scene);
        if self.what == Observable::Loss {
            return self.sample_loss(total);
        }
        let value = match self.what {
            Observable::Queue => total,
            Observable::OverlayQueue => std::mem::take(&mut self.count),
            Observable::MeanQueue => (total - self.last) / bin_s,
            Observable::ReceivedRate
            | Observable::Goodput
            | Observable::LinkRate
            | Observable::SentRate
            | Observable::ControlRate => (total - self.last) / bin_s,
            Observable::Utilisation => (total - self.last) / bin_s / self.capacity(&*scene.network),
            _ => total - self.last,
        };
        self.last = total;
        self.values.push(value);
    }

    /// Returns the total that has been counted so far, or the current length of a queue.
    fn total(&self, scene: &mut Scene) -> f64 {
        let link = match self.subject {
            Place::Link(_) if self.what == Observable::ControlRate => return self.count,
            Place::Link(link) => LinkId(link),
            Place::Daemon(overlay, daemon) => {
                let endpoint = scene.daemon(overlay as usize, daemon);
                return self.received(scene, std::iter::once(endpoint));
            }
            Place::Sender(_)
            | Place::Audience(_)
            | Place::Client(..)
            | Place::Pair(..)
            | Place::OverlayLink(..)
            | Place::Group(_)
            | Place::Reporter(..) => return self.count,
            Place::Receiver(session, receiver) => {
                return self.received(scene, scene.ends(session, receiver).receiving());
            }
            Place::Staff(session, node) => {
                return self.received(scene, scene.staff_at(session, node));
            }
        };
        let counters: Counters = scene.network.link_counters(link);
        match self.what {
            Observable::Queue => scene.network.queue_packets(link) as f64,
            Observable::MeanQueue => scene.network.queue_time(link).as_secs_f64(),
            Observable::DeliveredPackets => counters.delivered as f64,
            Observable::Drops => counters.dropped as f64,
            Observable::Losses => counters.lost as f64,
            Observable::Marks => counters.marked as f64,
            _ => counters.delivered_bytes as f64 * 8.0,
        }
    }

    /// Returns the total at these endpoints so far, as counted by the network or by events.
    fn received(&self, scene: &Scene, ends: impl Iterator<Item = EndpointId>) -> f64 {
        let received = ends.map(|id| scene.network.received(id));
        match self.what {
            Observable::ReceivedRate => received.map(|all| all.bytes).sum::<u64>() as f64 * 8.0,
            Observable::ReceivedPackets | Observable::Loss => {
                received.map(|all| all.packets).sum::<u64>() as f64
            }
            _ => self.count,
        }
    }

    /// Returns the rate at which the link could have delivered in an interval that ends, or NaN if
    /// it has no limit.
    fn offered(&mut self, scene: &mut Scene, bin_s: f64) -> f64 {
        let Place::Link(link) = self.subject else {
            return f64::NAN;
        };
        let Some(bytes) = scene.network.offered_bytes(LinkId(link)) else {
            return self.capacity(&*scene.network);
        };
        let bits = bytes as f64 * 8.0;
        let before = std::mem::replace(&mut self.last, bits);
        // A change of the rate begins the count again.
        let before = if before <= bits { before } else { 0.0 };
        (bits - before) / bin_s
    }

    /// Returns the rate of the link, or NaN if it has no limit.
    fn capacity(&self, network: &dyn World) -> f64 {
        let rate = match self.subject {
            Place::Link(link) => network.link_config(LinkId(link)).rate,
            _ => None,
        };
        rate.map_or(f64::NAN, |rate| rate.bits_per_s() as f64)
    }

    pub(super) fn on_event(&mut self, now: Time, event: &AnyEvent) {
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

    /// Returns the times and values of the series, from this value on.
    pub(super) fn points(&self, from: usize) -> Vec<(f64, f64)> {
        if self.is_unobserved {
            return Vec::new();
        }
        let values = self.values[from..].iter().copied();
        if self.bin_ns == 0 {
            return self.times[from..].iter().copied().zip(values).collect();
        }
        let ends = (from as u64 + 1..).map(|bin| Time::from_nanos(bin * self.bin_ns).as_secs_f64());
        let points = ends.zip(values);
        match self.what.subject() {
            // An interval without receivers or packets has no value.
            _ if self.what == Observable::Loss => points.filter(|(_, v)| !v.is_nan()).collect(),
            Subject::Audience => points.filter(|(_, value)| !value.is_nan()).collect(),
            _ => points.collect(),
        }
    }

    pub(super) fn series(&self, of: String) -> Vec<Series> {
        let bin_s = (self.bin_ns > 0).then_some(self.bin_ns as f64 / 1e9);
        let mut ends_s = self.ends_s.clone();
        ends_s.sort_by(f64::total_cmp);
        let weights = self.weights.as_deref().into_iter().flatten();
        let weights: Vec<f64> = weights.copied().filter(|weight| *weight > 0.0).collect();
        let series = |channel, points| Series {
            what: self.what,
            of: of.clone(),
            channel,
            bin_s,
            points,
            ends_s: ends_s.clone(),
            weights: weights.clone(),
        };
        match self.what {
            Observable::ChannelRate | Observable::GroupRate => self
                .channels
                .iter()
                .map(|(&channel, (_, points))| series(Some(channel), points.clone()))
                .collect(),
            _ => vec![series(None, self.points(0))],
        }
    }
}
