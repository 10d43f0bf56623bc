//! The client's half of the protocol between a client and its daemon.
//!
//! ```text
//!   connect, join, leave, send, disconnect --> [ Client ] --> poll_transmit --> daemon
//!                        read, poll_event  <-- [        ] <-- handle_frame  <--
//! ```
//!
//! Both directions are paced. The daemon holds one message of a client at a time: the client sends
//! the next when the daemon is [ready](ClientEvent::Ready). The daemon hands the client at most
//! [`CLIENT_WINDOW`] messages that the client has not read; a [`read`](Client::read) returns room
//! to the daemon.
//!
//! The client has no clock, no timer and no socket. A driver writes its frames to the daemon,
//! passes the daemon's frames to it, and calls [`disconnect`](Client::disconnect) when the
//! application is done:
//!
//! ```
//! use manyflow_overlay::{Client, ClientEvent, ClientFrame, GroupId};
//!
//! let group = GroupId(7);
//! let mut client = Client::<Vec<u8>>::new();
//! client.connect(100);
//! client.join(group, b"news".to_vec());
//! client.send(group, 0, b"hello".to_vec())?;
//! let frames: Vec<_> = std::iter::from_fn(|| client.poll_transmit()).collect();
//! assert_eq!(frames[1], (ClientFrame::Join(group), b"news".to_vec()));
//! assert_eq!(frames[2].1, b"hello");
//!
//! assert!(!client.is_ready());
//! client.handle_frame(&ClientFrame::Ready, vec![])?;
//! assert_eq!(client.poll_event(), Some(ClientEvent::Ready));
//! assert!(client.is_ready());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

#[cfg(debug_assertions)]
use std::collections::BTreeMap;
use std::collections::{BTreeSet, VecDeque};

use super::layers::{Cut, Layers, LayersError};
use super::message::{
    CLIENT_WINDOW, ClientFrame, DaemonId, Data, GroupId, GroupSet, PAYLOAD_BYTES_MAX,
};
#[cfg(debug_assertions)]
use super::sequence::OriginSeq;
use manyflow_core::Payload;

/// The number of read messages after which the client reports them. It also reports when no message
/// is left to read. The daemon therefore never waits for a report, and most messages need no report
/// of their own.
const REPORT_EVERY: u32 = CLIENT_WINDOW / 2;

/// A message that a daemon has delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered<P> {
    /// The daemon at which the message entered the overlay.
    pub origin: DaemonId,
    /// The message's header.
    pub data: Data,
    /// The message's payload.
    pub payload: P,
    /// Whether the payload is in [layers](crate::Layers), of which the last ones may have been cut.
    pub layered: bool,
}

/// An event that a client learns of from its daemon. Messages are not events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The client's message has entered the overlay. The client may send the next one.
    Ready,
    /// The number of a group's members at all daemons has changed to `members`.
    View {
        /// The group whose members changed.
        group: GroupId,
        /// The number of the group's members.
        members: u32,
    },
    /// The client read too slowly and is no longer a member of the group.
    Evicted(GroupId),
}

/// The reason why a client cannot send a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The client is not connected.
    #[error("the client is not connected: connect it first")]
    NotConnected,
    /// The daemon still has the client's last message.
    #[error("the daemon still has the last message: wait for ClientEvent::Ready")]
    NotReady,
    /// The payload is longer than [`PAYLOAD_BYTES_MAX`].
    #[error("a payload of {0} bytes is too long: send at most {PAYLOAD_BYTES_MAX} in a message")]
    TooLong(u32),
    /// The payload of a layered message does not begin with a valid table.
    #[error(transparent)]
    Layers(LayersError),
}

/// A violation of the protocol by the daemon. The connection should be closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The daemon handed over a message for which the client's window has no room.
    #[error(
        "the daemon handed over more than {CLIENT_WINDOW} unread messages: close the connection"
    )]
    Window,
    /// The daemon sent a frame that only clients send.
    #[error("the daemon sent {0:?}, which only clients send: close the connection")]
    Unexpected(ClientFrame),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The client has not connected yet.
    New,
    Connected,
    /// The client has disconnected.
    Closed,
}

/// A client's connection to its daemon.
///
/// After each call of a method, drain [`poll_transmit`](Client::poll_transmit) and
/// [`poll_event`](Client::poll_event).
#[derive(Debug)]
pub struct Client<P> {
    phase: Phase,
    groups: BTreeSet<GroupId>,
    /// Whether the daemon holds a message of this client that has not entered yet.
    is_sending: bool,
    /// Delivered messages that the application has not read.
    unread: VecDeque<Delivered<P>>,
    /// The number of messages that the application has read since the last report.
    unreported: u32,
    frames: VecDeque<(ClientFrame, P)>,
    events: VecDeque<ClientEvent>,
    /// The number and version of the last message of each origin to each group, to check their
    /// order.
    #[cfg(debug_assertions)]
    last: BTreeMap<(DaemonId, GroupId), (OriginSeq, u16)>,
}

impl<P> Default for Client<P> {
    fn default() -> Client<P> {
        Client {
            phase: Phase::New,
            groups: BTreeSet::new(),
            is_sending: false,
            unread: VecDeque::new(),
            unreported: 0,
            frames: VecDeque::new(),
            events: VecDeque::new(),
            #[cfg(debug_assertions)]
            last: BTreeMap::new(),
        }
    }
}

impl<P: Payload + Default> Client<P> {
    /// Returns a client that has not connected yet.
    pub fn new() -> Client<P> {
        Client::default()
    }

    /// Connects to the daemon. `priority`, at least 1, is the client's share under the daemon's
    /// controller, in percent of the share of a client with priority 100. A client connects only
    /// once.
    pub fn connect(&mut self, priority: u16) {
        if self.phase == Phase::New {
            self.phase = Phase::Connected;
            let priority = priority.max(1);
            self.push_frame(ClientFrame::Connect { priority });
        }
    }

    /// Returns whether the client has connected and not disconnected.
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Joins a group. `name` is the name that the group's number stands for, at most
    /// [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes. Returns whether the client was not a member
    /// before. From the first message of each origin that is delivered, no later one is missing.
    pub fn join(&mut self, group: GroupId, name: P) -> bool {
        let is_new = self.is_connected() && self.groups.insert(group);
        if is_new {
            self.frames.push_back((ClientFrame::Join(group), name));
        }
        is_new
    }

    /// Leaves a group. Returns whether the client was a member. Messages already in transit may
    /// still arrive.
    pub fn leave(&mut self, group: GroupId) -> bool {
        let was_member = self.is_connected() && self.groups.remove(&group);
        if was_member {
            self.push_frame(ClientFrame::Leave(group));
        }
        was_member
    }

    /// Returns whether the client is a member of a group: it has joined, and has neither left nor
    /// been evicted.
    pub fn is_member(&self, group: GroupId) -> bool {
        self.groups.contains(&group)
    }

    /// Returns whether the client may send a message now.
    pub fn is_ready(&self) -> bool {
        self.is_connected() && !self.is_sending
    }

    /// Sends a message to a group, or to [several](GroupSet) at once; the client need not be a
    /// member. `sent_us` is the time at which
    /// the message was ready, in microseconds modulo 2^32.
    ///
    /// # Errors
    /// Returns an error if the client may not send now, or if the payload is too long.
    pub fn send(
        &mut self,
        groups: impl Into<GroupSet>,
        sent_us: u32,
        payload: P,
    ) -> Result<(), SendError> {
        self.push_message(groups.into(), sent_us, payload, false)
    }

    fn push_message(
        &mut self,
        groups: GroupSet,
        sent_us: u32,
        payload: P,
        layered: bool,
    ) -> Result<(), SendError> {
        if !self.is_connected() {
            return Err(SendError::NotConnected);
        }
        if self.is_sending {
            return Err(SendError::NotReady);
        }
        if payload.length() > PAYLOAD_BYTES_MAX {
            return Err(SendError::TooLong(payload.length()));
        }
        self.is_sending = true;
        let frame = ClientFrame::Send {
            groups,
            sent_us,
            layered,
        };
        self.frames.push_back((frame, payload));
        Ok(())
    }

    /// Sends a [layered](crate::Layers) message: each link on the way to members carries the part
    /// that the message's purse buys at the link's price. Otherwise as [`send`](Client::send).
    ///
    /// # Errors
    /// Returns an error if the client may not send now, if the payload is too long, or if it has no
    /// valid table of layers.
    pub fn send_layered(
        &mut self,
        groups: impl Into<GroupSet>,
        sent_us: u32,
        payload: P,
    ) -> Result<(), SendError>
    where
        P: Cut,
    {
        Layers::read(payload.bytes()).map_err(SendError::Layers)?;
        self.push_message(groups.into(), sent_us, payload, true)
    }

    /// Returns the number of delivered messages that the application has not read.
    pub fn unread(&self) -> usize {
        self.unread.len()
    }

    /// Returns the oldest message that the application has not read. The message then counts as
    /// read. An application that spends time on a message may call this only when it has finished.
    pub fn read(&mut self) -> Option<Delivered<P>> {
        let message = self.unread.pop_front()?;
        self.unreported += 1;
        if self.unread.is_empty() || self.unreported >= REPORT_EVERY {
            let messages = core::mem::take(&mut self.unreported);
            self.push_frame(ClientFrame::Took { messages });
        }
        Some(message)
    }

    /// Disconnects from the daemon and drops unread messages. The daemon removes the client from
    /// its groups. A message that has not entered the overlay never will.
    pub fn disconnect(&mut self) {
        if self.is_connected() {
            self.phase = Phase::Closed;
            self.groups.clear();
            self.unread.clear();
            self.push_frame(ClientFrame::Disconnect);
        }
    }

    /// Handles a frame from the daemon. Ignores all frames unless the client is connected.
    ///
    /// # Errors
    /// Returns an error and ignores the frame if the daemon violates the protocol.
    pub fn handle_frame(&mut self, frame: &ClientFrame, payload: P) -> Result<(), ProtocolError> {
        if !self.is_connected() {
            return Ok(());
        }
        match *frame {
            ClientFrame::Ready if self.is_sending => {
                self.is_sending = false;
                self.events.push_back(ClientEvent::Ready);
            }
            ClientFrame::Ready => {}
            ClientFrame::Deliver {
                origin,
                data,
                layered,
            } => self.take(Delivered {
                origin,
                data,
                payload,
                layered,
            })?,
            ClientFrame::View { group, members } => {
                self.events.push_back(ClientEvent::View { group, members });
            }
            ClientFrame::Evicted(group) => {
                self.groups.remove(&group);
                self.events.push_back(ClientEvent::Evicted(group));
            }
            ClientFrame::Connect { .. }
            | ClientFrame::Join(_)
            | ClientFrame::Leave(_)
            | ClientFrame::Send { .. }
            | ClientFrame::Took { .. }
            | ClientFrame::Disconnect => return Err(ProtocolError::Unexpected(*frame)),
        }
        Ok(())
    }

    /// Holds a delivered message until the application reads it.
    fn take(&mut self, message: Delivered<P>) -> Result<(), ProtocolError> {
        if self.unread.len() + self.unreported as usize >= CLIENT_WINDOW as usize {
            return Err(ProtocolError::Window);
        }
        #[cfg(debug_assertions)]
        self.check_order(message.origin, &message.data);
        self.unread.push_back(message);
        Ok(())
    }

    #[cfg(debug_assertions)]
    fn check_order(&mut self, origin: DaemonId, data: &Data) {
        let present = (data.sequence, data.version);
        let last = self.last.insert((origin, data.group), present);
        // The numbers of an origin begin again when it restarts, which changes the topology.
        let follows = |last: (OriginSeq, u16)| last.0 < present.0 || last.1 != present.1;
        let last = last.filter(|last| !follows(*last)).map(|last| last.0);
        assert!(
            last.is_none(),
            "{:?} of {origin:?} to {:?} arrived after {last:?}",
            data.sequence,
            data.group,
        );
    }

    /// Returns the next frame for the daemon, with its payload.
    pub fn poll_transmit(&mut self) -> Option<(ClientFrame, P)> {
        self.frames.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn push_frame(&mut self, frame: ClientFrame) {
        debug_assert!(!frame.has_payload(), "{frame:?} needs its payload");
        self.frames.push_back((frame, P::default()));
    }
}
