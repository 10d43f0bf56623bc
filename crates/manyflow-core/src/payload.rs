//! What frames and messages carry.

/// What a frame or message carries, as far as a protocol must know: its length, and that it can be kept for a retransmission.
///
/// The simulator carries a [`Length`] alone, the network any bytes that are cheap to clone, such as `Bytes`.
pub trait Payload: Clone {
    /// Its bytes.
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

impl<T: AsRef<[u8]> + Clone> Payload for T {
    fn length(&self) -> u32 {
        self.as_ref().len() as u32
    }
}
