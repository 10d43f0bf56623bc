//! Records and traces of events of SIM, RLM, RLC and FLID-DL.

use manyflow_layered::{Event, RateReason};
use serde::ser::SerializeMap;

use crate::protocols::common::{CommonEvent, common_events};
use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

common_events!(Joined(channel), Left(channel), LossEvent);

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Lost(_) => "packets-lost",
            Event::GroupRate { .. } => "group-rate",
            Event::Changed { .. } => "groups-changed",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Lost(packets) => line.serialize_entry("packets", packets),
            Event::Changed { groups, reason } => {
                line.serialize_entry("groups", groups)?;
                line.serialize_entry("reason", reason.name())
            }
            Event::GroupRate {
                group,
                rate,
                reason,
            } => {
                line.serialize_entry("group", group)?;
                line.serialize_entry("rate", &rate.bits_per_s())?;
                line.serialize_entry("reason", &reason.map(RateReason::name))
            }
            other => common(other).map_or(Ok(()), |event| event.trace(line)),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::GroupRate, Event::GroupRate { group, rate, .. }) => {
                Observed::OfGroup(*group, rate.bits_per_s() as f64)
            }
            (Observable::Loss, Event::Lost(packets)) => Observed::Count(f64::from(*packets)),
            _ => return common(self)?.observe(what),
        })
    }
}
