//! Records and traces of events of an overlay's daemons and clients.

use manyflow_core::Rate;
use manyflow_overlay::{Event, Verdict};
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported, Topic};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Sent { .. } => "sent",
            Event::Delivered { .. } => "delivered",
            Event::Latency { .. } => "latency",
            Event::Queue { .. } => "queue",
            Event::Acceptable { .. } => "acceptable",
            Event::Allowed { .. } => "allowed",
            Event::View { .. } => "view",
            Event::SlowMember { .. } => "slow-member",
            Event::Rtt { .. } => "rtt",
            Event::LossEvent => "loss-event",
            Event::Rates { .. } => "rates",
            _ => "other",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Delivered { bytes } | Event::Sent { bytes } => {
                line.serialize_entry("bytes", bytes)
            }
            Event::Latency { seconds } => line.serialize_entry("seconds", seconds),
            Event::Queue { link, messages } => {
                line.serialize_entry("overlay-link", &[link.from.0, link.to.0])?;
                line.serialize_entry("messages", messages)
            }
            Event::Acceptable { by, group, rate } => {
                line.serialize_entry("by", &by.0)?;
                line.serialize_entry("group", &group.0)?;
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
            Event::Rtt {
                sample_s,
                average_s,
            } => {
                line.serialize_entry("sample", sample_s)?;
                line.serialize_entry("average", average_s)
            }
            Event::Rates {
                target,
                received,
                loss_probability,
            } => {
                line.serialize_entry("target", &target.bits_per_s())?;
                line.serialize_entry("received", &received.bits_per_s())?;
                line.serialize_entry("loss-probability", loss_probability)
            }
            _ => Ok(()),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        let rate = |rate: &Rate| Observed::Value(rate.bits_per_s() as f64);
        Some(match (what, self) {
            (Observable::Rtt, Event::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, Event::Rtt { sample_s, .. }) => Observed::Value(*sample_s),
            (Observable::TargetRate, Event::Rates { target, .. }) => rate(target),
            (Observable::ReportedRate, Event::Rates { received, .. }) => rate(received),
            (
                Observable::LossProbability,
                Event::Rates {
                    loss_probability, ..
                },
            ) => Observed::Value(*loss_probability),
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
            (Observable::Goodput, Event::Delivered { bytes })
            | (Observable::SentRate, Event::Sent { bytes }) => {
                Observed::Count(f64::from(*bytes) * 8.0)
            }
            (Observable::SlowMembers, Event::SlowMember { verdict, .. })
                if *verdict != Verdict::Resumed =>
            {
                Observed::Count(1.0)
            }
            (Observable::DeliveredFrames, Event::Delivered { .. })
            | (Observable::LossEvents, Event::LossEvent) => Observed::Count(1.0),
            _ => return None,
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
            (Topic::Report(own, daemon), Event::Acceptable { by, group, .. }) => {
                (own, daemon) == (*group, *by)
            }
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
