//! Serves metrics to Prometheus and other programs that read OpenMetrics text, with the limits of
//! the [`publish`](mod@super::publish) server.

use std::io;
use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use tokio::net::{TcpListener, ToSocketAddrs};

use super::http::{HttpServer, TEXT, page};

/// The path of the metrics in their URL.
pub const METRICS_PATH: &str = "/metrics";
/// The media type of OpenMetrics text.
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A page that is rendered for each request.
pub struct Page {
    /// The path in the page's URL.
    pub path: &'static str,
    /// The page's media type.
    pub media_type: &'static str,
    /// Returns the page.
    pub render: Box<dyn Fn() -> String + Send + Sync>,
}

/// A server of metrics and other pages, which ends when it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    local_address: SocketAddr,
    _server: HttpServer,
}

impl MetricsServer {
    /// Listens on `address`, and answers each request with what `render` returns at that moment: a
    /// document in OpenMetrics text.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve(
        address: impl ToSocketAddrs,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let page = Page {
            path: METRICS_PATH,
            media_type: METRICS_TYPE,
            render: Box::new(render),
        };
        Self::serve_pages(address, vec![page]).await
    }

    /// Listens on `address`, and answers each request for one of these pages.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve_pages(address: impl ToSocketAddrs, pages: Vec<Page>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let local_address = listener.local_addr()?;
        let respond = move |request: &Request<Incoming>| {
            let path = request.uri().path();
            match pages.iter().find(|page| page.path == path) {
                Some(found) => page(StatusCode::OK, found.media_type, (found.render)()),
                None => page(
                    StatusCode::NOT_FOUND,
                    TEXT,
                    format!("the metrics are at {METRICS_PATH}\n"),
                ),
            }
        };
        Ok(Self {
            local_address,
            _server: HttpServer::start(listener, None, respond),
        })
    }

    /// Returns the server's address, with the port that the system chose if it was asked for port
    /// 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }
}
