//! Encrypts the packets of a session with a key that is derived from its group key.
//!
//! ChaCha20-Poly1305 (RFC 8439) encrypts the bytes that follow the LCT header: the FEC Payload ID
//! and the symbol. It authenticates them and the header in the same pass, and its tag is the MAC of
//! the packet's EXT_AUTH, which is the last extension of the header:
//!
//! ```text
//! | LCT header ... EXT_AUTH: number | tag, 16 bytes | FEC Payload ID, symbol |
//!   associated data                                   encrypted in place
//! ```
//!
//! RFC 6584 section 2 lets each session choose what its authentication schemes mean, so this is
//! scheme 0 of an encrypted session. One pass takes less time than encryption and an HMAC after it,
//! and its tag is not longer. On machines without instructions for AES, ChaCha20 is three times as
//! fast as AES (RFC 8439 section 1), and no receiver should be slower than with the HMAC.
//!
//! - The key is HKDF-SHA-256 (RFC 5869) of the group key, with the salt of the description and
//!   [`INFO`]. Each run of a sender has a salt of its own, so it has a key of its own, too.
//! - The nonce is the packet's anti-replay sequence number, with 56 bits of zeros before it. A
//!   sender never uses a number again, so no nonce repeats under one key. Its 2^40 packets are few
//!   for this AEAD (RFC 9001 section 6.6 sets no limit below 2^62).

use manyflow_object::ext_auth::{GroupMac, MAC_BYTES};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

/// Binds derived keys to this use of the group key.
const INFO: &[u8] = b"manyflow packets, chacha20-poly1305";

/// The key of a session.
#[derive(Debug)]
pub(super) struct Cipher(LessSafeKey);

impl Cipher {
    /// Derives the key of the session whose description has this salt.
    pub(super) fn derive(group_key: &[u8; 32], salt: &[u8; 32]) -> Self {
        let extracted = Salt::new(HKDF_SHA256, salt).extract(group_key);
        let key = extracted.expand(&[INFO], &CHACHA20_POLY1305);
        let key = key.expect("HKDF-SHA-256 gives up to 8160 bytes");
        Cipher(LessSafeKey::new(UnboundKey::from(key)))
    }

    /// Encrypts a datagram, at whose end of the LCT header `field` was inserted. The caller never
    /// passes one sequence number twice.
    pub(super) fn seal(&self, datagram: &mut [u8], field: &GroupMac) {
        let (header, content) = datagram.split_at_mut(field.mac.end);
        let associated = Aad::from(&header[..field.mac.start]);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(field), associated, content);
        let tag = tag.expect("a datagram is shorter than 2^38 bytes");
        header[field.mac.clone()].copy_from_slice(tag.as_ref());
    }

    /// Decrypts a datagram with this field to `plain`, whose header remains as it is. Returns
    /// `None`, and leaves anything in `plain`, if the datagram is not as it was sealed.
    ///
    /// A field that is not the last extension fails, because a sealed header states another length.
    pub(super) fn open<'a>(
        &self,
        datagram: &[u8],
        field: &GroupMac,
        plain: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        plain.clear();
        plain.extend_from_slice(datagram);
        let (header, content) = plain.split_at_mut_checked(field.mac.end)?;
        let tag: [u8; MAC_BYTES] = header.get(field.mac.clone())?.try_into().ok()?;
        let associated = Aad::from(&header[..field.mac.start]);
        let opened = self.0.open_in_place_separate_tag(
            nonce(field),
            associated,
            Tag::from(tag),
            content,
            0..,
        );
        opened.is_ok().then_some(plain)
    }
}

fn nonce(field: &GroupMac) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&field.sequence.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use manyflow_object::lct::Fields;

    use super::*;

    fn sealed(cipher: &Cipher) -> (Vec<u8>, GroupMac) {
        let mut datagram = Vec::new();
        let fields = Fields {
            cci: &[7; 4],
            tsi: 1,
            toi: Some(2),
            close_session: false,
            close_object: false,
            codepoint: 6,
            extensions: &[],
        };
        fields.encode(&mut datagram);
        datagram.extend_from_slice(b"a symbol");
        let field = GroupMac::insert(&mut datagram, 0x01_0203_0405);
        cipher.seal(&mut datagram, &field);
        (datagram, field)
    }

    /// The expected bytes come from another implementation: HKDF and ChaCha20Poly1305 of Python's
    /// package `cryptography`.
    #[test]
    fn a_packet_is_sealed_as_another_implementation_does() {
        let (datagram, field) = sealed(&Cipher::derive(&[1; 32], &[2; 32]));
        let tag = 0xfda7_c05e_159d_fe1b_492e_48bb_202b_7579_u128;
        assert_eq!(datagram[field.mac.clone()], tag.to_be_bytes());
        let content = 0x61b0_5aed_28cc_d295_u64;
        assert_eq!(datagram[field.mac.end..], content.to_be_bytes());
    }

    #[test]
    fn only_the_same_key_with_the_same_salt_opens_a_packet() {
        let (datagram, field) = sealed(&Cipher::derive(&[1; 32], &[2; 32]));
        let opens = |key: u8, salt: u8| {
            let cipher = Cipher::derive(&[key; 32], &[salt; 32]);
            cipher.open(&datagram, &field, &mut Vec::new()).is_some()
        };
        assert!(opens(1, 2));
        assert!(!opens(3, 2), "another key");
        assert!(!opens(1, 3), "another salt");
    }

    #[test]
    fn a_field_outside_of_the_datagram_opens_nothing() {
        let cipher = Cipher::derive(&[1; 32], &[2; 32]);
        let (datagram, field) = sealed(&cipher);
        for length in 0..field.mac.end {
            let mut plain = Vec::new();
            let opened = cipher.open(&datagram[..length], &field, &mut plain);
            assert_eq!(opened, None, "{length} bytes");
        }
    }
}
