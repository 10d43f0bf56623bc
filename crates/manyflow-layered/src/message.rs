//! The packets of layered sessions.

use manyflow_core::Header;

/// Bytes of the IPv4 and UDP headers below each packet.
const LOWER_BYTES: u32 = 28;

/// A packet of a layered session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Data of one group, from the sender.
    Data(Data),
    /// A report from a receiver or an aggregator towards the sender.
    Feedback(Feedback),
    /// The announcement of a join experiment by a receiver of RLM.
    Experiment(Experiment),
}

/// The header of data. Its group is also that of the packet's destination.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The rank of the group within its session, from 0.
    pub group: u8,
    /// The number of the packet within its group, modulo 2^32.
    pub sequence: u32,
    /// The feedback request field (section III-A3): each increase, modulo 2^16, requests a report.
    /// 0 requests none. With RLC, the field has another meaning: [`POINT`](crate::rlc::POINT) or
    /// [`BURST`](crate::rlc::BURST). With FLID-DL, it is the slot and its signal:
    /// [`slot_field`](crate::flid::slot_field).
    pub request: u16,
    /// Whether the request is only for the receivers whose top group is that of the packet: each
    /// group then has requests, rounds and a round-trip time of its own. Otherwise all receivers of
    /// the session have the same requests, as in the paper.
    pub is_for_group: bool,
    /// The cumulative rate of this group and all groups below it, in bytes per second.
    pub rate: u32,
    /// The longest round-trip time that the sender knows of the receivers that the request is for,
    /// in microseconds. They measure their intervals in it. With the second edition's rules, it is
    /// the minimum of the longest round-trip time, which holds no queues.
    pub rtt_us: u32,
    /// The cumulative rate of the next higher group, in bytes per second. It is 0 for the highest
    /// group, and with senders that do not state it.
    pub next_rate: u32,
    /// Whether this packet was sent directly after the one before it in its group, so that the time
    /// between both at a receiver shows the rate of the slowest link.
    pub is_pair: bool,
}

/// The state of a receiver, or of the receivers of a subtree that have the same top subscribed
/// group (Table I).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The number of the receiver or aggregator that sends the report. An aggregator puts its own
    /// number in place of those below it.
    pub source: u32,
    /// The session.
    pub session: u32,
    /// The rank of the top subscribed group of the receivers that the report describes.
    pub group: u8,
    /// Whether more reports of this source, about other groups, follow in answer to the same
    /// request.
    pub more: bool,
    /// The request that the report answers.
    pub request: u16,
    /// The number of receivers' reports that are summarised; 0 in an early report, whose source
    /// answers the request later, too, and in one that says that all receivers have left.
    pub reports: u32,
    /// The number of those reports that say "congested".
    pub congested: u32,
    /// The lowest cumulative received rate, in bytes per second.
    pub minimum: u32,
    /// The highest cumulative received rate, in bytes per second.
    pub maximum: u32,
    /// The number of receivers in the subtree.
    pub population: u32,
    /// The time from the arrival of the request at the source of this report to the sending of the
    /// report, in microseconds.
    pub hold_us: u32,
    /// The longest round-trip time between the source of this report and the receivers below it, in
    /// microseconds.
    pub rtt_us: u32,
}

/// A join experiment of RLM, announced to the whole session (shared learning).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The session.
    pub session: u32,
    /// The rank of the group that is being joined.
    pub group: u8,
}

impl Feedback {
    /// Returns whether this is an early report: a path of the lowest group carries only the lowest
    /// rate, which is far below that of the group. It comes before the answer of its source, and
    /// says nothing about the number of receivers.
    pub fn is_early(&self) -> bool {
        self.reports == 0 && self.population > 0
    }

    /// Returns whether this is the report of a receiver about itself, and not that of an
    /// aggregator, which states times.
    pub(crate) fn is_of_receiver(&self) -> bool {
        self.rtt_us == 0 && self.hold_us == 0
    }
}

impl Message {
    /// Returns the length of the encoded header in bytes, including the IPv4 and UDP headers.
    pub fn wire_bytes(&self) -> u32 {
        LOWER_BYTES + self.header_bytes() as u32
    }
}

impl Header for Message {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        Message::wire_bytes(self)
    }

    fn layer(&self) -> Option<u8> {
        match self {
            Message::Data(data) => Some(data.group),
            Message::Feedback(_) | Message::Experiment(_) => None,
        }
    }
}
