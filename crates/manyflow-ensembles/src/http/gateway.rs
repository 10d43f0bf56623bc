//! The gateway: HTTP or TCP clients on one side, one Anypoint connection on the other.

mod attempts;
mod body;
mod counters;
mod exchange;
mod link;
mod request;
mod roster;
mod route;
mod tunnel;
mod upload;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use manyflow_net::accepting::FailedAccepts;
use manyflow_net::inbound::Inbound;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;

use super::framing::Checked;
use super::wire::HEADERS_MAX;
use crate::anypoint::Options;
use crate::anypoint::switch::{InsideSwitch, MemberConfig, ServiceError, StartError, SwitchStatus};
use counters::Counters;
pub use counters::{GATEWAY_COUNTERS, GatewayCounters};
use link::Link;
use route::{Route, routes};
pub use tunnel::TunnelPort;

/// The first pause before another attempt to connect; each following one is twice as long.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// The time in which a client has to send the head of a request, and each further piece of its
/// body. An idle connection of a client is kept as long.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Upper bound for the head of a request, and for the bytes of a response that wait for the client
/// behind its window.
const CLIENT_BYTES_MAX: usize = 72 << 10;

/// The members behind a gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// The addresses of switches before the same members, or of one member. The gateway connects to
    /// all of them, and uses the first that answers.
    Switches(Vec<SocketAddr>),
    /// The members themselves, to which the gateway has a switch of its own.
    Members(Vec<MemberConfig>),
}

/// The parameters of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The members, and how they are reached.
    pub service: Service,
    /// The parameters of the connection to the switch.
    pub connection: Options,
    /// The time without a sign of life of a request after which its member counts as dead: more
    /// than the 2 s after which a switch gives a member up.
    pub timeout: Duration,
    /// The time after which a GET or HEAD without an answer is sent to a second member, while these
    /// are at most a tenth of the requests; `None` if only the silence of its member is a reason.
    pub hedge_after: Option<Duration>,
    /// The server, as HOST:PORT, to which streams go whose clients name none; empty for the first
    /// server of each member.
    pub server: String,
    /// Whether connections of clients begin with a header of the PROXY protocol.
    pub accept_proxy: bool,
    /// The bytes of a response that the gateway takes from a member before the client takes them.
    pub window: u32,
    /// The maximum number of requests in progress, at most [`PLACES`](super::wire::PLACES); others
    /// are answered with 503.
    pub requests_max: usize,
    /// The maximum number of connections of clients; others wait.
    pub clients_max: usize,
}

impl GatewayOptions {
    /// Returns the default parameters: 3 s, second copies after 1 s, no PROXY protocol, 256 KiB,
    /// 1024 requests, 10,000 clients.
    pub fn new(service: Service) -> GatewayOptions {
        GatewayOptions {
            service,
            hedge_after: Some(Duration::from_secs(1)),
            server: String::new(),
            accept_proxy: false,
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
    #[error("cannot accept clients at {0}: {1}; choose another address or port")]
    Listen(SocketAddr, io::Error),
    /// The switch in the gateway cannot start.
    #[error(transparent)]
    Switch(#[from] StartError),
}

/// The state of a gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayStatus {
    /// The counters.
    pub counters: GatewayCounters,
    /// Whether there is a connection to a switch.
    pub is_connected: bool,
    /// Members to which requests go without need: their servers answer.
    pub members: usize,
    /// Requests and streams in progress.
    pub requests: usize,
    /// Connections of clients.
    pub clients: usize,
    /// The switch in the gateway, if it has one.
    pub switch: Option<SwitchStatus>,
}

/// The connection to the switch, or why there is none.
type LinkState = Result<Arc<Link>, String>;

/// The parts of a gateway that its tasks share.
struct Shared {
    options: GatewayOptions,
    counters: Arc<Counters>,
    /// The connection to each switch.
    links: Vec<watch::Receiver<LinkState>>,
    /// The switch in the gateway.
    switch: Option<Arc<InsideSwitch>>,
    clients: Arc<Semaphore>,
}

/// The clients of a gateway.
#[derive(Copy, Clone)]
enum Clients {
    Http,
    Tcp(TunnelPort),
}

/// A gateway, which ends when it is dropped.
pub struct Gateway {
    shared: Arc<Shared>,
    local_address: SocketAddr,
    drain: watch::Sender<bool>,
    links: Vec<JoinHandle<()>>,
    accept: JoinHandle<()>,
}

/// Starts a gateway for HTTP clients at `listen`. It connects to the switches in the background,
/// and connects again when a connection is lost.
///
/// # Errors
/// If the address for clients cannot be used.
pub async fn serve_gateway(
    listen: SocketAddr,
    options: GatewayOptions,
) -> Result<Gateway, GatewayError> {
    start(listen, options, Clients::Http).await
}

/// Starts a gateway for TCP clients at `listen`, whose streams members pass to TCP servers.
///
/// # Errors
/// If the address for clients cannot be used.
pub async fn serve_tunnel(
    listen: SocketAddr,
    options: GatewayOptions,
    port: TunnelPort,
) -> Result<Gateway, GatewayError> {
    start(listen, options, Clients::Tcp(port)).await
}

async fn start(
    listen: SocketAddr,
    options: GatewayOptions,
    kind: Clients,
) -> Result<Gateway, GatewayError> {
    let failed = |error| GatewayError::Listen(listen, error);
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let local_address = listener.local_addr().map_err(failed)?;
    let routes = routes(&options)?;
    let (states, links): (Vec<_>, Vec<_>) = routes
        .iter()
        .map(|route| watch::channel(Err(format!("there is no connection to {route} yet"))))
        .unzip();
    let clients = Arc::new(Semaphore::new(options.clients_max));
    let shared = Arc::new(Shared {
        options,
        counters: Arc::default(),
        links,
        switch: routes.iter().find_map(Route::inside),
        clients,
    });
    let (drain, draining) = watch::channel(false);
    let keep = |(route, state)| tokio::spawn(keep_link(Arc::clone(&shared), route, state));
    Ok(Gateway {
        local_address,
        drain,
        links: routes.into_iter().zip(states).map(keep).collect(),
        accept: tokio::spawn(accept(listener, Arc::clone(&shared), draining, kind)),
        shared,
    })
}

impl Gateway {
    /// Returns the status of the switch in the gateway, if it has one.
    pub fn switch(&self) -> Option<watch::Receiver<SwitchStatus>> {
        let switch = self.shared.switch.as_ref();
        switch.map(|switch| switch.status())
    }

    /// Replaces the members of a gateway that has a switch. Former members finish their requests.
    ///
    /// # Errors
    /// If they cannot be used, or the gateway was started with other switches.
    pub fn set_members(&self, members: Vec<MemberConfig>) -> Result<(), ServiceError> {
        let switch = self.shared.switch.as_ref().ok_or(ServiceError::Role)?;
        switch.set_members(members)
    }

    /// Returns the address for clients.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns a function that reads the state of the gateway, even after the gateway has ended.
    pub fn status(&self) -> impl Fn() -> GatewayStatus + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.status()
    }

    /// Waits until the gateway has a connection to a switch.
    pub async fn connected(&self) {
        self.shared.connected().await;
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
        self.links.iter().for_each(JoinHandle::abort);
        for link in self.shared.links.iter().filter_map(connection_of) {
            let _ = tokio::time::timeout(Duration::from_secs(1), link.close()).await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.links.iter().for_each(JoinHandle::abort);
        self.accept.abort();
    }
}

/// Returns the connection to a switch, if there is one.
fn connection_of(state: &watch::Receiver<LinkState>) -> Option<Arc<Link>> {
    state.borrow().as_ref().ok().map(Arc::clone)
}

impl Shared {
    fn status(&self) -> GatewayStatus {
        let links: Vec<_> = self.links.iter().filter_map(connection_of).collect();
        let free = self.clients.available_permits();
        GatewayStatus {
            counters: self.counters.read(),
            is_connected: !links.is_empty(),
            members: self.link().map_or(0, |link| link.ready_members()),
            requests: links.iter().map(|link| link.in_progress()).sum(),
            clients: self.options.clients_max - free,
            switch: self
                .switch
                .as_ref()
                .map(|switch| switch.status().borrow().clone()),
        }
    }

    /// Returns the connection to the first switch that answers, or else to the first.
    ///
    /// # Errors
    /// If there is no connection: the reason.
    fn link(&self) -> Result<Arc<Link>, String> {
        let mut connected = self.links.iter().filter_map(connection_of);
        let answering = connected.find(|link| link.is_answering());
        let first = || self.links.iter().find_map(connection_of);
        answering.or_else(first).ok_or_else(|| self.unreached())
    }

    /// Says why there is no connection.
    fn unreached(&self) -> String {
        let Some(switch) = &self.switch else {
            let first = self.links.first();
            let reason = first.and_then(|state| state.borrow().clone().err());
            return reason.unwrap_or_else(|| "the gateway has no switch".to_owned());
        };
        format!("there is no connection to a member: {}", switch.unreached())
    }

    /// Waits until there is a connection that is in use.
    async fn connected(&self) {
        let in_use = |state: &LinkState| state.as_ref().is_ok_and(|link| !link.is_lost());
        let mut waiting = tokio::task::JoinSet::new();
        for state in &self.links {
            let mut state = state.clone();
            // The sender lives as long as the gateway.
            waiting.spawn(async move { state.wait_for(in_use).await.is_ok() });
        }
        waiting.join_next().await;
    }

    /// Returns the longest time between two signs of life of a request, in milliseconds.
    fn alive_ms(&self) -> u32 {
        (self.options.timeout.as_millis() as u32 / 3).max(1)
    }
}

/// Keeps the connection to a switch open.
async fn keep_link(shared: Arc<Shared>, route: Route, state: watch::Sender<LinkState>) {
    let Shared { options, .. } = &*shared;
    let mut pause = RETRY_MIN;
    let mut reach = route.reach();
    loop {
        let connecting = route.connect(&options.connection);
        let reason = match reach.during(connecting).await {
            Ok(connection) => {
                let counters = Arc::clone(&shared.counters);
                let (link, queue) = Link::new(connection, options, counters);
                tracing::info!("connected to {route}");
                drop(state.send_replace(Ok(Arc::clone(&link))));
                pause = RETRY_MIN;
                let reason = link.serve(queue).await;
                shared.counters.connections_lost.add_one();
                reach.down(&reason);
                reason
            }
            Err(error) => error.to_string(),
        };
        tracing::debug!("no connection to {route}: {reason}");
        let reason = format!("there is no connection to {route}: {reason}");
        drop(state.send_replace(Err(reason)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            never = reach.warn_while_down() => match never {},
        }
        pause = (2 * pause).min(RETRY_MAX);
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    draining: watch::Receiver<bool>,
    kind: Clients,
) {
    let mut failed = FailedAccepts::default();
    loop {
        let accepted = tokio::select! {
            accepted = next_client(&listener, &shared.clients) => accepted,
            () = drain_begins(draining.clone()) => return,
        };
        match accepted {
            Ok((stream, client, permit)) => {
                let (shared, draining) = (Arc::clone(&shared), draining.clone());
                // Otherwise the client has gone.
                let Ok(stream) = Inbound::new(stream) else {
                    continue;
                };
                tokio::spawn(async move {
                    match kind {
                        Clients::Http => serve_client(stream, client, shared, draining).await,
                        Clients::Tcp(port) => {
                            tunnel::serve_client(stream, client, &shared, port).await;
                        }
                    }
                    drop(permit);
                });
            }
            Err(error) => failed.pause(&error).await,
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
    stream: Inbound,
    client: SocketAddr,
    shared: Arc<Shared>,
    draining: watch::Receiver<bool>,
) {
    let serve = answer_requests(stream.clone(), client, &shared, draining.clone());
    tokio::select! {
        () = serve => {}
        () = stream.reset() => return tracing::debug!("{client} has reset its connection"),
    }
    tokio::select! {
        () = stream.close() => {}
        () = drain_begins(draining) => {}
    }
}

async fn answer_requests(
    stream: Inbound,
    client: SocketAddr,
    shared: &Arc<Shared>,
    draining: watch::Receiver<bool>,
) {
    let respond = service_fn(|request| request::answer(shared, client.ip(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT)
        .half_close(true)
        .max_buf_size(CLIENT_BYTES_MAX)
        .max_headers(HEADERS_MAX)
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
