//! Sequence numbers. The overlay has three independent spaces of numbers. Each space is a type of
//! its own, so that the compiler rejects a number of one space where another is expected.
//!
//! | type | counts | by | first | wraps |
//! |---|---|---|---|---|
//! | [`OriginSeq`] | client messages of one daemon to one group | the origin | 1 | no |
//! | [`ChangeSeq`] | changes of its state that one daemon announces | the origin | 1 | no |
//! | [`LinkSeq`] | segments or datagrams in one direction of one link | the sending hop | 0 | yes |

use core::fmt;

/// The number of a client message among those that its origin sends to its group, from 1. It has 48
/// bits: an origin reaches the last number after a century of 70,000 messages a second.
// Three parts, the highest first, so that messages stay small: packets are passed by value.
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginSeq([u16; 3]);

/// The number of a [`Change`](super::Change) among those of an incarnation of its origin, from 1.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeSeq(pub u32);

/// The number of a segment or datagram among those sent in one direction of a link, from 0.
///
/// The numbers of datagrams wrap. Link numbers therefore have no order, only distances.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinkSeq(pub u32);

impl OriginSeq {
    /// The highest number.
    pub const MAX: OriginSeq = OriginSeq([u16::MAX; 3]);

    /// Returns a number, at most [`MAX`](OriginSeq::MAX).
    #[inline]
    pub const fn new(number: u64) -> OriginSeq {
        if number >> 48 != 0 {
            return OriginSeq::MAX;
        }
        OriginSeq([(number >> 32) as u16, (number >> 16) as u16, number as u16])
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u64 {
        let [high, middle, low] = self.0;
        (high as u64) << 32 | (middle as u64) << 16 | low as u64
    }

    /// Returns how far this number is after `earlier`; negative if it precedes `earlier`.
    pub fn distance_from(self, earlier: OriginSeq) -> i64 {
        self.number() as i64 - earlier.number() as i64
    }

    /// Returns the number `count` after this one, at most [`MAX`](OriginSeq::MAX).
    #[must_use]
    pub fn advance(self, count: u64) -> OriginSeq {
        OriginSeq::new(self.number().saturating_add(count))
    }

    /// Returns the number before this one, at least 0.
    #[must_use]
    pub fn previous(self) -> OriginSeq {
        OriginSeq::new(self.number().saturating_sub(1))
    }
}

impl fmt::Debug for OriginSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OriginSeq").field(&self.number()).finish()
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
