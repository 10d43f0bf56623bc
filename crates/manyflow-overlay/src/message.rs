//! The messages between daemons, and the frames that carry them over a link or to a client.

mod control;
mod copy_flags;
mod group_set;

use super::sequence::{ChangeSeq, LinkSeq, OriginSeq};
pub use control::{Control, CostUpdate, LinkState, Report, RoundTrip};
pub use copy_flags::CopyFlags;
pub use group_set::GroupSet;
use manyflow_core::Header;
use manyflow_tcp as tcp;

/// Bytes of IPv4's and UDP's headers below each datagram.
pub const DATAGRAM_BYTES: u32 = 28;

/// Bytes of a client message's encoded header.
pub(super) const DATA_BYTES: u32 = 24;

/// Bytes of the length field before each message on a stream.
pub const LENGTH_BYTES: u32 = 2;

/// Bytes of a datagram's own header before its message.
pub(super) const NUMBER_BYTES: u32 = 8;

/// Bytes of the header of a client's message that is sent again.
const RESENT_BYTES: u32 = DATA_BYTES + 4;

/// Bytes of the longest payload. With all headers, such a message fits in an IPv4 packet on both
/// kinds of link and at clients.
pub const PAYLOAD_BYTES_MAX: u32 = 65_535 - tcp::HEADER_BYTES - LENGTH_BYTES - RESENT_BYTES;

/// Bytes of the longest name of a group.
pub const NAME_BYTES_MAX: u32 = 1024;

/// The maximum number of messages that a daemon hands to a client before the client reports that it
/// has [read](ClientFrame::Took) some.
pub const CLIENT_WINDOW: u32 = 64;

/// A daemon, identified by a number that no other daemon of the overlay has. A simulated overlay
/// counts its daemons from 0; a live one takes the hashes of their names.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u16);

/// A group, identified by a number that all daemons agree on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A client, identified by a number that its daemon assigned.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// One direction of an overlay link. The other direction has the ends exchanged.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    /// The daemon that sends over the link.
    pub from: DaemonId,
    /// The daemon that receives.
    pub to: DaemonId,
}

/// A message from one daemon to one, several or all others. It travels down the tree rooted at its
/// origin, except in [`Frame::Direct`]. Its fields are read by copying them.
// Packed, so that frames stay small: packets are passed by value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub struct Message {
    /// The daemon at which the message entered the overlay.
    pub origin: DaemonId,
    /// The fate of this copy on its path so far, and whether it may be cut.
    pub copy: CopyFlags,
    /// The message's contents.
    pub body: Body,
}

/// The contents of a [`Message`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A client's message to a group. The payload follows the header.
    Data(Data),
    /// A client's message to one of several groups. The payload follows the header, and messages
    /// behind this one on the same link may repeat it.
    Shared(Data),
    /// A client's message to one of several groups. The payload is that of the last
    /// [`Body::Shared`] on the same link.
    Again(Data),
    /// A client's message to a group, sent again to one daemon. The payload follows the header.
    Resent(Resent),
    /// Announces to one daemon with members which messages to a group are guaranteed to reach it.
    Welcome(Welcome),
    /// Answers a welcome. Sent to one daemon.
    Answer(Answer),
    /// Acknowledges the messages of one daemon to several groups.
    Acknowledge(Acknowledge),
    /// A change of the origin's state. Flooded to all daemons.
    Change(Change),
    /// A part of the origin's whole state. Sent to a neighbour that asked for it.
    Part(Part),
    /// The number of the last known change of the origin. Sent to a neighbour, not forwarded.
    Summary(Summary),
    /// Signs the origin's changes since its last seal, and its whole state after them. The
    /// [seal](super::Notary) is the payload. Flooded to all daemons. With the change 0, proves to
    /// the origin that it has lived in this incarnation; sent towards the origin.
    Seal(Summary),
    /// Asks a neighbour for the origin's whole state.
    Request,
    /// A message from one controller to others.
    Control(Control),
}

/// The header of a client's message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The group that the message is for.
    pub group: GroupId,
    /// The [version](super::Topology::version) of the origin's topology, whose tree the message
    /// follows.
    pub version: u16,
    /// The number of the message among those that the origin sends to the group.
    pub sequence: OriginSeq,
    /// The client that sends the message, by its number at the origin.
    pub sender: ClientId,
    /// The time at which the sending client had the message ready, in microseconds modulo 2^32 by
    /// the origin's clock. If the clocks of origin and receiver agree, this gives the message's
    /// age.
    pub sent_us: u32,
}

/// The header of a client's message that its origin sends again to one daemon with members.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Resent {
    /// The daemon that this copy is for.
    pub to: DaemonId,
    /// The message's header, with the version of the tree that this copy follows.
    pub data: Data,
}

/// Announces to a daemon with members which of the origin's messages to a group are guaranteed to
/// reach it. It waits in the same queues as the messages before it. In a topology that can change,
/// it is repeated until it is answered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The daemon that this welcome is for.
    pub to: DaemonId,
    /// The version of the tree that this welcome follows.
    pub version: u16,
    /// The group whose messages are announced.
    pub group: GroupId,
    /// The change by which the daemon `to` gained its first member.
    pub change: ChangeSeq,
    /// The first message that is guaranteed to reach the daemon `to`.
    pub start: OriginSeq,
    /// The message after those that were sent before this welcome; at least `start`.
    pub next: OriginSeq,
}

/// The answer to a [`Welcome`]. The daemon `to` then sends again the messages from `expected` to
/// those before `next`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The daemon whose welcome this answers.
    pub to: DaemonId,
    /// The version of the tree that this answer follows.
    pub version: u16,
    /// The group of the welcome.
    pub group: GroupId,
    /// The change of the welcome.
    pub change: ChangeSeq,
    /// The first message that has not arrived at the origin of this answer.
    pub expected: OriginSeq,
    /// The number `next` of the welcome.
    pub next: OriginSeq,
}

/// Acknowledges messages of one daemon to up to two groups.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// The daemon whose messages are acknowledged.
    pub to: DaemonId,
    /// The version of the tree that this acknowledgement follows.
    pub version: u16,
    /// For each group, the first message that has not arrived, modulo 2^32. An unused entry, after
    /// all others, has the number 0.
    pub flows: [(GroupId, u32); Acknowledge::FLOWS],
}

impl Acknowledge {
    /// The maximum number of groups in one acknowledgement.
    pub const FLOWS: usize = 2;

    /// Returns the entries that are in use.
    pub fn flows(&self) -> impl Iterator<Item = (GroupId, u32)> {
        self.flows.into_iter().take_while(|flow| flow.1 != 0)
    }
}

/// A change of the origin's state: its members, its pauses or its links.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The origin's incarnation: a daemon that restarts has a higher one. 0 in a fixed overlay.
    pub incarnation: u32,
    /// The number of this change among those of the incarnation.
    pub change: ChangeSeq,
    /// The new state.
    pub item: Item,
}

/// A part of the origin's whole state after a change. A neighbour sends all parts of a state before
/// those of another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The last change that the state includes.
    pub change: ChangeSeq,
    /// The number of this part, from 0. The item of part 0 is the [count](Item::Count) of all other
    /// parts, with the incarnation.
    pub index: u32,
    /// The part's contents.
    pub item: Item,
}

/// An item of a daemon's state.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The number of a group's members at the daemon. If there are any, the group's name follows
    /// the header.
    Members {
        /// The group.
        group: GroupId,
        /// The number of members.
        members: u32,
        /// The change by which the daemon gained its first member.
        since: ChangeSeq,
    },
    /// Whether a group's senders must wait for a member at the daemon.
    Paused {
        /// The group.
        group: GroupId,
        /// Whether senders must wait (`true`), or the member has room again (`false`).
        paused: bool,
    },
    /// A link of the daemon that is up, or no longer is.
    Link {
        /// The neighbour at the other end.
        to: DaemonId,
        /// The link's weight; 0 if the link is down.
        weight: u32,
        /// The change by which the link came up or went down.
        since: ChangeSeq,
    },
    /// The daemon is alive: nothing else has changed for some time.
    Alive,
    /// The first part of a whole state.
    Count {
        /// The number of parts that follow.
        count: u32,
        /// The origin's incarnation.
        incarnation: u32,
    },
    /// A piece of the [proof](super::Notary) that the whole state is the origin's. The piece is the
    /// payload. The pieces follow the first part.
    Proof,
}

impl Item {
    /// Returns whether the name of a group follows the header.
    pub fn has_name(&self) -> bool {
        matches!(self, Item::Members { members: 1.., .. })
    }

    /// Returns whether a payload follows the header: the name of a group, or a piece of a proof.
    pub fn has_payload(&self) -> bool {
        self.has_name() || *self == Item::Proof
    }
}

/// The last change of the origin that a neighbour knows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The origin's last known incarnation.
    pub incarnation: u32,
    /// The incarnation's last known change.
    pub change: ChangeSeq,
}

/// A unit of transmission between two daemons, or between a daemon and a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message on a [stream](super::hop::StreamHop), in a TCP segment of its own. The payload
    /// follows the header.
    Segment {
        /// The segment's number.
        sequence: LinkSeq,
        /// The message in the segment.
        message: Message,
    },
    /// TCP's acknowledgement of segments.
    Ack(Ack),
    /// A message on a [connection of the kernel's TCP](super::hop::KernelHop), whose place in the
    /// stream gives its number. The payload follows the header.
    Stream(Message),
    /// A message on a [link of datagrams](super::hop::DatagramHop). The payload follows the header.
    Datagram {
        /// The datagram's number; a retransmission has the number of the original.
        number: LinkSeq,
        /// The message in the datagram.
        message: Message,
    },
    /// Reports which messages of a link have arrived and which datagrams are missing.
    Feedback(Feedback),
    /// Measures how long the bytes of a [connection](super::hop::KernelHop) take.
    Delay(Delay),
    /// A message sent directly to one daemon, not over overlay links. May be lost.
    Direct(Message),
    /// A frame between a client and its daemon.
    Client(ClientFrame),
}

/// TCP's acknowledgement of a stream's segments (RFC 5681, RFC 2018).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The next segment that the receiver expects.
    pub acknowledgement: LinkSeq,
    /// How many segments the receiver has room for, counted from
    /// [`acknowledgement`](Ack::acknowledgement).
    pub window: u16,
    /// Received blocks above [`acknowledgement`](Ack::acknowledgement), the newest first. Each is a
    /// half-open range of segments; an unused entry is an empty range.
    pub sack: [(LinkSeq, LinkSeq); 3],
}

/// The NACKs and the cumulative acknowledgement of a link of datagrams.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// All datagrams before this one have arrived.
    pub expected: LinkSeq,
    /// Ranges of missing datagrams, the lowest first. Each range is half-open; an unused entry is
    /// an empty range.
    pub missing: [(LinkSeq, LinkSeq); 3],
}

/// A probe of one direction of a connection between daemons, or the answer to one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Asks the other end how long this frame took.
    Asked {
        /// The time at which the frame was handed to the connection, in microseconds modulo 2^32 by
        /// the clock of the asking end.
        sent_us: u32,
    },
    /// Answers the last probe.
    Answered {
        /// The time that the probe took beyond the shortest time of the last minutes, in
        /// microseconds.
        waited_us: u32,
    },
}

/// A frame between a client and its daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// To the daemon: the client connects.
    Connect {
        /// The client's share under the daemon's controller, in percent of other clients' shares;
        /// at least 1.
        priority: u16,
    },
    /// To the daemon: the client joins a group. The payload is the group's name, at most
    /// [`NAME_BYTES_MAX`] bytes. It can be empty.
    Join(GroupId),
    /// To the daemon: the client leaves a group.
    Leave(GroupId),
    /// To the daemon: a message, which is the payload. The client sends its next message only after
    /// [`ClientFrame::Ready`].
    Send {
        /// The groups that the message is for.
        groups: GroupSet,
        /// The time at which the message was ready, in microseconds modulo 2^32 by the client's
        /// clock.
        sent_us: u32,
        /// Whether the payload is in [layers](super::Layers), of which members get as much as the
        /// links on the way to them sell.
        layered: bool,
    },
    /// To the daemon: the client has read messages.
    Took {
        /// How many messages the client has read since its last `Took`.
        messages: u32,
    },
    /// To the daemon: the client disconnects. A client that crashes has the same effect, because
    /// its socket closes.
    Disconnect,
    /// From the daemon: the client's message has entered the overlay; the client may send the next.
    Ready,
    /// From the daemon: a message, which is the payload.
    Deliver {
        /// The daemon at which the message entered the overlay.
        origin: DaemonId,
        /// The message's header.
        data: Data,
        /// Whether the payload is in [layers](super::Layers), of which the last ones may have been
        /// cut.
        layered: bool,
    },
    /// From the daemon: how many members a group has now, at all daemons.
    View {
        /// The group that the view describes.
        group: GroupId,
        /// The number of the group's members at all daemons.
        members: u32,
    },
    /// From the daemon: the client read too slowly, and is no longer a member of the group.
    Evicted(GroupId),
}

impl Message {
    /// Returns whether this is a client's message. All others are the overlay's own.
    pub fn is_data(&self) -> bool {
        self.data().is_some() || matches!(self.body, Body::Resent(_))
    }

    /// Returns the header of a client's message that is sent to all members of its group.
    pub fn data(&self) -> Option<Data> {
        match self.body {
            Body::Data(data) | Body::Shared(data) | Body::Again(data) => Some(data),
            _ => None,
        }
    }

    /// Returns the number of a client's message among those of its origin to its group.
    pub(super) fn sequence(&self) -> Option<OriginSeq> {
        match self.body {
            Body::Resent(resent) => Some(resent.data.sequence),
            _ => self.data().map(|data| data.sequence),
        }
    }

    /// Returns the version of the topology whose tree the message follows; `None` if the message is
    /// not sent down a tree of a particular topology.
    pub(super) fn version(&self) -> Option<u16> {
        match &{ self.body } {
            Body::Data(data) | Body::Shared(data) | Body::Again(data) => Some(data.version),
            Body::Resent(resent) => Some(resent.data.version),
            Body::Welcome(welcome) => Some(welcome.version),
            Body::Answer(answer) => Some(answer.version),
            Body::Acknowledge(acknowledge) => Some(acknowledge.version),
            Body::Control(Control::Cost(update)) => Some(update.version),
            Body::Change(_)
            | Body::Part(_)
            | Body::Summary(_)
            | Body::Seal(_)
            | Body::Request
            | Body::Control(_) => None,
        }
    }

    /// Returns whether the message waits in the queue of clients' messages: it is one, or it must
    /// not overtake them.
    pub(super) fn waits_with_data(&self) -> bool {
        self.is_data() || matches!(self.body, Body::Welcome(_))
    }

    /// Returns whether a payload follows the header: a client's message, the name of a group, or a
    /// signed statement.
    pub fn has_payload(&self) -> bool {
        match &{ self.body } {
            Body::Change(change) => change.item.has_payload(),
            Body::Part(part) => part.item.has_payload(),
            Body::Seal(_) => true,
            Body::Again(_) => false,
            _ => self.is_data(),
        }
    }

    /// Returns the length of the encoded header in bytes.
    pub fn wire_bytes(&self) -> u32 {
        // Kind, flags and origin take 4 bytes.
        4 + match &{ self.body } {
            Body::Data(_) | Body::Shared(_) | Body::Again(_) => DATA_BYTES - 4,
            Body::Resent(_) => RESENT_BYTES - 4,
            Body::Welcome(_) | Body::Answer(_) | Body::Change(_) | Body::Part(_) => 24,
            Body::Acknowledge(acknowledge) => 4 + 8 * acknowledge.flows().count() as u32,
            Body::Summary(_) | Body::Seal(_) => 8,
            Body::Request => 0,
            Body::Control(Control::Cost(update)) => {
                4 + 4 * update.links.iter().flatten().count() as u32
            }
            Body::Control(Control::Report(_)) => 24,
            Body::Control(Control::RoundTrip(_)) => 4,
        }
    }
}

impl Frame {
    /// Returns the number of bytes that the header takes on a link, lower layers included. A client
    /// runs on its daemon's machine; the lower layers of its frames count as those of a datagram.
    pub fn wire_bytes(&self) -> u32 {
        match self {
            Frame::Segment { message, .. } | Frame::Stream(message) => {
                tcp::HEADER_BYTES + LENGTH_BYTES + message.wire_bytes()
            }
            Frame::Ack(ack) => ack.wire_bytes(),
            Frame::Datagram { message, .. } => DATAGRAM_BYTES + NUMBER_BYTES + message.wire_bytes(),
            Frame::Feedback(feedback) => DATAGRAM_BYTES + feedback.wire_bytes(),
            Frame::Delay(_) => tcp::HEADER_BYTES + LENGTH_BYTES + 8,
            Frame::Direct(message) => DATAGRAM_BYTES + message.wire_bytes(),
            Frame::Client(frame) => DATAGRAM_BYTES + frame.wire_bytes(),
        }
    }

    /// Returns whether this is one of the overlay's own frames: neither a client's message, nor a
    /// frame of a client's connection, nor TCP's acknowledgement.
    pub fn is_control(&self) -> bool {
        match self {
            Frame::Segment { message, .. }
            | Frame::Stream(message)
            | Frame::Datagram { message, .. }
            | Frame::Direct(message) => !message.is_data(),
            Frame::Ack(_) | Frame::Client(_) => false,
            Frame::Feedback(_) | Frame::Delay(_) => true,
        }
    }
}

impl Ack {
    /// Returns the number of bytes that the acknowledgement takes on a link: IPv4, TCP, and SACK if
    /// there are blocks.
    pub fn wire_bytes(&self) -> u32 {
        self.segment().wire_bytes()
    }

    /// Returns the TCP segment that carries this acknowledgement.
    pub(super) fn segment(&self) -> tcp::Segment {
        tcp::Segment {
            acknowledgement: self.acknowledgement.0,
            window: self.window,
            sack: self.sack.map(|(begin, end)| (begin.0, end.0)),
            ..tcp::Segment::default()
        }
    }
}

impl From<tcp::Segment> for Ack {
    fn from(segment: tcp::Segment) -> Ack {
        let block = |(begin, end)| (LinkSeq(begin), LinkSeq(end));
        Ack {
            acknowledgement: LinkSeq(segment.acknowledgement),
            window: segment.window,
            sack: segment.sack.map(block),
        }
    }
}

impl Feedback {
    /// Returns the length of the encoded header in bytes.
    pub fn wire_bytes(&self) -> u32 {
        8 + 8 * self.ranges().count() as u32
    }

    /// Returns the missing ranges that are in use.
    pub fn ranges(&self) -> impl Iterator<Item = (LinkSeq, LinkSeq)> {
        self.missing
            .into_iter()
            .take_while(|range| range.0 != range.1)
    }
}

impl ClientFrame {
    /// Returns whether a payload follows the header.
    pub fn has_payload(&self) -> bool {
        matches!(
            self,
            ClientFrame::Join(_) | ClientFrame::Send { .. } | ClientFrame::Deliver { .. }
        )
    }

    /// Returns the length of the encoded header in bytes.
    pub fn wire_bytes(&self) -> u32 {
        4 + match self {
            ClientFrame::Connect { .. } | ClientFrame::Disconnect | ClientFrame::Ready => 0,
            ClientFrame::Join(_)
            | ClientFrame::Leave(_)
            | ClientFrame::Took { .. }
            | ClientFrame::Evicted(_) => 4,
            ClientFrame::Send { groups, .. } => 4 + 4 * groups.as_slice().len() as u32,
            ClientFrame::View { .. } => 8,
            ClientFrame::Deliver { .. } => DATA_BYTES - 4,
        }
    }
}

impl Header for Frame {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        Frame::wire_bytes(self)
    }
}
