//! The switch: one connection between a peer and the members of a service (sections III and IV).
//!
//! ```text
//!             peer's numbers            members' numbers
//!   Data 7 --> [ policy: member 2 ] --> Data 3 to member 2      inbound.rs
//!   Ack  5 <-- [ all below 5 are  ] <-- Ack 4 from member 2
//!   Data 9 <-- [ next number      ] <-- Data 6 from member 0    outbound.rs
//!   Ack 10 --> [ of which member? ] --> Ack 7 to member 0
//! ```
//!
//! The switch forwards frames in the order in which their sender numbered them. A frame beyond a
//! gap is held until the gap is filled, and the gap is reported to the sender at once. Only the
//! receiver's own acknowledgement removes a frame from the sender's buffer, so a switch that fails
//! loses no frame silently.
//!
//! | file | what it holds |
//! |---|---|
//! | `connection.rs`, `connection/` | the meaning of each packet; how members join, leave and fail. Owns the parts below |
//! | `lifecycle.rs`, `ensemble.rs` | the state of the connection, and of each member |
//! | `inbound.rs`, `inbound/` | from the peer to the members: routes, a stream to each member, the candidates of the policy |
//! | `outbound.rs`, `outbound/` | from the members to the peer: a stream from each member, the parts of the peer's credit |
//! | `inbound/pass_through.rs`, `outbound/pass_through.rs` | a single member: everything passes unchanged and is watched (section IV: transforms and N = 1) |
//! | `sequence.rs` | numbers: `PeerSeq` on the peer's side, `MemberSeq` on a member's |
//! | `routes.rs`, `sent.rs` | the state of one frame of the peer, and of one frame of a member |
//! | `reorder.rs`, `ring.rs`, `missing.rs`, `acknowledgement.rs`, `numbered.rs` | frames beyond a gap; entries by number; gaps and acknowledgements |
//! | `transform.rs`, `ratios.rs` | XCP's headers: the four transforms, and the receive ratios that they use |
//! | `initiators.rs` | the switch of members that open the connection together (Fig. 2) |
//! | `policy.rs`, `config.rs` | the choice of a member for each frame; the parameters |
//! | `output.rs`, `context.rs` | the segments and events to deliver; the parts of a connection that a call may use |
//!
//! The life of a member in one connection:
//!
//! ```text
//!   join --> waiting --credit--> opening --Accept--> open --leave--> leaving --both ways closed--> left
//!                                   |                 |                 |
//!                                   +-----------------+-----------------+--silence, Reset--> failed
//! ```
//!
//! # After a failure
//!
//! The peer must send again every frame that a failed member has not acknowledged. The frame then
//! goes to another member, after the frames that this member already has. So frames to one member
//! can leave the peer's order after a failure, and only then. A frame that the failed member has
//! read but not acknowledged is read twice. The switch sends the failed member's own frames again
//! until the peer has them; for that it keeps a clone of each outbound frame.
//!
//! # Choices that the paper leaves open
//!
//! - Only cumulative numbers are final (RFC 2018 section 8), because the end of a leg may be a
//!   switch that holds frames. If the peer holds a member's frame beyond another member's gap, the
//!   frame is answered but not cumulatively acknowledged. When the gap closes, the switch
//!   acknowledges to each member.
//! - N of the outbound transforms is the number of sending members: those heard within the last
//!   four round trips.
//! - Outbound acknowledgements also move a tenth of the traffic of each round trip from members
//!   above the average to members below it, as XCP's fairness controller does among flows. With
//!   steady feedback, the formulas alone would leave the members as unequal as they are. Members
//!   give up nothing for a member whose own path is its limit.
//! - Inbound, the switch takes the minimum over averages of each member's feedback. In a cascade
//!   only the last switch averages. Outbound,
//!   fdbk_src is that of the frame that is answered. The minimum of two samples of the same
//!   quantity would be too low.
//! - Inbound feedback depends on a member only while frames are on their way to it.
//! - Strict credit divides the peer's credit among the members (section V), but never grants the
//!   same room twice: an earlier, larger grant counts until the member has used it. The part of a
//!   member that waits to join is reserved.
//! - Members with nothing to send never use their grants. So when a member has waited for the
//!   failure time-out, and no frame is on its way to the peer, larger grants are reduced to parts.
//!   A receiver of TCP should not reduce its window, and a sender must cope with it (RFC 9293
//!   section 3.8.6). Frames that a member sends beyond its reduced grant wait at the switch, like
//!   those beyond a gap, until the peer has room.
//! - A member that is silent while others answer is suspected before it fails: the switch answers
//!   the retransmissions of its frames, so that the peer's window stays open for the others
//!   (`inbound/suspicion.rs`).
//! - The credit of a member that takes nothing for ten seconds does not count, and others get its
//!   frames (`inbound/uptake.rs`). A packet from it proves only that it is alive.
//! - The latest header of a member is that of its latest frame. Receive ratios count
//!   retransmissions, because the paths carry them.

mod acknowledgement;
mod config;
mod connection;
mod context;
mod ensemble;
mod inbound;
mod initiators;
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
pub use initiators::InitiatorSwitch;
pub use policy::{
    Affinity, ByPrefix, Candidate, HashOfKey, KeyRule, LeastOutstanding, MemberMetrics, Policy,
    Prefix, RateAware, ReplicaHash, Round, RoundRobin, Weighted,
};

use connection::Connection;
use output::Output;

use super::config::ConfigError;
use super::{Body, Payload, Reason, Segment};
use crate::Event;
use manyflow_core::time::Time;

/// A member of a service, numbered in the order of joining.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

impl MemberId {
    /// Returns the member's index in lists of all members.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The only member of a service that never had another one.
const ONLY_MEMBER: MemberId = MemberId(0);

/// One side of the switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Leg {
    /// The end that sees the service as one end.
    Peer,
    /// A member.
    Member(MemberId),
}

/// A switch between a peer and the members of a service, with one connection at a time.
///
/// A switch works like an [`Endpoint`](manyflow_core::Endpoint), but is generic over payloads:
/// segments and their payloads enter by [`handle_segment`](Switch::handle_segment) and leave by
/// [`poll_transmit`](Switch::poll_transmit). After each `handle_*`, `join` and `leave`, drain that,
/// and then [`poll_event`](Switch::poll_event).
pub struct Switch<P, R = Box<dyn Policy<P>>> {
    config: SwitchConfig,
    policy: R,
    /// Whether each member, by its number, still belongs to the service.
    ensemble: Vec<bool>,
    connection: Option<Connection<P>>,
    /// The members that the last connection gave up. A member whose Reset was lost gets the same
    /// reason after the end of the connection, too.
    ended: Option<Ended>,
    /// Output of connections that are over, and answers that belong to no connection.
    output: Output<P>,
}

/// A connection that is over.
struct Ended {
    connection: u32,
    /// Why each member was given up, if it was, by its number.
    given_up: Vec<Option<Reason>>,
}

impl<P: Payload + Default, R: Policy<P>> Switch<P, R> {
    /// Creates a switch with members `0..members`. There are at most 65,535 in total, later joins
    /// included.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SwitchConfig,
        policy: R,
        members: usize,
    ) -> Result<Switch<P, R>, ConfigError> {
        config.check()?;
        Ok(Switch {
            config,
            policy,
            ensemble: vec![true; members],
            connection: None,
            ended: None,
            output: Output::new(),
        })
    }

    /// Handles a segment that arrived at `now`. `payload` is the frame's; with any other segment it
    /// has no meaning.
    pub fn handle_segment(&mut self, now: Time, from: Leg, segment: &Segment, payload: P) {
        match (&mut self.connection, segment.body) {
            (Some(connection), _) if connection.number() == segment.connection => {
                connection.handle_segment(now, &mut self.policy, from, segment, payload);
                self.retire_connection();
            }
            (_, Body::Reset(_)) => {}
            (_, Body::Open { credit }) if from == Leg::Peer => {
                if self.is_in_use() {
                    self.send_reset(from, segment.connection, Reason::Refused);
                } else {
                    self.open(now, segment, credit);
                }
            }
            _ => {
                let reason = self.reason_after_end(from, segment.connection);
                self.send_reset(from, segment.connection, reason);
            }
        }
    }

    /// Returns the reason for a Reset to a leg whose connection does not exist.
    fn reason_after_end(&self, leg: Leg, connection: u32) -> Reason {
        let ended = self.ended.as_ref();
        let known = ended.filter(|ended| ended.connection == connection);
        let given_up = match (leg, known) {
            (Leg::Member(id), Some(ended)) => ended.given_up.get(id.index()).copied().flatten(),
            _ => None,
        };
        given_up.unwrap_or(Reason::Unknown)
    }

    /// Opens a connection of the peer. It replaces one that is not in use.
    fn open(&mut self, now: Time, segment: &Segment, credit: u32) {
        if !self.ensemble.contains(&true) {
            self.send_reset(Leg::Peer, segment.connection, Reason::Refused);
            return;
        }
        let config = self.config.clone();
        let number = segment.connection;
        let connection = Connection::open(config, now, number, credit, &self.ensemble);
        if let Some(old) = self.connection.replace(connection) {
            self.output.append(old.into_output());
        }
    }

    fn send_reset(&mut self, to: Leg, connection: u32, reason: Reason) {
        let body = Body::Reset(reason);
        let segment = Segment { connection, body };
        self.output.push(to, segment, P::default());
    }

    /// Forgets a connection that is over.
    fn retire_connection(&mut self) {
        if let Some(over) = self.connection.take_if(|connection| connection.is_over()) {
            self.ended = Some(Ended {
                connection: over.number(),
                given_up: over.reasons_given_up(),
            });
            self.output.append(over.into_output());
        }
    }

    /// Adds a member to the service, and returns its number: the next one.
    pub fn join(&mut self, now: Time) -> MemberId {
        self.ensemble.push(true);
        if let Some(connection) = &mut self.connection {
            connection.join(now);
        }
        MemberId(self.ensemble.len() as u16 - 1)
    }

    /// Returns whether there is a connection in which a member that joins can take part. Once all
    /// members have closed their streams, a further one could send nothing.
    pub fn takes_members(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(Connection::takes_members)
    }

    /// Releases a member: it gets no new frames, and has left when it has acknowledged every frame
    /// and has closed its own stream. A member that does not finish is given up, see
    /// [`SwitchConfig::stall_timeout`]. Does nothing if there is no such member.
    pub fn leave(&mut self, now: Time, member: MemberId) {
        let is_there = self.ensemble.get_mut(member.index());
        if is_there.is_some_and(core::mem::take)
            && let Some(connection) = &mut self.connection
        {
            connection.leave(now, member);
            self.retire_connection();
        }
    }

    /// Returns the policy, whose parameters may change at any time.
    pub fn policy_mut(&mut self) -> &mut R {
        &mut self.policy
    }

    /// Returns whether there is no connection: none was opened, or the last one is over.
    pub fn is_idle(&self) -> bool {
        self.connection.is_none()
    }

    /// Returns whether another connection must wait for the present one.
    fn is_in_use(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_in_use)
    }

    /// Returns whether nothing is left to deliver: there is no connection, or both of its
    /// directions are closed and acknowledged. A connection that only passes through does not
    /// count as finished.
    pub fn is_finished(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::is_finished)
    }

    /// Handles the timer if it is due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
            self.retire_connection();
        }
    }

    /// Returns when to call [`handle_timeout`](Switch::handle_timeout) next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.connection.as_ref().and_then(Connection::poll_timeout)
    }

    /// Returns the next segment to send, its leg, and its payload. The payload of a segment that is
    /// not a frame is the default.
    pub fn poll_transmit(&mut self) -> Option<(Leg, Segment, P)> {
        let left = self.output.poll_transmit();
        left.or_else(|| self.connection.as_mut()?.poll_transmit())
    }

    /// Returns the next event: [`Event::MemberStalled`], [`Event::MemberResumed`],
    /// [`Event::MemberFailed`], [`Event::FrameDropped`] or [`Event::Failed`].
    pub fn poll_event(&mut self) -> Option<Event> {
        let left = self.output.poll_event();
        left.or_else(|| self.connection.as_mut()?.poll_event())
    }
}
