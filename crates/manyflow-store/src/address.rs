//! Addresses of stored bytes, and the names of members.

use core::fmt;
use std::sync::Arc;

use manyflow_anypoint::switch::ReplicaHash;
use sha2::{Digest, Sha256};

/// The number of ranks that a request can name. A chunk has at most this many copies, and a client
/// can search at most this many members.
pub const RANKS: u8 = ReplicaHash::RANKS;

/// A SHA-256 digest.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    /// Writes 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address of stored bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A chunk, by the digest of its bytes.
    Chunk(Hash),
    /// The manifest of a name, by the digest of the name.
    Name(Hash),
}

impl Address {
    /// Returns the address of the manifest of `name`.
    pub fn of_name(name: &str) -> Address {
        Address::Name(Hash::of(name.as_bytes()))
    }

    /// Returns the digest in the address.
    pub fn hash(&self) -> Hash {
        match *self {
            Address::Chunk(hash) | Address::Name(hash) => hash,
        }
    }

    /// Returns the key of a frame for the member of this rank, by which
    /// [`ReplicaHash`] routes it.
    pub fn key(&self, rank: u8) -> u32 {
        let [a, b, c, d, ..] = self.hash().0;
        ReplicaHash::key(u32::from_be_bytes([a, b, c, d]) >> 4, rank)
    }
}

/// The name of a member: 1 to 64 ASCII letters, digits, or any of `-._:`. It identifies the
/// member's disk: two members must not have the same name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberName(Arc<str>);

/// The reason why a text is not the name of a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a member's name has 1 to 64 ASCII letters, digits, or any of -._:")]
pub struct NameError;

impl MemberName {
    /// The length of the longest name in bytes.
    pub const BYTES_MAX: usize = 64;

    /// Checks a name.
    ///
    /// # Errors
    /// If the length is outside its range, or the name has another character.
    pub fn new(name: &str) -> Result<MemberName, NameError> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        let is_sound =
            (1..=MemberName::BYTES_MAX).contains(&name.len()) && name.bytes().all(is_legal);
        is_sound.then(|| MemberName(name.into())).ok_or(NameError)
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_differ_only_in_the_low_bits_of_the_key() {
        let address = Address::Chunk(Hash::of(b"chunk"));
        let first = address.key(0);
        assert_eq!(first & 15, 0);
        assert!((0..RANKS).all(|rank| address.key(rank) == first | u32::from(rank)));
        let digits = address.hash().to_string();
        assert_eq!(digits[..7], format!("{:07x}", first >> 4));
    }

    #[test]
    fn names_of_members_are_short_and_printable() {
        for name in ["a", "rack-3.example.net:7000", &"x".repeat(64)] {
            assert!(MemberName::new(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "é", "a/b", "a\n", &"x".repeat(65)] {
            assert_eq!(MemberName::new(name), Err(NameError), "{name}");
        }
    }
}
