//! The packets of layered sessions.

use manyflow_core::Header;

/// IPv4 and UDP.
const LOWER_BYTES: u32 = 28;

/// A packet of a layered session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Of a group.
    Data(Data),
    /// From a receiver or an aggregator towards the sender.
    Feedback(Feedback),
    /// A receiver of RLM tells the others what it tries.
    Experiment(Experiment),
}

/// The header of data. The group is that of the packet's destination.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The rank of the group within its session, from 0.
    pub group: u8,
    /// Counts the group's packets, modulo 2^32.
    pub sequence: u32,
    /// The feedback request field (section III-A3): each increase, modulo 2^16, asks for feedback.
    /// 0 asks for none.
    pub request: u16,
    /// The rate at which the sender sends this group and all below it, in bytes per second.
    pub rate: u32,
    /// The longest round-trip time of the session as the sender knows it, in microseconds: the unit
    /// of the receivers' intervals.
    pub rtt_us: u32,
}

/// Table I: the state of a receiver, or of a subtree of receivers whose top subscribed group is the
/// same.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Who sends it: a receiver, or an aggregator, which puts its own number in place of all below
    /// it.
    pub source: u32,
    /// The session.
    pub session: u32,
    /// The rank of the top subscribed group of those that it is about.
    pub group: u8,
    /// Whether its source has more to say in answer to this request, about other groups.
    pub more: bool,
    /// The request that it answers.
    pub request: u16,
    /// The count of feedback reports.
    pub reports: u32,
    /// How many of them say "congested".
    pub congested: u32,
    /// The lowest cumulative received rate, in bytes per second.
    pub minimum: u32,
    /// The highest cumulative received rate, in bytes per second.
    pub maximum: u32,
    /// Receivers in the subtree.
    pub population: u32,
    /// The time from the arrival of the request at the source of this packet to its sending, in
    /// microseconds.
    pub hold_us: u32,
    /// The longest round-trip time between the source of this packet and the receivers below it, in
    /// microseconds.
    pub rtt_us: u32,
}

/// A join experiment of RLM, told to the whole session (shared learning).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The session.
    pub session: u32,
    /// The rank of the group that is being joined.
    pub group: u8,
}

impl Message {
    /// The bytes that the encoded header takes, those of IPv4 and UDP included.
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
