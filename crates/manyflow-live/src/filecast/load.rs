//! Loads a session description from a file, from standard input or by HTTP.

use std::fs::File;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::filecast::keys::PublicKey;
use crate::filecast::publish::DESCRIPTION_PATH;
use crate::filecast::sdp::{
    DESCRIPTION_BYTES_MAX, DescriptionError, SessionDescription, read_text,
};

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
    /// The URL is invalid, or its scheme is not `http`.
    #[error(
        "{0} is not an http:// URL: give one, or fetch the file by other means and give its path"
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
    /// The server closed the connection early, or does not speak HTTP.
    #[error("{host} did not answer as an HTTP server: {cause}")]
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
        "{url} answered {status}: a published session is at http://HOST:PORT{DESCRIPTION_PATH}"
    )]
    Status {
        /// The requested URL.
        url: String,
        /// The server's status, which is not 200.
        status: StatusCode,
    },
}

/// A description with the key that signed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The description.
    pub description: SessionDescription,
    /// The key that signed the description; `None` without a signature.
    pub signer: Option<PublicKey>,
}

/// Loads a session description from an `http://` URL, from standard input (`-`) or from a file.
/// Reading a file or standard input blocks the thread: call this before a transfer starts.
///
/// With `trusted` keys, only descriptions are accepted that one of them signed. Without any, others
/// are accepted, too.
pub async fn load(session: &str, trusted: &[PublicKey]) -> Result<Loaded, LoadError> {
    let text = match session {
        "-" => read_text(io::stdin().lock(), "standard input")?,
        url if url.contains("://") => fetch(url).await?,
        path => read_file(path)?,
    };
    let (description, signer) = SessionDescription::parse_signed(&text)?;
    if !trusted.is_empty() && !signer.is_some_and(|signer| trusted.contains(&signer)) {
        let trusted = trusted.to_vec();
        return Err(LoadError::Untrusted { signer, trusted });
    }
    Ok(Loaded {
        description,
        signer,
    })
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
/// redirects.
pub async fn fetch(url: &str) -> Result<String, LoadError> {
    let timed_out = || LoadError::TimedOut(url.to_owned());
    timeout(FETCH_TIMEOUT, get(url))
        .await
        .map_err(|_| timed_out())?
}

/// Returns the host in a session's `http://` URL, with IPv6 addresses in brackets; `None` for
/// files.
pub fn host(session: &str) -> Option<String> {
    let uri: Uri = session.parse().ok()?;
    uri.scheme()?;
    uri.host().map(str::to_owned)
}

async fn get(url: &str) -> Result<String, LoadError> {
    let not_http = || LoadError::NotHttp(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| not_http())?;
    let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(not_http());
    };
    let port = uri.port_u16().unwrap_or(80);
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

    let unreachable = |cause| LoadError::Unreachable {
        host: authority.clone(),
        cause,
    };
    let broken = |cause| LoadError::Broken {
        host: authority.clone(),
        cause,
    };
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port))
        .await
        .map_err(unreachable)?;
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // The task owns its end of the connection, which closes when the exchange ends.
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
