//! The public keys of users: NKEYs, the text of NATS for keys of Ed25519.
//!
//! The text is 56 letters and digits: base 32 (RFC 4648, without padding) of a byte for the kind of
//! key, the 32 bytes of the key, and a checksum. The daemon only reads public keys and verifies
//! with ring, as TLS does: the crate `nkeys` would link a second Ed25519 and a second random
//! generator. Tests compare with it.

use core::fmt;
use core::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use data_encoding::BASE32_NOPAD;
use ring::signature::{ED25519, UnparsedPublicKey};

/// The first byte of users' keys, which makes their texts begin with `U`.
const USER: u8 = 20 << 3;

/// The number of random bytes that a client with a key signs.
const NONCE_BYTES: usize = 16;

/// A user's public key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Nkey([u8; 32]);

/// The reason why a text is not the key of a user.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NkeyError {
    /// The text is a seed, which is secret.
    #[error("it is a seed, which only the client has: give the public key, which begins with U")]
    Seed,
    /// The text is not a key, or that of something else.
    #[error(
        "it is not the public key of a user, which has 56 letters and digits and begins with U \
         (`nk -gen user -pubout` makes one)"
    )]
    Invalid,
}

impl FromStr for Nkey {
    type Err = NkeyError;

    fn from_str(text: &str) -> Result<Nkey, NkeyError> {
        if text.starts_with("SU") {
            return Err(NkeyError::Seed);
        }
        decode_key(text, USER).map(Nkey).ok_or(NkeyError::Invalid)
    }
}

/// Returns the public key in a text whose first decoded byte is `prefix`; `None` if the text is
/// not such a key.
pub(super) fn decode_key(text: &str, prefix: u8) -> Option<[u8; 32]> {
    let bytes = BASE32_NOPAD.decode(text.as_bytes()).ok()?;
    let (body, sum) = bytes.split_last_chunk::<2>()?;
    let (first, key) = body.split_first()?;
    match *first == prefix && checksum(body) == *sum {
        true => key.try_into().ok(),
        false => None,
    }
}

/// Returns whether `signature` is that of a key for a text.
pub(super) fn is_signature(key: &[u8; 32], text: &[u8], signature: &[u8]) -> bool {
    let key = UnparsedPublicKey::new(&ED25519, key);
    key.verify(text, signature).is_ok()
}

impl fmt::Display for Nkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [&[USER], &self.0[..]].concat();
        bytes.extend(checksum(&bytes));
        f.write_str(&BASE32_NOPAD.encode(&bytes))
    }
}

impl Nkey {
    /// Returns whether `signature`, in base 64, is that of this key for the nonce.
    pub(super) fn has_signed(&self, nonce: Nonce, signature: &str) -> bool {
        // As nats-server, which takes two alphabets.
        let decoded = URL_SAFE_NO_PAD.decode(signature);
        let Ok(signature) = decoded.or_else(|_| STANDARD.decode(signature)) else {
            return false;
        };
        is_signature(&self.0, nonce.text().as_bytes(), &signature)
    }
}

/// Returns the CRC-16 of XMODEM (polynomial 0x1021), the lower byte first.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u16 = 0;
    for byte in bytes {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carry = sum & 0x8000;
            sum <<= 1;
            if carry != 0 {
                sum ^= 0x1021;
            }
        }
    }
    sum.to_le_bytes()
}

/// A random value that a client signs. Each connection has another.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    pub(super) fn random() -> Nonce {
        Nonce(rand::random())
    }

    /// Returns the text in INFO, which is what the client signs.
    pub(super) fn text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

#[cfg(test)]
mod tests {
    use nkeys::KeyPair;

    use super::*;

    #[test]
    fn keys_are_those_of_the_crate_nkeys() {
        for _ in 0..20 {
            let pair = KeyPair::new_user();
            let key: Nkey = pair.public_key().parse().unwrap();
            assert_eq!(key.to_string(), pair.public_key());
            let nonce = Nonce::random();
            let signature = pair.sign(nonce.text().as_bytes()).unwrap();
            for text in [
                URL_SAFE_NO_PAD.encode(&signature),
                STANDARD.encode(&signature),
            ] {
                assert!(key.has_signed(nonce, &text));
                assert!(!key.has_signed(Nonce::random(), &text));
                assert!(!key.has_signed(nonce, &text[1..]));
            }
            let other: Nkey = KeyPair::new_user().public_key().parse().unwrap();
            assert!(!other.has_signed(nonce, &URL_SAFE_NO_PAD.encode(&signature)));
        }
    }

    #[test]
    fn texts_that_are_no_users_keys_are_refused() {
        let user = KeyPair::new_user();
        let key = user.public_key();
        let last = if key.ends_with('A') { "B" } else { "A" };
        let wrong = [
            String::new(),
            "U".to_owned(),
            key.to_lowercase(),
            key[..55].to_owned() + last,
            key.clone() + "A",
            KeyPair::new_account().public_key(),
        ];
        for text in wrong {
            assert_eq!(text.parse::<Nkey>(), Err(NkeyError::Invalid), "{text}");
        }
        let seed = user.seed().unwrap();
        assert_eq!(seed.parse::<Nkey>(), Err(NkeyError::Seed));
    }
}
