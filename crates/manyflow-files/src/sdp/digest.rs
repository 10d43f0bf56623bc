//! The attribute `fdt-digest`: the digest of the session's table of files.

use manyflow_net::description::error::{DescriptionError, invalid};

const ALGORITHM: &str = "sha-256 ";

/// Returns the attribute's value: the algorithm, and the digest in hexadecimal.
pub(super) fn to_text(digest: &[u8; 32]) -> String {
    format!("{ALGORITHM}{}", to_digits(digest))
}

pub(super) fn parse(text: &str) -> Result<[u8; 32], DescriptionError> {
    let decoded = text.strip_prefix(ALGORITHM).and_then(from_digits);
    let expected = "sha-256 and 64 hexadecimal digits";
    decoded.ok_or_else(|| invalid("a=fdt-digest", text, expected))
}

/// Returns 32 bytes in hexadecimal.
pub(super) fn to_digits(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes that 64 hexadecimal digits stand for; `None` for any other text.
pub(crate) fn from_digits(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(digest)
}
