//! Reads the status of a running daemon over HTTP.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use manyflow_net::address::{Address, decode_zone, without_zone};
use serde::de::Error as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::status::DaemonStatus;

/// The path of the status.
pub const STATUS_PATH: &str = "/status.json";
/// The port of `metrics` in examples, which an address without a scheme and a port has.
const STATUS_PORT: u16 = 9464;
/// The time from name resolution to the last byte, at most.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// The length of a status, at most. It has 100 groups with up to 1,024 daemons each.
const STATUS_BYTES_MAX: usize = 16 << 20;

/// The address of a daemon's status: a host and port, with `http://` and a path or without.
///
/// ```
/// use manyflow_messages::StatusUrl;
///
/// let url: StatusUrl = "b.example.net:9464".parse()?;
/// assert_eq!(url.to_string(), "http://b.example.net:9464");
/// assert!("https://b.example.net".parse::<StatusUrl>().is_err());
/// # Ok::<(), manyflow_messages::StatusUrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusUrl {
    server: Address,
    path: String,
}

/// The text is not the address of a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the address of a status: give the host and port of `metrics`, such as http://127.0.0.1:9464"
)]
pub struct StatusUrlError(String);

impl FromStr for StatusUrl {
    type Err = StatusUrlError;

    fn from_str(text: &str) -> Result<StatusUrl, StatusUrlError> {
        let invalid = || StatusUrlError(text.to_owned());
        let (full, default_port) = match text.contains("://") {
            true => (text.to_owned(), 80),
            false => (format!("http://{text}"), STATUS_PORT),
        };
        let uri: Uri = full.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        let server = Address::parse(&decode_zone(authority.as_str()), Some(default_port));
        let (Some("http"), Ok(server)) = (uri.scheme_str(), server) else {
            return Err(invalid());
        };
        let path = match uri.path() {
            "/" | "" => STATUS_PATH,
            path => path,
        };
        Ok(StatusUrl {
            server,
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for StatusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Some(&self.path[..]).filter(|path| *path != STATUS_PATH);
        write!(f, "http://{}{}", self.server, path.unwrap_or_default())
    }
}

/// The reason why a daemon's status cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The host does not exist, or does not accept the connection.
    #[error("cannot connect: {0}")]
    Unreachable(std::io::Error),
    /// The status did not arrive within 2 s.
    #[error("no answer within 2 s")]
    TimedOut,
    /// The server does not speak HTTP.
    #[error("no answer of an HTTP server: {0}")]
    NotHttp(hyper::Error),
    /// The server has no such page.
    #[error("the answer is {0}: is this the address of a daemon's `metrics`?")]
    Status(StatusCode),
    /// The body broke off, or it is longer than 16 MiB.
    #[error("the answer is not complete: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not a status of a daemon.
    #[error("the answer is not the status of a daemon: {0}")]
    NotStatus(serde_json::Error),
}

/// Reads the status of the daemon at an address, within 2 s.
///
/// # Errors
/// Returns an error if no daemon answers there.
pub async fn fetch_status(url: &StatusUrl) -> Result<DaemonStatus, FetchError> {
    let body = fetch_page(url, &url.path).await?;
    let status: DaemonStatus = serde_json::from_slice(&body).map_err(FetchError::NotStatus)?;
    // Keys of other versions may be missing, so the objects of other roles have values, too.
    match status.name.is_empty() {
        true => Err(FetchError::NotStatus(serde_json::Error::missing_field(
            "name",
        ))),
        false => Ok(status),
    }
}

/// Reads another page of the server at an address, such as its metrics, within 2 s.
///
/// # Errors
/// Returns an error if no server answers there, or it has no such page.
pub async fn fetch_page(url: &StatusUrl, path: &str) -> Result<Bytes, FetchError> {
    let fetched = timeout(FETCH_TIMEOUT, get(url, path)).await;
    fetched.map_err(|_| FetchError::TimedOut)?
}

async fn get(url: &StatusUrl, path: &str) -> Result<Bytes, FetchError> {
    let addresses = url.server.resolve().await;
    let addresses = addresses.map_err(|error| FetchError::Unreachable(error.into()))?;
    let stream = TcpStream::connect(&*addresses).await;
    let stream = stream.map_err(FetchError::Unreachable)?;
    let request = Request::get(path)
        .header(HOST, without_zone(&url.server))
        .body(Empty::<Bytes>::new())
        .expect("the parts of a URL are valid");
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(FetchError::NotHttp)?;
    // The future owns its end of the connection, which closes when the exchange ends.
    let exchange = async move {
        let response = requests.send_request(request).await;
        let response = response.map_err(FetchError::NotHttp)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), STATUS_BYTES_MAX);
        let body = body.collect().await.map_err(FetchError::Body)?;
        Ok(body.to_bytes())
    };
    tokio::join!(exchange, connection).0
}

#[cfg(test)]
mod tests {
    use manyflow_net::reserved::ReservedAddress;

    use super::*;

    #[test]
    fn an_address_may_lack_scheme_and_path() {
        for (text, expected) in [
            ("127.0.0.1:9464", "http://127.0.0.1:9464"),
            ("http://[::1]:9464/", "http://[::1]:9464"),
            (
                "http://b.example.net/status.json",
                "http://b.example.net:80",
            ),
            ("b.example.net", "http://b.example.net:9464"),
            ("http://[fe80::1%25eth0]:9464", "http://[fe80::1%eth0]:9464"),
            (
                "http://b.example.net/a/status.json",
                "http://b.example.net:80/a/status.json",
            ),
        ] {
            assert_eq!(text.parse::<StatusUrl>().unwrap().to_string(), expected);
        }
        for text in [
            "",
            "https://b.example.net",
            "a b",
            "http://",
            "/status.json",
        ] {
            assert!(text.parse::<StatusUrl>().is_err(), "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_no_daemon_is_reported() {
        use manyflow_net::metrics::{MetricsServer, Page};
        let page =
            |path, text: &'static str| Page::new(path, "application/json", || text.to_owned());
        let pages = vec![
            page(STATUS_PATH, "[1]"),
            page("/switch", r#"{"connections":1}"#),
        ];
        let server = MetricsServer::serve_pages("127.0.0.1:0", pages).await;
        let address = server.as_ref().unwrap().local_address();
        let error =
            |url: String| async move { fetch_status(&url.parse().unwrap()).await.unwrap_err() };
        let found = error(address.to_string()).await;
        assert!(matches!(found, FetchError::NotStatus(_)), "{found}");
        let found = error(format!("http://{address}/switch")).await;
        assert!(matches!(found, FetchError::NotStatus(_)), "{found}");
        let found = error(format!("http://{address}/other")).await;
        assert!(matches!(found, FetchError::Status(_)), "{found}");
        let free = ReservedAddress::new().unwrap();
        let found = error(free.get().to_string()).await;
        assert!(matches!(found, FetchError::Unreachable(_)), "{found}");
    }
}
