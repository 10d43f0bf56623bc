//! The attribute `signature`: the signer's Ed25519 key, and its signature of all other lines. It is
//! the last line.
//!
//! The signed bytes are the lines before the signature, each with CRLF at its end. A program that
//! passes a description on may therefore write CRLF or LF, but it may neither add, remove, reorder
//! nor change a line, not even an empty one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::error::{DescriptionError, invalid};
use crate::keys::{PublicKey, SIGNATURE_BYTES, SigningKey};

const ATTRIBUTE: &str = "a=signature";

/// Returns the line that signs the lines of `text`.
pub fn to_line(text: &str, key: &SigningKey) -> String {
    let signature = key.sign(signed_text(text.lines()).as_bytes());
    format!(
        "{ATTRIBUTE}:{} {}\r\n",
        key.public(),
        BASE64.encode(signature)
    )
}

/// Returns the key that signed `text`, or `None` if it has no signature.
///
/// # Errors
/// If the signature is not that of the other lines, or is not the last line.
pub fn verify(text: &str) -> Result<Option<PublicKey>, DescriptionError> {
    // The lines are those of the text itself, because the SDP parser skips some.
    let lines: Vec<&str> = text.lines().collect();
    let Some(place) = lines.iter().position(|line| value(line).is_some()) else {
        return Ok(None);
    };
    let (signed, signature) = (&lines[..place], lines[place]);
    if place + 1 != lines.len() {
        let expected = "one signature, in the last line: a line was added after it";
        return Err(invalid(ATTRIBUTE, signature, expected));
    }
    let expected = "ed25519:KEY SIGNATURE, both in base64";
    let (key, signature) = value(signature)
        .and_then(parse)
        .ok_or_else(|| invalid(ATTRIBUTE, signature, expected))?;
    let signed = signed_text(signed.iter().copied());
    match key.verifies(signed.as_bytes(), &signature) {
        true => Ok(Some(key)),
        false => Err(DescriptionError::Forged(key)),
    }
}

/// Returns the key that a text claims to be signed by, without a check of the signature.
pub fn claimed_signer(text: &str) -> Option<PublicKey> {
    let (key, _) = text.lines().find_map(value).and_then(parse)?;
    Some(key)
}

/// Returns what follows the attribute's name if `line` is a signature.
fn value(line: &str) -> Option<&str> {
    let value = line.strip_prefix(ATTRIBUTE)?;
    (value.is_empty() || value.starts_with(':')).then_some(value)
}

fn parse(value: &str) -> Option<(PublicKey, [u8; SIGNATURE_BYTES])> {
    let (key, signature) = value.strip_prefix(':')?.split_once(' ')?;
    let signature = BASE64.decode(signature).ok()?;
    Some((key.parse().ok()?, signature.try_into().ok()?))
}

fn signed_text<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(|line| [line, "\r\n"]).collect()
}
