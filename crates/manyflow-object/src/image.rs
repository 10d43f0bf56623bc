//! Images: objects of unknown length, sent in sections.
//!
//! A section is an object with an FDT Instance of its own, which the sender signs. So a receiver
//! can use each section as soon as it is there, although nobody knew the whole image when the
//! session was described. The document of an instance ends with its signature, in a comment, which
//! XML permits behind the root element:
//!
//! ```text
//! <?xml version="1.0" encoding="UTF-8"?><FDT-Instance ...>...</FDT-Instance><!--ed25519 SIGNATURE-->
//! ```
//!
//! This crate knows no signature scheme: its callers sign and verify. The sender is
//! [`ImageSender`](crate::sender::ImageSender), and the receiver is
//! [`ObjectReceiver`](crate::receiver::ObjectReceiver) with a [`TableKey`].

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;

/// The bytes before a document that its signature covers, too, so that a signature of another kind
/// of text is none of a document.
const CONTEXT: &[u8] = b"manyflow fdt\n";
const COMMENT: (&str, &str) = ("<!--ed25519 ", "-->");
/// The length of a signature in base64.
const SIGNATURE_CHARACTERS: usize = SIGNATURE_BYTES.div_ceil(3) * 4;

/// Verifies the signatures of FDT Instances: the public key of a session.
#[derive(Clone)]
pub struct TableKey(Arc<Verifies>);

type Verifies = dyn Fn(&[u8], &[u8; SIGNATURE_BYTES]) -> bool + Send + Sync;

impl TableKey {
    /// Returns the key that accepts the signatures of messages for which `verifies` returns true.
    pub fn new(
        verifies: impl Fn(&[u8], &[u8; SIGNATURE_BYTES]) -> bool + Send + Sync + 'static,
    ) -> TableKey {
        TableKey(Arc::new(verifies))
    }

    /// Returns the part of a document that is signed, if its signature is valid.
    pub(crate) fn open<'a>(&self, document: &'a [u8]) -> Option<&'a [u8]> {
        let (body, signature) = split(document)?;
        (self.0)(&message(body), &signature).then_some(body)
    }
}

impl fmt::Debug for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableKey")
    }
}

/// Appends a signature to a document.
pub(crate) fn sign(document: &mut Vec<u8>, sign: &dyn Fn(&[u8]) -> [u8; SIGNATURE_BYTES]) {
    let signature = sign(&message(document));
    document.extend_from_slice(COMMENT.0.as_bytes());
    document.extend_from_slice(STANDARD.encode(signature).as_bytes());
    document.extend_from_slice(COMMENT.1.as_bytes());
}

fn message(body: &[u8]) -> Vec<u8> {
    [CONTEXT, body].concat()
}

/// Returns a document without its signature, and the signature.
fn split(document: &[u8]) -> Option<(&[u8], [u8; SIGNATURE_BYTES])> {
    let rest = document.strip_suffix(COMMENT.1.as_bytes())?;
    let (rest, signature) = rest.split_at_checked(rest.len().checked_sub(SIGNATURE_CHARACTERS)?)?;
    let body = rest.strip_suffix(COMMENT.0.as_bytes())?;
    let signature = STANDARD.decode(signature).ok()?;
    Some((body, signature.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands for a signature: the bytes of the message, added in turn.
    fn sum(message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let mut sum = [0_u8; SIGNATURE_BYTES];
        for (place, byte) in message.iter().enumerate() {
            sum[place % SIGNATURE_BYTES] = sum[place % SIGNATURE_BYTES].wrapping_add(*byte);
        }
        sum
    }

    #[test]
    fn a_document_is_opened_only_with_its_signature() {
        let key = TableKey::new(|message, signature| sum(message) == *signature);
        let mut document = b"<FDT-Instance/>".to_vec();
        sign(&mut document, &sum);
        assert_eq!(key.open(&document), Some(&b"<FDT-Instance/>"[..]));
        for place in 0..document.len() {
            let mut changed = document.clone();
            changed[place] ^= 1;
            assert_eq!(key.open(&changed), None, "byte {place}");
            assert_eq!(key.open(&document[..place]), None, "{place} bytes");
        }
        assert_eq!(key.open(b""), None);
    }
}
