//! ACP's packets, with XCP's header in them.

use manyflow_core::Header;
use manyflow_core::xcp::{Congestion, WindowChange};

/// IPv4 and UDP, below each segment.
pub const LOWER_BYTES: u32 = 28;

/// A credit without limit: flow control is soft.
pub const UNLIMITED: u32 = u32::MAX;

/// An acknowledgement that reports nothing missing.
pub const NO_GAPS: [Gap; 3] = [Gap {
    offset: 0,
    frames: 0,
}; 3];

/// A packet of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The connection: a number that its initiator chose, the same on both ways and on both sides
    /// of a switch.
    pub connection: u32,
    /// What it is.
    pub body: Body,
}

impl Segment {
    /// The bytes that the encoded header takes, those of IPv4 and UDP included.
    pub fn wire_bytes(&self) -> u32 {
        LOWER_BYTES + self.header_bytes()
    }
}

/// What a packet is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The initiator opens the connection, and grants this credit in bytes.
    Open {
        /// Bytes of frames that the other end may send before the first acknowledgement, or
        /// [`UNLIMITED`].
        credit: u32,
    },
    /// The other end takes it.
    Accept {
        /// Bytes of frames that the initiator may send before the first acknowledgement, or
        /// [`UNLIMITED`].
        credit: u32,
    },
    /// A frame, which is the packet's payload.
    Data(Data),
    /// What has arrived.
    Ack(Ack),
    /// No frame follows. It takes a sequence number of its own and is acknowledged like a frame.
    Close {
        /// Its number, that of the last frame plus one.
        sequence: u32,
    },
    /// Asks whether the other end is alive.
    Probe,
    /// It is.
    Alive,
    /// The connection is over, or was never there.
    Reset(Reason),
}

/// The header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Counts the frames of this direction from 0.
    pub sequence: u32,
    /// The application's: what a switch's routing policy may read without knowing the frames'
    /// format.
    pub key: u32,
    /// XCP's header.
    pub congestion: Congestion,
}

/// An acknowledgement. Each frame that arrives is answered by one.
///
/// Behind a switch acknowledgements overtake each other without any loss, since members have
/// round-trip times of their own. So a sender does not guess losses from what arrived after a
/// frame: whoever sees a gap in one member's stream says so.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All frames below this number have arrived.
    pub cumulative: u32,
    /// The frame that this answers. It has arrived, too, but may give way to another one: only
    /// `cumulative` is a promise.
    pub of: u32,
    /// Bytes of frames from `cumulative` on that the receiver has room for, or [`UNLIMITED`].
    pub credit: u32,
    /// What the routers left of the frame's feedback.
    pub feedback: WindowChange,
    /// Frames that are missing, lowest first: later ones of the same path have arrived. Unused ones
    /// are empty and come last.
    pub missing: [Gap; 3],
}

/// Frames that are missing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The first, counted from the acknowledgement's cumulative number.
    pub offset: u16,
    /// How many.
    pub frames: u16,
}

/// Why a connection is over.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The sender of the reset knows no such connection: it has restarted, or the connection has
    /// ended long ago.
    Unknown,
    /// It takes no connections, or has no member that does.
    Refused,
    /// It heard nothing for too long.
    TimedOut,
    /// Its application gave up.
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
