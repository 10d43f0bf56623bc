//! Routing policies, which choose a member for each frame.

mod affinity;
mod metrics;
mod prefix;
mod rate_aware;

use core::ops::RangeInclusive;
use core::time::Duration;

use super::MemberId;
use crate::Data;
pub use affinity::Affinity;
use manyflow_core::xcp::Feedback;
pub use metrics::MemberMetrics;
pub use prefix::{ByPrefix, Prefix};
pub use rate_aware::RateAware;

/// A member that takes frames.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The member.
    pub member: MemberId,
    /// The number of frames that the member was sent and has not acknowledged.
    pub outstanding: u32,
}

/// A round trip between the switch and a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its time.
    pub rtt: Duration,
    /// The frames that the member has answered for the first time meanwhile, at least one.
    pub answers: u32,
}

/// Chooses a member for each frame of the peer: the service's own part of a switch (the paper's
/// ALRM, section II).
///
/// A policy sees each frame once, in the order of the peer's numbers. Only frames that a failed
/// member has not acknowledged are routed again, when the peer retransmits them.
pub trait Policy<P>: Send {
    /// Returns the index in `candidates` of the member that gets the frame. `candidates` is sorted
    /// by member number and never empty. An index beyond its end means the last candidate; if
    /// frames are [bound](super::SwitchConfig::bound) to members, it means no member.
    fn route(&mut self, frame: &Data, payload: &P, candidates: &[Candidate]) -> usize;

    /// Learns that a member has answered a frame for the first time. `feedback` is what the path
    /// and the member itself leave of the frame's request, before the minimum over the members is
    /// taken for the peer. By default, a policy learns nothing.
    fn note_answer(&mut self, _member: MemberId, _feedback: Feedback) {}

    /// Learns of a round trip between the switch and a member, after the answer that ended it. By
    /// default, a policy learns nothing.
    fn note_round(&mut self, _member: MemberId, _round: Round) {}

    /// Learns that a frame was lost on the way to a member. By default, a policy learns nothing.
    fn note_loss(&mut self, _member: MemberId) {}

    /// Learns that a member's cumulative acknowledgement covers one more frame, which is no longer
    /// outstanding. By default, a policy learns nothing.
    fn note_acknowledged(&mut self, _member: MemberId) {}
}

impl<P, R: Policy<P> + ?Sized> Policy<P> for Box<R> {
    fn route(&mut self, frame: &Data, payload: &P, candidates: &[Candidate]) -> usize {
        (**self).route(frame, payload, candidates)
    }

    fn note_answer(&mut self, member: MemberId, feedback: Feedback) {
        (**self).note_answer(member, feedback);
    }

    fn note_round(&mut self, member: MemberId, round: Round) {
        (**self).note_round(member, round);
    }

    fn note_loss(&mut self, member: MemberId) {
        (**self).note_loss(member);
    }

    fn note_acknowledged(&mut self, member: MemberId) {
        (**self).note_acknowledged(member);
    }
}

/// Chooses each member in turn.
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

/// Chooses the member with the fewest outstanding frames; among equals, the next one in turn.
#[derive(Clone, Debug, Default)]
pub struct LeastOutstanding {
    turn: RoundRobin,
}

impl<P> Policy<P> for LeastOutstanding {
    fn route(&mut self, frame: &Data, payload: &P, candidates: &[Candidate]) -> usize {
        let first = self.turn.route(frame, payload, candidates);
        let members = candidates.len();
        let from_first = (0..members).map(|step| (first + step) % members);
        let least = from_first.min_by_key(|place| candidates[*place].outstanding);
        let place = least.unwrap_or(first);
        self.turn.next = place + 1;
        place
    }
}

/// Chooses the member by the hash of the key (rendezvous hashing). A member that joins or leaves
/// changes the member of only its own share of the keys.
#[derive(Clone, Debug, Default)]
pub struct HashOfKey {}

impl<P> Policy<P> for HashOfKey {
    fn route(&mut self, frame: &Data, _payload: &P, candidates: &[Candidate]) -> usize {
        let draw = |c: &Candidate| mix(u64::from(frame.key) << 16 | u64::from(c.member.0));
        let drawn = candidates.iter().map(draw).enumerate();
        drawn
            .max_by_key(|(_, draw)| *draw)
            .map_or(0, |(place, _)| place)
    }
}

/// Applies SplitMix64's output function (Steele, Lea, Flood 2014): each bit of the input changes
/// half of the bits of the output.
fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Chooses the member of a rank in an order that depends on the upper 28 bits of the key, so that
/// frames for copies of the same thing go to different members.
///
/// The low 4 bits of the key are the rank. The order is that of rendezvous hashing over the present
/// candidates, and the rank counts modulo their number. A member that joins or leaves moves each
/// other member by at most one rank.
///
/// Members are drawn by their identities, so that all switches that know the same members have the
/// same order, however the members are numbered.
#[derive(Clone, Debug, Default)]
pub struct ReplicaHash {
    /// The identity of each member, by its number.
    identities: Vec<u64>,
    /// The draw and the place of each candidate. It is kept so that no frame allocates memory.
    draws: Vec<(u64, usize)>,
}

impl ReplicaHash {
    /// The number of ranks that a key can name.
    pub const RANKS: u8 = 16;

    /// Creates the policy from the [identity](ReplicaHash::identity) of each member by its number.
    /// A member with a higher number has its number as its identity.
    pub fn new(identities: Vec<u64>) -> ReplicaHash {
        let draws = Vec::new();
        ReplicaHash { identities, draws }
    }

    /// Returns the identity of the member with these bytes. They differ from those of all other
    /// members, as the bytes of an address do.
    pub fn identity(distinction: &[u8]) -> u64 {
        let words = distinction.chunks(8);
        words.fold(distinction.len() as u64, |identity, part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            mix(identity ^ u64::from_be_bytes(word))
        })
    }

    fn identity_of(&self, member: MemberId) -> u64 {
        let known = self.identities.get(usize::from(member.0));
        known.copied().unwrap_or_else(|| member.0.into())
    }

    /// Returns the key for the member of a rank. `hash` is below 2^28, and `rank` is below
    /// [`RANKS`](ReplicaHash::RANKS); higher bits are ignored.
    pub fn key(hash: u32, rank: u8) -> u32 {
        hash << 4 | u32::from(rank % ReplicaHash::RANKS)
    }
}

impl<P> Policy<P> for ReplicaHash {
    fn route(&mut self, frame: &Data, _payload: &P, candidates: &[Candidate]) -> usize {
        let (hash, rank) = (frame.key >> 4, frame.key as usize & 15);
        self.draws.clear();
        for (candidate, place) in candidates.iter().zip(0..) {
            let draw = mix(u64::from(hash) << 16 ^ self.identity_of(candidate.member));
            self.draws.push((draw, place));
        }
        let rank = rank % candidates.len();
        // The largest draw has rank 0, as with `HashOfKey`.
        let (_, (_, place), _) = self.draws.select_nth_unstable_by(rank, |a, b| b.cmp(a));
        *place
    }
}

/// Chooses members in proportion to their weights, evenly mixed. Members without a weight get
/// frames only if no other member is a candidate.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    /// The weight of each member, by its number; not negative.
    pub weights: Vec<f64>,
    /// The frames that each member is owed.
    owed: Vec<f64>,
}

impl Weighted {
    /// Creates the policy from the weight of each member by its number. Weights must not be
    /// negative.
    pub fn new(weights: Vec<f64>) -> Weighted {
        let owed = vec![0.0; weights.len()];
        Weighted { weights, owed }
    }

    fn weight(&self, candidate: &Candidate) -> f64 {
        let place = usize::from(candidate.member.0);
        self.weights
            .get(place)
            .map_or(0.0, |weight| weight.max(0.0))
    }
}

impl<P> Policy<P> for Weighted {
    /// Adds each candidate's proportion of one frame to what it is owed, and chooses the candidate
    /// that is owed most (smooth weighted round robin).
    fn route(&mut self, _frame: &Data, _payload: &P, candidates: &[Candidate]) -> usize {
        let total: f64 = candidates.iter().map(|c| self.weight(c)).sum();
        let mut most: Option<(usize, f64)> = None;
        for (place, candidate) in candidates.iter().enumerate() {
            let weight = self.weight(candidate);
            if weight == 0.0 {
                continue;
            }
            let owed = &mut self.owed[usize::from(candidate.member.0)];
            *owed += weight / total;
            if most.is_none_or(|(_, other)| *owed > other) {
                most = Some((place, *owed));
            }
        }
        let place = most.map_or(0, |(place, _)| place);
        let paid = self.owed.get_mut(usize::from(candidates[place].member.0));
        if let Some(owed) = paid {
            *owed -= 1.0;
        }
        place
    }
}

/// Chooses the member that a rule names for the key: the first range that contains the key and
/// whose member is a candidate. A second rule with the same range names the member that takes over,
/// which may be the same server after it has joined again under another number. Other frames go to
/// each candidate in turn.
#[derive(Clone, Debug, Default)]
pub struct KeyRule {
    /// The rules: ranges of keys and their members.
    pub rules: Vec<(RangeInclusive<u32>, MemberId)>,
    others: RoundRobin,
}

impl KeyRule {
    /// Creates the policy from ranges of keys and their members.
    pub fn new(rules: Vec<(RangeInclusive<u32>, MemberId)>) -> KeyRule {
        let others = RoundRobin::default();
        KeyRule { rules, others }
    }
}

impl<P> Policy<P> for KeyRule {
    fn route(&mut self, frame: &Data, payload: &P, candidates: &[Candidate]) -> usize {
        let mut fitting = self
            .rules
            .iter()
            .filter(|(keys, _)| keys.contains(&frame.key));
        let named = fitting.find_map(|(_, member)| {
            let place = candidates.binary_search_by_key(member, |candidate| candidate.member);
            place.ok()
        });
        named.unwrap_or_else(|| self.others.route(frame, payload, candidates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Length;
    use manyflow_core::xcp::Congestion;

    fn candidates(members: &[u16]) -> Vec<Candidate> {
        let candidate = |member: &u16| Candidate {
            member: MemberId(*member),
            outstanding: 0,
        };
        members.iter().map(candidate).collect()
    }

    /// Returns the members that get the frames with these keys.
    fn routed(
        policy: &mut dyn Policy<Length>,
        keys: impl IntoIterator<Item = u32>,
        candidates: &[Candidate],
    ) -> Vec<u16> {
        let mut member = |key| {
            let frame = Data {
                sequence: 0,
                key,
                congestion: Congestion::default(),
            };
            candidates[policy.route(&frame, &Length(1), candidates)]
                .member
                .0
        };
        keys.into_iter().map(&mut member).collect()
    }

    #[test]
    fn the_least_loaded_member_is_chosen_and_equals_take_turns() {
        let mut policy = LeastOutstanding::default();
        let mut three = candidates(&[0, 1, 2]);
        assert_eq!(routed(&mut policy, 0..4, &three), [0, 1, 2, 0]);
        three[0].outstanding = 5;
        three[2].outstanding = 5;
        assert_eq!(routed(&mut policy, 0..2, &three), [1, 1]);
    }

    #[test]
    fn only_the_keys_of_a_leaving_member_move() {
        let mut policy = HashOfKey::default();
        let before = routed(&mut policy, 0..3000, &candidates(&[0, 1, 2]));
        let after = routed(&mut policy, 0..3000, &candidates(&[0, 2]));
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b);
        let of_second = before.iter().filter(|member| **member == 1).count();
        assert!((850..1150).contains(&of_second), "a third: {of_second}");
        assert_eq!(moved.count(), of_second);
    }

    #[test]
    fn weights_hold_in_each_round_and_members_without_weight_get_no_frames() {
        let mut policy = Weighted::new(vec![2.0, 0.0, 1.0]);
        let three = candidates(&[0, 1, 2]);
        assert_eq!(routed(&mut policy, 0..6, &three), [0, 2, 0, 0, 2, 0]);
        assert_eq!(routed(&mut policy, 0..2, &candidates(&[1])), [1, 1]);
        assert_eq!(
            routed(&mut policy, 0..2, &candidates(&[1, 7])),
            [1, 1],
            "member 7 has no weight"
        );
    }

    #[test]
    fn a_rule_names_members_and_others_take_turns() {
        let mut policy = KeyRule::new(vec![(0..=9, MemberId(2)), (5..=19, MemberId(0))]);
        let keys = [0, 5, 10, 20, 21, 22];
        assert_eq!(
            routed(&mut policy, keys, &candidates(&[0, 2])),
            [2, 2, 0, 0, 2, 0]
        );
        let without = routed(&mut policy, [0, 0, 5], &candidates(&[0, 3]));
        assert_eq!(without, [3, 0, 0], "member 2 is no candidate");
    }

    #[test]
    fn a_key_stays_at_its_member_until_the_member_is_gone() {
        let mut policy = Affinity::default();
        let mut to = |key: u32, members: &[(u16, u32)]| {
            let candidate = |(member, outstanding): &(u16, u32)| Candidate {
                member: MemberId(*member),
                outstanding: *outstanding,
            };
            let candidates: Vec<_> = members.iter().map(candidate).collect();
            routed(&mut policy, [key], &candidates)[0]
        };
        assert_eq!(to(5, &[(0, 9), (1, 2)]), 1, "the fewest outstanding frames");
        assert_eq!(to(5, &[(0, 0), (1, 8), (2, 0)]), 1, "the key has a member");
        assert_eq!(to(5, &[(0, 3), (2, 1)]), 2, "its member is gone");
        assert_eq!(
            to(5, &[(0, 0), (1, 0), (2, 7)]),
            2,
            "the key has another one"
        );
        let same_low_bits = 5 + Affinity::KEYS as u32;
        assert_eq!(to(same_low_bits, &[(0, 0), (2, 7)]), 0, "another key");
    }

    #[test]
    fn initiators_with_the_same_low_bits_keep_their_members() {
        let mut policy = Affinity::default();
        let keys = (1..=Affinity::INITIATORS as u16).map(|number| {
            let prefix = Prefix::new(number).unwrap();
            prefix.key(7)
        });
        let keys: Vec<_> = keys.collect();
        let three = candidates(&[0, 1, 2]);
        let first = routed(&mut policy, keys.clone(), &three);
        assert!(first.contains(&0) && first.contains(&1) && first.contains(&2));
        let reversed = keys.iter().rev().copied();
        let again = routed(&mut policy, reversed, &three);
        assert!(again.iter().rev().eq(&first), "{again:?} after {first:?}");
        // A further initiator takes the place of the first one.
        let further = Prefix::new(1000).unwrap().key(7);
        let to = routed(&mut policy, [further], &three);
        assert_eq!(
            routed(&mut policy, [further, keys[1]], &three),
            [to[0], first[1]]
        );
    }

    #[test]
    fn ranks_name_distinct_members_and_a_change_moves_others_by_at_most_one_rank() {
        let order = |hash, members: &[u16]| {
            let ranks = 0..ReplicaHash::RANKS;
            let keys = ranks.map(|rank| ReplicaHash::key(hash, rank));
            routed(&mut ReplicaHash::default(), keys, &candidates(members))
        };
        let mut of_first = 0;
        for hash in 0..1000 {
            let five = order(hash, &[0, 1, 2, 3, 4]);
            assert_eq!(five[5..10], five[..5], "ranks count modulo the members");
            let mut distinct = five[..5].to_vec();
            distinct.sort_unstable();
            assert_eq!(distinct, [0, 1, 2, 3, 4]);
            let four = order(hash, &[0, 1, 3, 4]);
            let remaining: Vec<_> = five[..5].iter().copied().filter(|m| *m != 2).collect();
            assert_eq!(four[..4], remaining);
            of_first += usize::from(five[0] == 0);
        }
        assert!((150..250).contains(&of_first), "a fifth: {of_first}");
    }

    #[test]
    fn ranks_follow_the_identities_of_members_and_not_their_numbers() {
        let identities: Vec<_> = (0..3_u8).map(|n| ReplicaHash::identity(&[n; 18])).collect();
        let turned = [1, 2, 0].map(|number: usize| identities[number]);
        let mut first = ReplicaHash::new(identities.clone());
        let mut second = ReplicaHash::new(turned.to_vec());
        let three = candidates(&[0, 1, 2]);
        let mut counts = [0; 3];
        for key in 0..3000 {
            let one = usize::from(routed(&mut first, [key], &three)[0]);
            let other = usize::from(routed(&mut second, [key], &three)[0]);
            assert_eq!(identities[one], turned[other], "key {key}");
            counts[one] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        // Stores rely on these values: others would move their chunks.
        assert_eq!(ReplicaHash::identity(b"0123456789"), 0x9800_1f6b_7a4a_4c87);
    }
}
