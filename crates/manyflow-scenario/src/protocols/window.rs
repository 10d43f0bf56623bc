//! The events that senders with a congestion window have in common: TCP and ACP.

use manyflow_netsim::trace::Line;
use serde::ser::SerializeMap;

use super::report::Observed;
use manyflow_model::observables::Observable;

/// An event of a sender with a congestion window.
pub(crate) enum WindowEvent {
    /// A round-trip time was measured: the sample, and the average after it.
    Rtt { sample_s: f64, average_s: f64 },
    /// The congestion window has changed.
    Window { packets: f64 },
    /// A loss event began.
    LossEvent,
    /// The retransmission timer expired.
    Timeout,
    /// A packet was sent again.
    Retransmission,
}

impl WindowEvent {
    /// Returns the event's name in traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            WindowEvent::Rtt { .. } => "rtt",
            WindowEvent::Window { .. } => "window",
            WindowEvent::LossEvent => "loss-event",
            WindowEvent::Timeout => "retransmission-timeout",
            WindowEvent::Retransmission => "retransmission",
        }
    }

    /// Writes the event's values.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub(crate) fn trace(&self, line: &mut Line) -> serde_json::Result<()> {
        match self {
            WindowEvent::Rtt {
                sample_s,
                average_s,
            } => {
                line.serialize_entry("sample", sample_s)?;
                line.serialize_entry("average", average_s)
            }
            WindowEvent::Window { packets } => line.serialize_entry("packets", packets),
            _ => Ok(()),
        }
    }

    /// Returns the change of an observable that the event reports, if any.
    #[inline]
    pub(crate) fn observe(&self, what: Observable) -> Option<Observed> {
        Some(match (what, self) {
            (Observable::Rtt, WindowEvent::Rtt { average_s, .. }) => Observed::Value(*average_s),
            (Observable::RttSample, WindowEvent::Rtt { sample_s, .. }) => {
                Observed::Value(*sample_s)
            }
            (Observable::Cwnd, WindowEvent::Window { packets }) => Observed::Value(*packets),
            (Observable::LossEvents, WindowEvent::LossEvent)
            | (Observable::Timeouts, WindowEvent::Timeout)
            | (Observable::Retransmissions, WindowEvent::Retransmission) => Observed::Count(1.0),
            _ => return None,
        })
    }
}
