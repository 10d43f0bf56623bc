//! Messages of applications as fragments, which are ACP's frames.
//!
//! ```text
//!   byte 0     1   2         4                          12
//!     | flags | 0 | index   | message                  | salt: 16, in a sealed first fragment |
//!     | a part of the message, encrypted if sealed ... | tag: 16, if sealed                   |
//!
//!   flags: 1 the last fragment, 2 sealed
//! ```
//!
//! Integers are in network order. `index` counts the fragments of a message from 0. `message` is a
//! number that its sender uses once in a connection; the first is random, so those of two members
//! differ. The header is visible to switches, which give all fragments of a message to one member.

use bytes::{Buf as _, BufMut as _, Bytes};

use super::arena::Arena;
pub use super::header::{HEADER_BYTES, Header};
use super::seal::{SALT_BYTES, SegmentSealer, TAG_BYTES};

/// A message that is divided while it is sent.
#[derive(Debug)]
pub(super) struct Divided {
    message: u64,
    key: u32,
    index: u16,
    rest: Bytes,
}

impl Divided {
    /// Divides a message of at most [`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX) bytes. `key` is
    /// that of its frames.
    pub(super) fn new(message: u64, key: u32, payload: Bytes) -> Divided {
        debug_assert!((1..=super::MESSAGE_BYTES_MAX).contains(&payload.len()));
        Divided {
            message,
            key,
            index: 0,
            rest: payload,
        }
    }

    /// Returns the next fragment, of at most `frame_bytes_max` bytes; `None` after the last one.
    pub(super) fn next(
        &mut self,
        arena: &mut Arena,
        sealer: Option<&SegmentSealer>,
        frame_bytes_max: usize,
    ) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let has_salt = sealer.is_some() && self.index == 0;
        let salt_bytes = if has_salt { SALT_BYTES } else { 0 };
        let tag_bytes = if sealer.is_some() { TAG_BYTES } else { 0 };
        let room = frame_bytes_max - HEADER_BYTES - salt_bytes - tag_bytes;
        let length = room.min(self.rest.len());
        let header = Header {
            is_last: length == self.rest.len(),
            is_sealed: sealer.is_some(),
            index: self.index,
            message: self.message,
        };
        let frame = arena.reserve(HEADER_BYTES + salt_bytes + length + tag_bytes);
        frame.put_slice(&header.encode());
        if let (Some(sealer), true) = (sealer, has_salt) {
            frame.put_slice(sealer.salt());
        }
        frame.put_slice(&self.rest[..length]);
        if let Some(sealer) = sealer {
            let tag = sealer.seal(&header, self.key, &mut frame[HEADER_BYTES + salt_bytes..]);
            frame.put_slice(tag.as_ref());
        }
        self.rest.advance(length);
        self.index += 1;
        Some(arena.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fragments_fill_frames_and_the_last_is_marked() {
        let mut divided = Divided::new(7, 0, vec![5; 3000].into());
        let mut arena = Arena::default();
        let frames: Vec<_> = std::iter::from_fn(|| divided.next(&mut arena, None, 1412)).collect();
        let lengths: Vec<_> = frames.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [1412, 1412, 12 + 200]);
        let headers: Vec<_> = frames.iter().flat_map(|f| Header::decode(f)).collect();
        assert_eq!(
            headers.iter().map(|h| h.index).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(headers.iter().filter(|h| h.is_last).count(), 1);
        assert!(headers[2].is_last);
    }

    proptest! {
        #[test]
        fn a_header_has_one_encoding(bytes in prop::collection::vec(0_u8..5, 0..20)) {
            match Header::decode(&bytes) {
                Some(header) => prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]),
                None => prop_assert!(bytes.len() < HEADER_BYTES || bytes[0] > 3 || bytes[1] != 0),
            }
        }
    }
}
