//! Events that daemons and clients of an overlay report.

use super::{ClientId, DaemonId, GroupId, LinkId, Verdict};
use manyflow_core::units::Rate;

/// The reason why a state cannot be that of a daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misconduct {
    /// The incarnation is far in the future.
    Incarnation(u32),
    /// The neighbour has more groups than its
    /// [share of the memory](crate::OverlayConfig::share_bytes).
    Groups,
    /// The daemon whose state it is has not signed it.
    Signature,
}

impl core::fmt::Display for Misconduct {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Misconduct::Incarnation(incarnation) => {
                write!(f, "incarnation {incarnation}, which is far in the future")
            }
            Misconduct::Groups => f.write_str("more groups than one daemon may have"),
            Misconduct::Signature => f.write_str("a signature that is not that daemon's"),
        }
    }
}

/// An event at a daemon or a client.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The overlay accepted a message from the reporting client.
    Sent {
        /// The message's length in bytes.
        bytes: u32,
    },
    /// The application of the reporting client took a message.
    Delivered {
        /// The message's length in bytes.
        bytes: u32,
    },
    /// The age of the message that was just delivered.
    Latency {
        /// Seconds between the moment at which the sending application had the message ready and
        /// its delivery.
        seconds: f64,
    },
    /// A message was queued for a link.
    Queue {
        /// The link that the message waits for.
        link: LinkId,
        /// The number of messages that wait for the link, the new one included.
        messages: u32,
    },
    /// Another daemon reported the rate at which it can accept this daemon's messages to all groups
    /// with members there.
    Acceptable {
        /// The reporting daemon.
        by: DaemonId,
        /// The acceptable rate; `None` if the reporting daemon has never seen a loss.
        rate: Option<Rate>,
    },
    /// The sum of the rates at which this daemon's clients may send to a group has changed.
    Allowed {
        /// The group that the clients send to.
        group: GroupId,
        /// The allowed rate of all clients of this daemon together.
        rate: Rate,
    },
    /// Two names of groups have the same number. The group keeps the name that was known first.
    NameClash {
        /// The group with two names.
        group: GroupId,
        /// The daemon that announced the other name.
        by: DaemonId,
    },
    /// The topology that this daemon sees has changed.
    Topology {
        /// The version of the new topology.
        version: u16,
        /// The number of daemons that this daemon can reach, itself included.
        daemons: u32,
    },
    /// A daemon is reachable again that was not for longer than the [hold
    /// time](crate::OverlayConfig::hold), and that has not restarted. Members at this daemon miss
    /// the messages that were sent at the other one in the meantime, and vice versa.
    Gap {
        /// The other daemon.
        origin: DaemonId,
    },
    /// Another daemon announced a later state of this daemon than its own: this daemon had a later
    /// incarnation before it restarted, or two daemons have the same number.
    Outbid {
        /// The incarnation of this daemon from now on.
        incarnation: u32,
    },
    /// A neighbour announced a state that no daemon can have, and its link was removed. A driver
    /// ends the connection, and refuses the neighbour for a time.
    Misconduct {
        /// The neighbour.
        neighbour: DaemonId,
        /// The daemon whose state the neighbour announced.
        origin: DaemonId,
        /// The reason why no daemon can have it.
        misconduct: Misconduct,
    },
    /// A group of another daemon does not count, because groups take too much memory.
    NoRoom {
        /// The daemon that has announced the group.
        origin: DaemonId,
    },
    /// A neighbour did not take its control messages, and its link was removed. A driver ends the
    /// connection.
    Overflow {
        /// The neighbour.
        neighbour: DaemonId,
    },
    /// The number of a group's members changed.
    View {
        /// The group whose members changed.
        group: GroupId,
        /// The number of the group's members at all daemons.
        members: u32,
    },
    /// A daemon acted on a client that reads too slowly.
    SlowMember {
        /// The slow client.
        client: ClientId,
        /// The group whose messages the client reads too slowly.
        group: GroupId,
        /// The daemon's action.
        verdict: Verdict,
    },
    /// A round-trip time to another daemon was measured.
    Rtt {
        /// The sample, in seconds.
        sample_s: f64,
        /// The average after the sample, in seconds.
        average_s: f64,
    },
    /// A loss event began (RFC 5348 section 5).
    LossEvent,
    /// A receiving daemon updated its rates for a sender.
    Rates {
        /// The rate that the receiving daemon can accept.
        target: Rate,
        /// The rate at which packets arrive at the receiving daemon.
        received: Rate,
        /// The loss event rate that enters the TCP equation.
        loss_probability: f64,
    },
}
