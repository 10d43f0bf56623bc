//! What daemons and clients of an overlay report.

use super::{ClientId, DaemonId, GroupId, LinkId, Verdict};
use manyflow_core::units::Rate;

/// An event at a daemon or a client.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The overlay accepted a message from this client.
    Sent {
        /// The message's length in bytes.
        bytes: u32,
    },
    /// The client's application took a message.
    Delivered {
        /// The message's length in bytes.
        bytes: u32,
    },
    /// The age of the message that was just delivered.
    Latency {
        /// Seconds since the sending application had the message ready.
        seconds: f64,
    },
    /// A message was queued for a link.
    Queue {
        /// The link.
        link: LinkId,
        /// Messages waiting for the link, the new one included.
        messages: u32,
    },
    /// A daemon reported the rate at which it can take this daemon's messages to a group.
    Acceptable {
        /// The reporting daemon.
        by: DaemonId,
        /// The group.
        group: GroupId,
        /// The rate; `None` if the reporting daemon has never seen a loss.
        rate: Option<Rate>,
    },
    /// The rate at which this daemon's clients, all together, may send to a group.
    Allowed {
        /// The group.
        group: GroupId,
        /// The rate.
        rate: Rate,
    },
    /// The number of a group's members changed.
    View {
        /// The group.
        group: GroupId,
        /// Its members at all daemons.
        members: u32,
    },
    /// A client of this daemon reads too slowly.
    SlowMember {
        /// The client.
        client: ClientId,
        /// The group whose messages it does not read.
        group: GroupId,
        /// What was done about it.
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
        /// The rate that it can accept.
        target: Rate,
        /// The rate at which packets arrive.
        received: Rate,
        /// The loss event rate that goes into the TCP equation.
        loss_probability: f64,
    },
}
