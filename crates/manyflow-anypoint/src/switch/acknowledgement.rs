//! Acknowledgements on one side of the switch, with that side's numbers.

use super::sequence::Sequence;
use crate::{Ack, Body, Gap};
use manyflow_core::xcp::Feedback;

/// An [`Ack`] whose numbers are typed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Acknowledgement<S> {
    /// The receiver has every frame before this one, and will not drop it.
    pub(super) cumulative: S,
    /// The frame that is answered. Its receiver may drop the frame again until `cumulative` covers
    /// it.
    pub(super) of: S,
    /// Bytes of frames from `cumulative` on that the receiver has room for, or
    /// [`UNLIMITED`](crate::UNLIMITED).
    pub(super) credit: u32,
    /// The answer to the answered frame's XCP header.
    pub(super) feedback: Feedback,
    /// Missing frames, lowest first, counted from `cumulative`.
    pub(super) missing: [Gap; 3],
}

impl<S: Sequence> Acknowledgement<S> {
    /// Converts an acknowledgement from the side whose numbers are of type `S`.
    pub(super) fn from_wire(ack: &Ack) -> Acknowledgement<S> {
        Acknowledgement {
            cumulative: S::from_wire(ack.cumulative),
            of: S::from_wire(ack.of),
            credit: ack.credit,
            feedback: ack.feedback,
            missing: ack.missing,
        }
    }

    /// Returns the packet that carries the acknowledgement.
    pub(super) fn to_body(self) -> Body {
        Body::Ack(Ack {
            cumulative: self.cumulative.to_wire(),
            of: self.of.to_wire(),
            credit: self.credit,
            feedback: self.feedback,
            missing: self.missing,
        })
    }

    /// Returns whether the acknowledgement covers only numbers before `next`: those of frames that
    /// were sent.
    pub(super) fn is_possible(&self, next: S) -> bool {
        self.of.is_before(next) && !next.is_before(self.cumulative)
    }

    /// Iterates over the numbers before `next` that are reported missing.
    pub(super) fn missing_before(&self, next: S) -> impl Iterator<Item = S> + use<S> {
        let (cumulative, missing) = (self.cumulative, self.missing);
        let numbers = move |gap: Gap| {
            let first = cumulative.plus(gap.offset.into());
            (0..u32::from(gap.frames)).map(move |place| first.plus(place))
        };
        let was_sent = move |number: &S| number.is_before(next);
        missing
            .into_iter()
            .flat_map(move |gap| numbers(gap).take_while(was_sent))
    }
}
