//! Sequence numbers: one type for each side of the switch, so that the compiler refuses to mix them
//! up.

use core::fmt::Debug;

/// A sequence number of one direction on one side of the switch. Numbers wrap, and two numbers that
/// are compared are always less than half the circle apart (RFC 1982 section 3.2).
pub(super) trait Sequence: Copy + Eq + Debug {
    /// The number of a direction's first frame.
    const FIRST: Self;

    /// Converts a number from a packet.
    fn from_wire(number: u32) -> Self;

    /// Converts the number for a packet.
    fn to_wire(self) -> u32;

    /// Returns whether this number comes before `other`.
    #[inline]
    fn is_before(self, other: Self) -> bool {
        (self.to_wire().wrapping_sub(other.to_wire()) as i32) < 0
    }

    /// Returns the number that is `frames` after this one.
    #[inline]
    fn plus(self, frames: u32) -> Self {
        Self::from_wire(self.to_wire().wrapping_add(frames))
    }

    /// Returns the number after this one.
    #[inline]
    fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the number before this one.
    #[inline]
    fn previous(self) -> Self {
        Self::from_wire(self.to_wire().wrapping_sub(1))
    }

    /// Returns the distance from `base` to this number; above 2^31 if this number is before `base`.
    #[inline]
    fn since(self, base: Self) -> u32 {
        self.to_wire().wrapping_sub(base.to_wire())
    }
}

/// A number between the peer and the switch: inbound, the peer's own number; outbound, the
/// switch's.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerSeq(u32);

/// A number between the switch and one member: inbound, the switch's number; outbound, the member's
/// own. Each member has numbers of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberSeq(u32);

impl PeerSeq {
    /// Returns the same number on the member's side. The two are equal while everything passes
    /// unchanged.
    pub(super) fn passed_to_member(self) -> MemberSeq {
        MemberSeq(self.0)
    }
}

impl MemberSeq {
    /// Returns the same number on the peer's side. The two are equal while everything passes
    /// unchanged.
    pub(super) fn passed_to_peer(self) -> PeerSeq {
        PeerSeq(self.0)
    }
}

impl Sequence for PeerSeq {
    const FIRST: PeerSeq = PeerSeq(0);

    #[inline]
    fn from_wire(number: u32) -> PeerSeq {
        PeerSeq(number)
    }

    #[inline]
    fn to_wire(self) -> u32 {
        self.0
    }
}

impl Sequence for MemberSeq {
    const FIRST: MemberSeq = MemberSeq(0);

    #[inline]
    fn from_wire(number: u32) -> MemberSeq {
        MemberSeq(number)
    }

    #[inline]
    fn to_wire(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let last = PeerSeq(u32::MAX);
        assert_eq!(last.next(), PeerSeq::FIRST);
        assert_eq!(PeerSeq::FIRST.previous(), last);
        assert_eq!(PeerSeq(3).since(last), 4);
        assert!(last.is_before(PeerSeq(0)) && !PeerSeq(0).is_before(last));
        assert!(!PeerSeq(7).is_before(PeerSeq(7)));
    }
}
