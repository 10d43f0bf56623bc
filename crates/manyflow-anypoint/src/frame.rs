//! Frames, which applications send and read, and the items that the two halves of a connection
//! number.

use core::fmt;

use super::Payload;
use super::segment::{Body, Data, Segment};
use manyflow_core::xcp::Congestion;

/// The most frames from the first unacknowledged one to the last one that a sender has sent, or
/// that a receiver holds.
///
/// A [`Gap`](super::Gap) counts from the cumulative number in 16 bits, so an acknowledgement can
/// name every frame of such a flight.
pub(super) const FLIGHT_FRAMES_MAX: u32 = 1 << 16;

/// A frame, as an application sends and reads it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Frame<P> {
    /// The application's key of the frame; a switch may route by it.
    pub key: u32,
    /// The frame's contents.
    pub payload: P,
}

/// An element of a direction's stream. Each has a sequence number.
#[derive(Debug)]
pub(super) enum Item<P> {
    /// A frame of the application.
    Frame(Frame<P>),
    /// The end of the direction.
    Close,
}

impl<P: Payload> Item<P> {
    /// Returns the bytes that the item takes in a send or receive buffer.
    pub(super) fn bytes(&self) -> u32 {
        match self {
            Item::Frame(frame) => frame.payload.length(),
            Item::Close => 0,
        }
    }

    /// Returns the bytes that the item takes on the wire, including all headers.
    pub(super) fn wire_bytes(&self) -> u32 {
        match self {
            Item::Frame(frame) => frame_header_bytes() + frame.payload.length(),
            Item::Close => header_bytes(Body::Close { sequence: 0 }),
        }
    }
}

/// Returns the bytes of headers that each frame takes on the wire.
pub(super) fn frame_header_bytes() -> u32 {
    header_bytes(Body::Data(Data {
        sequence: 0,
        key: 0,
        congestion: Congestion::default(),
    }))
}

fn header_bytes(body: Body) -> u32 {
    Segment {
        connection: 0,
        body,
    }
    .wire_bytes()
}

/// The reason why a connection refused a frame. The error returns the frame's payload.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError<P> {
    /// The send buffer has no room for the frame.
    #[error("the send buffer is full; send again when frames have been acknowledged")]
    Full(P),
    /// The frame is empty, or longer than the second field: the longest frame in bytes.
    #[error("a frame must have 1 to {1} bytes; split it, or raise `frame_bytes_max`")]
    Length(P, u32),
    /// This direction is closed, or the connection is over.
    #[error("the connection is closed; open another one")]
    Closed(P),
    /// All sequence numbers of this direction have been used.
    #[error("the connection has sent its maximum of 2^32 - 2 frames; open another one")]
    Exhausted(P),
}

impl<P> SendError<P> {
    /// Returns the payload of the refused frame.
    pub fn into_payload(self) -> P {
        match self {
            SendError::Full(payload)
            | SendError::Length(payload, _)
            | SendError::Closed(payload)
            | SendError::Exhausted(payload) => payload,
        }
    }
}

impl<P> fmt::Debug for SendError<P> {
    /// Formats only the name of the variant: a payload need not be `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full(_) => "Full",
            SendError::Length(..) => "Length",
            SendError::Closed(_) => "Closed",
            SendError::Exhausted(_) => "Exhausted",
        })
    }
}
