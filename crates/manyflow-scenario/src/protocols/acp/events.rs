//! Records and traces of events of ACP's connections and switches.

use manyflow_anypoint::{Event, Reason};
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
    CongestionWindow { packets },
    LossEvent,
    RetransmissionTimeout,
    Retransmission
);

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Finished => "finished",
            Event::Overflow => "overflow",
            Event::Failed(_) => "failed",
            Event::MemberFailed(_) => "member-failed",
            Event::MemberStalled(_) => "member-stalled",
            Event::MemberResumed(_) => "member-resumed",
            Event::FrameDropped { .. } => "frame-dropped",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Failed(reason) => line.serialize_entry("why", reason_name(*reason)),
            Event::MemberFailed(member)
            | Event::MemberStalled(member)
            | Event::MemberResumed(member) => line.serialize_entry("member", &member.0),
            other => common(other).map_or(Ok(()), |event| event.trace(line)),
        }
    }

    fn is_about(&self, topic: Topic) -> bool {
        match (topic, self) {
            (Topic::Initiator { index, of }, Event::Delivered { key, .. }) => {
                (u64::from(*key) * u64::from(of)) >> 32 == u64::from(index)
            }
            _ => topic == Topic::Any,
        }
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Failed(_) | Event::Finished)
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Overflows, Event::Overflow)
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
