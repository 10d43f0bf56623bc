//! Records and traces of events of SIM and RLM.

use manyflow_layered::Event;
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Joined(_) => "join",
            Event::Left(_) => "leave",
            Event::LossEvent => "loss-event",
            Event::Lost(_) => "packets-lost",
            Event::GroupRate { .. } => "group-rate",
            _ => "other",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Joined(channel) | Event::Left(channel) => {
                line.serialize_entry("channel", &channel.number)
            }
            Event::Lost(packets) => line.serialize_entry("packets", packets),
            Event::GroupRate { group, rate } => {
                line.serialize_entry("group", group)?;
                line.serialize_entry("rate", &rate.bits_per_s())
            }
            _ => Ok(()),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Channels, Event::Joined(_)) => Observed::Step(1.0),
            (Observable::Channels, Event::Left(_)) => Observed::Step(-1.0),
            (Observable::GroupRate, Event::GroupRate { group, rate }) => {
                Observed::OfGroup(*group, rate.bits_per_s() as f64)
            }
            (Observable::Loss, Event::Lost(packets)) => Observed::Count(f64::from(*packets)),
            (Observable::Joins, Event::Joined(_)) | (Observable::LossEvents, Event::LossEvent) => {
                Observed::Count(1.0)
            }
            _ => return None,
        })
    }
}
