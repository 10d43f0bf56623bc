//! The messages between daemons, and the frames that carry them over a link or to a client.

use super::sequence::{ChangeSeq, LinkSeq, OriginSeq};
use manyflow_core::Header;
use manyflow_tcp as tcp;

/// Bytes of IPv4's and UDP's headers below each datagram.
pub const DATAGRAM_BYTES: u32 = 28;

/// Bytes of a client message's encoded header.
pub(super) const DATA_BYTES: u32 = 20;

/// Bytes of the length field before each message on a stream.
pub const LENGTH_BYTES: u32 = 2;

/// Bytes of a datagram's own header before its message.
pub(super) const NUMBER_BYTES: u32 = 8;

/// Bytes of the longest payload. With all headers, such a message fits in an IPv4 packet on both
/// kinds of link and at clients.
pub const PAYLOAD_BYTES_MAX: u32 = 65_535 - tcp::HEADER_BYTES - LENGTH_BYTES - DATA_BYTES;

/// The maximum number of messages that a daemon hands to a client before the client reports that it
/// has [read](ClientFrame::Took) some.
pub const CLIENT_WINDOW: u32 = 64;

/// A daemon, identified by its index in the [topology](super::Topology).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u16);

/// A group, identified by a number that all daemons agree on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A client, identified by a number that its daemon assigned.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// One direction of an overlay link. Direction `2 i` leads from the lower-numbered end of link `i`
/// of the topology to the higher-numbered end, and `2 i + 1` leads back.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

/// A message from one daemon to one, several or all others. It travels down the tree rooted at its
/// origin, except in [`Frame::Direct`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The daemon at which the message entered the overlay.
    pub origin: DaemonId,
    /// Whether a link on the path had to retransmit this copy. A repaired copy gives no sample of
    /// the round-trip time, and its loss has already been noticed.
    pub repaired: bool,
    /// The message's contents.
    pub body: Body,
}

/// The contents of a [`Message`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A client's message to a group. The payload follows the header.
    Data(Data),
    /// A client has joined or left a group. Flooded to all daemons.
    Membership(Membership),
    /// Announces to one daemon with members the first message to a group that is guaranteed to
    /// reach it.
    Welcome(Welcome),
    /// A member of a group has no room for more messages, or has room again. Flooded to all
    /// daemons.
    Pause(Pause),
    /// A message from one controller to others.
    Control(Control),
}

/// The header of a client's message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The group that the message is for.
    pub group: GroupId,
    /// The number of the message among those that the origin sends to the group.
    pub sequence: OriginSeq,
    /// The client that sends the message, by its number at the origin.
    pub sender: ClientId,
    /// The time at which the sending client had the message ready, in microseconds modulo 2^32 by
    /// the origin's clock. If the clocks of origin and receiver agree, this gives the message's
    /// age.
    pub sent_us: u32,
}

/// A client's membership of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group that the client joined or left.
    pub group: GroupId,
    /// The client, by its number at the origin.
    pub client: ClientId,
    /// Whether the client has joined (`true`) or left (`false`).
    pub joined: bool,
    /// The number of this change among those that the origin announces.
    pub change: ChangeSeq,
}

/// Announces to a daemon with members the first of the origin's messages to a group that is
/// guaranteed to reach it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The daemon that this welcome is for.
    pub to: DaemonId,
    /// The group whose messages are announced.
    pub group: GroupId,
    /// The [`Membership::change`] by which the daemon `to` gained its first member.
    pub change: ChangeSeq,
    /// The first message that is guaranteed to reach the daemon `to`.
    pub start: OriginSeq,
}

/// Whether a group's senders must wait for a member at the origin.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The group whose senders must wait.
    pub group: GroupId,
    /// Whether the group's senders must wait (`true`), or the origin has room again (`false`).
    pub paused: bool,
    /// The number of this change among those that the origin announces.
    pub change: ChangeSeq,
}

/// A message from one controller to others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The queues of the origin's links. Flooded to all daemons.
    Cost(CostUpdate),
    /// The rate at which the origin of this report can accept a group's messages from the addressed
    /// daemon.
    Report(Report),
    /// The round-trip time between the origin and the addressed daemon, as the origin measured it.
    RoundTrip(RoundTrip),
}

/// The queue of one link, reported in a [`CostUpdate`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The link, which begins at the update's origin.
    pub link: LinkId,
    /// The number of messages that wait for the link, in sixteenths of a message.
    pub queue: u16,
}

/// The queues of up to three of the origin's links. An origin with more links to report sends
/// several updates.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CostUpdate {
    /// The reported links, followed by `None`.
    pub links: [Option<LinkState>; CostUpdate::LINKS],
}

impl CostUpdate {
    /// The maximum number of links in one update.
    pub const LINKS: usize = 3;
}

/// A receiving daemon's report to a sending daemon about a group's messages (Xpand's paper,
/// sections 4.1 and 4.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The group whose messages are reported.
    pub group: GroupId,
    /// The acceptable rate in bytes per second, headers included; [`Report::UNLIMITED`] if no loss
    /// has been seen.
    pub rate_bytes_per_s: u32,
    /// p: loss events per packet, in units of 2^-16.
    pub loss_event_rate: u16,
    /// The share of repaired copies among the received messages, in units of 2^-16.
    pub repaired: u16,
    /// The message that this report acknowledges, or [`Report::NONE`].
    pub acknowledged: OriginSeq,
    /// Delta: microseconds between the acknowledged message's arrival and this report.
    pub held_us: u32,
}

impl Report {
    /// The rate of a report without a limit.
    pub const UNLIMITED: u32 = u32::MAX;

    /// The [acknowledged](Report::acknowledged) number of a report that acknowledges no message.
    /// Messages are numbered from 1.
    pub const NONE: OriginSeq = OriginSeq(0);
}

/// A round-trip time that one daemon has measured and sends to the daemon at the other end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The group whose messages were measured.
    pub group: GroupId,
    /// The average round-trip time in microseconds.
    pub rtt_us: u32,
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

/// A frame between a client and its daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// To the daemon: the client connects.
    Connect {
        /// The client's share under the daemon's controller, in percent of other clients' shares;
        /// at least 1.
        priority: u16,
    },
    /// To the daemon: the client joins a group.
    Join(GroupId),
    /// To the daemon: the client leaves a group.
    Leave(GroupId),
    /// To the daemon: a message, which is the payload. The client sends its next message only after
    /// [`ClientFrame::Ready`].
    Send {
        /// The group that the message is for.
        group: GroupId,
        /// The time at which the message was ready, in microseconds modulo 2^32 by the client's
        /// clock.
        sent_us: u32,
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
        matches!(self.body, Body::Data(_))
    }

    /// Returns the length of the encoded header in bytes.
    pub fn wire_bytes(&self) -> u32 {
        // Kind, flags and origin take 4 bytes.
        4 + match &self.body {
            Body::Data(_) => DATA_BYTES - 4,
            Body::Welcome(_) => 16,
            Body::Membership(_) => 12,
            Body::Pause(_) => 8,
            Body::Control(Control::Cost(update)) => {
                4 * update.links.iter().flatten().count() as u32
            }
            Body::Control(Control::Report(_)) => 20,
            Body::Control(Control::RoundTrip(_)) => 8,
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
            Frame::Feedback(_) => true,
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
        matches!(self, ClientFrame::Send { .. } | ClientFrame::Deliver { .. })
    }

    /// Returns the length of the encoded header in bytes.
    pub fn wire_bytes(&self) -> u32 {
        4 + match self {
            ClientFrame::Connect { .. } | ClientFrame::Disconnect | ClientFrame::Ready => 0,
            ClientFrame::Join(_)
            | ClientFrame::Leave(_)
            | ClientFrame::Took { .. }
            | ClientFrame::Evicted(_) => 4,
            ClientFrame::Send { .. } | ClientFrame::View { .. } => 8,
            ClientFrame::Deliver { .. } => 16,
        }
    }
}

impl Header for Frame {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        Frame::wire_bytes(self)
    }
}
