//! Routing policies: which member gets a frame.

use core::ops::RangeInclusive;

use super::MemberId;
use crate::anypoint::Data;

/// A member that takes frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub member: MemberId,
    /// Frames that it was sent and has not acknowledged.
    pub outstanding: u32,
}

/// The service's own part of a switch (the paper's ALRM, section II): it sees each frame of the peer once, in order.
pub trait Policy<P> {
    /// The place in `candidates` of the member that gets the frame. They are in the order of their numbers and never empty; a
    /// place beyond their end means the last.
    fn route(&mut self, frame: &Data, payload: &P, candidates: &[Candidate]) -> usize;
}

/// Each member in turn.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl<P> Policy<P> for RoundRobin {
    fn route(&mut self, _frame: &Data, _payload: &P, candidates: &[Candidate]) -> usize {
        let place = self.next % candidates.len();
        self.next = place + 1;
        place
    }
}

/// The member with the fewest frames outstanding; of equals the one that has waited longest.
#[derive(Clone, Debug, Default)]
pub struct LeastOutstanding {}

/// The member that the key's hash falls on, by rendezvous hashing: a member that comes or goes moves its own share of the keys alone.
#[derive(Clone, Debug, Default)]
pub struct HashOfKey {}

/// Members get frames in proportion to their weights, in order of their numbers; those without a weight get none.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    /// Of each member by its number, not negative.
    pub weights: Vec<f64>,
}

/// A rule over the key: the first range that holds it names the member. Frames of other keys, and those whose member is gone, go
/// to each candidate in turn.
#[derive(Clone, Debug, Default)]
pub struct KeyRule {
    /// Ranges of keys and their members.
    pub rules: Vec<(RangeInclusive<u32>, MemberId)>,
}
