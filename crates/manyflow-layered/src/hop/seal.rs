//! The MAC of messages between a parent and its children.
//!
//! The MAC is SipHash-2-4 with 128 bits under a key that the tree shares. SipHash is a keyed hash
//! for short inputs under attack, made for use as a MAC, and these messages are short and frequent.
//! HMAC-SHA-256 would cost a flooded relay many times more, and it would add two crates.

use core::fmt;
use core::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use subtle::ConstantTimeEq as _;

/// The length of a MAC in bytes.
pub(super) const MAC_BYTES: usize = 16;

/// The direction of a message, which its MAC covers: a message cannot be reflected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a parent to a child.
    Down,
    /// From a child to its parent.
    Up,
}

/// A key that all relays and receivers of a tree share.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKey([u8; 16]);

impl HopKey {
    /// Creates a key from 16 random bytes, or from 16 bytes of a hash of a longer secret.
    pub fn new(bytes: [u8; 16]) -> HopKey {
        HopKey(bytes)
    }

    /// Returns the MAC of a message.
    pub(super) fn mac(&self, direction: Direction, message: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&[direction as u8]);
        hasher.write(message);
        hasher.finish128().as_bytes()
    }

    /// Returns whether `mac` is the MAC of a message.
    pub(super) fn verifies(&self, direction: Direction, message: &[u8], mac: &[u8]) -> bool {
        bool::from(self.mac(direction, message).as_slice().ct_eq(mac))
    }
}

impl fmt::Debug for HopKey {
    /// Writes no byte of the key, so that logs do not reveal it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKey(..)")
    }
}
