//! TLS: certificates, their keys, and the authorities that the other end trusts.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The reason why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read, or has no certificate.
    #[error("{path}: no certificate can be read ({cause}); give a file with certificates in PEM")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: pem::Error,
    },
    /// The file cannot be read, or has no private key.
    #[error(
        "{path}: no private key can be read ({cause}); give a file with a key in PEM, without a \
         password"
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: pem::Error,
    },
    /// The certificate and the private key cannot be used.
    #[error("{path}: the certificate cannot be used ({cause}); give it with its own private key")]
    Unusable {
        /// The file with the certificate.
        path: PathBuf,
        /// The TLS library's reason.
        cause: rustls::Error,
    },
    /// The platform has no certificates of authorities.
    #[error(
        "no certificates of authorities are installed here{}; install the package ca-certificates, or \
         give the server's authority with --ca FILE", .0.as_deref().unwrap_or_default()
    )]
    NoAuthorities(Option<String>),
}

/// A server's certificate and its private key.
#[derive(Clone)]
pub struct Identity {
    acceptor: TlsAcceptor,
    verifies: bool,
}

impl Identity {
    /// Reads the server's certificate, with those between it and its authority, from
    /// `certificates`, and its private key from `key`. Both are in PEM.
    ///
    /// # Errors
    /// If a file cannot be read, or the key is not that of the certificate.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        Identity::read_with(
            certificates,
            key,
            WebPkiClientVerifier::no_client_auth(),
            false,
        )
    }

    /// Reads them as [`read`](Identity::read) does, for a server whose clients must show a
    /// certificate of one of the authorities in `ca`, a file in PEM.
    ///
    /// # Errors
    /// If a file cannot be read, the key is not that of the certificate, or `ca` holds no
    /// certificate of an authority.
    pub fn read_verifying(certificates: &Path, key: &Path, ca: &Path) -> Result<Self, TlsError> {
        let roots = Arc::new(authorities(ca)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let verifier = verifier.map_err(|error| TlsError::Unusable {
            path: ca.to_owned(),
            cause: rustls::Error::General(error.to_string()),
        })?;
        Identity::read_with(certificates, key, verifier, true)
    }

    fn read_with(
        certificates: &Path,
        key: &Path,
        verifier: Arc<dyn ClientCertVerifier>,
        verifies: bool,
    ) -> Result<Self, TlsError> {
        let (chain, key) = read_identity(certificates, key)?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key);
        let config = config.map_err(|cause| TlsError::Unusable {
            path: certificates.to_owned(),
            cause,
        })?;
        Ok(Identity {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            verifies,
        })
    }

    /// Returns the server's end of handshakes.
    pub fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Returns whether clients must show a certificate.
    pub fn verifies_clients(&self) -> bool {
        self.verifies
    }
}

/// Reads a certificate, with those between it and its authority, and its private key.
pub fn read_identity(
    certificates: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = read_certificates(certificates)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|cause| TlsError::Key {
        path: key.to_owned(),
        cause,
    })?;
    Ok((chain, key))
}

/// The authorities whose certificates a client accepts.
#[derive(Clone)]
pub struct Authorities(TlsConnector);

impl Authorities {
    /// Reads the certificates of authorities from the PEM file `ca`; without a file, takes those
    /// that the platform trusts.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no certificate of an authority.
    pub fn read(ca: Option<&Path>) -> Result<Authorities, TlsError> {
        connector(ca).map(Authorities)
    }

    /// Returns the client's end of handshakes.
    pub fn connector(&self) -> &TlsConnector {
        &self.0
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("authorities")
    }
}

/// Returns a connector that accepts servers of the authorities in the file `ca`; without a file,
/// those of the authorities that the platform trusts.
pub fn connector(ca: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let roots = match ca {
        Some(path) => authorities(path)?,
        None => platform_authorities()?,
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns what to do about a handshake that failed.
pub fn advice(error: &io::Error) -> &'static str {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, Other, UnknownIssuer,
    };
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    let Some(rustls::Error::InvalidCertificate(flaw)) = error else {
        return "check that the server speaks TLS on this port; if it does not, use http://";
    };
    match flaw {
        Expired | ExpiredContext { .. } => {
            "renew the server's certificate, or set the clock of this machine"
        }
        NotValidYet | NotValidYetContext { .. } => {
            "set the clock of this machine, or wait until the certificate is valid"
        }
        // A trusted authority has the issuer's name, but another key.
        BadSignature | UnknownIssuer => {
            "give the certificate of the server's authority with --ca FILE"
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "use a name that the certificate has, or add this name to its subjectAltName"
        }
        Other(_) => "give the server a certificate that is not itself that of an authority",
        _ => "give the server another certificate",
    }
}

/// The provider is named, because rustls has no default if another crate enables a second one.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads the certificates of authorities from a file.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|cause| TlsError::Unusable {
            path: path.to_owned(),
            cause,
        })?;
    }
    Ok(roots)
}

fn platform_authorities() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Platforms have certificates that no library accepts; the others are enough.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let cause = found.errors.first().map(|error| format!(" ({error})"));
        return Err(TlsError::NoAuthorities(cause));
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = || {
        let found: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
        match found.is_empty() {
            true => Err(pem::Error::NoItemsFound),
            false => Ok(found),
        }
    };
    read().map_err(|cause| TlsError::Certificate {
        path: path.to_owned(),
        cause,
    })
}
