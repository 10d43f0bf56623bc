//! Serves a session description by HTTP or HTTPS, so that a receiver needs a URL and no file. Both
//! this server and the client in [`load`](mod@crate::filecast::load) use hyper.

mod connections;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::filecast::tls::Identity;
use connections::Connections;

/// The path of the description in its URL.
pub const DESCRIPTION_PATH: &str = "/session.sdp";
/// The media type of SDP (RFC 8866 section 8.1).
pub const DESCRIPTION_TYPE: &str = "application/sdp";

/// Maximum time for a request, which has no body and arrives in one or two packets.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of a connection with its TLS handshake.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a request in bytes. Longer ones are answered with 431.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Pause after a failed accept, for example when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server of one description, which ends when it is dropped.
#[derive(Debug)]
pub struct Publisher {
    local_address: SocketAddr,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Listens on `address` and starts to serve `description`, by HTTPS if there is an `identity`.
    pub async fn serve(
        address: impl ToSocketAddrs,
        description: String,
        identity: Option<Identity>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let local_address = listener.local_addr()?;
        let site = Site {
            local_address,
            description: description.into(),
            identity,
        };
        let task = tokio::spawn(accept(listener, Arc::new(site)));
        Ok(Self {
            local_address,
            task,
        })
    }

    /// Returns the server's address, with the port that the system chose if it was asked for port
    /// 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let serve = serve_connection(stream, Arc::clone(&site));
                connections.spawn(client.ip(), serve).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, site: Arc<Site>) {
    let connection = async {
        match &site.identity {
            None => answer(stream, &site).await,
            Some(identity) => match identity.acceptor().accept(stream).await {
                Ok(stream) => answer(stream, &site).await,
                Err(error) => tracing::debug!(%error, "TLS failed"),
            },
        }
    };
    if timeout(CONNECTION_TIMEOUT, connection).await.is_err() {
        tracing::debug!("connection took too long");
    }
}

/// Answers the request on a connection.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, site: &Site) {
    let respond = service_fn(|request| {
        let response = site.respond(&request);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(REQUEST_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), respond);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection failed");
    }
}

/// The contents of the server.
struct Site {
    local_address: SocketAddr,
    description: Bytes,
    identity: Option<Identity>,
}

impl Site {
    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            DESCRIPTION_PATH => page(StatusCode::OK, DESCRIPTION_TYPE, self.description.clone()),
            "/" => page(StatusCode::OK, TEXT, self.invitation(request)),
            _ => page(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("the session is at {DESCRIPTION_PATH}\n"),
            ),
        }
    }

    /// Returns the start page. It names the server as the client did, since the server's own
    /// address may be the unspecified one.
    fn invitation(&self, request: &Request<Incoming>) -> String {
        let host = request
            .headers()
            .get(HOST)
            .and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let host = host.map_or_else(|| self.local_address.to_string(), |host| host.to_string());
        let scheme = if self.identity.is_some() {
            "https"
        } else {
            "http"
        };
        format!(
            "Receive this session with\n\n    manyflow recv {scheme}://{host}{DESCRIPTION_PATH}\n"
        )
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn page(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
