//! Ed25519 keys (RFC 8032), which sign session descriptions. The files are those of RFC 8410, which
//! OpenSSL writes and reads: PKCS#8 for private keys, SubjectPublicKeyInfo for public keys, both in
//! PEM.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

use crate::text::BYTE_ORDER_MARK;

/// Length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;

/// Length of a public key in bytes.
pub const KEY_BYTES: usize = 32;
/// The DER of a private key before the key itself: version 0, the algorithm Ed25519 without
/// parameters, and an octet string in an octet string (RFC 8410 section 7).
const PRIVATE_PREFIX: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
/// The DER of a public key before the key itself: the algorithm Ed25519 without parameters, and a
/// bit string (RFC 8410 section 4). DER has no other encoding of it.
const PUBLIC_PREFIX: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
/// The beginning of a public key as text.
const TEXT_PREFIX: &str = "ed25519:";

/// The reason why a key cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file with the name of the new key exists.
    #[error("{0}: exists already, and a key is never replaced; choose another name")]
    Exists(PathBuf),
    /// The key's file cannot be written.
    #[error("{path}: the key cannot be written ({cause}); check the folder")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The key's file cannot be read.
    #[error("{path}: the key cannot be read ({cause}); check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file has no private key that can sign.
    #[error(
        "{0}: has no Ed25519 private key in PEM without a password; make one with `manyflow keygen` \
         or `openssl genpkey -algorithm ed25519`"
    )]
    NotPrivate(PathBuf),
    /// The file has no public key.
    #[error(
        "{0}: has no Ed25519 public key in PEM; give the .pub file that `manyflow keygen` writes, or \
         the output of `openssl pkey -in KEY -pubout`"
    )]
    NotPublic(PathBuf),
    /// The file has no group key.
    #[error(
        "{0}: has no group key, which is 32 bytes in base64; make one with `manyflow keygen --shared-key FILE` \
         or `openssl rand -base64 32`"
    )]
    NotGroup(PathBuf),
    /// The text is not a public key.
    #[error("{0:?} is not a public key: expected ed25519: and 44 characters, as keygen prints it")]
    NotText(String),
}

/// A private key, which signs.
#[derive(Debug)]
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Makes a key and writes it to `path`, which only the owner may read, and its public key to
    /// `path` with `.pub` appended. Returns the public key.
    ///
    /// # Errors
    /// If one of the files exists or cannot be written. Neither file is left then.
    pub fn generate(path: &Path) -> Result<PublicKey, KeyError> {
        let seed = random_seed();
        let public = SigningKey(pair_of(&seed)).public();
        let public_path = public_path(path);
        write_new(path, 0o600, &pem("PRIVATE KEY", PRIVATE_PREFIX, &seed))?;
        let text = pem("PUBLIC KEY", PUBLIC_PREFIX, &public.0);
        write_new(&public_path, 0o644, &text).inspect_err(|_| {
            // The first error is reported; the key that could not be completed is useless.
            let _ = fs::remove_file(path);
        })?;
        Ok(public)
    }

    /// Makes a key that is in no file and exists as long as the process.
    pub fn ephemeral() -> SigningKey {
        SigningKey(pair_of(&random_seed()))
    }

    /// Reads the file at `path`: the first private key in it, in PKCS#8 (version 1 or 2) and PEM.
    ///
    /// # Errors
    /// If the file cannot be read, or the key has a password or another algorithm.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        let not_private = || KeyError::NotPrivate(path.to_owned());
        let der = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| not_private())?;
        // Version 1, which OpenSSL writes, has no public key that could be checked.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        pair.map(SigningKey).map_err(|_| not_private())
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        let key = self.0.public_key().as_ref();
        PublicKey(key.try_into().expect("a public key has 32 bytes"))
    }

    /// Returns the signature of `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.0.sign(message);
        let signature = signature.as_ref().try_into();
        signature.expect("a signature has 64 bytes")
    }
}

/// A public key, which verifies signatures. As text it is `ed25519:` and the key in base64.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// Returns the key with these bytes (RFC 8032 section 5.1.5). Any will do: a key that is no
    /// point of the curve verifies nothing.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        PublicKey(bytes)
    }

    /// Returns the bytes of the key.
    pub fn to_bytes(&self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// Reads the file at `path`: the first public key in it, in PEM.
    ///
    /// # Errors
    /// If the file cannot be read, or has no such key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        let der = SubjectPublicKeyInfoDer::from_pem_slice(&text).ok();
        let key = der.as_ref().and_then(|der| der.strip_prefix(PUBLIC_PREFIX));
        let key = key.and_then(|key| key.try_into().ok());
        key.map(PublicKey)
            .ok_or_else(|| KeyError::NotPublic(path.to_owned()))
    }

    /// Returns the key that a user names: by its text, or by the path of its file.
    ///
    /// # Errors
    /// If the text is invalid, or the file cannot be read or has no such key.
    pub fn named(name: &str) -> Result<Self, KeyError> {
        match name.starts_with(TEXT_PREFIX) {
            true => name.parse(),
            false => PublicKey::read(name.as_ref()),
        }
    }

    /// The key as RFC 8032 encodes it.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Whether `signature` is this key's signature of `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(message, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_PREFIX}{}", BASE64.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix(TEXT_PREFIX);
        let key = digits.and_then(|digits| BASE64.decode(digits).ok());
        let key = key.and_then(|key| key.try_into().ok());
        key.map(PublicKey)
            .ok_or_else(|| KeyError::NotText(text.chars().take(80).collect()))
    }
}

fn random_seed() -> [u8; KEY_BYTES] {
    let seed = ring::rand::generate::<[u8; KEY_BYTES]>(&SystemRandom::new());
    seed.expect("the system has a random generator").expose()
}

fn pair_of(seed: &[u8; KEY_BYTES]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed has 32 bytes")
}

fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Returns a key in PEM. Its base64 has at most 64 characters, which is one line (RFC 7468 section
/// 2).
fn pem(label: &str, prefix: &[u8], key: &[u8; KEY_BYTES]) -> String {
    let body = BASE64.encode([prefix, key].concat());
    debug_assert!(body.len() <= 64, "{label} needs a second line");
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

/// Reads the text of a key.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let mut text = fs::read(path).map_err(|cause| KeyError::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    if text.starts_with(BYTE_ORDER_MARK.as_bytes()) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

pub(super) fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), KeyError> {
    let written = create_new(path, mode).and_then(|mut file| {
        let written = file.write_all(text.as_bytes()).and(file.sync_all());
        // An incomplete file must not be taken for a key.
        written.inspect_err(|_| drop(fs::remove_file(path)))
    });
    written.map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => KeyError::Unwritable {
            path: path.to_owned(),
            cause,
        },
    })
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_key::GroupKey;

    #[test]
    fn keys_are_read_behind_a_byte_order_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let public = SigningKey::generate(&path("own")).unwrap();
        let shared = GroupKey::generate(&path("group")).unwrap();
        for name in ["own", "own.pub", "group"] {
            let text = fs::read_to_string(path(name)).unwrap();
            fs::write(path(name), [BYTE_ORDER_MARK, &text].concat()).unwrap();
        }
        assert_eq!(SigningKey::read(&path("own")).unwrap().public(), public);
        assert_eq!(PublicKey::read(&path("own.pub")).unwrap(), public);
        let read = GroupKey::read(&path("group")).unwrap();
        assert_eq!(read.as_bytes(), shared.as_bytes());
    }
}
