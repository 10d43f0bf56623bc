//! The events that clients learn of.

use std::sync::Arc;

use bytes::Bytes;

use crate::names::{ClientId, GroupViewId, Service};
use crate::wire::Names;

/// Something that a client of this daemon learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Delivered(Delivery),
    /// A new view of a group of which the client is a member.
    View(View),
    /// The transitional signal: until the next view of the group, messages may be missing at
    /// members that do not stay, and safe messages are safe only among those who stay.
    Transitional {
        /// The member.
        to: ClientId,
        /// The group.
        group: Arc<str>,
    },
    /// The client has left a group, as it wished. It learns nothing more of the group.
    Left {
        /// The member.
        to: ClientId,
        /// The group.
        group: Arc<str>,
    },
}

impl Event {
    /// Returns the client that this is for.
    pub fn to(&self) -> ClientId {
        match self {
            Event::Delivered(delivery) => delivery.to,
            Event::View(view) => view.to,
            Event::Transitional { to, .. } | Event::Left { to, .. } => *to,
        }
    }
}

/// A message for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The client that gets the message: once, however many of its groups the message is for.
    pub to: ClientId,
    /// The service that the sender chose.
    pub service: Service,
    /// The sender's name.
    pub sender: Arc<str>,
    /// A number that the sender chose and that means nothing to daemons.
    pub kind: i16,
    /// The contents.
    pub payload: Bytes,
    /// The encoded names of the groups.
    pub(crate) groups: Bytes,
}

impl Delivery {
    /// Returns the groups that the message is for, as its sender named them.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        Names(&self.groups)
    }
}

/// A view of a group for one of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The member that gets the view.
    pub to: ClientId,
    /// The group.
    pub group: Arc<str>,
    /// The view's number.
    pub id: GroupViewId,
    /// The names of all members, in the same order at all of them.
    pub members: Arc<[Arc<str>]>,
    /// Why the members have changed.
    pub cause: Cause,
    /// The members that have come with this one from the same view: the transitional set. With
    /// [`Cause::Network`], others may have missed messages of the last view; with other causes,
    /// these are all members but the one that has joined.
    pub stayed: Arc<[Arc<str>]>,
}

/// Why the members of a group have changed. Names are those of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client has joined.
    Join(Arc<str>),
    /// A member has left.
    Leave(Arc<str>),
    /// A member has disconnected, or its daemon has lost it.
    Disconnect(Arc<str>),
    /// Daemons have appeared, or can no longer be reached.
    Network,
}
