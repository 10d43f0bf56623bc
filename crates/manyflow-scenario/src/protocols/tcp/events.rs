//! Records and traces of events of TCP senders.

use manyflow_tcp::Event;

use crate::protocols::common::{CommonEvent, common_events};
use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

common_events!(
    Rtt {
        sample_s,
        average_s
    },
    CongestionWindow { packets },
    LossEvent,
    RetransmissionTimeout,
    Retransmission
);

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Finished => "finished",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        common(self).map_or(Ok(()), |event| event.trace(line))
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Finished)
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        common(self)?.observe(what)
    }
}
