//! The attribute `ext-auth`: how a group key protects packets.

use manyflow_net::description::error::{DescriptionError, invalid};

use super::digest;

/// The authentication scheme 0 of RFC 6584 section 2: its MAC and the MAC's length in bits.
const MAC: &str = "0 hmac-sha-256-128";
/// The same scheme with the tag of an AEAD in the place of the MAC, before the salt.
const ENCRYPTION: &str = "0 chacha20-poly1305 ";

/// How a group key protects the packets of a session. Both kinds number packets against repetition,
/// and lengthen them by [`EXTENSION_BYTES`](manyflow_object::ext_auth::EXTENSION_BYTES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Packets have a MAC (RFC 6584 section 5): HMAC-SHA-256 truncated to 128 bits.
    Mac,
    /// Packets are encrypted and authenticated by ChaCha20-Poly1305 (RFC 8439).
    Encryption {
        /// The random number from which, with the group key, the session's key is derived. Each
        /// run of a sender has its own.
        salt: [u8; 32],
    },
}

/// Returns the attribute's value: the scheme's number, the algorithm, and the salt in hexadecimal.
pub(super) fn to_text(protection: &Protection) -> String {
    match protection {
        Protection::Mac => MAC.to_owned(),
        Protection::Encryption { salt } => format!("{ENCRYPTION}{}", digest::to_digits(salt)),
    }
}

pub(super) fn parse(text: &str) -> Result<Protection, DescriptionError> {
    if text == MAC {
        return Ok(Protection::Mac);
    }
    let salt = text.strip_prefix(ENCRYPTION).and_then(digest::from_digits);
    let expected = format!("{MAC}, or {ENCRYPTION}and 64 hexadecimal digits");
    let salt = salt.ok_or_else(|| invalid("a=ext-auth", text, &expected))?;
    Ok(Protection::Encryption { salt })
}
