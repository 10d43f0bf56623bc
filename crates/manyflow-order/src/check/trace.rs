//! The trace of a member: everything that it did and saw, in order.

use std::sync::Arc;

use crate::event::{Cause, Delivery, Event};
use crate::names::{GroupViewId, Service};

/// Everything that one client did and saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The client's name, which no other trace has.
    pub member: Arc<str>,
    /// Its events, the first one first.
    pub events: Vec<TraceEvent>,
    /// How the trace ends.
    pub end: End,
}

/// How a trace ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client crashed, its daemon did, or it disconnected: it need not have seen what others
    /// saw.
    Gone,
    /// The client still took part, and all that was on its way had time to arrive.
    Quiet,
}

/// An event in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The client sent a message.
    Sent(Sent),
    /// The client got a message. Its number is that of a [`TraceEvent::Sent`] of any trace.
    Delivered(u64),
    /// The client got a view of one of its groups.
    View(Viewed),
    /// The client got the transitional signal of a group.
    Transitional(Arc<str>),
    /// The client has left a group.
    Left(Arc<str>),
}

impl TraceEvent {
    /// Returns what a client sees by an event of its daemon. `number` returns the number of a
    /// message, which its sender has put into it.
    pub fn seen(event: Event, number: impl FnOnce(&Delivery) -> u64) -> TraceEvent {
        match event {
            Event::Delivered(delivery) => TraceEvent::Delivered(number(&delivery)),
            Event::View(view) => TraceEvent::View(Viewed {
                group: view.group,
                id: view.id,
                members: view.members,
                by_network: view.cause == Cause::Network,
                stayed: view.stayed,
            }),
            Event::Transitional { group, .. } => TraceEvent::Transitional(group),
            Event::Left { group, .. } => TraceEvent::Left(group),
        }
    }
}

/// A message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// A number that no other message has.
    pub message: u64,
    /// The service.
    pub service: Service,
    /// The groups that it was sent to.
    pub groups: Vec<Arc<str>>,
    /// Whether the sender does not get it.
    pub self_discard: bool,
}

/// A view that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewed {
    /// The group.
    pub group: Arc<str>,
    /// The view's number.
    pub id: GroupViewId,
    /// The names of all members, in the order of the view.
    pub members: Arc<[Arc<str>]>,
    /// Whether daemons had appeared or disappeared.
    pub by_network: bool,
    /// The members that have come with this one from the last view.
    pub stayed: Arc<[Arc<str>]>,
}
