//! Refuses requests that do not come from the lab's own page.
//!
//! Any page in a browser can send requests to this machine. A request is answered only if its path
//! begins with the token, which other pages do not know. A page under a name that resolves to this
//! machine (DNS rebinding) sends that name as `Host`, and other pages send theirs as `Origin`.

use std::net::SocketAddr;

use hyper::Request;
use hyper::header::{HOST, ORIGIN};
use rand::RngExt as _;

/// The length of the token in bytes.
const TOKEN_BYTES: usize = 20;

/// The token and names of the server.
pub(super) struct Guard {
    token: String,
    /// The values of `Host` that name this server.
    hosts: [String; 2],
}

impl Guard {
    /// Makes a random token for the server at this address.
    pub(super) fn new(address: SocketAddr) -> Guard {
        let bytes: [u8; TOKEN_BYTES] = rand::rng().random();
        Guard {
            token: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            hosts: [address.to_string(), format!("localhost:{}", address.port())],
        }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the path behind the token, without its first slash; `None` if the request has to be
    /// refused.
    pub(super) fn admit<'r, B>(&self, request: &'r Request<B>) -> Option<&'r str> {
        let header = |name| request.headers().get(name).map(|value| value.as_bytes());
        let is_own = |host: &[u8]| self.hosts.iter().any(|own| own.as_bytes() == host);
        let host = header(HOST).is_some_and(is_own);
        let origin = header(ORIGIN).is_none_or(|origin| {
            let host = origin.strip_prefix(b"http://");
            host.is_some_and(is_own)
        });
        let path = request.uri().path().strip_prefix('/')?;
        let (token, path) = path.split_once('/')?;
        (host && origin && is_same(token, &self.token)).then_some(path)
    }
}

/// Compares in a time that does not depend on the place of a difference.
fn is_same(given: &str, token: &str) -> bool {
    let pairs = given.bytes().zip(token.bytes());
    let difference = pairs.fold(0, |difference, (a, b)| difference | (a ^ b));
    given.len() == token.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn only_the_own_page_with_the_token_is_admitted() {
        let guard = Guard::new("127.0.0.1:8000".parse().unwrap());
        let path = format!("/{}/runs/1", guard.token());
        let own = ("host", "127.0.0.1:8000");
        let admitted = request(&path, &[own]);
        assert_eq!(guard.admit(&admitted), Some("runs/1"));
        let admitted = request(
            &path,
            &[
                ("host", "localhost:8000"),
                ("origin", "http://localhost:8000"),
            ],
        );
        assert_eq!(guard.admit(&admitted), Some("runs/1"));
        let other = Guard::new("127.0.0.1:8000".parse().unwrap());
        for refused in [
            request(&path, &[]),
            request(&path, &[("host", "rebound.example:8000")]),
            request(&path, &[("host", "127.0.0.1:8001")]),
            request(&path, &[own, ("origin", "http://other.example")]),
            request(&path, &[own, ("origin", "null")]),
            request("/", &[own]),
            request("/runs/1", &[own]),
            request(&format!("/{}", guard.token()), &[own]),
            request(&format!("/{}/runs/1", other.token()), &[own]),
            request(&path[..path.len() - 9], &[own]),
        ] {
            assert_eq!(guard.admit(&refused), None, "{refused:?}");
        }
    }
}
