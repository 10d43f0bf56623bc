//! The policy that keeps the frames of a key at one member.

use super::{Candidate, LeastOutstanding, MemberId, Policy, Prefix};
use crate::Data;

/// Keeps the frames of a key at one member: the first frame goes to the member with the fewest
/// outstanding frames, and the later ones follow it as long as the member is a candidate. Members
/// that join do not change the member of a key.
///
/// The policy remembers, for each value of the low 12 bits, the last key that had it. A peer that
/// wants to keep N keys at their members gives them different low bits, and changes the upper bits
/// when it uses a value of the low bits for something else. Initiators that share a connection have
/// keys of their own: the policy remembers the last key of each [`Prefix`], of up to
/// [`INITIATORS`](Affinity::INITIATORS) that use the same low bits.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    first: LeastOutstanding,
    /// The last keys and their members, by the keys' low bits; the one that was chosen first is
    /// first.
    known: Vec<Vec<(u32, MemberId)>>,
}

impl Affinity {
    /// The number of keys of one initiator that the policy remembers.
    pub const KEYS: usize = 1 << 12;
    /// The number of initiators whose keys the policy remembers although they have the same low
    /// bits.
    pub const INITIATORS: usize = 16;

    /// Remembers a key in place of the former one with the same low bits and the same prefix.
    fn remember(&mut self, slot: usize, key: u32, member: MemberId) {
        let keys = &mut self.known[slot];
        let prefix = Prefix::of_key(key);
        let former = keys.iter().position(|(k, _)| Prefix::of_key(*k) == prefix);
        match former {
            Some(place) => keys[place] = (key, member),
            None => {
                if keys.len() == Affinity::INITIATORS {
                    keys.remove(0);
                }
                keys.push((key, member));
            }
        }
        debug_assert!(keys.len() <= Affinity::INITIATORS);
    }
}

impl<P> Policy<P> for Affinity {
    fn route(&mut self, frame: &Data, payload: &P, candidates: &[Candidate]) -> usize {
        let slot = frame.key as usize % Affinity::KEYS;
        // Most peers use few slots, and the lowest first.
        if slot >= self.known.len() {
            self.known.resize(slot + 1, Vec::new());
        }
        let known = self.known[slot].iter().find(|(key, _)| *key == frame.key);
        if let Some((_, member)) = known
            && let Ok(place) = candidates.binary_search_by_key(member, |c| c.member)
        {
            return place;
        }
        let place = self.first.route(frame, payload, candidates);
        self.remember(slot, frame.key, candidates[place].member);
        debug_assert!(self.known.len() <= Affinity::KEYS);
        place
    }
}
