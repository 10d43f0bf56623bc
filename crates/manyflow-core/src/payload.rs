//! Payloads of packets, frames and messages.

use std::sync::Arc;

/// A payload, as protocols use it: it has a length, and it can be kept for a retransmission.
///
/// A simulation without contents carries a [`Length`]; packets carry [`Contents`]; a live driver
/// carries any bytes that are cheap to clone, such as `Bytes`.
pub trait Payload: Clone + Send {
    /// Returns the payload's length in bytes.
    fn length(&self) -> u32;
}

/// A payload without contents: only its length in bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Length(pub u32);

impl Payload for Length {
    fn length(&self) -> u32 {
        self.0
    }
}

impl<T: AsRef<[u8]> + Clone + Send> Payload for T {
    fn length(&self) -> u32 {
        self.as_ref().len() as u32
    }
}

/// The payload of a [`Packet`](crate::Packet): only a length, or also the bytes.
///
/// Simulations represent bulk data by its length. Names, lists of members and signatures are
/// simulated with their bytes, which copies of a packet share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub(crate) length: u32,
    /// The bytes, behind two pointers, so that this rare case takes only one machine word in a
    /// packet.
    pub(crate) bytes: Option<Arc<Box<[u8]>>>,
}

impl Contents {
    /// Returns the payload's length in bytes.
    #[inline]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns the bytes; `None` for a payload that is only a length.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_ref().map(|bytes| &***bytes)
    }
}

impl Payload for Contents {
    #[inline]
    fn length(&self) -> u32 {
        self.length
    }
}

impl From<Length> for Contents {
    fn from(Length(length): Length) -> Contents {
        Contents {
            length,
            bytes: None,
        }
    }
}

impl From<u32> for Contents {
    /// Returns a payload of this many bytes, without contents.
    fn from(length: u32) -> Contents {
        Length(length).into()
    }
}

impl From<&[u8]> for Contents {
    /// # Panics
    /// Panics if there are 4 GiB or more.
    fn from(bytes: &[u8]) -> Contents {
        Contents {
            length: u32::try_from(bytes.len()).expect("a payload must be shorter than 4 GiB"),
            bytes: Some(Arc::new(bytes.into())),
        }
    }
}
