//! Loads a session description from a file, from standard input, or by HTTP or HTTPS.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{
    DESCRIPTION_BYTES_MAX, DescriptionError, HostPort, read_text, signature, without_mark,
};
use crate::address::{Address, AddressError, Host, decode_zone, without_zone};
use crate::keys::PublicKey;
use crate::publish::DESCRIPTION_PATH;
use crate::tls::{self, TlsError};

/// Maximum time from name resolution to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a session description cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The loaded text is not a session description.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The description is not signed by a trusted key.
    #[error("the session description {}, but only {} {} trusted: check where it comes from",
        .signer.map_or("has no signature".to_owned(), |key| format!("is signed by {key}")),
        list(.trusted), if .trusted.len() == 1 { "is" } else { "are" })]
    Untrusted {
        /// The key that signed the description.
        signer: Option<PublicKey>,
        /// The trusted keys.
        trusted: Vec<PublicKey>,
    },
    /// The URL is invalid, or its scheme is neither `http` nor `https`.
    #[error(
        "{0} is not an http:// or https:// URL: give one such as http://192.0.2.1:8080 or \
         http://[2001:db8::1]:8080, or fetch the file by other means and give \
         its path"
    )]
    NotHttp(String),
    /// The URL's host is not an address, or does not exist.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The host does not accept the connection.
    #[error(
        "cannot connect to {host}: {cause}; does the sender run there, and publish on this port (`--publish`)?"
    )]
    Unreachable {
        /// The server's host and port.
        host: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The trusted certificate authorities cannot be read.
    #[error(transparent)]
    Authorities(#[from] TlsError),
    /// The server does not speak TLS, or its certificate is refused.
    #[error("{url}: no secure connection ({cause}): {advice}")]
    Tls {
        /// The requested URL.
        url: String,
        /// The TLS library's reason.
        cause: io::Error,
        /// The user's next step.
        advice: &'static str,
    },
    /// The server closed the connection early, or does not speak HTTP.
    #[error("{host} did not answer as an HTTP server: {cause}; if it uses TLS, use https://")]
    Broken {
        /// The server's host and port.
        host: String,
        /// The HTTP library's reason.
        cause: hyper::Error,
    },
    /// The answer broke off.
    #[error("{url}: the answer broke off ({cause}): try again")]
    Cut {
        /// The requested URL.
        url: String,
        /// The reason.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer took more than 10 seconds.
    #[error("{0} did not answer within 10 seconds: try again, or fetch the file by other means")]
    TimedOut(String),
    /// The server has no such file, redirects, or fails.
    #[error(
        "{url} answered {status}: a session is at http(s)://HOST:PORT{DESCRIPTION_PATH}, and http(s)://HOST:PORT/ lists several"
    )]
    Status {
        /// The requested URL.
        url: String,
        /// The server's status, which is not 200.
        status: StatusCode,
    },
}

impl LoadError {
    /// Whether the same session may be loaded at a later attempt: the server, the network or a name
    /// server fails at the moment, or the file is not written yet. An invalid URL, a description
    /// that is invalid or not trusted, and a server that demands something else remain as they are.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Description(error) => error.may_pass(),
            Self::Address(error) => error.may_pass(),
            Self::Status { status, .. } => may_pass(*status),
            Self::Untrusted { .. } | Self::NotHttp(_) | Self::Authorities(_) => false,
            Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::Broken { .. }
            | Self::Cut { .. }
            | Self::TimedOut(_) => true,
        }
    }
}

/// Whether a server may answer with another status later. A publisher has all its descriptions from
/// the start, so a page that is missing means a wrong URL.
fn may_pass(status: StatusCode) -> bool {
    let is_never_served = [
        StatusCode::NOT_IMPLEMENTED,
        StatusCode::HTTP_VERSION_NOT_SUPPORTED,
    ]
    .contains(&status);
    let is_for_now = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ]
    .contains(&status);
    is_for_now || status.is_server_error() && !is_never_served
}

/// The parties whose descriptions a receiver accepts. The default is every signer, and every server
/// that the platform trusts.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The keys of which one must have signed the description. If there are none, descriptions of
    /// other signers and without a signature are accepted, too.
    pub signers: Vec<PublicKey>,
    /// A file with the certificate authorities of HTTPS servers, instead of those that the platform
    /// trusts: certificates in PEM.
    pub ca: Option<PathBuf>,
}

/// Loads the text of a description from an `http://` or `https://` URL, from standard input (`-`)
/// or from a file, and checks its signature. Also returns the key that signed it. Reading a file
/// or standard input blocks the thread: call this before a transfer starts.
///
/// # Errors
/// If the text cannot be loaded, or its signature is wrong or that of a key that is not trusted.
pub async fn load_text(
    session: &str,
    trust: &Trust,
) -> Result<(String, Option<PublicKey>), LoadError> {
    let text = match session {
        "-" => read_text(io::stdin().lock(), "standard input")?,
        url if url.contains("://") => fetch(url, trust.ca.as_deref()).await?,
        path => read_file(path)?,
    };
    if text.trim().is_empty() {
        return Err(DescriptionError::Empty(session.to_owned()).into());
    }
    let signer = verify_signer(&text, &trust.signers)?;
    Ok((text, signer))
}

/// Checks the signature of a description's text, and returns the key that signed it. Every signer
/// is accepted, and a text without a signature, if no keys are trusted.
///
/// # Errors
/// If the signature is wrong, or not that of a trusted key.
pub fn verify_signer(text: &str, trusted: &[PublicKey]) -> Result<Option<PublicKey>, LoadError> {
    let signer = signature::verify(text)?;
    if !trusted.is_empty() && !signer.is_some_and(|signer| trusted.contains(&signer)) {
        let trusted = trusted.to_vec();
        return Err(LoadError::Untrusted { signer, trusted });
    }
    Ok(signer)
}

fn read_file(path: &str) -> Result<String, DescriptionError> {
    let unreadable = |cause| DescriptionError::Unreadable {
        from: path.to_owned(),
        cause,
    };
    read_text(File::open(path).map_err(unreadable)?, path)
}

fn list(keys: &[PublicKey]) -> String {
    let keys: Vec<_> = keys.iter().map(PublicKey::to_string).collect();
    keys.join(" and ")
}

/// Fetches the text of a description: at most 64 KiB within 10 seconds, without following
/// redirects. Servers of `https://` URLs need a certificate of an authority in the file `ca`, or,
/// without a file, of one that the platform trusts.
pub async fn fetch(url: &str, ca: Option<&Path>) -> Result<String, LoadError> {
    let timed_out = || LoadError::TimedOut(url.to_owned());
    timeout(FETCH_TIMEOUT, get(url, ca))
        .await
        .map_err(|_| timed_out())?
}

/// Returns the host in a session's URL; `None` for files. The port of the address has no meaning.
fn server_of(session: &str) -> Option<Address> {
    let uri: Uri = session.parse().ok()?;
    uri.scheme()?;
    Address::parse(&decode_zone(uri.authority()?.as_str()), Some(1)).ok()
}

/// Returns the address of a server that a description names, as `host:port`. A server on the
/// unspecified address is reachable where the description was loaded from; `None` if that is a
/// file. A link-local address has the interface of the address that the description was loaded
/// from, since the sender cannot know the receiver's interfaces.
pub fn reachable(server: &HostPort, session: &str) -> Option<String> {
    match server.host.parse() {
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
            let zone = match server_of(session)?.host() {
                Host::Zoned(_, zone) => zone.clone(),
                _ => return Some(server.authority()),
            };
            Some(Address::new(Host::Zoned(ip, zone), server.port).to_string())
        }
        Ok(ip) if ip.is_unspecified() => {
            let host = server_of(session)?.host().clone();
            Some(Address::new(host, server.port).to_string())
        }
        _ => Some(server.authority()),
    }
}

async fn get(url: &str, ca: Option<&Path>) -> Result<String, LoadError> {
    let not_http = || LoadError::NotHttp(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| not_http())?;
    let (secure, default_port) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err(not_http()),
    };
    let authority = uri.authority().ok_or_else(not_http)?;
    let server = Address::parse(&decode_zone(authority.as_str()), Some(default_port))?;
    // A URL with only host and port means the description.
    let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
        "/" => DESCRIPTION_PATH,
        path => path,
    };
    let request = Request::get(path)
        .header(HOST, without_zone(&server))
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|_| not_http())?;
    let tls = match secure {
        true => {
            let name = server.host().tls_name().map_err(|_| not_http())?;
            Some((tls::connector(ca)?, name))
        }
        false => None,
    };

    let addresses = server.resolve().await?;
    let authority = server.to_string();
    let stream = TcpStream::connect(&*addresses).await;
    let stream = stream.map_err(|cause| LoadError::Unreachable {
        host: authority.clone(),
        cause,
    })?;
    let Some((connector, name)) = tls else {
        return exchange(stream, request, url, &authority).await;
    };
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|cause| LoadError::Tls {
        url: url.to_owned(),
        advice: tls::advice(&cause),
        cause,
    })?;
    exchange(stream, request, url, &authority).await
}

/// Sends `request` to `host` and returns the text of its answer.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
    url: &str,
    host: &str,
) -> Result<String, LoadError> {
    let broken = |cause| LoadError::Broken {
        host: host.to_owned(),
        cause,
    };
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // The future owns its end of the connection, which closes when the exchange ends.
    let exchange = async move {
        let response = requests.send_request(request).await.map_err(broken)?;
        text(url, response).await
    };
    tokio::join!(exchange, connection).0
}

/// Returns the body of a successful response.
async fn text(url: &str, response: Response<Incoming>) -> Result<String, LoadError> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err(LoadError::Status {
            url: url.to_owned(),
            status,
        });
    }
    let body = Limited::new(response.into_body(), DESCRIPTION_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|cause| match cause.is::<LengthLimitError>() {
        true => DescriptionError::TooLong.into(),
        false => LoadError::Cut {
            url: url.to_owned(),
            cause,
        },
    })?;
    String::from_utf8(body.to_bytes().into())
        .map(without_mark)
        .map_err(|_| DescriptionError::NotSdp("it is not UTF-8 text".to_owned()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_another_attempt_may_change_is_not_permanent() {
        for (status, expected) in [
            (503, true),
            (500, true),
            (404, false),
            (429, true),
            (408, true),
            (501, false),
            (505, false),
            (301, false),
            (401, false),
            (403, false),
            (410, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(may_pass(status), expected, "{status}");
        }
    }

    #[test]
    fn a_relay_of_the_description_has_host_and_interface_of_the_url() {
        let server = |host: &str| HostPort {
            host: host.to_owned(),
            port: 2268,
        };
        for (host, session, expected) in [
            (
                "0.0.0.0",
                "http://b.example.net/x.sdp",
                Some("b.example.net:2268"),
            ),
            (
                "::",
                "http://[fe80::1%25eth0]:80/",
                Some("[fe80::1%eth0]:2268"),
            ),
            (
                "fe80::9",
                "http://[fe80::1%eth0]:80/",
                Some("[fe80::9%eth0]:2268"),
            ),
            ("fe80::9", "http://b.example.net/", Some("[fe80::9]:2268")),
            ("192.0.2.1", "session.sdp", Some("192.0.2.1:2268")),
            ("0.0.0.0", "session.sdp", None),
        ] {
            let found = reachable(&server(host), session);
            assert_eq!(found.as_deref(), expected, "{host} {session}");
        }
    }
}
