//! ACP's packets, with XCP's header in them.

use manyflow_core::Header;
use manyflow_core::xcp::{Congestion, Feedback};

/// Bytes of the IPv4 and UDP headers below each segment.
pub const LOWER_BYTES: u32 = 28;

/// The credit that grants any number of bytes: flow control is soft.
pub const UNLIMITED: u32 = u32::MAX;

/// An acknowledgement that reports nothing missing.
pub const NO_GAPS: [Gap; 3] = [Gap {
    offset: 0,
    frames: 0,
}; 3];

/// A packet of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The connection's number. Its initiator chose it; it is the same in both directions and on
    /// both sides of a switch.
    pub connection: u32,
    /// The type of the packet, and the fields of that type.
    pub body: Body,
}

impl Segment {
    /// Returns the length of the encoded header in bytes, including the IPv4 and UDP headers.
    pub fn wire_bytes(&self) -> u32 {
        LOWER_BYTES + self.header_bytes()
    }
}

/// The type of a packet, and the fields of that type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The initiator opens the connection and grants a first credit.
    Open {
        /// Bytes of frames that the other end may send before the first acknowledgement, or
        /// [`UNLIMITED`].
        credit: u32,
    },
    /// The other end accepts the connection and grants a first credit.
    Accept {
        /// Bytes of frames that the initiator may send before the first acknowledgement, or
        /// [`UNLIMITED`].
        credit: u32,
    },
    /// A frame, which is the packet's payload.
    Data(Data),
    /// Reports which frames have arrived, and which are missing.
    Ack(Ack),
    /// Ends this direction. A Close takes a sequence number and is acknowledged like a frame.
    Close {
        /// The sequence number of the Close: that of the last frame plus one.
        sequence: u32,
    },
    /// Asks whether the other end is alive.
    Probe,
    /// Answers a `Probe`: this end is alive.
    Alive,
    /// Ends the connection, or answers a segment of a connection that does not exist.
    Reset(Reason),
}

/// The header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The frame's number; each direction counts its frames from 0.
    pub sequence: u32,
    /// The application's key of the frame. A switch's routing policy may read it without knowing
    /// the format of the frame.
    pub key: u32,
    /// XCP's header.
    pub congestion: Congestion,
}

/// An acknowledgement. Each frame that arrives is answered by one.
///
/// Acknowledgements that pass a switch overtake each other without any loss, because the members'
/// round-trip times differ. A sender therefore does not infer losses from the order of
/// acknowledgements. The end or switch that sees a gap in one stream reports the gap in `missing`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Every frame below this number has arrived.
    pub cumulative: u32,
    /// The frame that this acknowledgement answers. That frame has arrived, but its receiver may
    /// drop it again to make room for another: only `cumulative` is final.
    pub of: u32,
    /// Bytes of frames from `cumulative` on that the receiver has room for, or [`UNLIMITED`].
    pub credit: u32,
    /// The answer to the frame's XCP header.
    pub feedback: Feedback,
    /// Missing frames, lowest first: later frames of the same path have arrived. If there are more
    /// gaps, these are the highest and two others, which take turns. Unused gaps are zero and come
    /// last.
    pub missing: [Gap; 3],
}

/// Consecutive frames that are missing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The first missing frame, counted from the acknowledgement's cumulative number.
    pub offset: u16,
    /// The number of missing frames; 0 in an unused gap.
    pub frames: u16,
}

/// The reason why a connection ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The sender of the reset does not know the connection: it has restarted, or the connection
    /// ended long ago.
    Unknown,
    /// The sender of the reset accepts no connection, or has no member that does.
    Refused,
    /// The sender of the reset received nothing from the other side for too long.
    TimedOut,
    /// The application of the sender of the reset aborted the connection.
    Aborted,
}

impl Header for Segment {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        Segment::wire_bytes(self)
    }

    #[inline]
    fn congestion(&mut self) -> Option<&mut Congestion> {
        match &mut self.body {
            Body::Data(data) => Some(&mut data.congestion),
            _ => None,
        }
    }
}
