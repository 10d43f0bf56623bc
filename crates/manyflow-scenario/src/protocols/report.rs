//! The interface between protocols and captures, traces and the recorder.

use manyflow_model::observables::Observable;
use manyflow_netsim::capture::Flow;
use manyflow_netsim::trace::Line;
use manyflow_overlay::{DaemonId, GroupId, LinkId};

/// The part of an overlay or of a connection that a series is about, which selects events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// All of it.
    Any,
    /// A link between daemons.
    Link(LinkId),
    /// A group.
    Group(GroupId),
    /// The reports of one daemon.
    Report(DaemonId),
    /// The frames of one of several initiators of ACP.
    Initiator {
        /// Its index.
        index: u16,
        /// The number of initiators, which have equal parts of all keys.
        of: u16,
    },
}

/// The change of an observable that an event reports.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Observed {
    /// The observable has this value at the time of the event.
    Value(f64),
    /// The observable's level changes by this amount.
    Step(f64),
    /// The count of the current interval grows by this amount.
    Count(f64),
    /// The maximum of the current interval is at least this value.
    AtLeast(f64),
    /// The observable of the group with this rank has this value.
    OfGroup(u8, f64),
}

/// A header that captures and traces show.
pub(crate) trait Wire {
    /// Returns whether packets are TCP segments. Otherwise they are UDP datagrams.
    fn is_tcp(&self) -> bool {
        false
    }

    /// Returns whether the payload is a complete IP packet, so that captures add no headers.
    fn is_whole(&self) -> bool {
        false
    }

    /// Changes the ports if a protocol analyser would otherwise mistake the packet for one of
    /// another protocol or flow.
    fn adjust_ports(&self, _flow: &mut Flow) {}

    /// Writes the bytes that follow the UDP header or, for a TCP segment, the IP header.
    fn encode(&self, flow: &Flow, payload_bytes: u32, frame: &mut Vec<u8>);

    /// Writes the numbers by which a trace identifies the packet.
    ///
    /// # Errors
    /// Returns the errors of the output.
    fn trace(&self, payload_bytes: u32, line: &mut Line) -> serde_json::Result<()>;
}

/// An event that can be recorded and traced.
pub(crate) trait Reported {
    /// Returns the event's name in traces.
    fn name(&self) -> &'static str;

    /// Writes the event's values.
    ///
    /// # Errors
    /// Returns the errors of the output.
    fn trace(&self, line: &mut Line) -> serde_json::Result<()>;

    /// Returns the change of an observable that the event reports, if any.
    fn observe(&self, what: Observable) -> Option<Observed>;

    /// Returns whether the endpoint has ended, so that its levels no longer hold.
    fn is_end(&self) -> bool {
        false
    }

    /// Returns whether the event is about a topic. The events of most protocols have no particular
    /// topic.
    fn is_about(&self, topic: Topic) -> bool {
        topic == Topic::Any
    }
}
