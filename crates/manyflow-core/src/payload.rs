//! What packets, frames and messages carry.

use std::sync::Arc;

/// What a protocol has to know of a payload: its length, and that it can be kept for a
/// retransmission.
///
/// A simulation that needs no contents carries a [`Length`]; packets carry [`Contents`]; a live
/// driver carries any bytes that are cheap to clone, such as `Bytes`.
pub trait Payload: Clone + Send {
    /// The payload's length in bytes.
    fn length(&self) -> u32;
}

/// A payload without contents.
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

/// The payload of a [`Packet`](crate::Packet): a length alone, or the bytes themselves.
///
/// Bulk data is simulated by its length. Names, lists of members or signatures are simulated as
/// they are: copies of a packet share the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub(crate) length: u32,
    /// Behind two pointers, so that a packet carries only one machine word for the rare case.
    pub(crate) bytes: Option<Arc<Box<[u8]>>>,
}

impl Contents {
    /// The payload's length in bytes.
    #[inline]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The bytes; `None` for a payload that is only a length.
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
    /// A payload of this many bytes, without contents.
    fn from(length: u32) -> Contents {
        Length(length).into()
    }
}

impl From<&[u8]> for Contents {
    /// # Panics
    /// If there are 4 GiB or more.
    fn from(bytes: &[u8]) -> Contents {
        Contents {
            length: u32::try_from(bytes.len()).expect("a payload is below 4 GiB"),
            bytes: Some(Arc::new(bytes.into())),
        }
    }
}
