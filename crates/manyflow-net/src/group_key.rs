//! The key that all members of a session share.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;
use ring::rand::SystemRandom;

use super::keys::{KeyError, read, write_new};

const KEY_BYTES: usize = 32;

/// A key that the sender and all receivers share. Every member can forge packets of the sender.
#[derive(Clone)]
pub struct GroupKey([u8; KEY_BYTES]);

impl GroupKey {
    /// Reads the file at `path`: 32 bytes in base64.
    ///
    /// # Errors
    /// If the file cannot be read or has anything else.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let key = BASE64.decode(read(path)?.trim_ascii()).ok();
        let key = key.and_then(|key| key.try_into().ok());
        key.map(GroupKey)
            .ok_or_else(|| KeyError::NotGroup(path.to_owned()))
    }

    /// Draws a key and writes it to `path`, which only the owner may read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn generate(path: &Path) -> Result<Self, KeyError> {
        let key = ring::rand::generate::<[u8; KEY_BYTES]>(&SystemRandom::new());
        let key = key.expect("the system has a random generator").expose();
        write_new(path, 0o600, &format!("{}\n", BASE64.encode(key)))?;
        Ok(GroupKey(key))
    }

    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Creates a key from its bytes, which nobody else may be able to guess.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        GroupKey(bytes)
    }

    /// Returns the key for MACs of other messages of the session.
    pub fn hmac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// Hides the key.
impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupKey")
    }
}
