//! The contract between a protocol and the world that runs it.
//!
//! A protocol has no clock and no sockets. The world hands it packets and the time, then drains what it wants done:
//!
//! ```text
//!   handle_packet | handle_timeout  ->  poll_action until None  ->  poll_event until None  ->  poll_timeout
//! ```
//!
//! Time never goes back. A random choice comes from a seed given to the protocol's constructor.

use core::time::Duration;

use crate::anypoint::{Reason, switch::MemberId};
use crate::overlay;
use crate::packet::{Channel, Packet};
use crate::time::Time;
use crate::units::Rate;

/// A protocol state machine at one host.
pub trait Endpoint {
    /// Takes a packet that arrived at `now`.
    fn handle_packet(&mut self, now: Time, packet: &Packet);

    /// Does what is due at `now`; a spurious call does nothing.
    fn handle_timeout(&mut self, now: Time);

    /// The next thing to do on the protocol's behalf; drain it after each `handle_*`.
    fn poll_action(&mut self, now: Time) -> Option<Action>;

    /// When [`handle_timeout`](Endpoint::handle_timeout) is wanted next, if at all.
    fn poll_timeout(&self) -> Option<Time>;

    /// What happened, for traces and metrics; drain it after the actions.
    fn poll_event(&mut self) -> Option<Event>;
}

/// What a protocol asks of its world.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this packet.
    Send(Packet),
    /// Join this channel.
    Join(Channel),
    /// Leave this channel.
    Leave(Channel),
}

/// What a protocol tells whoever watches it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Event {
    /// A join was sent.
    Joined(Channel),
    /// A leave was sent.
    Left(Channel),
    /// Nothing came of a join, so it was withdrawn.
    JoinTimedOut(Channel),
    /// A round-trip time was measured.
    Rtt {
        /// The sample; WEBRC's correction for packet spacing can make it negative.
        sample_s: f64,
        /// The average after it, in seconds.
        average_s: f64,
    },
    /// A loss event began (RFC 3738 section 3.2.3.4); in TCP, fast recovery or the reduction for a mark.
    LossEvent,
    /// The rates were updated, as at each epoch of WEBRC.
    Rates {
        /// The rate that the protocol aims at.
        target: Rate,
        /// The rate at which packets arrive, averaged.
        received: Rate,
        /// The loss event probability that goes into the TCP equation.
        loss_probability: f64,
    },
    /// The start-up phase is over.
    SlowStartEnded(SlowStartEnd),
    /// The session ended, for this reason.
    Ended(EndReason),
    /// TCP's congestion window has changed by a whole packet or more.
    CongestionWindow {
        /// The window in packets.
        packets: f64,
    },
    /// TCP's retransmission timer ran out (RFC 6298 section 5).
    RetransmissionTimeout,
    /// A sender of groups set the rate of one and of all below it.
    GroupRate {
        /// The group's rank.
        group: u8,
        /// The cumulative rate.
        rate: Rate,
    },
    /// All that was to be sent has arrived and was acknowledged.
    Finished,
    /// The application took a frame from the receive buffer.
    Delivered {
        /// Its length.
        bytes: u32,
    },
    /// A frame arrived for which the receive buffer had no room; it was dropped.
    Overflow,
    /// A connection is over before its time.
    Failed(Reason),
    /// A member of an ensemble is gone, as it answered nothing for too long.
    MemberFailed(MemberId),
    /// The overlay has taken a message from the client that tells this.
    Sent {
        /// Its length.
        bytes: u32,
    },
    /// A message of the overlay that was just delivered had been on its way for so long.
    Latency {
        /// From when its sender had it ready, in seconds.
        seconds: f64,
    },
    /// So many messages wait at an overlay daemon for one of its links.
    Queue {
        /// The link.
        link: overlay::LinkId,
        /// The messages, after one has come.
        messages: u32,
    },
    /// A daemon of the overlay has told at which rate it can take the messages of the one that tells this.
    Acceptable {
        /// Who can.
        by: overlay::DaemonId,
        /// Of which group.
        group: overlay::GroupId,
        /// The rate; `None` where it has never seen a loss.
        rate: Option<Rate>,
    },
    /// The rate at which the clients of the daemon that tells this may send to a group, all together.
    Allowed {
        /// Which group.
        group: overlay::GroupId,
        /// The rate.
        rate: Rate,
    },
    /// A group has so many members now.
    View {
        /// Which group.
        group: overlay::GroupId,
        /// Its members, at all daemons.
        members: u32,
    },
    /// A client of the overlay reads too slowly.
    SlowMember {
        /// Which one, of the daemon that tells this.
        client: overlay::ClientId,
        /// Of which group.
        group: overlay::GroupId,
        /// What was done about it.
        verdict: overlay::Verdict,
    },
}

/// The four ways out of WEBRC's start-up (RFC 3738 section 3.2.2.6).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SlowStartEnd {
    /// A packet was lost.
    Loss,
    /// The time from a join to its first packet rose sharply: a queue is filling.
    RttIncrease,
    /// The highest rate of the receiver or of the session is reached.
    MaximumRate,
    /// The last join did not raise the reception rate as it should.
    RateShortfall,
}

/// Why a session ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No packet came for this long (RFC 3738 section 3.2.3.8).
    NoPackets(Duration),
    /// Packets came, but the time slot index stood still for this long (RFC 3738 section 3.2.3.8).
    NoTimeSlotChange(Duration),
    /// Most packets of the base channel were lost although no wave was joined (RFC 3738 section 3.2.1).
    BaseChannelLoss,
}
