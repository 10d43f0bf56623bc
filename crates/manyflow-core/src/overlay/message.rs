//! What daemons say to each other, and what carries it from one to the next.

use crate::packet::Header;
use crate::tcp;

/// IPv4 and UDP, below each datagram.
pub const DATAGRAM_BYTES: u32 = 28;

/// The encoded header of a client's message.
pub(super) const DATA_BYTES: u32 = 20;

/// The length before each message on a stream.
pub const LENGTH_BYTES: u32 = 2;

/// The longest payload of a message: with all headers it fits in a packet of IPv4, on either kind of link and at clients.
pub const PAYLOAD_BYTES_MAX: u32 = 65_535 - tcp::HEADER_BYTES - LENGTH_BYTES - DATA_BYTES;

/// Messages that a daemon has handed to a client at most before it hears that they were [taken](ClientFrame::Took).
pub const CLIENT_WINDOW: u32 = 64;

/// A daemon, by its place in the [topology](super::Topology).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u16);

/// A group, by a number that all daemons agree on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A client, by a number that its daemon gave it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// One direction of an overlay link, by its place in the topology: `2 i` leads from the lower-numbered end of link `i` to
/// the higher one, `2 i + 1` back.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

/// What one daemon tells others, all or one. It travels down the tree that is rooted at its origin.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it entered the overlay.
    pub origin: DaemonId,
    /// A copy that a link had to send again, on whatever link of its way: it says nothing about round-trip times, and its
    /// absence has been noticed already.
    pub repaired: bool,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A client's message to a group: the payload follows.
    Data(Data),
    /// A client has joined a group or left it. To all daemons.
    Membership(Membership),
    /// What a daemon with members of a group gets from here on. To one daemon.
    Welcome(Welcome),
    /// A member of a group has no more room, or has room again. To all daemons.
    Pause(Pause),
    /// What a controller says to other controllers.
    Control(Control),
}

/// The header of a client's message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// To whom.
    pub group: GroupId,
    /// Counts what the origin sends to the group, from 1.
    pub sequence: u32,
    /// Whose message it is, at the origin.
    pub sender: ClientId,
    /// When the client had it ready, in microseconds modulo 2^32, by the origin's clock: where clocks agree, the message's age.
    pub sent_us: u32,
}

/// A client's membership of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Which group.
    pub group: GroupId,
    /// Which client of the origin.
    pub client: ClientId,
    /// It has joined; otherwise it has left.
    pub joined: bool,
    /// Counts the changes that the origin tells of, its [`Pause`]s among them, from 1.
    pub change: u32,
}

/// From where on a daemon with members of a group gets all that the origin sends to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Whom it is for.
    pub to: DaemonId,
    /// Which group.
    pub group: GroupId,
    /// The [`Membership::change`] by which that daemon got its first member.
    pub change: u32,
    /// The first message that reaches it for certain.
    pub start: u32,
}

/// Whether a group's senders are to wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Which group.
    pub group: GroupId,
    /// They are to wait; otherwise the origin has room again.
    pub paused: bool,
    /// Counts the changes that the origin tells of, its [`Membership`]s among them, from 1.
    pub change: u32,
}

/// What one controller says to others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// How full the origin's links are.
    Cost(CostUpdate),
    /// At which rate the origin of this report can take a group's messages from the daemon that it goes to.
    Report(Report),
    /// The round-trip time between the origin and the daemon that this goes to, as the origin measures it.
    RoundTrip(RoundTrip),
}

/// A link in a [`CostUpdate`], and its queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Which link; it begins at the update's origin.
    pub link: LinkId,
    /// Messages that wait there, in sixteenths.
    pub queue: u16,
}

/// How full the origin's links are. An origin with more links to tell of sends more updates.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CostUpdate {
    /// The links that it tells of; `None` at the end where there are fewer.
    pub links: [Option<LinkState>; CostUpdate::LINKS],
}

impl CostUpdate {
    /// Links that one update can tell of.
    pub const LINKS: usize = 3;
}

/// From a receiving daemon to a sending one, on a group's messages (Xpand's paper, sections 4.1 and 4.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which group.
    pub group: GroupId,
    /// The acceptable rate in bytes per second, headers counted; [`Report::UNLIMITED`] where no loss was ever seen.
    pub rate_bytes_per_s: u32,
    /// p: loss events per packet, in units of 2^-16.
    pub loss_event_rate: u16,
    /// The share of repaired copies among what was received, in units of 2^-16.
    pub repaired: u16,
    /// The message that this acknowledges, or 0.
    pub acknowledged: u32,
    /// Delta: for how long the acknowledgement was held, in microseconds.
    pub held_us: u32,
}

impl Report {
    /// A rate without limit.
    pub const UNLIMITED: u32 = u32::MAX;
}

/// A round-trip time that one end has measured, for the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Whose messages took it.
    pub group: GroupId,
    /// The average in microseconds.
    pub rtt_us: u32,
}

/// What goes from one machine to another, or between a daemon and a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message on a [stream](super::hop::StreamHop), in a TCP segment of its own: the payload follows.
    Segment {
        /// The segment's number.
        sequence: u32,
        /// What it carries.
        message: Message,
    },
    /// TCP's acknowledgement of segments.
    Ack(Ack),
    /// A message on a [link of datagrams](super::hop::DatagramHop): the payload follows.
    Datagram {
        /// Counts what was sent on the link, from 0; a repair has the number of what it repairs.
        number: u32,
        /// What it carries.
        message: Message,
    },
    /// What has arrived of a link's datagrams, and what is missing.
    Feedback(Feedback),
    /// A message straight to another daemon, past the overlay's links; it may be lost.
    Direct(Message),
    /// Between a client and its daemon.
    Client(ClientFrame),
}

/// TCP's acknowledgement of a stream's segments (RFC 5681, RFC 2018).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The next number that the receiver expects.
    pub acknowledgement: u32,
    /// How many segments from there on it has room for.
    pub window: u16,
    /// Received blocks above it, the newest first: first number and the one after the last; equal where unused.
    pub sack: [(u32, u32); 3],
}

/// NACKs and the cumulative acknowledgement of a link of datagrams.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// All below this number have arrived.
    pub expected: u32,
    /// Numbers that are missing, lowest first: the first and the one after the last; equal where unused.
    pub missing: [(u32, u32); 3],
}

/// What a client and its daemon say to each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// To the daemon: here I am.
    Connect {
        /// What its controller gives it, in percent of what others get; at least 1.
        priority: u16,
    },
    /// To the daemon: it joins a group.
    Join(GroupId),
    /// To the daemon: it leaves a group.
    Leave(GroupId),
    /// To the daemon: a message, which is the payload. The next one waits for [`ClientFrame::Ready`].
    Send {
        /// To whom.
        group: GroupId,
        /// When it was ready, in microseconds modulo 2^32.
        sent_us: u32,
    },
    /// To the daemon: so many more messages have been read.
    Took {
        /// How many.
        messages: u32,
    },
    /// To the daemon: it goes. A crash says the same, for its socket closes.
    Disconnect,
    /// From the daemon: the message was taken; the next one may come.
    Ready,
    /// From the daemon: a message, which is the payload.
    Deliver {
        /// Where it entered the overlay.
        origin: DaemonId,
        /// Its header.
        data: Data,
    },
    /// From the daemon: so many members has a group now, anywhere.
    View {
        /// Which group.
        group: GroupId,
        /// Its members.
        members: u32,
    },
    /// From the daemon: it read too slowly, and is no longer a member.
    Evicted(GroupId),
}

impl Message {
    /// Whether it is a client's, and not one that the overlay needs for itself.
    pub fn is_data(&self) -> bool {
        matches!(self.body, Body::Data(_))
    }

    /// The bytes of its header, encoded.
    pub fn wire_bytes(&self) -> u32 {
        // Kind, flags and origin.
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
    /// The bytes that its header takes on a link, those of lower layers included. Clients live on their daemon's machine: there the
    /// lower layers are taken as those of a datagram.
    pub fn wire_bytes(&self) -> u32 {
        match self {
            Frame::Segment { message, .. } => {
                tcp::HEADER_BYTES + LENGTH_BYTES + message.wire_bytes()
            }
            Frame::Ack(ack) => ack.wire_bytes(),
            Frame::Datagram { message, .. } => DATAGRAM_BYTES + 8 + message.wire_bytes(),
            Frame::Feedback(feedback) => DATAGRAM_BYTES + feedback.wire_bytes(),
            Frame::Direct(message) => DATAGRAM_BYTES + message.wire_bytes(),
            Frame::Client(frame) => DATAGRAM_BYTES + frame.wire_bytes(),
        }
    }

    /// Whether it is there for the overlay's own sake: neither a client's message nor the acknowledgement of a transport.
    pub fn is_control(&self) -> bool {
        match self {
            Frame::Segment { message, .. }
            | Frame::Datagram { message, .. }
            | Frame::Direct(message) => !message.is_data(),
            Frame::Ack(_) | Frame::Client(_) => false,
            Frame::Feedback(_) => true,
        }
    }
}

impl Ack {
    /// The bytes on a link: IPv4, TCP, and SACK where there are blocks.
    pub fn wire_bytes(&self) -> u32 {
        self.segment().wire_bytes()
    }

    /// The segment of TCP that it is.
    pub(super) fn segment(&self) -> tcp::Segment {
        tcp::Segment {
            acknowledgement: self.acknowledgement,
            window: self.window,
            sack: self.sack,
            ..tcp::Segment::default()
        }
    }
}

impl Feedback {
    /// The bytes of its header, encoded.
    pub fn wire_bytes(&self) -> u32 {
        8 + 8 * self.ranges().count() as u32
    }

    /// The missing ranges that are used.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> {
        self.missing
            .into_iter()
            .take_while(|range| range.0 != range.1)
    }
}

impl ClientFrame {
    /// Whether a payload follows it.
    pub fn has_payload(&self) -> bool {
        matches!(self, ClientFrame::Send { .. } | ClientFrame::Deliver { .. })
    }

    /// The bytes of its header, encoded.
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
