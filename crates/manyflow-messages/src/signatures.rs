//! The signatures of daemons' states, with the keys of their certificates.
//!
//! A daemon's identity is its name and its certificates, up to the overlay's authority. Its number
//! is the hash of its name. A daemon with another number, because that of its name is taken, needs
//! a certificate that is valid for a second name, which has the number.

use core::fmt;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_net::tls::provider;
use manyflow_overlay::{Claim, Daemon, DaemonId, IDENTITY_BYTES_MAX, Notary};
use rustls::SignatureScheme;
use rustls::sign::{Signer, SigningKey};
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::daemon_id;

/// The beginning of 2020, from which incarnations are counted, in seconds since 1970.
pub(super) const INCARNATION_EPOCH: u64 = 1_577_836_800;

/// The bytes before a statement when it is signed, so that no other use of the key gives a
/// signature of a state. TLS signs bytes that begin with spaces (RFC 8446 section 4.4.3).
const CONTEXT: &[u8] = b"manyflow overlay state 1\0";
/// The maximum number of identities that are remembered as valid.
const KNOWN_MAX: usize = 4096;

/// The schemes of signatures, the preferred one first.
const SCHEMES: [SignatureScheme; 7] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

/// The key of a daemon's certificate, and the authorities of its overlay.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) key: Arc<dyn SigningKey>,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) authorities: Vec<TrustAnchor<'static>>,
}

/// Signs the states of a daemon, and verifies those of others.
pub(super) struct StateNotary {
    signer: Box<dyn Signer>,
    identity: Vec<u8>,
    /// The context, and the name of the overlay.
    prefix: Vec<u8>,
    authorities: Vec<TrustAnchor<'static>>,
    /// Identities that are valid, with the incarnation in which they were verified.
    known: RefCell<BTreeMap<DaemonId, (u32, Vec<u8>)>>,
}

impl fmt::Debug for StateNotary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateNotary")
    }
}

impl StateNotary {
    /// Returns a notary of the daemon with this name; `None` if its key makes none of the
    /// signatures of TLS 1.3, or its certificates are too long.
    pub(super) fn new(keys: &Keys, overlay: &str, name: &str) -> Option<StateNotary> {
        let identity = encode_identity(name, &keys.chain);
        if identity.len() > IDENTITY_BYTES_MAX {
            return None;
        }
        Some(StateNotary {
            signer: keys.key.choose_scheme(&SCHEMES)?,
            identity,
            prefix: [CONTEXT, overlay.as_bytes(), b"\0"].concat(),
            authorities: keys.authorities.clone(),
            known: RefCell::default(),
        })
    }

    fn message(&self, statement: &[u8]) -> Vec<u8> {
        [&self.prefix, statement].concat()
    }

    /// Returns whether an identity is that of a daemon with this number, in this incarnation. An
    /// incarnation is the time in seconds at which it began, when the certificate was valid.
    fn is_valid(&self, origin: DaemonId, incarnation: u32, identity: &Identity<'_>) -> bool {
        let Some((end, between)) = identity.chain.split_first() else {
            return false;
        };
        let Ok(certificate) = EndEntityCert::try_from(end) else {
            return false;
        };
        let seconds = INCARNATION_EPOCH + u64::from(incarnation);
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let algorithms = provider().signature_verification_algorithms.all;
        let usage = KeyUsage::client_auth();
        let path = certificate.verify_for_usage(
            algorithms,
            &self.authorities,
            between,
            time,
            usage,
            None,
            None,
        );
        path.is_ok() && has_name_and_number(&certificate, identity.name, origin)
    }
}

impl Notary<Bytes> for StateNotary {
    fn bytes<'a>(&self, payload: &'a Bytes) -> &'a [u8] {
        payload
    }

    fn payload(&self, bytes: &[u8]) -> Bytes {
        Bytes::copy_from_slice(bytes)
    }

    fn identity(&self) -> &[u8] {
        &self.identity
    }

    fn sign(&self, statement: &[u8]) -> Vec<u8> {
        let scheme = u16::from(self.signer.scheme()).to_be_bytes();
        let signature = self.signer.sign(&self.message(statement));
        // It fails only without memory or randomness. Others refuse the empty signature.
        [&scheme[..], &signature.unwrap_or_default()].concat()
    }

    fn verify(&self, claim: &Claim<'_>) -> bool {
        let Some(identity) = Identity::decode(claim.identity) else {
            return false;
        };
        let known = self.known.borrow();
        let known_one = known.get(&claim.origin);
        let is_known = known_one.is_some_and(|(incarnation, bytes)| {
            *incarnation == claim.incarnation && bytes == claim.identity
        });
        drop(known);
        if !is_known && !self.is_valid(claim.origin, claim.incarnation, &identity) {
            return false;
        }
        let is_signed = is_signed(&identity, &self.message(claim.statement), claim.signature);
        if is_signed && !is_known {
            let mut known = self.known.borrow_mut();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(claim.origin, (claim.incarnation, claim.identity.to_vec()));
        }
        is_signed
    }
}

/// A daemon's name and its certificates.
struct Identity<'a> {
    name: &'a str,
    chain: Vec<CertificateDer<'a>>,
}

impl<'a> Identity<'a> {
    fn decode(bytes: &'a [u8]) -> Option<Identity<'a>> {
        let (&length, bytes) = bytes.split_first()?;
        let (name, mut bytes) = bytes.split_at_checked(length.into())?;
        let name = core::str::from_utf8(name).ok()?;
        let mut chain = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk() {
            let (certificate, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            chain.push(CertificateDer::from(certificate));
            bytes = rest;
        }
        let is_whole = bytes.is_empty();
        is_whole.then_some(Identity { name, chain })
    }
}

/// Returns the encoding: the name and each certificate, with their lengths.
fn encode_identity(name: &str, chain: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut bytes = vec![name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    for certificate in chain {
        let length = u16::try_from(certificate.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(certificate);
    }
    bytes
}

fn is_signed(identity: &Identity<'_>, message: &[u8], signature: &[u8]) -> bool {
    let Some((scheme, signature)) = signature.split_first_chunk() else {
        return false;
    };
    let scheme = SignatureScheme::from(u16::from_be_bytes(*scheme));
    let supported = provider().signature_verification_algorithms.mapping;
    let algorithms = supported.iter().find(|(other, _)| *other == scheme);
    let certificate = identity.chain.first().map(EndEntityCert::try_from);
    let (Some((_, algorithms)), Some(Ok(certificate))) = (algorithms, certificate) else {
        return false;
    };
    // The scheme of TLS 1.2 names no curve, so there may be two.
    let mut algorithms = algorithms.iter();
    SCHEMES.contains(&scheme)
        && algorithms.any(|algorithm| {
            let verified = certificate.verify_signature(*algorithm, message, signature);
            verified.is_ok()
        })
}

/// Returns whether a certificate is that of the daemon with this name, and this number.
pub(super) fn proves(certificate: &CertificateDer<'_>, name: &str, id: DaemonId) -> bool {
    let certificate = EndEntityCert::try_from(certificate);
    certificate.is_ok_and(|certificate| has_name_and_number(&certificate, name, id))
}

/// Returns the name that a certificate needs besides that of the daemon, if the daemon's number is
/// not the one of its name.
pub(super) fn name_of_number(id: DaemonId) -> String {
    format!("id-{}.manyflow.internal", id.0)
}

fn has_name_and_number(certificate: &EndEntityCert<'_>, name: &str, id: DaemonId) -> bool {
    let is_of = |name: &str| {
        let name = ServerName::try_from(name);
        name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    };
    is_of(name) && (daemon_id(name) == id || is_of(&name_of_number(id)))
}

/// Returns a daemon that signs its states, if there is a key.
pub(super) fn signing(daemon: Daemon<Bytes>, notary: Option<StateNotary>) -> Daemon<Bytes> {
    match notary {
        Some(notary) => daemon.with_notary(Box::new(notary)),
        None => daemon,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::certificates::{Subject, make_certificates};
    use super::super::security::{LinkSecurity, LinkTls};
    use super::*;

    /// A time in 2026, when the certificates of these tests are valid.
    const INCARNATION: u32 = 200_000_000;

    fn make(folder: &Path, subjects: &[(&str, &str)]) {
        let subjects = subjects.iter().map(|(name, host)| Subject {
            name: (*name).to_owned(),
            hosts: vec![(*host).to_owned()],
        });
        let subjects: Vec<_> = subjects.collect();
        make_certificates(folder, &subjects, 2026).unwrap();
    }

    fn notary(folder: &Path, overlay: &str, name: &str, id: DaemonId) -> StateNotary {
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        let tls = LinkTls::read(&folder.join("ca.crt"), &file("crt"), &file("key")).unwrap();
        let notary = LinkSecurity::Tls(tls).notary(overlay, name, id);
        notary.unwrap().unwrap()
    }

    fn claim<'a>(notary: &'a StateNotary, origin: &str, signature: &'a [u8]) -> Claim<'a> {
        Claim {
            origin: daemon_id(origin),
            incarnation: INCARNATION,
            identity: &notary.identity,
            statement: b"links",
            signature,
        }
    }

    #[test]
    fn a_signature_counts_for_its_daemon_overlay_authority_time_and_statement() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for folder in [&one, &two] {
            make(folder.path(), &[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
        }
        let of = |name| notary(one.path(), "prices", name, daemon_id(name));
        let (a, b) = (of("a"), of("b"));
        let signature = a.sign(b"links");
        let claim = claim(&a, "a", &signature);
        // The second time, the certificates are known.
        assert!(b.verify(&claim) && b.verify(&claim));
        let wrong = [
            Claim {
                origin: daemon_id("b"),
                ..claim
            },
            Claim {
                statement: b"other",
                ..claim
            },
            Claim {
                incarnation: 100_000_000,
                ..claim
            },
            Claim {
                identity: &b.identity,
                ..claim
            },
            Claim {
                identity: &a.identity[..40],
                ..claim
            },
            Claim {
                identity: b"",
                ..claim
            },
            Claim {
                signature: &signature[..60],
                ..claim
            },
            Claim {
                signature: b"",
                ..claim
            },
        ];
        for claim in wrong {
            assert!(!b.verify(&claim), "{claim:?}");
        }
        let elsewhere = notary(one.path(), "other", "b", daemon_id("b"));
        assert!(!elsewhere.verify(&claim));
        let stranger = notary(two.path(), "prices", "b", daemon_id("b"));
        assert!(!stranger.verify(&claim));
    }

    #[test]
    fn a_number_counts_if_it_is_that_of_the_name_or_in_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        make(
            folder.path(),
            &[("a", "id-17.manyflow.internal"), ("b", "10.0.0.2")],
        );
        let a = notary(folder.path(), "prices", "a", DaemonId(17));
        let b = notary(folder.path(), "prices", "b", daemon_id("b"));
        let signature = a.sign(b"links");
        let claim = claim(&a, "a", &signature);
        for (origin, counts) in [(17, true), (18, false), (daemon_id("a").0, true)] {
            let origin = DaemonId(origin);
            assert_eq!(b.verify(&Claim { origin, ..claim }), counts, "{origin:?}");
        }
    }
}
