//! The numbers of initiators that share a connection, and the policy that gives each its answers.

use super::{Candidate, MemberId, Policy};
use crate::Data;

/// The number of one of the initiators that share a connection, in the high bits of a frame's key.
///
/// A service names the initiator that it answers by the key of the answer. An initiator that has a
/// connection for itself has [`Prefix::NONE`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(u16);

impl Prefix {
    /// The number of bits of a prefix: the highest bits of a key.
    pub const BITS: u32 = 10;
    /// The number of bits of a key below the prefix.
    pub const KEY_BITS: u32 = u32::BITS - Prefix::BITS;
    /// The prefix of an initiator that shares its connection with nobody.
    pub const NONE: Prefix = Prefix(0);
    /// Maximum number of initiators that one connection can have, former ones included.
    pub const INITIATORS: usize = (1 << Prefix::BITS) - 1;

    /// Returns the prefix with this number; `None` if it has more than [`BITS`](Prefix::BITS) bits.
    pub fn new(number: u16) -> Option<Prefix> {
        (u32::from(number) < 1 << Prefix::BITS).then_some(Prefix(number))
    }

    /// Returns the prefix of the member with this number of an
    /// [`InitiatorSwitch`](crate::switch::InitiatorSwitch). No later member of the connection gets
    /// it again, so it never names two of them. Returns `None` if there are too many members.
    pub fn of_member(member: MemberId) -> Option<Prefix> {
        let number = member.0.checked_add(1)?;
        Prefix::new(number)
    }

    /// Returns the member with this prefix; `None` for [`Prefix::NONE`].
    pub fn member(self) -> Option<MemberId> {
        self.0.checked_sub(1).map(MemberId)
    }

    /// Returns the prefix in a key.
    pub fn of_key(key: u32) -> Prefix {
        Prefix((key >> Prefix::KEY_BITS) as u16)
    }

    /// Returns the key with this prefix and the low [`KEY_BITS`](Prefix::KEY_BITS) bits of `rest`.
    pub fn key(self, rest: u32) -> u32 {
        u32::from(self.0) << Prefix::KEY_BITS | rest & ((1 << Prefix::KEY_BITS) - 1)
    }

    /// Returns the number of a request of this initiator: the prefix, and the low 54 bits of
    /// `rest`. The numbers of two initiators differ.
    pub fn id(self, rest: u64) -> u64 {
        u64::from(self.key(0)) << 32 | rest & u64::MAX >> Prefix::BITS
    }

    /// Returns the prefix in the number of a request.
    pub fn of_id(id: u64) -> Prefix {
        Prefix::of_key((id >> 32) as u32)
    }

    /// Returns the number: at most [`INITIATORS`](Prefix::INITIATORS), and 0 for
    /// [`Prefix::NONE`].
    pub fn number(self) -> u16 {
        self.0
    }
}

/// Gives each frame to the initiator whose [`Prefix`] its key has, and to no other.
///
/// For a switch of initiators whose frames are
/// [bound](crate::switch::SwitchConfig::bound) to them.
#[derive(Copy, Clone, Debug, Default)]
pub struct ByPrefix {}

impl<P> Policy<P> for ByPrefix {
    fn route(&mut self, frame: &Data, _payload: &P, candidates: &[Candidate]) -> usize {
        let member = Prefix::of_key(frame.key).member();
        let place = member.and_then(|member| {
            let place = candidates.binary_search_by_key(&member, |candidate| candidate.member);
            place.ok()
        });
        place.unwrap_or(candidates.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Length;
    use manyflow_core::xcp::Congestion;

    #[test]
    fn a_prefix_is_in_the_high_bits_of_a_key() {
        let prefix = Prefix::of_member(MemberId(2)).unwrap();
        assert_eq!(prefix.number(), 3);
        assert_eq!(prefix.key(5), 0x00c0_0005);
        assert_eq!(prefix.key(u32::MAX), 0x00ff_ffff);
        assert_eq!(Prefix::of_key(0x00ff_ffff), prefix);
        assert_eq!(prefix.member(), Some(MemberId(2)));
        assert_eq!(Prefix::NONE.member(), None);
        assert_eq!(Prefix::NONE.key(7), 7);
        assert_eq!(prefix.id(5), 0x00c0_0000_0000_0005);
        assert_eq!(prefix.id(u64::MAX), 0x00ff_ffff_ffff_ffff);
        assert_eq!(Prefix::of_id(0x00ff_ffff_ffff_ffff), prefix);
    }

    #[test]
    fn a_connection_has_as_many_prefixes_as_it_may_have_initiators() {
        let last = MemberId(Prefix::INITIATORS as u16 - 1);
        let prefix = Prefix::of_member(last).unwrap();
        assert_eq!(usize::from(prefix.number()), Prefix::INITIATORS);
        assert_eq!(Prefix::of_member(MemberId(last.0 + 1)), None);
        assert_eq!(Prefix::of_member(MemberId(u16::MAX)), None);
        assert_eq!(Prefix::new(1 << Prefix::BITS), None);
    }

    #[test]
    fn a_frame_reaches_the_initiator_of_its_prefix_or_nobody() {
        let candidates = [0, 2].map(|member| Candidate {
            member: MemberId(member),
            outstanding: 0,
        });
        let to = |number: u16| {
            let frame = Data {
                sequence: 0,
                key: Prefix::new(number).unwrap().key(9),
                congestion: Congestion::default(),
            };
            let place = ByPrefix::default().route(&frame, &Length(1), &candidates);
            candidates.get(place).map(|candidate| candidate.member.0)
        };
        assert_eq!([to(1), to(3)], [Some(0), Some(2)]);
        assert_eq!([to(0), to(2), to(4)], [None; 3], "nobody has it");
    }
}
