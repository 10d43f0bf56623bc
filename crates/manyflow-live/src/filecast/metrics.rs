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

/// A server of metrics, which ends when it is dropped.
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
        let listener = TcpListener::bind(address).await?;
        let local_address = listener.local_addr()?;
        let respond = move |request: &Request<Incoming>| match request.uri().path() {
            METRICS_PATH => page(StatusCode::OK, METRICS_TYPE, render()),
            _ => page(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("the metrics are at {METRICS_PATH}\n"),
            ),
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
