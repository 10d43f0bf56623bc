//! Records and traces of events of ACP's connections and switches.

use manyflow_anypoint::{Event, Reason};
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported};
use crate::schema::observables::Observable;
use manyflow_netsim::trace::Line;

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Rtt { .. } => "rtt",
            Event::LossEvent => "loss-event",
            Event::CongestionWindow { .. } => "window",
            Event::RetransmissionTimeout => "retransmission-timeout",
            Event::Finished => "finished",
            Event::Delivered { .. } => "delivered",
            Event::Overflow => "overflow",
            Event::Failed(_) => "failed",
            Event::MemberFailed(_) => "member-failed",
            _ => "other",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Rtt {
                sample_s,
                average_s,
            } => {
                line.serialize_entry("sample", sample_s)?;
                line.serialize_entry("average", average_s)
            }
            Event::CongestionWindow { packets } => line.serialize_entry("packets", packets),
            Event::Delivered { bytes } => line.serialize_entry("bytes", bytes),
            Event::Failed(reason) => line.serialize_entry("why", reason_name(*reason)),
            Event::MemberFailed(member) => line.serialize_entry("member", &member.0),
            _ => Ok(()),
        }
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Failed(_) | Event::Finished)
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Rtt, Event::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, Event::Rtt { sample_s, .. }) => Observed::Value(*sample_s),
            (Observable::Cwnd, Event::CongestionWindow { packets }) => Observed::Value(*packets),
            (Observable::Goodput, Event::Delivered { bytes }) => {
                Observed::Count(f64::from(*bytes) * 8.0)
            }
            (Observable::DeliveredFrames, Event::Delivered { .. })
            | (Observable::Overflows, Event::Overflow)
            | (Observable::Failures, Event::Failed(_))
            | (Observable::MemberFailures, Event::MemberFailed(_))
            | (Observable::LossEvents, Event::LossEvent)
            | (Observable::Timeouts, Event::RetransmissionTimeout) => Observed::Count(1.0),
            _ => return None,
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
