//! Records and traces of events of ACP's connections and switches.

use manyflow_anypoint::{Event, Reason};
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported};
use crate::protocols::window::WindowEvent;
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

/// Converts an event that all window-based senders report. Returns `None` for the other events of
/// ACP.
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
            Event::Delivered { .. } => "delivered",
            Event::Overflow => "overflow",
            Event::Failed(_) => "failed",
            Event::MemberFailed(_) => "member-failed",
            Event::MemberStalled(_) => "member-stalled",
            Event::MemberResumed(_) => "member-resumed",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Delivered { bytes } => line.serialize_entry("bytes", bytes),
            Event::Failed(reason) => line.serialize_entry("why", reason_name(*reason)),
            Event::MemberFailed(member)
            | Event::MemberStalled(member)
            | Event::MemberResumed(member) => line.serialize_entry("member", &member.0),
            other => common(other).map_or(Ok(()), |event| event.trace(line)),
        }
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Failed(_) | Event::Finished)
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Goodput, Event::Delivered { bytes }) => {
                Observed::Count(f64::from(*bytes) * 8.0)
            }
            (Observable::DeliveredFrames, Event::Delivered { .. })
            | (Observable::Overflows, Event::Overflow)
            | (Observable::Failures, Event::Failed(_))
            | (Observable::MemberFailures, Event::MemberFailed(_)) => Observed::Count(1.0),
            _ => return common(self)?.observe(what),
        })
    }
}

fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Unknown => "unknown",
        Reason::Refused => "refused",
        Reason::TimedOut => "timed-out",
        Reason::Aborted => "aborted",
    }
}
