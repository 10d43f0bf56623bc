//! Joins fragments to messages, in bounded memory.
//!
//! The fragments of a message arrive in order and at one receiver. A switch breaks that only after
//! the failure of a member: then the rest of a message comes to another member, which discards it.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use manyflow_anypoint::Frame;

use super::MESSAGE_BYTES_MAX;
use super::fragment::{Fragment, Header};
use super::seal::{SALT_BYTES, SegmentOpener};

/// Maximum number of messages that are incomplete at one time. Senders interleave that many.
const PARTIALS_MAX: usize = 1024;
/// Maximum total of bytes of incomplete messages.
const PARTIAL_BYTES_MAX: usize = 32 << 20;

/// A message of an application, as it is sent and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The application's key of the message; a switch may route by it.
    pub key: u32,
    /// The message's contents.
    pub payload: Bytes,
}

/// The incomplete messages of a connection.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    opener: Option<SegmentOpener>,
    /// Oldest first.
    partials: VecDeque<Partial>,
    /// Total bytes of `partials`.
    bytes: usize,
    discarded: u64,
}

#[derive(Debug)]
struct Partial {
    message: u64,
    /// The index of the next fragment.
    next: u16,
    bytes: BytesMut,
    salt: [u8; SALT_BYTES],
}

impl Reassembly {
    /// Creates an empty list. With an opener, only sealed messages are accepted.
    pub(super) fn new(opener: Option<SegmentOpener>) -> Reassembly {
        Reassembly {
            opener,
            ..Reassembly::default()
        }
    }

    /// Returns the number of fragments that belong to no message, that were not valid, or whose
    /// message cannot become complete.
    pub(super) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Handles a frame. Returns the message that it completes.
    pub(super) fn handle_frame(&mut self, frame: Frame<Fragment>) -> Option<Message> {
        let Frame { key, payload } = frame;
        let part = self.take_part(key, payload);
        if part.is_none() {
            self.discarded += 1;
        }
        let (header, part, salt) = part?;
        if header.is_last && header.index == 0 {
            return Some(Message { key, payload: part });
        }
        self.join(&header, &part, salt, key)
    }

    /// Checks a fragment, and opens it if it is sealed.
    fn take_part(
        &mut self,
        key: u32,
        fragment: Fragment,
    ) -> Option<(Header, Bytes, [u8; SALT_BYTES])> {
        let header = fragment.header?;
        let is_wanted = header.is_sealed == self.opener.is_some();
        if !is_wanted {
            return None;
        }
        let mut body = fragment.part;
        let Some(opener) = &mut self.opener else {
            return (!body.is_empty()).then_some((header, body, [0; SALT_BYTES]));
        };
        let salt = if header.index == 0 {
            let salt = *body.first_chunk()?;
            body = body.slice(SALT_BYTES..);
            salt
        } else {
            let known = self.partials.iter();
            known.rev().find(|p| p.message == header.message)?.salt
        };
        let mut plain = BytesMut::from(&body[..]);
        let length = opener.open(&salt, &header, key, &mut plain)?.len();
        plain.truncate(length);
        (length > 0).then(|| (header, plain.freeze(), salt))
    }

    /// Appends a part to its message.
    fn join(
        &mut self,
        header: &Header,
        part: &[u8],
        salt: [u8; SALT_BYTES],
        key: u32,
    ) -> Option<Message> {
        let mut known = self.partials.iter();
        let place = match known.position(|partial| partial.message == header.message) {
            Some(place) => place,
            None if header.index == 0 => self.begin(header.message, salt),
            None => {
                self.discarded += 1;
                return None;
            }
        };
        let partial = &mut self.partials[place];
        let length = partial.bytes.len() + part.len();
        if partial.next != header.index || length > MESSAGE_BYTES_MAX {
            self.discard(place);
            self.discarded += 1;
            return None;
        }
        partial.bytes.extend_from_slice(part);
        partial.next += 1;
        self.bytes += part.len();
        if header.is_last {
            let payload = self.remove(place).bytes.freeze();
            return Some(Message { key, payload });
        }
        while self.bytes > PARTIAL_BYTES_MAX {
            self.discard(0);
        }
        None
    }

    fn begin(&mut self, message: u64, salt: [u8; SALT_BYTES]) -> usize {
        if self.partials.len() == PARTIALS_MAX {
            self.discard(0);
        }
        self.partials.push_back(Partial {
            message,
            next: 0,
            bytes: BytesMut::new(),
            salt,
        });
        self.partials.len() - 1
    }

    fn remove(&mut self, place: usize) -> Partial {
        let partial = self.partials.remove(place).expect("the place exists");
        self.bytes -= partial.bytes.len();
        debug_assert!(!self.partials.is_empty() || self.bytes == 0);
        partial
    }

    /// Gives up an incomplete message.
    fn discard(&mut self, place: usize) {
        self.discarded += u64::from(self.remove(place).next);
    }
}

#[cfg(test)]
mod tests {
    use manyflow_net::group_key::GroupKey;

    use super::super::arena::Arena;
    use super::super::fragment::Divided;
    use super::super::seal::{Role, SegmentSealer};
    use super::*;
    use proptest::prelude::*;

    fn divide(message: u64, payload: &[u8], sealer: Option<&SegmentSealer>) -> Vec<Fragment> {
        let mut divided = Divided::new(message, 3, Bytes::copy_from_slice(payload));
        let mut arena = Arena::default();
        std::iter::from_fn(|| divided.next(&mut arena, sealer, 1412)).collect()
    }

    fn frame(payload: Fragment) -> Frame<Fragment> {
        Frame { key: 3, payload }
    }

    /// Returns a fragment as it is on the wire.
    fn bytes(fragment: &Fragment) -> Vec<u8> {
        [&fragment.header.unwrap().encode()[..], &fragment.part].concat()
    }

    fn copy(bytes: &[u8]) -> Fragment {
        Fragment::copy(&mut Arena::default(), bytes)
    }

    fn sealed() -> (SegmentSealer, Reassembly) {
        let key = GroupKey::from_bytes([4; 32]);
        let sealer = SegmentSealer::new(&key, Role::Peer);
        (
            sealer,
            Reassembly::new(Some(SegmentOpener::new(key, Role::Peer))),
        )
    }

    #[test]
    fn interleaved_messages_are_joined() {
        let (one, two) = (vec![1; 5000], vec![2; 4000]);
        let mut reassembly = Reassembly::default();
        let (first, second) = (divide(1, &one, None), divide(2, &two, None));
        let longest = first.len().max(second.len());
        let mut found = Vec::new();
        for place in 0..longest {
            for fragments in [&first, &second] {
                let fragment = fragments.get(place).cloned();
                let message = fragment.and_then(|f| reassembly.handle_frame(frame(f)));
                found.extend(message.map(|message| message.payload));
            }
        }
        found.sort_by_key(Bytes::len);
        assert_eq!(found, [two, one]);
        assert_eq!((reassembly.bytes, reassembly.discarded), (0, 0));
    }

    #[test]
    fn the_rest_of_a_message_is_discarded_and_counted() {
        let fragments = divide(1, &[1; 5000], None);
        let mut reassembly = Reassembly::default();
        for fragment in &fragments[1..] {
            assert_eq!(reassembly.handle_frame(frame(fragment.clone())), None);
        }
        assert_eq!(reassembly.discarded(), fragments.len() as u64 - 1);
    }

    #[test]
    fn sealed_messages_are_opened_and_changed_ones_are_not() {
        let (sealer, mut reassembly) = sealed();
        let payload = vec![7; 4000];
        let fragments = divide(1, &payload, Some(&sealer));
        let visible: Vec<u8> = fragments.iter().flat_map(bytes).collect();
        assert!(!visible.windows(16).any(|window| window == [7; 16]));
        let last = fragments
            .iter()
            .map(|f| reassembly.handle_frame(frame(f.clone())));
        assert_eq!(last.last().flatten().unwrap().payload, payload);

        let first = bytes(&fragments[0]);
        for place in 0..first.len() {
            let mut changed = first.clone();
            changed[place] ^= 1;
            reassembly.handle_frame(frame(copy(&changed)));
        }
        assert!(reassembly.partials.is_empty(), "nothing was accepted");
        let other_key = Frame {
            key: 4,
            payload: fragments[0].clone(),
        };
        assert_eq!(reassembly.handle_frame(other_key), None);
        assert!(reassembly.partials.is_empty(), "the key is authenticated");
    }

    #[test]
    fn a_readable_message_is_refused_where_sealed_ones_are_expected() {
        let (sealer, mut reassembly) = sealed();
        let readable = divide(1, b"forged", None).remove(0);
        assert_eq!(reassembly.handle_frame(frame(readable)), None);
        let mut open = Reassembly::default();
        let fragment = divide(1, b"sealed", Some(&sealer)).remove(0);
        assert_eq!(open.handle_frame(frame(fragment)), None);
    }

    #[test]
    fn a_message_that_returns_to_its_sender_is_refused() {
        let (_, mut reassembly) = sealed();
        let member = SegmentSealer::new(&GroupKey::from_bytes([4; 32]), Role::Member);
        let fragment = divide(1, b"an answer", Some(&member)).remove(0);
        assert_eq!(reassembly.handle_frame(frame(fragment)), None);
    }

    #[test]
    fn incomplete_messages_take_bounded_memory() {
        let mut reassembly = Reassembly::default();
        let long = vec![0; MESSAGE_BYTES_MAX];
        for message in 0..200 {
            let mut fragments = divide(message, &long, None);
            fragments.pop();
            fragments.into_iter().for_each(|f| {
                assert_eq!(reassembly.handle_frame(frame(f)), None);
            });
            assert!(reassembly.bytes <= PARTIAL_BYTES_MAX);
        }
        for message in 1000..5000 {
            let fragment = divide(message, &[0; 2000], None).remove(0);
            reassembly.handle_frame(frame(fragment));
        }
        assert!(reassembly.partials.len() <= PARTIALS_MAX);
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic_nor_grow_without_a_bound(
            frames in prop::collection::vec(prop::collection::vec(0_u8..4, 0..40), 0..200),
        ) {
            let (_, sealed) = sealed();
            for mut reassembly in [Reassembly::default(), sealed] {
                for bytes in &frames {
                    reassembly.handle_frame(frame(copy(bytes)));
                }
                let total: usize = reassembly.partials.iter().map(|p| p.bytes.len()).sum();
                prop_assert_eq!(total, reassembly.bytes);
            }
        }
    }
}
