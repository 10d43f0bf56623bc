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

use bytes::{BufMut as _, Bytes};
use manyflow_core::Payload;

use super::arena::Arena;
pub use super::header::{HEADER_BYTES, Header};
use super::seal::{SALT_BYTES, SegmentSealer, TAG_BYTES};

/// A frame at an end of a connection: the header of a fragment and its part of a message, which
/// are next to each other only in a datagram. So the part of a message that is sent is not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fragment {
    /// `None` if the frame has no valid header; then `part` is the whole frame.
    pub(super) header: Option<Header>,
    /// A part of the message; if it is sealed, also its salt and its tag.
    pub(super) part: Bytes,
}

impl Fragment {
    /// Copies a frame that has arrived.
    pub(super) fn copy(arena: &mut Arena, frame: &[u8]) -> Fragment {
        let header = Header::decode(frame);
        let start = if header.is_some() { HEADER_BYTES } else { 0 };
        let part = arena.copy(&frame[start..]);
        Fragment { header, part }
    }
}

impl Payload for Fragment {
    fn length(&self) -> u32 {
        let header = if self.header.is_some() {
            HEADER_BYTES
        } else {
            0
        };
        (header + self.part.len()) as u32
    }
}

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
    ) -> Option<Fragment> {
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
        let mut part = self.rest.split_to(length);
        if let Some(sealer) = sealer {
            let sealed = arena.reserve(salt_bytes + length + tag_bytes);
            if has_salt {
                sealed.put_slice(sealer.salt());
            }
            sealed.put_slice(&part);
            let tag = sealer.seal(&header, self.key, &mut sealed[salt_bytes..]);
            sealed.put_slice(tag.as_ref());
            part = arena.take();
        }
        self.index += 1;
        let header = Some(header);
        Some(Fragment { header, part })
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
        let lengths: Vec<_> = frames.iter().map(Fragment::length).collect();
        assert_eq!(lengths, [1412, 1412, 12 + 200]);
        let headers: Vec<_> = frames.iter().flat_map(|f| f.header).collect();
        assert_eq!(
            headers.iter().map(|h| h.index).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(headers.iter().filter(|h| h.is_last).count(), 1);
        assert!(headers[2].is_last);
    }

    #[test]
    fn a_frame_without_a_valid_header_keeps_its_length() {
        let mut arena = Arena::default();
        for length in 0..30 {
            let fragment = Fragment::copy(&mut arena, &vec![9; length]);
            assert_eq!(fragment.header, None);
            assert_eq!(fragment.length(), length as u32);
        }
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
