//! Authenticates packets with a key that all members of a session share: the group-keyed MAC of
//! RFC 6584 section 5, HMAC-SHA-256 truncated to 128 bits, with anti-replay. If the session is
//! encrypted, the tag of its [`Cipher`] takes the place of the MAC.

use manyflow_net::group_key::GroupKey;
use manyflow_object::ext_auth::{GroupMac, MAC_BYTES, SEQUENCE_MAX};
use manyflow_object::lct::Header;
use ring::hmac;
use ring::rand::SystemRandom;
use subtle::ConstantTimeEq as _;

use super::cipher::Cipher;
use crate::sdp::Protection;

/// The keys of a session.
#[derive(Debug)]
enum SessionKey {
    Mac(hmac::Key),
    Encryption(Box<Cipher>),
}

impl SessionKey {
    fn new(key: &GroupKey, protection: &Protection) -> Self {
        match protection {
            Protection::Mac => SessionKey::Mac(key.hmac_key()),
            Protection::Encryption { salt } => {
                SessionKey::Encryption(Box::new(Cipher::derive(key.as_bytes(), salt)))
            }
        }
    }
}

/// Returns the MAC of a datagram whose MAC field is taken as zeros.
fn mac(key: &hmac::Key, datagram: &[u8], field: &GroupMac) -> [u8; MAC_BYTES] {
    let mut context = hmac::Context::with_key(key);
    context.update(&datagram[..field.mac.start]);
    context.update(&[0; MAC_BYTES]);
    context.update(&datagram[field.mac.end..]);
    let tag = context.sign();
    let first = tag.as_ref().first_chunk();
    *first.expect("HMAC-SHA-256 has 32 bytes")
}

/// Adds MACs to the packets of a sender, or encrypts them.
#[derive(Debug)]
pub struct GroupSealer {
    key: SessionKey,
    protection: Protection,
    /// The sequence number of the last packet.
    sequence: u64,
}

impl GroupSealer {
    /// Makes a sealer that adds MACs to the packets of a new session.
    pub fn authenticating(key: &GroupKey) -> Self {
        GroupSealer::new(key, Protection::Mac)
    }

    /// Makes a sealer that encrypts the packets of a new session. Each one has a random salt, so
    /// two sealers never use the same nonce under the same key.
    pub fn encrypting(key: &GroupKey) -> Self {
        let salt = ring::rand::generate(&SystemRandom::new());
        let salt = salt.expect("the system has a random generator").expose();
        GroupSealer::new(key, Protection::Encryption { salt })
    }

    fn new(key: &GroupKey, protection: Protection) -> Self {
        GroupSealer {
            key: SessionKey::new(key, &protection),
            protection,
            sequence: 0,
        }
    }

    /// Returns the part of the session's description that receivers need to open the packets.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Whether all sequence numbers are used, after 2^40 packets. The session has to end then,
    /// because receivers refuse a number that they have seen.
    pub fn is_exhausted(&self) -> bool {
        self.sequence == SEQUENCE_MAX
    }

    /// Adds the extension with the MAC to a datagram, and encrypts the datagram if this is an
    /// encrypting sealer.
    ///
    /// # Panics
    /// If the sealer is exhausted, or `datagram` is not an ALC packet.
    pub fn seal(&mut self, datagram: &mut Vec<u8>) {
        self.sequence += 1;
        let field = GroupMac::insert(datagram, self.sequence);
        match &self.key {
            SessionKey::Mac(key) => {
                let mac = mac(key, datagram, &field);
                datagram[field.mac].copy_from_slice(&mac);
            }
            SessionKey::Encryption(cipher) => cipher.seal(datagram, &field),
        }
    }
}

/// Checks the packets that a receiver gets, and decrypts them.
#[derive(Debug)]
pub struct GroupOpener {
    key: SessionKey,
    window: ReplayWindow,
    /// The last packet that was decrypted.
    plain: Vec<u8>,
}

impl GroupOpener {
    /// Makes an opener for the session whose description has this protection.
    pub fn new(key: &GroupKey, protection: &Protection) -> Self {
        GroupOpener {
            key: SessionKey::new(key, protection),
            window: ReplayWindow::default(),
            plain: Vec::new(),
        }
    }

    /// Returns the datagram, which has this header, in plain text. Returns `None` unless a member
    /// of the group has sealed it, and it has not been here before.
    pub fn open<'a>(&'a mut self, datagram: &'a [u8], header: &Header<'_>) -> Option<&'a [u8]> {
        let field = GroupMac::find(header)?;
        // A repeated packet costs no MAC (RFC 6584 section 3.3.2).
        if !self.window.is_new(field.sequence) {
            return None;
        }
        let opened = match &self.key {
            SessionKey::Mac(key) => {
                let mac = mac(key, datagram, &field);
                let is_genuine: bool = mac[..].ct_eq(&datagram[field.mac.clone()]).into();
                is_genuine.then_some(datagram)?
            }
            SessionKey::Encryption(cipher) => cipher.open(datagram, &field, &mut self.plain)?,
        };
        self.window.note(field.sequence);
        Some(opened)
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
    use manyflow_object::lct::Fields;

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(byte: u8) -> GroupKey {
        GroupKey::from_bytes([byte; 32])
    }

    /// One sealer of each kind.
    fn sealers(key: &GroupKey) -> [GroupSealer; 2] {
        [
            GroupSealer::authenticating(key),
            GroupSealer::encrypting(key),
        ]
    }

    /// The opener of a sealer's packets for a member of the group.
    fn opener(sealer: &GroupSealer) -> GroupOpener {
        GroupOpener::new(&key(1), &sealer.protection())
    }

    fn datagram_with(content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let fields = Fields {
            cci: &[7; 4],
            tsi: 1,
            toi: Some(2),
            close_session: false,
            close_object: false,
            codepoint: 6,
            extensions: &[],
        };
        fields.encode(&mut bytes);
        bytes.extend_from_slice(content);
        bytes
    }

    fn datagram() -> Vec<u8> {
        datagram_with(&[9; 100])
    }

    fn sealed(sealer: &mut GroupSealer, mut datagram: Vec<u8>) -> Vec<u8> {
        sealer.seal(&mut datagram);
        datagram
    }

    /// Returns what follows the LCT header of an opened datagram.
    fn open(opener: &mut GroupOpener, datagram: &[u8]) -> Option<Vec<u8>> {
        let (header, _) = Header::decode(datagram).ok()?;
        let opened = opener.open(datagram, &header)?;
        let (opened_header, content) = Header::decode(opened).expect("the header remains");
        assert_eq!(opened_header, header);
        Some(content.to_vec())
    }

    #[test]
    fn sealed_packets_are_opened_once_in_any_order() {
        for mut sealer in sealers(&key(1)) {
            let mut opener = opener(&sealer);
            let mut packets: Vec<_> = (0..100).map(|_| sealed(&mut sealer, datagram())).collect();
            packets.reverse();
            packets.swap(3, 90);
            for is_first in [true, false] {
                for packet in &packets {
                    let opened = open(&mut opener, packet);
                    assert_eq!(opened, is_first.then(|| vec![9; 100]));
                }
            }
        }
    }

    #[test]
    fn a_packet_with_any_changed_bit_is_refused() {
        for mut sealer in sealers(&key(1)) {
            let sealed = sealed(&mut sealer, datagram());
            let mut opener = opener(&sealer);
            for place in 0..sealed.len() * 8 {
                let mut forged = sealed.clone();
                forged[place / 8] ^= 1 << (place % 8);
                assert_eq!(open(&mut opener, &forged), None, "bit {place}");
            }
            assert_eq!(open(&mut opener, &sealed[..sealed.len() - 1]), None);
            let opened = open(&mut opener, &sealed);
            assert!(opened.is_some(), "forgeries are not noted");
        }
    }

    #[test]
    fn packets_of_another_key_or_without_a_mac_are_refused() {
        for mut sealer in sealers(&key(2)) {
            let sealed = sealed(&mut sealer, datagram());
            assert_eq!(open(&mut opener(&sealer), &sealed), None);
            assert_eq!(open(&mut opener(&sealer), &datagram()), None);
        }
    }

    #[test]
    fn packets_of_another_protection_are_refused() {
        let [mut mac, mut encryption] = sealers(&key(1));
        let mut other = GroupSealer::encrypting(&key(1));
        let authenticated = sealed(&mut mac, datagram());
        let encrypted = sealed(&mut encryption, datagram());
        assert_eq!(open(&mut opener(&mac), &encrypted), None);
        assert_eq!(open(&mut opener(&encryption), &authenticated), None);
        let of_other = sealed(&mut other, datagram());
        assert_eq!(open(&mut opener(&encryption), &of_other), None, "the salt");
        assert!(open(&mut opener(&encryption), &encrypted).is_some());
    }

    #[test]
    fn equal_packets_are_encrypted_to_different_bytes() {
        let content = |datagram: Vec<u8>| Header::decode(&datagram).unwrap().1.to_vec();
        let mut sealers = [
            GroupSealer::encrypting(&key(1)),
            GroupSealer::encrypting(&key(1)),
        ];
        let contents: BTreeSet<_> = (0..8)
            .map(|number| content(sealed(&mut sealers[number % 2], datagram())))
            .collect();
        assert_eq!(contents.len(), 8);
    }

    #[test]
    fn a_group_key_is_not_printed() {
        assert_eq!(format!("{:?}", key(0x5a)), "GroupKey");
        let sealers = sealers(&key(0x5a)).map(|sealer| format!("{:?}", sealer.key));
        assert!(!sealers.concat().contains("90, 90"), "{sealers:?}");
    }

    #[test]
    fn the_mac_is_the_hmac_of_the_packet_with_zeros_in_its_place() {
        let sealed = sealed(&mut GroupSealer::authenticating(&key(1)), datagram());
        let (header, content) = Header::decode(&sealed).unwrap();
        assert_eq!(content, [9; 100]);
        let field = GroupMac::find(&header).unwrap();
        assert_eq!(field.sequence, 1);
        let mut zeroed = sealed.clone();
        zeroed[field.mac.clone()].fill(0);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]), &zeroed);
        assert_eq!(sealed[field.mac], tag.as_ref()[..MAC_BYTES]);
    }

    proptest! {
        #[test]
        fn any_content_is_opened_as_it_was_sealed(content: Vec<u8>) {
            for mut sealer in sealers(&key(1)) {
                let sealed = sealed(&mut sealer, datagram_with(&content));
                prop_assert_eq!(open(&mut opener(&sealer), &sealed), Some(content.clone()));
            }
        }

        /// No bytes make an opener panic, with an extension that could be a member's or without.
        #[test]
        fn bytes_of_nobody_are_refused(
            bytes: Vec<u8>,
            sequence in 0..=SEQUENCE_MAX,
            place: usize,
            byte: u8,
            length: usize,
        ) {
            let mut forged = datagram_with(&bytes);
            GroupMac::insert(&mut forged, sequence);
            let count = forged.len();
            forged[place % count] = byte;
            forged.truncate(length % (count + 1));
            for sealer in sealers(&key(1)) {
                for datagram in [&bytes, &forged] {
                    prop_assert_eq!(open(&mut opener(&sealer), datagram), None);
                }
            }
        }

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
