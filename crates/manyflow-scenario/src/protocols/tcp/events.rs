//! Records and traces of events of TCP senders.

use manyflow_tcp::Event;

use crate::protocols::report::{Observed, Reported};
use crate::protocols::window::WindowEvent;
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

/// Converts an event that all window-based senders report. Returns `None` for the other events of
/// TCP.
fn common(event: &Event) -> Option<WindowEvent> {
    Some(match *event {
        Event::Rtt {
            sample_s,
            average_s,
        } => WindowEvent::Rtt {
            sample_s,
            average_s,
        },
        Event::CongestionWindow { packets } => WindowEvent::Window { packets },
        Event::LossEvent => WindowEvent::LossEvent,
        Event::RetransmissionTimeout => WindowEvent::Timeout,
        Event::Retransmission => WindowEvent::Retransmission,
        _ => return None,
    })
}

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
