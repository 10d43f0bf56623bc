//! Records and traces of events of an overlay's daemons and clients.

use manyflow_core::Rate;
use manyflow_overlay::{Event, Verdict};
use serde::ser::SerializeMap;

use crate::protocols::common::{CommonEvent, common_events};
use crate::protocols::report::{Observed, Reported, Topic};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

common_events!(
    Delivered { bytes },
    Rtt {
        sample_s,
        average_s
    },
    Rates {
        target,
        received,
        loss_probability
    },
    LossEvent
);

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Sent { .. } => "sent",
            Event::Latency { .. } => "latency",
            Event::Queue { .. } => "queue",
            Event::Acceptable { .. } => "acceptable",
            Event::Allowed { .. } => "allowed",
            Event::View { .. } => "view",
            Event::SlowMember { .. } => "slow-member",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Sent { bytes } => line.serialize_entry("bytes", bytes),
            Event::Latency { seconds } => line.serialize_entry("seconds", seconds),
            Event::Queue { link, messages } => {
                line.serialize_entry("overlay-link", &[link.from.0, link.to.0])?;
                line.serialize_entry("messages", messages)
            }
            Event::Acceptable { by, rate } => {
                line.serialize_entry("by", &by.0)?;
                line.serialize_entry("rate", &rate.map(Rate::bits_per_s))
            }
            Event::Allowed { group, rate } => {
                line.serialize_entry("group", &group.0)?;
                line.serialize_entry("rate", &rate.bits_per_s())
            }
            Event::View { group, members } => {
                line.serialize_entry("group", &group.0)?;
                line.serialize_entry("members", members)
            }
            Event::SlowMember {
                client,
                group,
                verdict,
            } => {
                line.serialize_entry("client", &client.0)?;
                line.serialize_entry("group", &group.0)?;
                line.serialize_entry("verdict", verdict_name(*verdict))
            }
            other => common(other).map_or(Ok(()), |event| event.trace(line)),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        let rate = |rate: &Rate| Observed::Value(rate.bits_per_s() as f64);
        Some(match (what, self) {
            (Observable::Latency, Event::Latency { seconds }) => Observed::Value(*seconds),
            (
                Observable::AcceptableRate,
                Event::Acceptable {
                    rate: Some(acceptable),
                    ..
                },
            ) => rate(acceptable),
            (Observable::AllowedRate, Event::Allowed { rate: allowed, .. }) => rate(allowed),
            (Observable::Members, Event::View { members, .. }) => {
                Observed::Value(f64::from(*members))
            }
            (Observable::OverlayQueue, Event::Queue { messages, .. }) => {
                Observed::AtLeast(f64::from(*messages))
            }
            (Observable::SentRate, Event::Sent { bytes }) => {
                Observed::Count(f64::from(*bytes) * 8.0)
            }
            (Observable::SlowMembers, Event::SlowMember { verdict, .. })
                if *verdict != Verdict::Resumed =>
            {
                Observed::Count(1.0)
            }
            _ => return common(self)?.observe(what),
        })
    }

    fn is_about(&self, topic: Topic) -> bool {
        match (topic, self) {
            (Topic::Any, _) => true,
            (Topic::Link(own), Event::Queue { link, .. }) => own == *link,
            (
                Topic::Group(own),
                Event::Allowed { group, .. }
                | Event::View { group, .. }
                | Event::SlowMember { group, .. },
            ) => own == *group,
            (Topic::Report(daemon), Event::Acceptable { by, .. }) => daemon == *by,
            _ => false,
        }
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Blocked => "blocked",
        Verdict::Resumed => "resumed",
        Verdict::Dropped => "dropped",
        Verdict::Evicted => "evicted",
    }
}
