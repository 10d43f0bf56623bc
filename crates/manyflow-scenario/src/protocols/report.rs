//! What captures, traces and the recorder need to know of a protocol's headers and events.

use crate::record::Topic;
use crate::schema::observables::Observable;
use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;

/// What an event says of an observable.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Observed {
    /// The value at the time of the event.
    Value(f64),
    /// The observable's level changes by this.
    Step(f64),
    /// The present interval's count grows by this.
    Count(f64),
    /// The present interval's maximum is at least this.
    AtLeast(f64),
    /// The value of one group, by its rank.
    OfGroup(u8, f64),
}

/// A header that captures and traces show.
pub(crate) trait Wire {
    /// Returns whether packets are TCP segments. Otherwise they are UDP datagrams.
    fn is_tcp(&self) -> bool {
        false
    }

    /// Changes the ports where a tool would otherwise mistake the packet for one of another
    /// protocol or flow.
    fn adjust_ports(&self, _flow: &mut Flow) {}

    /// Writes the bytes that follow the UDP header; for TCP segments, those that follow the IP
    /// header.
    fn encode(&self, flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>);

    /// Writes the numbers by which a trace identifies the packet.
    ///
    /// # Errors
    /// Those of the output.
    fn trace(&self, payload_bytes: u32, line: &mut Line) -> serde_json::Result<()>;
}

/// An event that can be recorded and traced.
pub(crate) trait Reported {
    /// The event's name in traces.
    fn name(&self) -> &'static str;

    /// Writes the event's values.
    ///
    /// # Errors
    /// Those of the output.
    fn trace(&self, line: &mut Line) -> serde_json::Result<()>;

    /// What the event says of an observable, if anything.
    fn observe(&self, what: Observable) -> Option<Observed>;

    /// Whether nothing follows: a level that the endpoint reported no longer stands.
    fn is_end(&self) -> bool {
        false
    }

    /// Whether the event is about a topic; events of most protocols are about none in particular.
    fn is_about(&self, topic: Topic) -> bool {
        topic == Topic::Any
    }
}
