//! Records and traces of events of WEBRC receivers.

use manyflow_webrc::{EndReason, Event, SlowStartEnd};
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
    },
    Rates {
        target,
        received,
        loss_probability
    },
    LossEvent
);

impl Reported for Event {
    fn name(&self) -> &'static str {
        match self {
            Event::JoinTimedOut(_) => "join-timeout",
            Event::Lost(_) => "packets-lost",
            Event::Train { .. } => "train",
            Event::SlowStartEnded(_) => "start-up-end",
            Event::SlowStartResumed => "start-up-resumed",
            Event::Ended(_) => "end",
            other => common(other).map_or("other", |event| event.name()),
        }
    }

    fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            Event::JoinTimedOut(channel) => line.serialize_entry("channel", &channel.number),
            Event::Lost(packets) => line.serialize_entry("packets", packets),
            Event::Train { shown } => line.serialize_entry("shown", &shown.bits_per_s()),
            Event::SlowStartEnded(why) => line.serialize_entry("why", slow_start_end(*why)),
            Event::Ended(reason) => trace_end(*reason, line),
            other => common(other).map_or(Ok(()), |event| event.trace(line)),
        }
    }

    fn is_end(&self) -> bool {
        matches!(self, Event::Ended(_))
    }

    fn observe(&self, what: Observable) -> Option<Observed> {
        match (what, self) {
            (Observable::Channels, Event::JoinTimedOut(_)) => Some(Observed::Step(-1.0)),
            (Observable::Loss, Event::Lost(packets)) => Some(Observed::Count(*packets as f64)),
            _ => common(self)?.observe(what),
        }
    }
}

fn slow_start_end(why: SlowStartEnd) -> &'static str {
    match why {
        SlowStartEnd::Loss => "loss",
        SlowStartEnd::RttIncrease => "rtt-increase",
        SlowStartEnd::MaximumRate => "maximum-rate",
        SlowStartEnd::RateShortfall => "rate-shortfall",
        SlowStartEnd::LossProbability => "loss-probability",
        SlowStartEnd::Mark => "mark",
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
