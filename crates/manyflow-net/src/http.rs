//! A server of small pages over HTTP or HTTPS. Its limits hold whatever clients do.

mod connections;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::accepting::FailedAccepts;
use crate::inbound::Inbound;
use crate::tls::Identity;
use connections::Connections;

/// Maximum time for a request, which has no body and arrives in one or two packets.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of a connection with its TLS handshake.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a request in bytes. Longer ones are answered with 431.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The media type of text for people.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// An answer of the server.
pub(super) type Page = Response<Full<Bytes>>;
type Answering = Pin<Box<dyn Future<Output = Page> + Send>>;
type Respond = dyn Fn(&Request<Incoming>) -> Answering + Send + Sync;

/// A server of pages, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct HttpServer {
    task: JoinHandle<()>,
}

impl HttpServer {
    /// Starts to answer GET and HEAD requests with the pages of `respond`, by HTTPS if there is an
    /// `identity`.
    pub(super) fn start<F>(
        listener: TcpListener,
        identity: Option<Identity>,
        respond: impl Fn(&Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Page> + Send + 'static,
    {
        let site = Site {
            identity,
            respond: Box::new(move |request| Box::pin(respond(request))),
        };
        Self {
            task: tokio::spawn(accept(listener, Arc::new(site))),
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let (mut connections, mut failed) = (Connections::default(), FailedAccepts::default());
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let serve = serve_connection(stream, Arc::clone(&site));
                connections.spawn(client.ip(), serve).await;
            }
            Err(error) => failed.pause(&error).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, site: Arc<Site>) {
    let connection = async {
        // Otherwise the client has gone.
        let Ok(stream) = Inbound::new(stream) else {
            return;
        };
        match &site.identity {
            None => answer(stream.clone(), &site).await,
            Some(identity) => match identity.acceptor().accept(stream.clone()).await {
                Ok(stream) => answer(stream, &site).await,
                Err(error) => tracing::debug!(%error, "TLS failed"),
            },
        }
        stream.close().await;
    };
    if timeout(CONNECTION_TIMEOUT, connection).await.is_err() {
        tracing::debug!("connection took too long");
    }
}

/// Answers the request on a connection.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, site: &Site) {
    let respond = service_fn(|request| {
        let response = site.respond(&request);
        async { Ok::<_, Infallible>(response.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .half_close(true)
        .max_buf_size(REQUEST_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), respond);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection failed");
    }
}

/// The contents of the server.
struct Site {
    identity: Option<Identity>,
    respond: Box<Respond>,
}

impl Site {
    fn respond(&self, request: &Request<Incoming>) -> Answering {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return (self.respond)(request);
        }
        let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        Box::pin(std::future::ready(response))
    }
}

/// Returns a page with this body.
pub(super) fn page(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Page {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
