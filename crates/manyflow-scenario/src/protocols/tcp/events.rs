//! Records and traces of events of TCP senders.

use manyflow_tcp::Event;
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
            _ => Ok(()),
        }
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Finished)
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Rtt, Event::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, Event::Rtt { sample_s, .. }) => Observed::Value(*sample_s),
            (Observable::Cwnd, Event::CongestionWindow { packets }) => Observed::Value(*packets),
            (Observable::LossEvents, Event::LossEvent)
            | (Observable::Timeouts, Event::RetransmissionTimeout) => Observed::Count(1.0),
            _ => return None,
        })
    }
}
