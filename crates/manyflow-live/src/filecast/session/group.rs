//! Authenticates packets with a key that all members of a session share: the group-keyed MAC of
//! RFC 6584 section 5, HMAC-SHA-256 truncated to 128 bits, with anti-replay.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use manyflow_object::ext_auth::{GroupMac, MAC_BYTES, SEQUENCE_MAX};
use manyflow_object::lct::Header;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use crate::filecast::keys::KeyError;

const KEY_BYTES: usize = 32;

/// A key that the sender and all receivers share. Every member can forge packets of the sender.
#[derive(Clone, Debug)]
pub struct GroupKey(hmac::Key);

impl GroupKey {
    /// Reads the file at `path`: 32 bytes in base64.
    ///
    /// # Errors
    /// If the file cannot be read or has anything else.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = fs::read(path).map_err(|cause| KeyError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        let key = BASE64.decode(text.trim_ascii()).ok();
        let key = key.filter(|key| key.len() == KEY_BYTES);
        let key = key.ok_or_else(|| KeyError::NotGroup(path.to_owned()))?;
        Ok(GroupKey(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// Returns the key for MACs of other messages of the session.
    pub(crate) fn hmac_key(&self) -> &hmac::Key {
        &self.0
    }

    /// Returns the MAC of a datagram whose MAC field is taken as zeros.
    fn mac(&self, datagram: &[u8], field: &GroupMac) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&datagram[..field.mac.start]);
        context.update(&[0; MAC_BYTES]);
        context.update(&datagram[field.mac.end..]);
        let tag = context.sign();
        let first = tag.as_ref().first_chunk();
        *first.expect("HMAC-SHA-256 has 32 bytes")
    }
}

/// Adds MACs to the packets of a sender.
#[derive(Debug)]
pub struct Sealer {
    key: GroupKey,
    /// The sequence number of the last packet.
    sequence: u64,
}

impl Sealer {
    /// Makes a sealer for a new session.
    pub fn new(key: GroupKey) -> Self {
        Sealer { key, sequence: 0 }
    }

    /// Whether all sequence numbers are used, after 2^40 packets. The session has to end then,
    /// because receivers refuse a number that they have seen.
    pub fn is_exhausted(&self) -> bool {
        self.sequence == SEQUENCE_MAX
    }

    /// Adds the extension with the MAC to a datagram.
    ///
    /// # Panics
    /// If the sealer is exhausted, or `datagram` is not an ALC packet.
    pub fn seal(&mut self, datagram: &mut Vec<u8>) {
        self.sequence += 1;
        let field = GroupMac::insert(datagram, self.sequence);
        let mac = self.key.mac(datagram, &field);
        datagram[field.mac].copy_from_slice(&mac);
    }
}

/// Checks the MACs of the packets that a receiver gets.
#[derive(Debug)]
pub struct Verifier {
    key: GroupKey,
    window: ReplayWindow,
}

impl Verifier {
    /// Makes a verifier for a session.
    pub fn new(key: GroupKey) -> Self {
        Verifier {
            key,
            window: ReplayWindow::default(),
        }
    }

    /// Whether a member of the group has sealed the datagram, which has this header, and it has not
    /// been here before.
    pub fn accepts(&mut self, datagram: &[u8], header: &Header<'_>) -> bool {
        let Some(field) = GroupMac::find(header) else {
            return false;
        };
        // A repeated packet costs no MAC (RFC 6584 section 3.3.2).
        if !self.window.is_new(field.sequence) {
            return false;
        }
        let mac = self.key.mac(datagram, &field);
        let is_genuine = mac[..].ct_eq(&datagram[field.mac]).into();
        if is_genuine {
            self.window.note(field.sequence);
        }
        is_genuine
    }
}

/// The sequence numbers seen, as in RFC 6479: a ring of words, of which those below the highest
/// number are valid.
#[derive(Debug)]
struct ReplayWindow {
    highest: u64,
    seen: Box<[u64; WINDOW_WORDS]>,
}

/// Words of the window. A receiver reads many sockets, each with some thousand packets, one after
/// the other, so packets can be late by tens of thousands.
const WINDOW_WORDS: usize = 2_048;
/// Numbers that are this much lower than the highest one are refused.
const WINDOW: u64 = (WINDOW_WORDS as u64 - 1) * 64;

impl Default for ReplayWindow {
    fn default() -> Self {
        ReplayWindow {
            highest: 0,
            seen: Box::new([0; WINDOW_WORDS]),
        }
    }
}

impl ReplayWindow {
    fn is_new(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        let late = self.highest.saturating_sub(sequence);
        sequence > self.highest || sequence > 0 && late < WINDOW && self.seen[word] & bit == 0
    }

    fn note(&mut self, sequence: u64) {
        debug_assert!(self.is_new(sequence), "{sequence} was seen before");
        if sequence > self.highest {
            let words = sequence / 64 - self.highest / 64;
            for number in 0..words.min(WINDOW_WORDS as u64) {
                self.seen[place(sequence - number * 64).0] = 0;
            }
            self.highest = sequence;
        }
        let (word, bit) = place(sequence);
        self.seen[word] |= bit;
    }
}

/// Returns the word of a sequence number, and its bit in the word.
fn place(sequence: u64) -> (usize, u64) {
    let word = sequence / 64 % WINDOW_WORDS as u64;
    (word as usize, 1 << (sequence % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_object::lct::Fields;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(byte: u8) -> GroupKey {
        GroupKey(hmac::Key::new(hmac::HMAC_SHA256, &[byte; KEY_BYTES]))
    }

    fn datagram() -> Vec<u8> {
        let mut bytes = Vec::new();
        let fields = Fields {
            cci: &[7; 4],
            tsi: 1,
            toi: Some(2),
            close_session: false,
            codepoint: 6,
            extensions: &[],
        };
        fields.encode(&mut bytes);
        bytes.extend_from_slice(&[9; 100]);
        bytes
    }

    fn accepts(verifier: &mut Verifier, datagram: &[u8]) -> bool {
        let decoded = Header::decode(datagram);
        decoded.is_ok_and(|(header, _)| verifier.accepts(datagram, &header))
    }

    #[test]
    fn sealed_packets_are_accepted_once_in_any_order() {
        let (mut sealer, mut verifier) = (Sealer::new(key(1)), Verifier::new(key(1)));
        let mut packets = vec![datagram(); 100];
        packets.iter_mut().for_each(|packet| sealer.seal(packet));
        packets.reverse();
        packets.swap(3, 90);
        for accepted in [true, false] {
            for packet in &packets {
                assert_eq!(accepts(&mut verifier, packet), accepted);
            }
        }
    }

    #[test]
    fn a_packet_with_any_changed_byte_is_refused() {
        let mut sealed = datagram();
        Sealer::new(key(1)).seal(&mut sealed);
        let mut verifier = Verifier::new(key(1));
        for place in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[place] ^= 1;
            assert!(!accepts(&mut verifier, &forged), "byte {place}");
        }
        assert!(!accepts(&mut verifier, &sealed[..sealed.len() - 1]));
        assert!(accepts(&mut verifier, &sealed), "forgeries are not noted");
    }

    #[test]
    fn packets_of_another_key_or_without_a_mac_are_refused() {
        let mut sealed = datagram();
        Sealer::new(key(1)).seal(&mut sealed);
        assert!(!accepts(&mut Verifier::new(key(2)), &sealed));
        assert!(!accepts(&mut Verifier::new(key(1)), &datagram()));
    }

    #[test]
    fn the_mac_is_the_hmac_of_the_packet_with_zeros_in_its_place() {
        let mut sealed = datagram();
        Sealer::new(key(1)).seal(&mut sealed);
        let (header, _) = Header::decode(&sealed).unwrap();
        let field = GroupMac::find(&header).unwrap();
        assert_eq!(field.sequence, 1);
        let mut zeroed = sealed.clone();
        zeroed[field.mac.clone()].fill(0);
        let tag = hmac::sign(&key(1).0, &zeroed);
        assert_eq!(sealed[field.mac], tag.as_ref()[..MAC_BYTES]);
    }

    proptest! {
        /// The window accepts what a set of all numbers would, down to its lower edge.
        #[test]
        fn each_number_is_accepted_once_within_the_window(
            steps in prop::collection::vec((0..3 * WINDOW, 0..100u64), 1..200),
        ) {
            let (mut window, mut seen, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0);
            for (base, offset) in steps {
                // Near the highest number so far, or anywhere.
                let sequence = if base % 2 == 0 { base } else { (highest + offset).saturating_sub(50) };
                let wanted = sequence > highest
                    || sequence > 0 && highest - sequence < WINDOW && !seen.contains(&sequence);
                prop_assert_eq!(window.is_new(sequence), wanted, "{} below {}", sequence, highest);
                if wanted {
                    window.note(sequence);
                    seen.insert(sequence);
                    highest = highest.max(sequence);
                }
            }
        }
    }
}
