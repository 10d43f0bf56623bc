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
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::filecast::keys::PublicKey;
use crate::filecast::publish::DESCRIPTION_PATH;
use crate::filecast::sdp::{
    DESCRIPTION_BYTES_MAX, DescriptionError, HostPort, SessionDescription, read_text, signature,
};
use crate::net::tls::{self, TlsError};

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
        "{0} is not an http:// or https:// URL: give one, or fetch the file by other means and give \
         its path"
    )]
    NotHttp(String),
    /// The host does not exist, or does not accept the connection.
    #[error("cannot connect to {host}: {cause}; is `manyflow send --publish` running there?")]
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

/// A description with the key that signed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The description.
    pub description: SessionDescription,
    /// The key that signed the description; `None` without a signature.
    pub signer: Option<PublicKey>,
}

/// Loads a session description from an `http://` or `https://` URL, from standard input (`-`) or
/// from a file. Reading a file or standard input blocks the thread: call this before a transfer
/// starts.
pub async fn load(session: &str, trust: &Trust) -> Result<Loaded, LoadError> {
    let (text, signer) = load_text(session, trust).await?;
    Ok(Loaded {
        description: SessionDescription::parse(&text)?,
        signer,
    })
}

/// Loads the text of a description of any kind, as [`load`] does, and checks its signature. Returns
/// the key that signed it, too.
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

/// Returns the host in a session's URL, with IPv6 addresses in brackets; `None` for files.
pub fn host(session: &str) -> Option<String> {
    let uri: Uri = session.parse().ok()?;
    uri.scheme()?;
    uri.host().map(str::to_owned)
}

/// Returns the address of a server that a description names, as `host:port`. A server on the
/// unspecified address is reachable where the description was loaded from; `None` if that is a
/// file.
pub fn reachable(server: &HostPort, session: &str) -> Option<String> {
    let address: Result<IpAddr, _> = server.host.parse();
    match address.is_ok_and(|address| address.is_unspecified()) {
        true => host(session).map(|host| format!("{host}:{}", server.port)),
        false => Some(server.authority()),
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
    let host = uri.host().ok_or_else(not_http)?;
    let port = uri.port_u16().unwrap_or(default_port);
    let authority = format!("{host}:{port}");
    // A URL with only host and port means the description.
    let path = match uri.path_and_query().map_or("/", |path| path.as_str()) {
        "/" => DESCRIPTION_PATH,
        path => path,
    };
    let request = Request::get(path)
        .header(HOST, &authority)
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|_| not_http())?;
    let host = host.trim_matches(['[', ']']);
    let tls = match secure {
        true => {
            let name = ServerName::try_from(host.to_owned()).map_err(|_| not_http())?;
            Some((tls::connector(ca)?, name))
        }
        false => None,
    };

    let stream = TcpStream::connect((host, port)).await;
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
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => DescriptionError::TooLong,
        false => DescriptionError::Unreadable {
            from: url.to_owned(),
            cause: io::Error::other(error),
        },
    })?;
    String::from_utf8(body.to_bytes().into())
        .map_err(|_| DescriptionError::NotSdp("it is not UTF-8 text".to_owned()).into())
}
