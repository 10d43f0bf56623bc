//! The elements of a stream, each of which takes a sequence number.

use super::sequence::Sequence;
use crate::{Body, Data, Payload};

/// A frame, or the end of a direction.
#[derive(Clone, Debug)]
pub(super) enum Numbered<P> {
    /// A frame with its header. The sequence number in the header is the one with which the frame
    /// arrived.
    Frame(Data, P),
    /// The end of the direction.
    Close,
}

impl<P: Payload> Numbered<P> {
    /// Returns the element's bytes in a receive buffer; a Close takes none.
    pub(super) fn bytes(&self) -> u32 {
        match self {
            Numbered::Frame(_, payload) => payload.length(),
            Numbered::Close => 0,
        }
    }
}

impl<P: Clone + Default> Numbered<P> {
    /// Returns the packet that carries the element with number `sequence`.
    pub(super) fn to_packet(&self, sequence: impl Sequence) -> (Body, P) {
        let sequence = sequence.to_wire();
        match self {
            Numbered::Frame(data, payload) => {
                let data = Data { sequence, ..*data };
                (Body::Data(data), payload.clone())
            }
            Numbered::Close => (Body::Close { sequence }, P::default()),
        }
    }
}
