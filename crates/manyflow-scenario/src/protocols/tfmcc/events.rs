//! Records and traces of events of TFMCC's sender and receivers.

use manyflow_tfmcc::Event;
use serde::ser::SerializeMap;

use crate::protocols::common::{CommonEvent, common_events};
use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

common_events!(
    Joined(channel),
    Left(channel),
    Rtt {
        sample_s,
        average_s
    }
);

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::LossEvent { .. } => "loss-event",
            Event::RateSet { .. } => "rate",
            Event::LimitingReceiverChanged { .. } => "limiting-receiver",
            Event::SlowstartEnded => "slowstart-end",
            Event::RoundEnded { .. } => "round",
            Event::FeedbackReceived { .. } => "feedback",
            Event::FeedbackSent { .. } => "feedback-sent",
            Event::FeedbackSuppressed => "feedback-suppressed",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::LossEvent { loss_event_rate } => {
                line.serialize_entry("loss-probability", loss_event_rate)
            }
            Event::RateSet { rate } => line.serialize_entry("rate", &rate.bits_per_s()),
            Event::LimitingReceiverChanged { receiver } => {
                line.serialize_entry("receiver", &receiver.map(|receiver| receiver.0))
            }
            Event::RoundEnded {
                reports,
                limiting_reports,
                rtt_max,
                ..
            } => {
                line.serialize_entry("reports", reports)?;
                line.serialize_entry("limiting-reports", limiting_reports)?;
                line.serialize_entry("maximum-rtt", &rtt_max.as_secs_f64())
            }
            Event::FeedbackReceived {
                receiver,
                rate,
                rtt,
            } => {
                line.serialize_entry("receiver", &receiver.0)?;
                line.serialize_entry("rate", &rate.bits_per_s())?;
                line.serialize_entry("sample", &rtt.as_secs_f64())
            }
            Event::FeedbackSent { rate, is_clr } => {
                line.serialize_entry("rate", &rate.bits_per_s())?;
                line.serialize_entry("limits", is_clr)
            }
            other => common(other).map_or(Ok(()), |event| event.trace(line)),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::LossProbability, Event::LossEvent { loss_event_rate }) => {
                Observed::Value(*loss_event_rate)
            }
            (Observable::Reports, Event::RoundEnded { reports, .. }) => {
                Observed::Value(f64::from(*reports))
            }
            (Observable::LossEvents, Event::LossEvent { .. }) => Observed::Count(1.0),
            _ => return common(self)?.observe(what),
        })
    }
}
