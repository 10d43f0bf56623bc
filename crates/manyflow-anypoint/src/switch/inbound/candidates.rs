//! The members from which a policy chooses.

use super::super::{Candidate, MemberId};

/// The members that take frames, and the number of outstanding frames of each.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// The candidates in the order of their numbers.
    list: Vec<Candidate>,
    /// Each member's index in `list`, by its number.
    places: Vec<Option<u16>>,
}

impl Candidates {
    /// Returns the candidates in the order of their numbers.
    pub(super) fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// Replaces the candidates by `members`, with the number of outstanding frames of each.
    pub(super) fn gather(&mut self, members: impl Iterator<Item = (MemberId, u32)>) {
        self.list.clear();
        self.places.clear();
        for (member, outstanding) in members {
            self.places.resize(member.index(), None);
            self.places.push(Some(self.list.len() as u16));
            self.list.push(Candidate {
                member,
                outstanding,
            });
        }
    }

    /// Counts one more outstanding frame for the candidate at this index, and returns its member.
    /// An index beyond the end means the last candidate.
    pub(super) fn charge(&mut self, place: usize) -> MemberId {
        let last = self.list.len() - 1;
        let candidate = &mut self.list[place.min(last)];
        candidate.outstanding += 1;
        candidate.member
    }

    /// Counts one outstanding frame less for the member. Does nothing if it is no candidate.
    pub(super) fn discharge(&mut self, member: MemberId) {
        if let Some(&Some(place)) = self.places.get(member.index()) {
            let candidate = &mut self.list[usize::from(place)];
            debug_assert_eq!(candidate.member, member);
            candidate.outstanding -= 1;
        }
    }

    /// Counts one more frame that has passed to the member unchanged. Does nothing if the member is
    /// no candidate.
    pub(super) fn note_sent(&mut self, member: MemberId) {
        if let Some(&Some(place)) = self.places.get(member.index()) {
            self.list[usize::from(place)].outstanding += 1;
        }
    }
}
