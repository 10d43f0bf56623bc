//! Records and traces of events of TFMCC's sender and receivers.

use manyflow_tfmcc::Event;
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Joined(_) => "join",
            Event::Left(_) => "leave",
            Event::Rtt { .. } => "rtt",
            Event::LossEvent { .. } => "loss-event",
            Event::RateSet { .. } => "rate",
            Event::LimitingReceiverChanged { .. } => "limiting-receiver",
            Event::SlowstartEnded => "slowstart-end",
            Event::RoundEnded { .. } => "round",
            Event::FeedbackReceived { .. } => "feedback",
            Event::FeedbackSent { .. } => "feedback-sent",
            Event::FeedbackSuppressed => "feedback-suppressed",
            _ => "other",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Joined(channel) | Event::Left(channel) => {
                line.serialize_entry("channel", &channel.number)
            }
            Event::Rtt {
                sample_s,
                average_s,
            } => {
                line.serialize_entry("sample", sample_s)?;
                line.serialize_entry("average", average_s)
            }
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
            _ => Ok(()),
        }
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Rtt, Event::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, Event::Rtt { sample_s, .. }) => Observed::Value(*sample_s),
            (Observable::LossProbability, Event::LossEvent { loss_event_rate }) => {
                Observed::Value(*loss_event_rate)
            }
            (Observable::Reports, Event::RoundEnded { reports, .. }) => {
                Observed::Value(f64::from(*reports))
            }
            (Observable::Channels, Event::Joined(_)) => Observed::Step(1.0),
            (Observable::Channels, Event::Left(_)) => Observed::Step(-1.0),
            (Observable::Joins, Event::Joined(_))
            | (Observable::LossEvents, Event::LossEvent { .. }) => Observed::Count(1.0),
            _ => return None,
        })
    }
}
