//! Seals messages from end to end under a key that both ends have. Switches see only headers.
//!
//! - Each end of a connection draws a salt of 128 bits, and derives its sending key by HKDF-SHA-256
//!   (RFC 5869) from the shared key, the salt and its role. The first fragment of each message
//!   carries the salt, so any member can open any message without a handshake.
//! - ChaCha20-Poly1305 (RFC 8439) seals each fragment. The nonce is the message's number and the
//!   fragment's index. An end never uses a number again, so no nonce repeats under one key. The
//!   associated data is the header and the key of the frame.
//! - The role prevents that an end accepts its own messages from an attacker that returns them.
//! - There is no forward secrecy: the shared key opens recordings. An attacker on the path can
//!   repeat a message to another member or in another connection.

use std::collections::VecDeque;

use manyflow_net::group_key::GroupKey;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::header::{HEADER_BYTES, Header};

/// The length of a salt in bytes.
pub(super) const SALT_BYTES: usize = 16;
/// The length of a tag in bytes.
pub(super) const TAG_BYTES: usize = 16;
/// Maximum number of derived keys that a receiver keeps: those of a service's members.
const KEYS_MAX: usize = 64;

/// The end that sealed a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The end that opened the connection.
    Peer,
    /// The end that accepted the connection.
    Member,
}

impl Role {
    fn info(self) -> &'static [u8] {
        match self {
            Role::Peer => b"manyflow anypoint, from the peer, chacha20-poly1305",
            Role::Member => b"manyflow anypoint, from a member, chacha20-poly1305",
        }
    }

    /// Returns the role of the other end.
    pub(super) fn other(self) -> Role {
        match self {
            Role::Peer => Role::Member,
            Role::Member => Role::Peer,
        }
    }
}

fn derive(key: &GroupKey, salt: &[u8; SALT_BYTES], role: Role) -> LessSafeKey {
    let extracted = Salt::new(HKDF_SHA256, salt).extract(key.as_bytes());
    let info = [role.info()];
    let key = extracted.expand(&info, &CHACHA20_POLY1305);
    LessSafeKey::new(UnboundKey::from(
        key.expect("HKDF-SHA-256 gives up to 8160 bytes"),
    ))
}

fn nonce(header: &Header) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&header.message.to_be_bytes());
    nonce[8..10].copy_from_slice(&header.index.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn associated(header: &Header, key: u32) -> Aad<[u8; HEADER_BYTES + 4]> {
    let mut bytes = [0; HEADER_BYTES + 4];
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    bytes[HEADER_BYTES..].copy_from_slice(&key.to_be_bytes());
    Aad::from(bytes)
}

/// Seals the messages of one end of a connection.
#[derive(Debug)]
pub(super) struct SegmentSealer {
    salt: [u8; SALT_BYTES],
    key: LessSafeKey,
}

impl SegmentSealer {
    /// Draws a salt and derives the key.
    pub(super) fn new(key: &GroupKey, role: Role) -> SegmentSealer {
        let salt = super::random();
        let key = derive(key, &salt, role);
        SegmentSealer { salt, key }
    }

    pub(super) fn salt(&self) -> &[u8; SALT_BYTES] {
        &self.salt
    }

    /// Encrypts a part of a message in place, and returns its tag. The caller never uses a message
    /// number and index twice.
    pub(super) fn seal(&self, header: &Header, key: u32, part: &mut [u8]) -> Tag {
        let aad = associated(header, key);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(header), aad, part);
        tag.expect("a fragment is shorter than 2^38 bytes")
    }
}

/// Opens the messages of the other ends.
#[derive(Debug)]
pub(super) struct SegmentOpener {
    key: GroupKey,
    /// The role of the other ends.
    role: Role,
    /// The derived keys that were used last, latest first.
    derived: VecDeque<([u8; SALT_BYTES], LessSafeKey)>,
}

impl SegmentOpener {
    pub(super) fn new(key: GroupKey, role: Role) -> SegmentOpener {
        SegmentOpener {
            key,
            role,
            derived: VecDeque::new(),
        }
    }

    /// Decrypts a part and its tag in place. Returns the part; `None` if it is not as it was
    /// sealed.
    pub(super) fn open<'a>(
        &mut self,
        salt: &[u8; SALT_BYTES],
        header: &Header,
        key: u32,
        part: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let aad = associated(header, key);
        if let Some((_, known)) = self.derived.iter().find(|(known, _)| known == salt) {
            return known.open_in_place(nonce(header), aad, part).ok();
        }
        let fresh = derive(&self.key, salt, self.role);
        let part = fresh.open_in_place(nonce(header), aad, part).ok()?;
        // Only keys that have opened something are kept, so forged salts displace none.
        self.derived.truncate(KEYS_MAX - 1);
        self.derived.push_front((*salt, fresh));
        Some(part)
    }
}
