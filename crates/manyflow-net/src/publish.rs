//! Serves session descriptions by HTTP or HTTPS, so that a receiver needs a URL and no file. Both
//! this server and the client in [`load`](mod@crate::description::load) use hyper.

use std::collections::BTreeMap;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode};
use nix::net::if_::if_indextoname;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, ToSocketAddrs};

use super::http::{HttpServer, Page, TEXT, page};
use crate::address::{Address, Host};
use crate::interfaces::reachable_addresses;
use crate::tls::Identity;

/// The path of the description in the URL of a server of one session.
pub const DESCRIPTION_PATH: &str = "/session.sdp";
/// The path of the catalogue of a server: its descriptions, for receivers that follow them.
pub const CATALOGUE_PATH: &str = "/catalogue.json";
/// The media type of SDP (RFC 8866 section 8.1).
pub const DESCRIPTION_TYPE: &str = "application/sdp";
/// The media type of the catalogue.
const JSON: &str = "application/json";

/// A server of session descriptions, which ends when it is dropped.
#[derive(Debug)]
pub struct Publisher {
    local_address: SocketAddr,
    scheme: &'static str,
    _server: HttpServer,
}

impl Publisher {
    /// Listens on `address` and starts to serve `descriptions`, each at its path, by HTTPS if there
    /// is an `identity`. The page `/` lists them for people, and [`CATALOGUE_PATH`] for receivers
    /// that follow them. A path starts with `/`, as [`DESCRIPTION_PATH`]
    /// does, and has only characters that a URL takes as they are.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve(
        address: impl ToSocketAddrs,
        descriptions: BTreeMap<String, String>,
        identity: Option<Identity>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let local_address = listener.local_addr()?;
        let scheme = if identity.is_some() { "https" } else { "http" };
        let catalogue = catalogue(&descriptions).into();
        let descriptions = descriptions.into_iter();
        let site = Site {
            local_address,
            catalogue,
            descriptions: descriptions
                .map(|(path, text)| (path, text.into()))
                .collect(),
            scheme,
        };
        let respond = move |request: &Request<Incoming>| ready(site.respond(request));
        Ok(Self {
            local_address,
            scheme,
            _server: HttpServer::start(listener, identity, respond),
        })
    }

    /// Returns the server's address, with the port that the system chose if it was asked for port
    /// 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns the URL of a path on this server for clients that reach the server's host at `host`.
    /// Only a server on the unspecified address needs `host`: nobody can connect to that address.
    pub fn url(&self, host: IpAddr, path: &str) -> String {
        let address = match self.local_address {
            any if any.ip().is_unspecified() => SocketAddr::new(host, any.port()).to_string(),
            SocketAddr::V6(local) if local.scope_id() != 0 => zoned(local),
            local => local.to_string(),
        };
        format!("{}://{address}{path}", self.scheme)
    }

    /// Returns the URLs of a path on this server. There is one, as [`url`](Self::url) returns it,
    /// unless the server is on the unspecified address and no route has given a `host` other than
    /// a loopback address: then each address of this machine may be the one that clients reach.
    pub fn urls(&self, host: IpAddr, path: &str) -> Vec<String> {
        let any = self.local_address.ip();
        let hosts = match any.is_unspecified() && host.is_loopback() {
            true => reachable_addresses(any),
            false => Vec::new(),
        };
        let urls = hosts.iter().map(|host| self.url(*host, path));
        let urls: Vec<_> = urls.collect();
        match urls.is_empty() {
            true => vec![self.url(host, path)],
            false => urls,
        }
    }
}

/// Returns a link-local address with the name of this machine's interface. A client writes the name
/// of its own interface.
fn zoned(local: SocketAddrV6) -> String {
    let name = if_indextoname(local.scope_id()).ok();
    let name = name.and_then(|name| name.into_string().ok());
    let zone = name.unwrap_or_else(|| local.scope_id().to_string());
    Address::new(Host::Zoned(*local.ip(), zone), local.port()).to_string()
}

/// Returns the catalogue of descriptions: their paths, and their digests, so that receivers fetch
/// only descriptions that are new to them. JSON takes the paths as they are.
fn catalogue(descriptions: &BTreeMap<String, String>) -> String {
    let sessions = descriptions.iter().map(|(path, text)| {
        let digest = Sha256::digest(text);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(r#"{{"url": "{path}", "sha256": "{digest}"}}"#)
    });
    let sessions: Vec<_> = sessions.collect();
    format!("{{\"sessions\": [\n{}\n]}}\n", sessions.join(",\n"))
}

/// The contents of the server.
struct Site {
    local_address: SocketAddr,
    /// The descriptions by their paths.
    descriptions: BTreeMap<String, Bytes>,
    catalogue: Bytes,
    scheme: &'static str,
}

impl Site {
    fn respond(&self, request: &Request<Incoming>) -> Page {
        let path = request.uri().path();
        if let Some(description) = self.descriptions.get(path) {
            return page(StatusCode::OK, DESCRIPTION_TYPE, description.clone());
        }
        match path {
            "/" => page(StatusCode::OK, TEXT, self.invitation(request)),
            CATALOGUE_PATH => page(StatusCode::OK, JSON, self.catalogue.clone()),
            _ => page(
                StatusCode::NOT_FOUND,
                TEXT,
                "no session is here: / lists the sessions\n",
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
        let mut text = match self.descriptions.len() {
            1 => "Receive this session with\n\n".to_owned(),
            _ => "Receive one of these sessions with\n\n".to_owned(),
        };
        for path in self.descriptions.keys() {
            text += &format!("    manyflow recv {scheme}://{host}{path}\n");
        }
        text
    }
}
