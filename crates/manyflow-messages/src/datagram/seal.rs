//! Packets of a link of datagrams: numbered, sealed, and each accepted once.
//!
//! ```text
//!   | id | number | body, sealed with AES-128-GCM; id and number are authenticated | tag |
//! ```
//!
//! Both ends take the keys from the TLS session of the link's control connection (RFC 5705), one
//! key for each direction. Without TLS, the body is in the clear and there is no tag.

use bytes::BytesMut;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes before the body: the number of the receiving end, and that of the packet.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes behind a sealed body.
pub(super) const TAG_BYTES: usize = 16;
/// Bytes of one direction's key.
const KEY_BYTES: usize = 16;
/// Bytes of both directions' keys.
pub(crate) const KEYS_BYTES: usize = 2 * KEY_BYTES;
/// The number of packets below the highest number that are accepted late. A sender has at most
/// 8,192 unacknowledged messages on a link.
const WINDOW: u64 = 8192;
const WORDS: usize = (WINDOW / 64) as usize;

/// The keys of both directions: first that of the end which dialled.
pub(crate) type Keys = [u8; KEYS_BYTES];

/// The reason why a packet is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it is too short")]
    Short,
    #[error("its seal is broken")]
    Forged,
    #[error("it has been received before, or is too old")]
    Repeated,
}

/// One end of the packets' protection.
#[derive(Debug)]
pub(super) struct LinkSeal {
    /// The number that packets to the other end carry.
    remote: u64,
    /// The number of the next packet.
    next: u64,
    /// The keys to seal and to open with, if packets are sealed.
    keys: Option<(LessSafeKey, LessSafeKey)>,
    received: Window,
}

impl LinkSeal {
    /// Returns the protection of packets to the end with the number `remote`.
    pub(super) fn new(remote: u64, keys: Option<&Keys>, dialled: bool) -> LinkSeal {
        let keys = keys.map(|keys| {
            let (dialling, accepting) = keys.split_at(KEY_BYTES);
            match dialled {
                true => (key(dialling), key(accepting)),
                false => (key(accepting), key(dialling)),
            }
        });
        LinkSeal {
            remote,
            next: 0,
            keys,
            received: Window::default(),
        }
    }

    /// Seals a packet: `packet` has [`HEADER_BYTES`] of any value, and the body. Appends the tag.
    pub(super) fn seal(&mut self, packet: &mut Vec<u8>) {
        let number = self.next;
        self.next += 1;
        packet[..8].copy_from_slice(&self.remote.to_be_bytes());
        packet[8..HEADER_BYTES].copy_from_slice(&number.to_be_bytes());
        if let Some((sealing, _)) = &self.keys {
            let (header, body) = packet.split_at_mut(HEADER_BYTES);
            let tag = sealing.seal_in_place_separate_tag(nonce(number), Aad::from(header), body);
            let tag = tag.expect("a packet is shorter than the limit of the cipher");
            packet.extend_from_slice(tag.as_ref());
        }
    }

    /// Opens a packet, and returns its body.
    pub(super) fn open(&mut self, mut packet: BytesMut) -> Result<BytesMut, Refusal> {
        if packet.len() < HEADER_BYTES {
            return Err(Refusal::Short);
        }
        let header = packet.split_to(HEADER_BYTES);
        let number = header[8..].try_into().map(u64::from_be_bytes);
        let number = number.map_err(|_| Refusal::Short)?;
        if !self.received.is_new(number) {
            return Err(Refusal::Repeated);
        }
        if let Some((_, opening)) = &self.keys {
            let opened = opening.open_in_place(nonce(number), Aad::from(&header), &mut packet);
            let length = opened.map_err(|_| Refusal::Forged)?.len();
            packet.truncate(length);
        }
        self.received.insert(number);
        Ok(packet)
    }

    /// Returns whether the packet that was opened last has the highest number so far.
    pub(super) fn is_latest(&self) -> bool {
        self.received.was_highest
    }
}

fn key(bytes: &[u8]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_128_GCM, bytes);
    LessSafeKey::new(key.expect("the key has the cipher's length"))
}

/// Returns the nonce of a packet. Numbers never repeat: each connection has its own keys.
fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// The numbers of packets that have arrived.
#[derive(Debug)]
struct Window {
    /// The number above the highest.
    end: u64,
    /// A bit for each of the last [`WINDOW`] numbers, by its remainder.
    bits: [u64; WORDS],
    was_highest: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            end: 0,
            bits: [0; WORDS],
            was_highest: false,
        }
    }
}

impl Window {
    fn place(number: u64) -> (usize, u64) {
        let place = number % WINDOW;
        ((place / 64) as usize, 1 << (place % 64))
    }

    fn is_new(&self, number: u64) -> bool {
        let (word, bit) = Window::place(number);
        number >= self.end
            || (number.saturating_add(WINDOW) >= self.end && self.bits[word] & bit == 0)
    }

    fn insert(&mut self, number: u64) {
        self.was_highest = number >= self.end;
        if self.was_highest {
            if number - self.end >= WINDOW {
                self.bits = [0; WORDS];
            } else {
                for skipped in self.end..number {
                    let (word, bit) = Window::place(skipped);
                    self.bits[word] &= !bit;
                }
            }
            self.end = number.saturating_add(1);
        }
        let (word, bit) = Window::place(number);
        self.bits[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const KEYS: Keys = *b"0123456789abcdefABCDEF0123456789";

    fn pair(keys: Option<&Keys>) -> [LinkSeal; 2] {
        [LinkSeal::new(7, keys, true), LinkSeal::new(9, keys, false)]
    }

    fn packet(seal: &mut LinkSeal, body: &[u8]) -> BytesMut {
        let mut packet = vec![0; HEADER_BYTES];
        packet.extend_from_slice(body);
        seal.seal(&mut packet);
        BytesMut::from(&packet[..])
    }

    #[test]
    fn both_ends_open_what_the_other_has_sealed_once() {
        for keys in [None, Some(&KEYS)] {
            let [mut near, mut far] = pair(keys);
            let (one, two) = (packet(&mut near, b"one"), packet(&mut near, b"two"));
            assert_eq!(far.open(two.clone()).unwrap(), &b"two"[..]);
            assert!(far.is_latest());
            assert_eq!(far.open(one.clone()).unwrap(), &b"one"[..]);
            assert!(!far.is_latest());
            for repeated in [one, two] {
                assert_eq!(far.open(repeated), Err(Refusal::Repeated));
            }
            let back = packet(&mut far, b"back");
            assert_eq!(near.open(back).unwrap(), &b"back"[..]);
        }
    }

    #[test]
    fn a_changed_packet_is_refused_and_the_true_one_still_opens() {
        let [mut near, mut far] = pair(Some(&KEYS));
        let sealed = packet(&mut near, b"body");
        assert!(!sealed.windows(4).any(|bytes| bytes == b"body"));
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(far.open(changed), Err(Refusal::Forged), "byte {place}");
        }
        for length in 0..sealed.len() {
            assert!(far.open(BytesMut::from(&sealed[..length])).is_err());
        }
        assert_eq!(far.open(sealed).unwrap(), &b"body"[..]);
    }

    proptest! {
        #[test]
        fn a_window_accepts_each_number_once(
            steps in prop::collection::vec((any::<bool>(), 0..3 * WINDOW), 1..300)
        ) {
            let (mut window, mut seen) = (Window::default(), BTreeSet::new());
            for (ahead, step) in steps {
                let end = window.end;
                let number = if ahead { end + step / 100 } else { end.saturating_sub(step) };
                let is_late = number + WINDOW < end;
                prop_assert_eq!(window.is_new(number), !is_late && !seen.contains(&number));
                if window.is_new(number) {
                    window.insert(number);
                    seen.insert(number);
                }
            }
        }
    }
}
