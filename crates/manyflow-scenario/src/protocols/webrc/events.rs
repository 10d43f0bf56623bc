//! Records and traces of events of WEBRC receivers.

use manyflow_webrc::{EndReason, Event, SlowStartEnd};
use serde::ser::SerializeMap;

use crate::protocols::report::{Observed, Reported};
use manyflow_model::observables::Observable;
use manyflow_netsim::trace::Line;

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Joined(_) => "join",
            Event::Left(_) => "leave",
            Event::JoinTimedOut(_) => "join-timeout",
            Event::Rtt { .. } => "rtt",
            Event::LossEvent => "loss-event",
            Event::Rates { .. } => "rates",
            Event::Train { .. } => "train",
            Event::SlowStartEnded(_) => "start-up-end",
            Event::SlowStartResumed => "start-up-resumed",
            Event::Ended(_) => "end",
            _ => "other",
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::Joined(channel) | Event::Left(channel) | Event::JoinTimedOut(channel) => {
                line.serialize_entry("channel", &channel.number)
            }
            Event::Rtt {
                sample_s,
                average_s,
            } => {
                line.serialize_entry("sample", sample_s)?;
                line.serialize_entry("average", average_s)
            }
            Event::Rates {
                target,
                received,
                loss_probability,
            } => {
                line.serialize_entry("target", &target.bits_per_s())?;
                line.serialize_entry("received", &received.bits_per_s())?;
                line.serialize_entry("loss-probability", loss_probability)
            }
            Event::Train { shown } => line.serialize_entry("shown", &shown.bits_per_s()),
            Event::SlowStartEnded(why) => line.serialize_entry("why", slow_start_end(*why)),
            Event::Ended(reason) => trace_end(*reason, line),
            _ => Ok(()),
        }
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Ended(_))
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Rtt, Event::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, Event::Rtt { sample_s, .. }) => Observed::Value(*sample_s),
            (Observable::TargetRate, Event::Rates { target, .. }) => {
                Observed::Value(target.bits_per_s() as f64)
            }
            (Observable::ReportedRate, Event::Rates { received, .. }) => {
                Observed::Value(received.bits_per_s() as f64)
            }
            (
                Observable::LossProbability,
                Event::Rates {
                    loss_probability, ..
                },
            ) => Observed::Value(*loss_probability),
            (Observable::Channels, Event::Joined(_)) => Observed::Step(1.0),
            (Observable::Channels, Event::Left(_) | Event::JoinTimedOut(_)) => Observed::Step(-1.0),
            (Observable::Joins, Event::Joined(_)) | (Observable::LossEvents, Event::LossEvent) => {
                Observed::Count(1.0)
            }
            _ => return None,
        })
    }
}

fn slow_start_end(why: SlowStartEnd) -> &'static str {
    match why {
        SlowStartEnd::Loss => "loss",
        SlowStartEnd::RttIncrease => "rtt-increase",
        SlowStartEnd::MaximumRate => "maximum-rate",
        SlowStartEnd::RateShortfall => "rate-shortfall",
        SlowStartEnd::LossProbability => "loss-probability",
    }
}

fn trace_end(reason: EndReason, line: &mut Line) -> serde_json::Result<()> {
    let (why, after) = match reason {
        EndReason::NoPackets(after) => ("no-packets", Some(after)),
        EndReason::NoTimeSlotChange(after) => ("no-time-slot-change", Some(after)),
        EndReason::BaseChannelLoss => ("base-channel-loss", None),
    };
    line.serialize_entry("why", why)?;
    match after {
        Some(after) => line.serialize_entry("after", &after.as_secs_f64()),
        None => Ok(()),
    }
}
