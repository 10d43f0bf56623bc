//! How daemons prove their names to each other, and how connections are encrypted.
//!
//! Each daemon has a certificate with its name, from an authority that all daemons of the overlay
//! trust. Links use TLS 1.3, and both ends show their certificates.

use std::io;
use std::path::Path;
use std::sync::Arc;

use manyflow_net::tls::{TlsError, authorities, provider, read_identity};
use manyflow_overlay::{DaemonId, IDENTITY_BYTES_MAX};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ConnectionCommon, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::daemon_id;
use super::datagram::{KEYS_BYTES, Keys};
use super::signatures::{self, StateNotary};

/// The reading half of a connection.
pub(super) type Reader = Box<dyn AsyncRead + Unpin>;
/// The writing half of a connection.
pub(super) type Writer = Box<dyn AsyncWrite + Unpin>;

/// The label of the keys of datagrams (RFC 5705).
const KEYS_LABEL: &[u8] = b"EXPORTER-manyflow-overlay-datagrams";

/// An open connection to another daemon.
pub(super) struct Channel {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// The certificate that the other end has shown.
    pub(super) certificate: PeerCertificate,
    /// The keys for datagrams beside the connection, if it is encrypted.
    pub(super) keys: Option<Keys>,
}

impl Channel {
    fn clear(socket: TcpStream) -> Channel {
        let (reader, writer) = socket.into_split();
        Channel {
            reader: Box::new(reader),
            writer: Box::new(writer),
            certificate: PeerCertificate::Unwanted,
            keys: None,
        }
    }
}

/// The protection of links.
#[derive(Clone)]
pub enum LinkSecurity {
    /// None: every host that can connect can be any daemon. Only for networks without strangers.
    Insecure,
    /// TLS 1.3, with a certificate at each end.
    Tls(LinkTls),
}

/// The certificate of a daemon, and the authority of its overlay.
#[derive(Clone)]
pub struct LinkTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    keys: signatures::Keys,
}

impl core::fmt::Debug for LinkSecurity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            LinkSecurity::Insecure => "Insecure",
            LinkSecurity::Tls(_) => "Tls",
        })
    }
}

impl LinkTls {
    /// Reads the certificate of the overlay's authority, and this daemon's own certificate and key.
    /// All are in PEM.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the key is not that of the certificate.
    pub fn read(ca: &Path, certificate: &Path, key: &Path) -> Result<LinkTls, TlsError> {
        let roots = Arc::new(authorities(ca)?);
        let (chain, key) = read_identity(certificate, key)?;
        let unusable = |cause| TlsError::Unusable {
            path: certificate.to_owned(),
            cause,
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let signing = provider().key_provider.load_private_key(key.clone_key());
        let keys = signatures::Keys {
            key: signing.map_err(unusable)?,
            chain: chain.clone(),
            authorities: roots.roots.clone(),
        };
        let verifier = verifier.build().map_err(|error| TlsError::Unusable {
            path: ca.to_owned(),
            cause: rustls::Error::General(error.to_string()),
        })?;
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("ring has TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("ring has TLS 1.3")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?;
        Ok(LinkTls {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            keys,
        })
    }
}

/// The reason why a certificate cannot sign the states of a daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The certificate is that of another daemon.
    #[error(
        "the certificate in [tls] is not one of the daemon {0}: other daemons would refuse its \
         links; make one with `manyflow keygen --certificates FOLDER --daemon {0}`"
    )]
    Name(String),
    /// The certificate does not have the daemon's number.
    #[error(
        "`id = {1}` is not the number of the name {0}, so the certificate must be valid for \
         {2}, too: make one with `manyflow keygen --certificates FOLDER --daemon {0}={2}`"
    )]
    Number(String, u16, String),
    /// The certificates are too long, or their key makes no signatures of TLS 1.3.
    #[error(
        "the certificates in [tls] cannot sign: together they have at most \
         {IDENTITY_BYTES_MAX} bytes, and their key is of Ed25519, ECDSA or RSA"
    )]
    Certificates,
}

/// The certificate of the other end.
pub(super) enum PeerCertificate {
    /// There is none, and none is wanted.
    Unwanted,
    /// A certificate of the overlay's authority.
    Verified(CertificateDer<'static>),
    /// The other end showed none.
    Missing,
}

impl PeerCertificate {
    /// Returns whether the certificate is that of the daemon with this name and number.
    pub(super) fn is_of(&self, name: &str, id: DaemonId) -> bool {
        match self {
            PeerCertificate::Unwanted => true,
            PeerCertificate::Verified(certificate) => signatures::proves(certificate, name, id),
            PeerCertificate::Missing => false,
        }
    }
}

impl LinkSecurity {
    /// Returns the notary that signs the states of a daemon; `None` if daemons have no keys.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot sign for a daemon with this name and number.
    pub(super) fn notary(
        &self,
        overlay: &str,
        name: &str,
        id: DaemonId,
    ) -> Result<Option<StateNotary>, IdentityError> {
        let LinkSecurity::Tls(tls) = self else {
            return Ok(None);
        };
        let name_of_number = signatures::name_of_number(id);
        let certificate = tls.keys.chain.first();
        if !certificate.is_some_and(|certificate| signatures::proves(certificate, name, id)) {
            let name = name.to_owned();
            return Err(match daemon_id(&name) == id {
                true => IdentityError::Name(name),
                false => IdentityError::Number(name, id.0, name_of_number),
            });
        }
        let notary = StateNotary::new(&tls.keys, overlay, name);
        notary.map(Some).ok_or(IdentityError::Certificates)
    }

    /// Opens a connection to the daemon with this name, and checks its certificate.
    pub(super) async fn connect(&self, socket: TcpStream, name: &str) -> io::Result<Channel> {
        let LinkSecurity::Tls(tls) = self else {
            return Ok(Channel::clear(socket));
        };
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let stream = tls.connector.connect(name, socket).await?;
        let (keys, certificate) = secrets(stream.get_ref().1)?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Channel {
            reader: Box::new(reader),
            writer: Box::new(writer),
            certificate,
            keys: Some(keys),
        })
    }

    /// Opens a connection that another daemon has made. The caller compares the certificate with
    /// the name that the other daemon gives.
    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<Channel> {
        let LinkSecurity::Tls(tls) = self else {
            return Ok(Channel::clear(socket));
        };
        let stream = tls.acceptor.accept(socket).await?;
        let (keys, certificate) = secrets(stream.get_ref().1)?;
        let (reader, writer) = tokio::io::split(stream);
        Ok(Channel {
            reader: Box::new(reader),
            writer: Box::new(writer),
            certificate,
            keys: Some(keys),
        })
    }
}

/// Returns the keys for datagrams, and the other end's certificate.
fn secrets<D>(session: &ConnectionCommon<D>) -> io::Result<(Keys, PeerCertificate)> {
    let keys = session.export_keying_material([0; KEYS_BYTES], KEYS_LABEL, None);
    let keys = keys.map_err(io::Error::other)?;
    let shown = session.peer_certificates();
    let certificate = match shown.and_then(|chain| chain.first()) {
        Some(certificate) => PeerCertificate::Verified(certificate.clone().into_owned()),
        None => PeerCertificate::Missing,
    };
    Ok((keys, certificate))
}
