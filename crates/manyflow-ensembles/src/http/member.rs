//! The member: passes requests to an HTTP server, and streams to TCP servers, that know nothing of
//! Anypoint.

mod answer;
mod body;
mod control;
mod counters;
mod flow;
mod health;
mod peer;
mod stream;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand::rngs::{StdRng, SysRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::wire::HEADERS_MAX;
use crate::anypoint::{self, Options};
use body::RequestBody;
use counters::Counters;
pub use counters::{MEMBER_COUNTERS, MemberCounters};
use health::Health;
use manyflow_net::address::Address;

/// Servers keep idle connections for a minute or longer: nginx for 75 s. A request on a connection
/// that the server is closing fails, so the member closes idle ones first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The time to connect to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the parameters of connections that carry HTTP. Signs of life wait behind the data in the
/// send buffer, so the buffer is short.
pub(super) fn short_buffers() -> Options {
    Options {
        send_buffer: 1 << 20,
        ..Options::default()
    }
}

/// The server behind a member, such as `http://127.0.0.1:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(Authority);

/// The reason why a text is not the URL of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the URL of a server such as http://127.0.0.1:8080, without a path")]
pub struct OriginError(String);

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Origin, OriginError> {
        let error = || OriginError(text.to_owned());
        let parts = text.parse::<Uri>().map_err(|_| error())?.into_parts();
        let path = parts
            .path_and_query
            .as_ref()
            .map_or("/", PathAndQuery::as_str);
        let authority = parts.authority.filter(|a| !a.as_str().contains('@'));
        match (parts.scheme, authority, path) {
            (Some(scheme), Some(authority), "/") if scheme == Scheme::HTTP => Ok(Origin(authority)),
            _ => Err(error()),
        }
    }
}

/// The parameters of a member.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The HTTP server that answers requests. Without it, the member refuses requests.
    pub origin: Option<Origin>,
    /// The TCP servers to which streams may be opened; the first one, unless the stream names
    /// another. Without any, the member refuses streams.
    pub tcp_servers: Vec<Address>,
    /// Whether the TCP servers read the PROXY protocol, version 2: the address of the client comes
    /// before its bytes.
    pub proxy_protocol: bool,
    /// The maximum number of requests and streams in progress; the member refuses others.
    pub requests_max: usize,
    /// The time that the HTTP server has for the beginning of its response, after it has taken the
    /// request, and for each further piece.
    pub answer_timeout: Duration,
    /// The path that the HTTP server is asked for every second: with another status than 2xx or 3xx
    /// twice in a row, gateways prefer other members. `None`: a server counts as down after it has
    /// refused a connection, until it accepts one.
    pub check: Option<PathAndQuery>,
}

impl Default for MemberOptions {
    /// Returns a member without servers, 1024 requests, 60 s for an answer, and no check.
    fn default() -> MemberOptions {
        MemberOptions {
            origin: None,
            tcp_servers: Vec::new(),
            proxy_protocol: false,
            requests_max: 1024,
            answer_timeout: Duration::from_secs(60),
            check: None,
        }
    }
}

impl MemberOptions {
    /// Returns the parameters of a member before an HTTP server, with defaults for all others.
    pub fn new(origin: Origin) -> MemberOptions {
        MemberOptions {
            origin: Some(origin),
            ..MemberOptions::default()
        }
    }

    /// Returns the default parameters of the connections of a member.
    pub fn connection() -> Options {
        short_buffers()
    }
}

/// The parts of a member that its connections share.
struct Shared {
    options: MemberOptions,
    /// The number by which a gateway distinguishes this process from others.
    number: u64,
    client: Client<HttpConnector, RequestBody>,
    health: Health,
    counters: Counters,
    draining: watch::Receiver<bool>,
}

impl Shared {
    fn read_counters(&self) -> MemberCounters {
        let mut counters = self.counters.read();
        counters.is_serving = self.health.is_serving();
        counters
    }
}

/// A member with a server behind it, which ends when this is dropped.
pub struct HttpMember {
    shared: Arc<Shared>,
    drain: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

/// Answers the requests and streams of gateways on all connections of `member`.
pub fn serve_members(member: anypoint::Member, options: MemberOptions) -> HttpMember {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http1_max_headers(HEADERS_MAX)
        .build(connector);
    let mut rng = StdRng::try_from_rng(&mut SysRng).expect("the system has a random generator");
    let (drain, draining) = watch::channel(false);
    let shared = Arc::new(Shared {
        options,
        // 0 stands for any member.
        number: rng.random_range(1..=u64::MAX),
        client,
        health: Health::default(),
        counters: Counters::default(),
        draining,
    });
    let tasks = [
        tokio::spawn(accept(member, Arc::clone(&shared))),
        tokio::spawn(health::watch(Arc::clone(&shared))),
    ];
    HttpMember {
        shared,
        drain,
        tasks,
    }
}

async fn accept(mut member: anypoint::Member, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = member.accept() => match accepted {
                Ok(connection) => {
                    let shared = Arc::clone(&shared);
                    connections.spawn(peer::serve_connection(connection, shared));
                }
                Err(error) => {
                    tracing::warn!("no further connections are accepted: {error}");
                    return;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

impl HttpMember {
    /// Returns a function that reads the counters.
    pub fn counters(&self) -> impl Fn() -> MemberCounters + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.read_counters()
    }

    /// Refuses further requests, and waits until those in progress are answered, for at most
    /// `grace`. Gateways send the refused requests again.
    pub async fn drain(&self, grace: Duration) {
        self.drain.send_replace(true);
        let idle = async {
            while self.shared.counters.in_progress.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // The last response is on its way.
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        if tokio::time::timeout(grace, idle).await.is_err() {
            let seconds = grace.as_secs_f64();
            tracing::warn!("requests in progress were aborted after {seconds} s");
        }
    }
}

impl Drop for HttpMember {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_without_a_path() {
        for good in [
            "http://127.0.0.1:8080",
            "http://[::1]/",
            "http://app.internal",
        ] {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        for bad in [
            "127.0.0.1:8080",
            "https://127.0.0.1",
            "http://host/path",
            "http://user@host",
            "http://host/?q",
            "",
        ] {
            let error = bad.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:8080"), "{error}");
        }
    }
}
