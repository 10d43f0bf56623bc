//! Serves a session description by HTTP or HTTPS, so that a receiver needs a URL and no file. Both
//! this server and the client in [`load`](mod@crate::filecast::load) use hyper.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode};
use tokio::net::{TcpListener, ToSocketAddrs};

use super::http::{HttpServer, Page, TEXT, page};
use crate::filecast::tls::Identity;

/// The path of the description in its URL.
pub const DESCRIPTION_PATH: &str = "/session.sdp";
/// The media type of SDP (RFC 8866 section 8.1).
pub const DESCRIPTION_TYPE: &str = "application/sdp";

/// A server of one description, which ends when it is dropped.
#[derive(Debug)]
pub struct Publisher {
    local_address: SocketAddr,
    _server: HttpServer,
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
            scheme: if identity.is_some() { "https" } else { "http" },
        };
        let respond = move |request: &Request<Incoming>| site.respond(request);
        Ok(Self {
            local_address,
            _server: HttpServer::start(listener, identity, respond),
        })
    }

    /// Returns the server's address, with the port that the system chose if it was asked for port
    /// 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }
}

/// The contents of the server.
struct Site {
    local_address: SocketAddr,
    description: Bytes,
    scheme: &'static str,
}

impl Site {
    fn respond(&self, request: &Request<Incoming>) -> Page {
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
        let scheme = self.scheme;
        format!(
            "Receive this session with\n\n    manyflow recv {scheme}://{host}{DESCRIPTION_PATH}\n"
        )
    }
}
