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
//! Frames go on in the order in which their sender numbered them, as a member's stream must keep it: what arrives beyond
//! a gap is held until the gap is filled. The sender hears of the gap at once; but only the receiver's own acknowledgement
//! takes a frame from the sender's buffer, so that a switch which fails loses nothing silently.
//!
//! | file | what it holds |
//! |---|---|
//! | `connection.rs`, `dispatch.rs` | the state of a connection; what each segment means, by the leg that it comes from |
//! | `inbound.rs`, `outbound.rs` | numbers and acknowledgements translated, one direction each |
//! | `transform.rs`, `ratios.rs` | XCP's headers: the four transforms, and the receive ratios that they need |
//! | `lifecycle.rs`, `member.rs` | opening, closing, joining, leaving, failing; strict credit is in `connection.rs` |
//! | `single.rs` | with one member all passes as it is (section IV: transforms and N = 1) |
//! | `reorder.rs`, `ring.rs`, `missing.rs` | frames beyond a gap; what is known of each number; what is reported missing |
//! | `policy.rs`, `endpoint.rs` | which member gets a frame; the switch in a simulated world |
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
//! What a failed member has not acknowledged the peer must send again; it then goes to another member, behind what that one
//! has already. So across a failure, and only there, frames to one member can leave the peer's order, and a frame that the failed
//! member has read without saying so is read twice. What it has sent and the switch has passed on, the switch sends again until the
//! peer has it: therefore it keeps a clone of each outbound frame.
//!
//! # Choices that the paper leaves open
//!
//! - Only cumulative numbers are promises (RFC 2018 section 8), as the end of a leg may be a switch which holds frames. So a member's
//!   frame that the peer holds beyond another member's gap is answered, but not acknowledged for good; when the gap closes, each
//!   member is told.
//! - N of the outbound transforms counts the members that are sending: those heard within the last four round trips.
//! - Outbound acknowledgements also move a tenth of the traffic in a round trip from members above the mean to those below it, as XCP's
//!   fairness controller does among flows: where feedback is steady, the formulas leave members as unequal as they are.
//! - Inbound, the least is taken of averages of what members' acknowledgements bring; outbound, fdbk_src is that of the frame which
//!   is answered. The least of two samples of the same would be too low.
//! - A member has a say in inbound feedback while something is on its way to it.
//! - Strict credit divides the peer's credit among the members (section V), but never grants the same room twice: what a member was
//!   granted when there was more counts until it is used.
//! - A member's latest headers are those of its latest frame; receive ratios count retransmissions, as the paths carry them.

mod connection;
mod dispatch;
mod endpoint;
mod inbound;
mod lifecycle;
mod member;
mod missing;
mod outbound;
mod policy;
mod ratios;
mod reorder;
mod ring;
mod single;
#[cfg(test)]
mod tests;
mod transform;

use core::time::Duration;

use connection::{Connection, Output};

pub use endpoint::{Change, MemberChange, SwitchEndpoint};
pub use policy::{Candidate, HashOfKey, KeyRule, LeastOutstanding, Policy, RoundRobin, Weighted};

use super::config::ConfigError;
use super::{Body, Payload, Reason, Segment};
use crate::anypoint::Event;
use crate::time::Time;

/// A member of an ensemble, numbered in the order of joining.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

/// One side of the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// The end that sees the ensemble as one host.
    Peer,
    /// A member.
    Member(MemberId),
}

/// How feedback is scaled on its way through the transforms.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// The same totals for each round-trip time: a header's feedback is for one packet, and each leg has a number of packets of its
    /// own.
    #[default]
    PerPacket,
    /// The formulas of section III for totals, applied to the feedback of packets: a member's is divided by its receive ratio, the
    /// peer's by the number of members. What a path of half the frames wants is then done twice over.
    Paper,
}

/// The parameters of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// The frames over which receive ratios are counted, at least 1.
    pub histogram_frames: u32,
    /// How feedback is scaled.
    pub scaling: Scaling,
    /// A member that has not answered for so long what it should have answered has failed; at least 1 ms.
    pub failure_timeout: Duration,
    /// After this long without a packet from a member it is probed; at least 1 ms.
    pub keep_alive: Duration,
    /// Frames beyond a gap that are held for each leg, at least 1; what is beyond is dropped.
    pub held_frames_max: u32,
}

impl Default for SwitchConfig {
    /// Ratios over 128 frames, failure after 2 s, probes after 1 s, 4096 frames held.
    fn default() -> SwitchConfig {
        SwitchConfig {
            histogram_frames: 128,
            scaling: Scaling::default(),
            failure_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(1),
            held_frames_max: 4096,
        }
    }
}

impl SwitchConfig {
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "the histogram",
                "1 to 65,536 frames",
                (1..=65_536).contains(&self.histogram_frames),
            ),
            (
                "the failure time-out",
                "at least 1 ms",
                self.failure_timeout >= Duration::from_millis(1),
            ),
            (
                "the keep-alive time",
                "at least 1 ms",
                self.keep_alive >= Duration::from_millis(1),
            ),
            ("the held frames", "at least 1", self.held_frames_max >= 1),
        ])
    }
}

/// A switch with one connection at a time, between a peer and the members of an ensemble.
///
/// Like an [`Endpoint`](crate::Endpoint), but with payloads: segments and what they carry come in by
/// [`handle_segment`](Switch::handle_segment), and go out by [`poll_transmit`](Switch::poll_transmit), to be drained after each
/// `handle_*`, `join` and `leave`.
pub struct Switch<P> {
    config: SwitchConfig,
    policy: Box<dyn Policy<P>>,
    /// Of each member by its number, whether it still belongs to the ensemble.
    ensemble: Vec<bool>,
    connection: Option<Connection<P>>,
    /// What is left of connections that are over, and what belongs to none.
    output: Output<P>,
}

impl<P: Payload + Default> Switch<P> {
    /// A switch with members 0 to `members`, excluded; there can be 65,535 of them, those that join later included.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
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

    /// Takes a segment that arrived at `now`, and its payload.
    pub fn handle_segment(&mut self, now: Time, from: Leg, segment: &Segment, payload: P) {
        match (&mut self.connection, segment.body) {
            (Some(connection), _) if connection.number == segment.connection => {
                connection.on_segment(now, &mut *self.policy, from, segment, payload);
                self.retire();
            }
            (_, Body::Reset(_)) => {}
            (connection, Body::Open { credit }) if from == Leg::Peer => {
                if connection
                    .as_ref()
                    .is_some_and(|connection| !connection.single)
                {
                    self.answer(from, segment.connection, Reason::Refused);
                } else {
                    self.open(now, segment, credit);
                }
            }
            _ => self.answer(from, segment.connection, Reason::Unknown),
        }
    }

    /// The peer opens a connection.
    fn open(&mut self, now: Time, segment: &Segment, credit: u32) {
        if !self.ensemble.contains(&true) {
            self.answer(Leg::Peer, segment.connection, Reason::Refused);
            return;
        }
        let config = self.config.clone();
        let number = segment.connection;
        let mut connection = Connection::new(config, now, number, credit, &self.ensemble);
        connection.open(now);
        if let Some(old) = self.connection.replace(connection) {
            self.output.append(old.output);
        }
    }

    fn answer(&mut self, to: Leg, connection: u32, reason: Reason) {
        let body = Body::Reset(reason);
        let segment = Segment { connection, body };
        let reset = (to, segment, P::default());
        self.output.transmits.push_back(reset);
    }

    /// A connection that is over is forgotten.
    fn retire(&mut self) {
        if let Some(over) = self.connection.take_if(|connection| connection.over) {
            self.output.append(over.output);
        }
    }

    /// A member joins the ensemble, and gets the next number.
    pub fn join(&mut self, now: Time) -> MemberId {
        self.ensemble.push(true);
        if let Some(connection) = &mut self.connection {
            connection.join(now);
        }
        MemberId(self.ensemble.len() as u16 - 1)
    }

    /// A member gets no new frames, and is released when all that it has is acknowledged and it has closed. One that is not
    /// there is none.
    pub fn leave(&mut self, now: Time, member: MemberId) {
        let index = usize::from(member.0);
        let there = self.ensemble.get_mut(index);
        if there.is_some_and(core::mem::take)
            && let Some(connection) = &mut self.connection
        {
            connection.leave(now, index);
            self.retire();
        }
    }

    /// Does what is due at `now`; a spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            connection.on_timeout(now);
            self.retire();
        }
    }

    /// When [`handle_timeout`](Switch::handle_timeout) is wanted next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.connection.as_ref().and_then(Connection::timeout)
    }

    /// The next segment to send, and where; what is not a frame has no payload.
    pub fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        let left = self.output.transmits.pop_front();
        left.or_else(|| self.connection.as_mut()?.output.transmits.pop_front())
    }

    /// What happened: [`Event::MemberFailed`], [`Event::Failed`].
    pub fn poll_event(&mut self) -> Option<Event> {
        let left = self.output.events.pop_front();
        left.or_else(|| self.connection.as_mut()?.output.events.pop_front())
    }
}
