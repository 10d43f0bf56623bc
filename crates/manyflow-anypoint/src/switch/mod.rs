//! The switch: one connection between a peer and the members of an ensemble (sections III and IV).
//!
//! ```text
//!             peer's numbers            members' numbers
//!   Data 7 --> [ policy: member 2 ] --> Data 3 to member 2      inbound.rs
//!   Ack  5 <-- [ all below 5 are  ] <-- Ack 4 from member 2
//!   Data 9 <-- [ next number      ] <-- Data 6 from member 0    outbound.rs
//!   Ack 10 --> [ whose was it?    ] --> Ack 7 to member 0
//! ```
//!
//! Frames go on in the order in which their sender numbered them, as a member's stream must keep
//! it: what arrives beyond a gap is held until the gap is filled. The sender hears of the gap at
//! once; but only the receiver's own acknowledgement takes a frame from the sender's buffer, so
//! that a switch which fails loses nothing silently.
//!
//! | file | what it holds |
//! |---|---|
//! | `connection.rs`, `connection/` | what each packet means; how members join, leave and fail. It owns the parts below |
//! | `lifecycle.rs`, `ensemble.rs` | how far the connection has come, and each member |
//! | `inbound.rs`, `inbound/` | from the peer to the members: routes, a stream to each member, the policy's candidates |
//! | `outbound.rs`, `outbound/` | from the members to the peer: a stream from each member, the peer's credit divided |
//! | `inbound/pass_through.rs`, `outbound/pass_through.rs` | with one member everything passes unchanged, and is watched (section IV: transforms and N = 1) |
//! | `sequence.rs` | numbers: `PeerSeq` on the peer's side, `MemberSeq` on a member's |
//! | `routes.rs`, `sent.rs` | what is known of one frame of the peer, and of one frame of a member |
//! | `reorder.rs`, `ring.rs`, `missing.rs`, `acknowledgement.rs`, `numbered.rs` | frames beyond a gap; entries by number; gaps and acknowledgements |
//! | `transform.rs`, `ratios.rs` | XCP's headers: the four transforms, and the receive ratios that they need |
//! | `policy.rs`, `config.rs` | which member gets a frame; the parameters |
//! | `output.rs`, `context.rs` | what waits to be sent; what a part may know of the others |
//!
//! A member's life, as far as one connection goes:
//!
//! ```text
//!   join --> waiting --credit--> opening --Accept--> open --leave--> leaving --both ways closed--> left
//!                                   |                 |                 |
//!                                   +-----------------+-----------------+--silence, Reset--> failed
//! ```
//!
//! # What a failure leaves
//!
//! What a failed member has not acknowledged the peer must send again; it then goes to another
//! member, behind what that one has already. So across a failure, and only there, frames to one
//! member can leave the peer's order, and a frame that the failed member has read without saying so
//! is read twice. What it has sent and the switch has passed on, the switch sends again until the
//! peer has it: therefore it keeps a clone of each outbound frame.
//!
//! # Choices that the paper leaves open
//!
//! - Only cumulative numbers are promises (RFC 2018 section 8), as the end of a leg may be a switch
//!   which holds frames. So a member's frame that the peer holds beyond another member's gap is
//!   answered, but not acknowledged for good; when the gap closes, each member is told.
//! - N of the outbound transforms counts the members that are sending: those heard within the last
//!   four round trips.
//! - Outbound acknowledgements also move a tenth of the traffic in a round trip from members above
//!   the mean to those below it, as XCP's fairness controller does among flows: where feedback is
//!   steady, the formulas leave members as unequal as they are.
//! - Inbound, the least is taken of averages of what members' acknowledgements bring; outbound,
//!   fdbk_src is that of the frame which is answered. The least of two samples of the same would be
//!   too low.
//! - A member has a say in inbound feedback while something is on its way to it.
//! - Strict credit divides the peer's credit among the members (section V), but never grants the
//!   same room twice: what a member was granted when there was more counts until it is used.
//! - A member's latest headers are those of its latest frame; receive ratios count retransmissions,
//!   as the paths carry them.

mod acknowledgement;
mod config;
mod connection;
mod context;
mod ensemble;
mod inbound;
mod lifecycle;
mod missing;
mod numbered;
mod outbound;
mod output;
mod policy;
mod ratios;
mod reorder;
mod ring;
mod routes;
mod sent;
mod sequence;
#[cfg(test)]
mod tests;
mod transform;

pub use config::{Scaling, SwitchConfig};
pub use policy::{Candidate, HashOfKey, KeyRule, LeastOutstanding, Policy, RoundRobin, Weighted};

use connection::Connection;
use output::Output;

use super::config::ConfigError;
use super::{Body, Payload, Reason, Segment};
use crate::Event;
use manyflow_core::time::Time;

/// A member of an ensemble, numbered in the order of joining.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

impl MemberId {
    /// The member's index in lists of all members.
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The member of an ensemble that has only had one.
const ONLY_MEMBER: MemberId = MemberId(0);

/// One side of the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// The end that sees the ensemble as one host.
    Peer,
    /// A member.
    Member(MemberId),
}

/// A switch with one connection at a time, between a peer and the members of an ensemble.
///
/// It works like an [`Endpoint`](crate::Endpoint), but carries payloads: segments and their
/// payloads come in by [`handle_segment`](Switch::handle_segment), and go out by
/// [`poll_transmit`](Switch::poll_transmit). Drain that after each `handle_*`, `join` and `leave`,
/// and then [`poll_event`](Switch::poll_event).
pub struct Switch<P> {
    config: SwitchConfig,
    policy: Box<dyn Policy<P>>,
    /// Whether each member, by its number, still belongs to the ensemble.
    ensemble: Vec<bool>,
    connection: Option<Connection<P>>,
    /// What connections that are over have left, and answers that belong to no connection.
    output: Output<P>,
}

impl<P: Payload + Default> Switch<P> {
    /// A switch with members `0..members`. There are at most 65,535 in total, later joins included.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SwitchConfig,
        policy: Box<dyn Policy<P>>,
        members: usize,
    ) -> Result<Switch<P>, ConfigError> {
        config.check()?;
        Ok(Switch {
            config,
            policy,
            ensemble: vec![true; members],
            connection: None,
            output: Output::new(),
        })
    }

    /// Handles a segment that arrived at `now`. `payload` is the frame's; with any other segment it
    /// has no meaning.
    pub fn handle_segment(&mut self, now: Time, from: Leg, segment: &Segment, payload: P) {
        match (&mut self.connection, segment.body) {
            (Some(connection), _) if connection.number() == segment.connection => {
                connection.handle_segment(now, &mut *self.policy, from, segment, payload);
                self.retire();
            }
            (_, Body::Reset(_)) => {}
            (connection, Body::Open { credit }) if from == Leg::Peer => {
                if connection.as_ref().is_some_and(|c| !c.is_pass_through()) {
                    self.answer(from, segment.connection, Reason::Refused);
                } else {
                    self.open(now, segment, credit);
                }
            }
            _ => self.answer(from, segment.connection, Reason::Unknown),
        }
    }

    /// Opens a connection of the peer, in place of one that only passes through.
    fn open(&mut self, now: Time, segment: &Segment, credit: u32) {
        if !self.ensemble.contains(&true) {
            self.answer(Leg::Peer, segment.connection, Reason::Refused);
            return;
        }
        let config = self.config.clone();
        let number = segment.connection;
        let connection = Connection::open(config, now, number, credit, &self.ensemble);
        if let Some(old) = self.connection.replace(connection) {
            self.output.append(old.into_output());
        }
    }

    fn answer(&mut self, to: Leg, connection: u32, reason: Reason) {
        let body = Body::Reset(reason);
        let segment = Segment { connection, body };
        self.output.push(to, segment, P::default());
    }

    /// Forgets a connection that is over.
    fn retire(&mut self) {
        if let Some(over) = self.connection.take_if(|connection| connection.is_over()) {
            self.output.append(over.into_output());
        }
    }

    /// Adds a member to the ensemble, and returns its number: the next one.
    pub fn join(&mut self, now: Time) -> MemberId {
        self.ensemble.push(true);
        if let Some(connection) = &mut self.connection {
            connection.join(now);
        }
        MemberId(self.ensemble.len() as u16 - 1)
    }

    /// Releases a member: it gets no new frames, and is gone when it has acknowledged all that it
    /// was sent and has closed its own stream. Does nothing if there is no such member.
    pub fn leave(&mut self, now: Time, member: MemberId) {
        let is_there = self.ensemble.get_mut(member.index());
        if is_there.is_some_and(core::mem::take)
            && let Some(connection) = &mut self.connection
        {
            connection.leave(now, member);
            self.retire();
        }
    }

    /// Does what is due at `now`; a spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
            self.retire();
        }
    }

    /// When [`handle_timeout`](Switch::handle_timeout) is wanted next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.connection.as_ref().and_then(Connection::poll_timeout)
    }

    /// The next segment to send, and where it goes. The payload of what is not a frame is the
    /// default.
    pub fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        let left = self.output.poll_transmit();
        left.or_else(|| self.connection.as_mut()?.poll_transmit())
    }

    /// The next event: [`Event::MemberFailed`] or [`Event::Failed`].
    pub fn poll_event(&mut self) -> Option<Event> {
        let left = self.output.poll_event();
        left.or_else(|| self.connection.as_mut()?.poll_event())
    }
}
