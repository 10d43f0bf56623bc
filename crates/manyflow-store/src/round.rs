//! A round of requests for one chunk: the client asks the ranks one after the other, until it has
//! what it wants or has heard every member.

use std::collections::BTreeMap;

use crate::{MemberName, RANKS};

/// The ranks that a round has asked, and the members that have answered.
///
/// Ranks count modulo the number of members, which the client does not know. If the member that
/// answered for rank 0 answers for a higher rank too, the ranks have come full circle.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The number of rounds before this one.
    pub(crate) number: u8,
    asked: u16,
    /// The ranks whose answers are pending.
    open: u16,
    answers: BTreeMap<u8, MemberName>,
}

impl Round {
    /// Returns the round after this one.
    pub(crate) fn next(&self) -> Round {
        Round {
            number: self.number + 1,
            ..Round::default()
        }
    }

    /// Notes that a rank is asked.
    pub(crate) fn ask(&mut self, rank: u8) {
        debug_assert!(rank < RANKS);
        debug_assert!(!self.has_asked(rank), "a rank is asked once in a round");
        self.asked |= 1 << rank;
        self.open |= 1 << rank;
    }

    pub(crate) fn has_asked(&self, rank: u8) -> bool {
        self.asked >> rank & 1 == 1
    }

    /// Returns whether the answer of a rank is pending.
    pub(crate) fn is_open(&self, rank: u8) -> bool {
        rank < RANKS && self.open >> rank & 1 == 1
    }

    /// Returns the number of ranks whose answers are pending.
    pub(crate) fn open_ranks(&self) -> u32 {
        self.open.count_ones()
    }

    /// Notes the answer of a rank. Does nothing if none was pending.
    pub(crate) fn answer(&mut self, rank: u8, member: &MemberName) {
        if self.give_up(rank) {
            self.answers.insert(rank, member.clone());
        }
    }

    /// Notes that a rank will not answer. Returns whether its answer was pending.
    pub(crate) fn give_up(&mut self, rank: u8) -> bool {
        let was_open = self.is_open(rank);
        if was_open {
            self.open &= !(1 << rank);
        }
        was_open
    }

    /// Returns the lowest rank that can still be asked, from `first` on; `None` if all have been
    /// asked, or every member has answered.
    pub(crate) fn next_rank(&self, first: u8) -> Option<u8> {
        if self.is_full_circle() {
            return None;
        }
        (first..RANKS).find(|rank| !self.has_asked(*rank))
    }

    /// Returns whether every member has answered.
    pub(crate) fn is_full_circle(&self) -> bool {
        let Some(first) = self.answers.get(&0) else {
            return false;
        };
        self.answers
            .iter()
            .any(|(rank, member)| *rank > 0 && member == first)
    }

    /// Returns the number of ranks that were asked and gave no answer.
    pub(crate) fn unanswered(&self) -> u32 {
        self.asked.count_ones() - self.answers.len() as u32
    }

    /// Returns the members that have answered, without repetitions, in the order of their names.
    pub(crate) fn members(&self) -> Vec<MemberName> {
        let mut members: Vec<_> = self.answers.values().cloned().collect();
        members.sort_unstable();
        members.dedup();
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_the_first_member_answers_again() {
        let [a, b] = ["a", "b"].map(|name| MemberName::new(name).unwrap());
        let mut round = Round::default();
        for (rank, member) in [(0, &a), (1, &b), (2, &b)] {
            assert_eq!(round.next_rank(0), Some(rank));
            round.ask(rank);
            round.answer(rank, member);
        }
        round.ask(3);
        assert_eq!((round.next_rank(0), round.open_ranks()), (Some(4), 1));
        round.answer(3, &a);
        assert_eq!((round.next_rank(0), round.open_ranks()), (None, 0));
        assert_eq!(round.members(), [a, b]);
        assert_eq!(round.next().next_rank(0), Some(0));
    }

    #[test]
    fn a_round_without_answers_asks_every_rank_once() {
        let mut round = Round::default();
        while let Some(rank) = round.next_rank(0) {
            round.ask(rank);
            assert!(round.give_up(rank) && !round.give_up(rank));
        }
        assert_eq!(round.unanswered(), u32::from(RANKS));
    }
}
