//! Records and traces of events of CBR sinks.

use manyflow_tcp::cbr::Event;
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Joined(_) => "join",
            Event::Left(_) => "leave",
            _ => "other",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Joined(channel) | Event::Left(channel) => {
                line.serialize_entry("channel", &channel.number)
            }
            _ => Ok(()),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Channels, Event::Joined(_)) => Observed::Step(1.0),
            (Observable::Channels, Event::Left(_)) => Observed::Step(-1.0),
            (Observable::Joins, Event::Joined(_)) => Observed::Count(1.0),
            _ => return None,
        })
    }
}
