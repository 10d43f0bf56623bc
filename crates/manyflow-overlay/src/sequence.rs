//! Sequence numbers. The overlay has three independent spaces of numbers. Each space is a type of
//! its own, so that the compiler rejects a number of one space where another is expected.
//!
//! | type | counts | by | first | wraps |
//! |---|---|---|---|---|
//! | [`OriginSeq`] | client messages of one daemon to one group | the origin | 1 | no |
//! | [`ChangeSeq`] | memberships and pauses that one daemon announces | the origin | 1 | no |
//! | [`LinkSeq`] | segments or datagrams in one direction of one link | the sending hop | 0 | yes |

/// The number of a client message among those that its origin sends to its group, from 1.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginSeq(pub u32);

/// The number of a [`Membership`](super::Membership) or [`Pause`](super::Pause) among those that
/// its origin announces, from 1.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeSeq(pub u32);

/// The number of a segment or datagram among those sent in one direction of a link, from 0.
///
/// The numbers of datagrams wrap. Link numbers therefore have no order, only distances.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinkSeq(pub u32);

impl OriginSeq {
    /// Returns how far this number is after `earlier`, modulo 2^32.
    pub fn distance_from(self, earlier: OriginSeq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns the number `count` after this one, modulo 2^32.
    #[must_use]
    pub fn advance(self, count: u32) -> OriginSeq {
        OriginSeq(self.0.wrapping_add(count))
    }

    /// Returns the number before this one, modulo 2^32.
    #[must_use]
    pub fn previous(self) -> OriginSeq {
        OriginSeq(self.0.wrapping_sub(1))
    }
}

impl LinkSeq {
    /// Returns how far this number is after `earlier`, modulo 2^32.
    pub fn distance_from(self, earlier: LinkSeq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns the number `count` after this one, modulo 2^32.
    #[must_use]
    pub fn advance(self, count: u32) -> LinkSeq {
        LinkSeq(self.0.wrapping_add(count))
    }
}

/// A space of numbers in which a [`Resequencer`](super::resequencer::Resequencer) restores order.
pub(super) trait Sequence: Copy + Ord + core::fmt::Debug {
    /// Returns the number after this one.
    #[must_use]
    fn next(self) -> Self;
}

impl Sequence for OriginSeq {
    fn next(self) -> OriginSeq {
        self.advance(1)
    }
}

impl Sequence for ChangeSeq {
    fn next(self) -> ChangeSeq {
        ChangeSeq(self.0.wrapping_add(1))
    }
}
