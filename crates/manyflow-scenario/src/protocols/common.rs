//! Events that several protocols report in the same way.

use manyflow_core::{Channel, Rate};
use manyflow_netsim::trace::Line;
use serde::ser::SerializeMap;

use super::report::Observed;
use manyflow_model::observables::Observable;

/// An event of several protocols. Its variants have the names and values that the protocols give
/// them.
pub(crate) enum CommonEvent {
    /// A receiver joined a channel.
    Joined(Channel),
    /// A receiver left a channel.
    Left(Channel),
    /// A round-trip time was measured: the sample, and the average after it.
    Rtt { sample_s: f64, average_s: f64 },
    /// The rates of a controller that follows the TCP equation were updated.
    Rates {
        target: Rate,
        received: Rate,
        loss_probability: f64,
    },
    /// A frame or a message was delivered.
    Delivered { bytes: u32 },
    /// The congestion window has changed.
    CongestionWindow { packets: f64 },
    /// A loss event began.
    LossEvent,
    /// The retransmission timer expired.
    RetransmissionTimeout,
    /// A packet was sent again.
    Retransmission,
}

/// Defines `common`, which converts the listed events of the `Event` in scope, and returns `None`
/// for the others.
macro_rules! common_events {
    ($($name:ident $(($value:ident))? $({ $($field:ident),* })?),*) => {
        /// Converts an event that other protocols report, too.
        #[inline]
        fn common(event: &Event) -> Option<CommonEvent> {
            Some(match *event {
                $(
                    Event::$name $(($value))? $({ $($field,)* .. })? => {
                        CommonEvent::$name $(($value))? $({ $($field),* })?
                    }
                )*
                _ => return None,
            })
        }
    };
}

pub(crate) use common_events;

impl CommonEvent {
    /// Returns the event's name in traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            CommonEvent::Joined(_) => "join",
            CommonEvent::Left(_) => "leave",
            CommonEvent::Rtt { .. } => "rtt",
            CommonEvent::Rates { .. } => "rates",
            CommonEvent::Delivered { .. } => "delivered",
            CommonEvent::CongestionWindow { .. } => "window",
            CommonEvent::LossEvent => "loss-event",
            CommonEvent::RetransmissionTimeout => "retransmission-timeout",
            CommonEvent::Retransmission => "retransmission",
        }
    }

    /// Writes the event's values.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub(crate) fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            CommonEvent::Joined(channel) | CommonEvent::Left(channel) => {
                line.serialize_entry("channel", &channel.number)
            }
            CommonEvent::Rtt {
                sample_s,
                average_s,
            } => {
                line.serialize_entry("sample", sample_s)?;
                line.serialize_entry("average", average_s)
            }
            CommonEvent::Rates {
                target,
                received,
                loss_probability,
            } => {
                line.serialize_entry("target", &target.bits_per_s())?;
                line.serialize_entry("received", &received.bits_per_s())?;
                line.serialize_entry("loss-probability", loss_probability)
            }
            CommonEvent::Delivered { bytes } => line.serialize_entry("bytes", bytes),
            CommonEvent::CongestionWindow { packets } => line.serialize_entry("packets", packets),
            CommonEvent::LossEvent
            | CommonEvent::RetransmissionTimeout
            | CommonEvent::Retransmission => Ok(()),
        }
    }

    /// Returns the change of an observable that the event reports, if any.
    #[inline]
    pub(crate) fn observe(&self, what: Observable) -> Option<Observed> {
        let rate = |rate: Rate| Observed::Value(rate.bits_per_s() as f64);
        Some(match (what, self) {
            (Observable::Channels, CommonEvent::Joined(_)) => Observed::Step(1.0),
            (Observable::Channels, CommonEvent::Left(_)) => Observed::Step(-1.0),
            (Observable::Rtt, CommonEvent::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, CommonEvent::Rtt { sample_s, .. }) => {
                Observed::Value(*sample_s)
            }
            (Observable::TargetRate, CommonEvent::Rates { target, .. }) => rate(*target),
            (Observable::ReportedRate, CommonEvent::Rates { received, .. }) => rate(*received),
            (
                Observable::LossProbability,
                CommonEvent::Rates {
                    loss_probability, ..
                },
            ) => Observed::Value(*loss_probability),
            (Observable::Goodput, CommonEvent::Delivered { bytes }) => {
                Observed::Count(f64::from(*bytes) * 8.0)
            }
            (Observable::Cwnd, CommonEvent::CongestionWindow { packets }) => {
                Observed::Value(*packets)
            }
            (Observable::Joins, CommonEvent::Joined(_))
            | (Observable::DeliveredFrames, CommonEvent::Delivered { .. })
            | (Observable::LossEvents, CommonEvent::LossEvent)
            | (Observable::Timeouts, CommonEvent::RetransmissionTimeout)
            | (Observable::Retransmissions, CommonEvent::Retransmission) => Observed::Count(1.0),
            _ => return None,
        })
    }
}
