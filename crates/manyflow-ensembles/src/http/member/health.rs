//! Whether the servers behind the member answer.
//!
//! Gateways learn it by probes, and prefer other members while a server is down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::{PathAndQuery, Scheme};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::body::RequestBody;

/// The time between two checks, and the time that each has.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two attempts to connect to a server that has refused a connection.
const CONNECT_INTERVAL: Duration = Duration::from_millis(250);
/// The number of failed checks in a row after which the server counts as down.
const FAILED_CHECKS: u32 = 2;

/// The state of the servers behind a member.
#[derive(Debug)]
pub(super) struct Health {
    is_serving: AtomicBool,
    /// Wakes the task that waits for the server.
    refused: Notify,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            is_serving: AtomicBool::new(true),
            refused: Notify::new(),
        }
    }
}

impl Health {
    pub(super) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// Notes that a server cannot be reached.
    pub(super) fn note_unreachable(&self) {
        self.set(false, "it cannot be reached");
        self.refused.notify_one();
    }

    fn set(&self, is_serving: bool, reason: &str) {
        let before = self.is_serving.swap(is_serving, Ordering::Relaxed);
        match (before, is_serving) {
            (true, false) => tracing::warn!("the server behind this member is down: {reason}"),
            (false, true) => tracing::warn!("the server behind this member is back"),
            _ => {}
        }
    }
}

/// Checks the servers: all the time if there is a path to ask for, and otherwise after one could
/// not be reached.
pub(super) async fn watch(shared: Arc<Shared>) {
    match &shared.options.check {
        Some(path) => check_always(&shared, path).await,
        None => loop {
            shared.health.refused.notified().await;
            while !shared.health.is_serving() {
                sleep(CONNECT_INTERVAL).await;
                let connected = timeout(CHECK_INTERVAL, connect_all(&shared));
                if matches!(connected.await, Ok(Ok(()))) {
                    shared.health.set(true, "");
                }
            }
        },
    }
}

async fn check_always(shared: &Shared, path: &PathAndQuery) {
    let mut failed = 0;
    loop {
        let checked = timeout(CHECK_INTERVAL, ask(shared, path)).await;
        let checked = checked.unwrap_or_else(|_| Err("it did not answer in a second".to_owned()));
        match checked {
            Ok(()) => {
                failed = 0;
                shared.health.set(true, "");
            }
            Err(reason) => {
                failed += 1;
                tracing::debug!("the check of {path} failed: {reason}");
                if failed >= FAILED_CHECKS {
                    shared.health.set(false, &format!("{path}: {reason}"));
                }
            }
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Asks the HTTP server for a path.
async fn ask(shared: &Shared, path: &PathAndQuery) -> Result<(), String> {
    let Some(origin) = &shared.options.origin else {
        return connect_all(shared).await.map_err(|error| error.to_string());
    };
    let mut parts = hyper::http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(origin.0.clone());
    parts.path_and_query = Some(path.clone());
    let uri = Uri::from_parts(parts).map_err(|error| error.to_string())?;
    let mut request = hyper::Request::new(RequestBody::whole(bytes::Bytes::new()));
    *request.uri_mut() = uri;
    let answered = shared.client.request(request).await;
    let status = answered.map_err(|error| error.to_string())?.status();
    match status.is_success() || status.is_redirection() {
        true => Ok(()),
        false => Err(format!("it answered {status}")),
    }
}

/// Connects to each server once.
async fn connect_all(shared: &Shared) -> std::io::Result<()> {
    if let Some(origin) = &shared.options.origin {
        let port = origin.0.port_u16().unwrap_or(80);
        let host = origin
            .0
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        TcpStream::connect((host, port)).await?;
    }
    for server in &shared.options.tcp_servers {
        TcpStream::connect(&server.resolve().await?[..]).await?;
    }
    Ok(())
}
