//! Records and traces of events of CBR sinks.

use manyflow_tcp::cbr::Event;

use crate::protocols::common::{CommonEvent, common_events};
use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

common_events!(Joined(channel), Left(channel));

impl Reported for Event {
    fn name(&self) -> &'static str {
        common(self).map_or("other", |event| event.name())
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        common(self).map_or(Ok(()), |event| event.trace(line))
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        common(self)?.observe(what)
    }
}
