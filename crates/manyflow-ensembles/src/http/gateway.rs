//! The gateway: HTTP clients on one side, one Anypoint connection on the other.

mod body;
mod counters;
mod exchange;
mod link;
mod request;
mod upload;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use manyflow_net::reach::Reach;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;

use super::framing::Checked;
use crate::anypoint::{Options, connect};
use counters::Counters;
pub use counters::GatewayCounters;
use link::Link;

/// The first pause before another attempt to connect; each following one is twice as long.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// The time in which a client has to send the head of a request, and in which an idle connection of
/// a client is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// Upper bound for the head of a request, and for the bytes of a response that wait for the client
/// behind its window.
const CLIENT_BYTES_MAX: usize = 72 << 10;
/// Pause after a failed accept, for example when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The parameters of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The address of the switch, or of a member.
    pub switch: SocketAddr,
    /// The parameters of the connection to the switch.
    pub connection: Options,
    /// The time without a sign of life of a request after which its member counts as dead: more
    /// than the 2 s after which a switch gives a member up.
    pub timeout: Duration,
    /// The bytes of a response that the gateway takes from a member before the client takes them.
    pub window: u32,
    /// The maximum number of requests in progress, at most [`PLACES`](super::wire::PLACES); others
    /// are answered with 503.
    pub requests_max: usize,
    /// The maximum number of connections of clients; others wait.
    pub clients_max: usize,
}

impl GatewayOptions {
    /// Returns the default parameters: 3 s, 256 KiB, 1024 requests, 10,000 clients.
    pub fn new(switch: SocketAddr) -> GatewayOptions {
        GatewayOptions {
            switch,
            connection: super::member::short_buffers(),
            timeout: Duration::from_secs(3),
            window: 256 << 10,
            requests_max: 1024,
            clients_max: 10_000,
        }
    }
}

/// The reason why there is no gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The address for clients cannot be used.
    #[error("cannot accept HTTP clients at {0}: {1}; choose another address or port")]
    Listen(SocketAddr, io::Error),
}

/// The state of a gateway at one moment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayStatus {
    /// The counters.
    pub counters: GatewayCounters,
    /// Whether there is a connection to the switch.
    pub is_connected: bool,
    /// Requests in progress.
    pub requests: usize,
    /// Connections of clients.
    pub clients: usize,
}

/// The connection to the switch, or why there is none.
type LinkState = Result<Arc<Link>, String>;

/// The parts of a gateway that its tasks share.
struct Shared {
    options: GatewayOptions,
    counters: Arc<Counters>,
    links: watch::Receiver<LinkState>,
    clients: Arc<Semaphore>,
}

/// A gateway, which ends when it is dropped.
pub struct Gateway {
    shared: Arc<Shared>,
    local_address: SocketAddr,
    drain: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

/// Starts a gateway for HTTP clients at `listen`. It connects to the switch in the background, and
/// connects again when the connection is lost.
///
/// # Errors
/// If the address for clients cannot be used.
pub async fn serve_gateway(
    listen: SocketAddr,
    options: GatewayOptions,
) -> Result<Gateway, GatewayError> {
    let failed = |error| GatewayError::Listen(listen, error);
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let local_address = listener.local_addr().map_err(failed)?;
    let reason = format!(
        "there is no connection to the switch at {} yet",
        options.switch
    );
    let (state, links) = watch::channel(Err(reason));
    let clients = Arc::new(Semaphore::new(options.clients_max));
    let shared = Arc::new(Shared {
        options,
        counters: Arc::default(),
        links,
        clients,
    });
    let (drain, draining) = watch::channel(false);
    Ok(Gateway {
        local_address,
        drain,
        tasks: [
            tokio::spawn(keep_link(Arc::clone(&shared), state)),
            tokio::spawn(accept(listener, Arc::clone(&shared), draining)),
        ],
        shared,
    })
}

impl Gateway {
    /// Returns the address for HTTP clients.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns a function that reads the state of the gateway, even after the gateway has ended.
    pub fn status(&self) -> impl Fn() -> GatewayStatus + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.status()
    }

    /// Waits until the gateway has a connection to the switch.
    pub async fn connected(&self) {
        // The sender lives as long as the gateway.
        let _ = self.shared.links.clone().wait_for(Result::is_ok).await;
    }

    /// Takes no new clients and requests, and waits until those in progress are answered, for at
    /// most `grace`.
    pub async fn drain(&self, grace: Duration) {
        self.drain.send_replace(true);
        let all = self.shared.options.clients_max as u32;
        let answered = self.shared.clients.acquire_many(all);
        if tokio::time::timeout(grace, answered).await.is_err() {
            let seconds = grace.as_secs_f64();
            tracing::warn!("requests in progress were aborted after {seconds} s");
        }
        let link = self.shared.links.borrow().clone();
        let [keep_link, _] = &self.tasks;
        keep_link.abort();
        if let Ok(link) = link {
            let _ = tokio::time::timeout(Duration::from_secs(1), link.close()).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn status(&self) -> GatewayStatus {
        let link = self.links.borrow();
        let free = self.clients.available_permits();
        GatewayStatus {
            counters: self.counters.read(),
            is_connected: link.is_ok(),
            requests: link.as_ref().map_or(0, |link| link.in_progress()),
            clients: self.options.clients_max - free,
        }
    }
}

/// Keeps the connection to the switch open.
async fn keep_link(shared: Arc<Shared>, state: watch::Sender<LinkState>) {
    let Shared { options, .. } = &*shared;
    let mut pause = RETRY_MIN;
    let mut reach = Reach::new(
        format!("the switch at {}", options.switch),
        "does it run at this address, and does a member of it run?",
    );
    loop {
        let connecting = connect(options.switch, options.connection.clone());
        let reason = match reach.during(connecting).await {
            Ok(connection) => {
                let counters = Arc::clone(&shared.counters);
                let (link, queue) = Link::new(connection, options.requests_max, counters);
                tracing::info!("connected to the switch at {}", options.switch);
                drop(state.send_replace(Ok(Arc::clone(&link))));
                pause = RETRY_MIN;
                let reason = link.serve(queue).await;
                shared.counters.connections_lost.add_one();
                reach.down(&reason);
                reason
            }
            Err(error) => error.to_string(),
        };
        tracing::debug!("no connection to the switch: {reason}");
        let reason = format!("there is no connection to the switch: {reason}");
        drop(state.send_replace(Err(reason)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            never = reach.warn_while_down() => match never {},
        }
        pause = (2 * pause).min(RETRY_MAX);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, draining: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = next_client(&listener, &shared.clients) => accepted,
            () = drain_begins(draining.clone()) => return,
        };
        match accepted {
            Ok((stream, client, permit)) => {
                let (shared, draining) = (Arc::clone(&shared), draining.clone());
                tokio::spawn(async move {
                    serve_client(stream, client, shared, draining).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(
                    "cannot accept an HTTP client: {error}; trying again: check the limit of open \
                     files"
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Accepts a connection when fewer than the maximum are open.
async fn next_client(
    listener: &TcpListener,
    clients: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(clients).acquire_owned().await;
    let permit = permit.expect("the semaphore is never closed");
    let (stream, client) = listener.accept().await?;
    Ok((stream, client, permit))
}

async fn drain_begins(mut draining: watch::Receiver<bool>) {
    // An error means that the gateway was dropped, which ends its tasks as well.
    let _ = draining.wait_for(|is_draining| *is_draining).await;
}

/// Answers the requests on a connection of a client.
async fn serve_client(
    stream: TcpStream,
    client: SocketAddr,
    shared: Arc<Shared>,
    draining: watch::Receiver<bool>,
) {
    // Without it, the system may hold back the end of a response. If it fails, responses are late.
    let _ = stream.set_nodelay(true);
    let respond = service_fn(|request| request::answer(&shared, client.ip(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(CLIENT_BYTES_MAX)
        .serve_connection(TokioIo::new(Checked::new(stream)), respond);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = drain_begins(draining) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        if error.is_parse() {
            shared.counters.rejected.add_one();
        }
        tracing::debug!(%error, "the connection of {client} failed");
    }
}
