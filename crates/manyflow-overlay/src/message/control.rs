//! The messages of controllers.

use super::{DaemonId, GroupId};
use crate::sequence::OriginSeq;

/// A message from one controller to others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The queues of the origin's links. Flooded to all daemons.
    Cost(CostUpdate),
    /// The rate at which the origin of this report can accept messages from the addressed daemon.
    Report(Report),
    /// The round-trip time between the origin and the addressed daemon, as the origin measured it.
    RoundTrip(RoundTrip),
}

/// The queue of one link, reported in a [`CostUpdate`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The far end of the link, which begins at the update's origin.
    pub to: DaemonId,
    /// The number of messages that wait for the link, in sixteenths of a message.
    pub queue: u16,
}

/// The queues of up to three of the origin's links. An origin with more links to report sends
/// several updates.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CostUpdate {
    /// The version of the tree that this update follows. The daemon sets it.
    pub version: u16,
    /// The reported links, followed by `None`.
    pub links: [Option<LinkState>; CostUpdate::LINKS],
}

impl CostUpdate {
    /// The maximum number of links in one update.
    pub const LINKS: usize = 3;
}

/// A receiving daemon's report to a sending daemon about the messages to all groups with members at
/// the receiving daemon (Xpand's paper, sections 4.1 and 4.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The group of the acknowledged message; 0 without one.
    pub group: GroupId,
    /// The acceptable rate of all groups together in bytes per second, headers included;
    /// [`Report::UNLIMITED`] if no loss has been seen.
    pub rate_bytes_per_s: u32,
    /// The share of repaired copies among the received messages, in units of 2^-16.
    pub repaired: u16,
    /// The message that this report acknowledges, or [`Report::NONE`].
    pub acknowledged: OriginSeq,
    /// The bytes of all messages that have arrived from the addressed daemon, modulo 2^32. Repaired
    /// copies do not count, because links send them at other times. The sending daemon derives the
    /// receive rate from it (X_recv, RFC 5348 section 3.2.2).
    pub received_bytes: u32,
    /// Delta: microseconds between the acknowledged message's arrival and this report.
    pub held_us: u32,
}

impl Report {
    /// The rate of a report without a limit.
    pub const UNLIMITED: u32 = u32::MAX;

    /// The [acknowledged](Report::acknowledged) number of a report that acknowledges no message.
    /// Messages are numbered from 1.
    pub const NONE: OriginSeq = OriginSeq::new(0);
}

/// A round-trip time that one daemon has measured and sends to the daemon at the other end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The average round-trip time in microseconds.
    pub rtt_us: u32,
}
