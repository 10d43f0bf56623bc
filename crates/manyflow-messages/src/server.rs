//! The thread of a daemon: its listeners, links and timer.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use manyflow_core::ConfigError;
use manyflow_net::accepting::FailedAccepts;
use manyflow_net::address::{Address, listen_advice};
use manyflow_net::background::Background;
use manyflow_net::clock::Clock;
use manyflow_net::unix_socket;
use manyflow_overlay::controller::{Controller, Open};
use manyflow_overlay::tfrc::Tfrc;
use manyflow_overlay::{Daemon, DaemonId};
use socket2::Socket;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{interval, sleep};

use super::accept::{Arrivals, NatsPort, accept_clients, retry};
use super::client::CLIENT_PORT;
use super::client_stream::{ClientListener, ClientSocket};
use super::config::{ControllerConfig, DaemonConfig};
use super::core::{DaemonCore, Phase};
use super::datagram::Datagrams;
use super::handshakes::Handshakes;
use super::hello::Hello;
use super::incarnation::{check_clock, incarnation};
use super::link::Links;
use super::monitor::{Facts, Monitor, Question, Watched, answer_questions};
use super::nats::serve::{ClientLimits, Front};
use super::security::IdentityError;
use super::signatures::{StateNotary, signing};
use super::spread::serve::SpreadFront;
use super::status::DaemonStatus;
use super::stopping::{close, retire};

/// The time between two reports of a daemon's status.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Ports that are tried for a daemon that listens at any port and needs it for TCP and UDP.
const PORTS_TRIED_MAX: usize = 100;
/// The time within which a client must complete the handshakes of TLS and WebSocket.
pub(super) const TLS_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which changes of daemons' addresses are gathered before clients get them.
const ADDRESSES_PAUSE: Duration = Duration::from_millis(100);

/// The reason why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// An address cannot be used.
    #[error("cannot listen on {address} ({key}): {cause}{}", listen_advice(.cause))]
    Address {
        /// The key of the address: `listen` or `clients`.
        key: &'static str,
        /// The address.
        address: String,
        /// The cause.
        cause: io::Error,
    },
    /// A parameter is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificate cannot sign for this daemon.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The runtime or thread cannot start.
    #[error("the daemon's thread cannot start: {0}")]
    Thread(io::Error),
}

/// The port of daemons for other daemons, if the address of a link has none.
pub const DAEMON_PORT: u16 = 4747;

/// The port of daemons for clients over WebSocket in examples: NATS has none of its own for them.
pub const CLIENT_WS_PORT: u16 = 8080;

/// The port of Spread's daemons for clients.
pub const CLIENT_SPREAD_PORT: u16 = 4803;

/// The addresses at which a daemon listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// For other daemons.
    pub daemons: Option<SocketAddr>,
    /// For clients.
    pub clients: Option<SocketAddr>,
    /// For clients over WebSocket.
    pub clients_ws: Option<SocketAddr>,
    /// For clients that speak Spread's protocol.
    pub clients_spread: Option<SocketAddr>,
    /// The path of the Unix socket for clients, instead of `clients`.
    pub client_socket: Option<PathBuf>,
    /// The path of the Unix socket for clients that speak Spread's protocol.
    pub spread_socket: Option<PathBuf>,
}

/// A running daemon. It stops when this is dropped.
#[derive(Debug)]
pub struct DaemonHandle {
    addresses: Addresses,
    status: watch::Receiver<DaemonStatus>,
    monitor: Monitor,
    stop: Option<oneshot::Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl DaemonHandle {
    /// Returns the addresses at which the daemon listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    /// Returns the daemon's status, which changes twice a second.
    pub fn status(&self) -> watch::Receiver<DaemonStatus> {
        self.status.clone()
    }

    /// Returns the pages by which programs that watch nats-server watch the daemon.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Stops the daemon and waits until its thread has ended. Messages that have not left may be
    /// lost.
    pub async fn stop(mut self) {
        self.stop.take();
        self.join().await;
    }

    /// Stops the daemon as operators want it, and waits until its thread has ended.
    ///
    /// The daemon refuses new clients, and sends those that are connected an INFO with
    /// `"ldm": true`, so that they connect elsewhere. After `grace`, or when all of them have left,
    /// it ignores further operations of clients. It then waits, for at most 3 s, until all messages
    /// that it has accepted have been delivered, and closes all connections.
    pub async fn stop_after(mut self, grace: Duration) {
        if let Some(stop) = self.stop.take() {
            // If the thread has ended, there is nothing to stop.
            let _ = stop.send(grace);
        }
        self.join().await;
    }

    async fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let joined = tokio::task::spawn_blocking(|| thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the daemon's thread panicked");
            }
        }
    }
}

/// Starts a daemon on a thread of its own.
///
/// # Errors
/// Returns an error if an address cannot be used or a parameter is outside its range.
pub async fn start(config: DaemonConfig) -> Result<DaemonHandle, DaemonError> {
    config.check()?;
    let (overlay_name, id) = (&config.overlay_name, config.number());
    let notary = config.security.notary(overlay_name, &config.name, id)?;
    let (daemons, datagrams) = listen_for_daemons(&config).await?;
    let clients = listen_for_clients("clients", config.clients.as_deref(), CLIENT_PORT).await?;
    let at = config.clients_spread.as_deref();
    let spread = listen_for_clients("clients-spread", at, CLIENT_SPREAD_PORT).await?;
    let clients_ws = listen("clients-ws", config.clients_ws.as_deref(), CLIENT_WS_PORT).await?;
    let addresses = Addresses {
        daemons: daemons.as_ref().map(|listener| listener.1),
        clients: clients.as_ref().and_then(ClientSocket::address),
        clients_ws: clients_ws.as_ref().map(|listener| listener.1),
        clients_spread: spread.as_ref().and_then(ClientSocket::address),
        client_socket: clients.as_ref().and_then(ClientSocket::path),
        spread_socket: spread.as_ref().and_then(ClientSocket::path),
    };
    let sockets = Sockets {
        daemons,
        datagrams,
        clients,
        clients_ws: clients_ws.map(|(listener, local)| ClientSocket::Tcp(listener, local)),
        spread,
    };
    let (stop, stopped) = oneshot::channel();
    let (sender, status) = watch::channel(DaemonStatus::default());
    let (monitor, asked) = Monitor::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = Background::new(runtime.map_err(DaemonError::Thread)?);
    let (ready, is_ready) = oneshot::channel();
    let thread = std::thread::Builder::new().name(format!("daemon {}", config.name));
    let thread = thread.spawn(move || {
        let run = async {
            match Server::new(config, sockets, notary) {
                Ok(server) => {
                    let _ = ready.send(Ok(()));
                    server.run(stopped, sender, asked).await;
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        LocalSet::new().block_on(runtime.runtime(), run);
    });
    let thread = thread.map_err(DaemonError::Thread)?;
    if let Ok(result) = is_ready.await {
        result?;
    }
    Ok(DaemonHandle {
        addresses,
        status,
        monitor,
        stop: Some(stop),
        thread: Some(thread),
    })
}

/// A listener that another runtime can take, and its address.
type Listener = (std::net::TcpListener, SocketAddr);

/// The sockets of a daemon that starts.
struct Sockets {
    daemons: Option<Listener>,
    /// Is there if the controller needs links of datagrams.
    datagrams: Option<Socket>,
    clients: Option<ClientSocket>,
    clients_ws: Option<ClientSocket>,
    spread: Option<ClientSocket>,
}

impl Sockets {
    /// Returns the addresses that clients of other daemons get: over TCP, and over WebSocket.
    fn advertised(&self, config: &DaemonConfig) -> [Vec<String>; 2] {
        [
            (&self.clients, &config.advertise),
            (&self.clients_ws, &config.advertise_ws),
        ]
        .map(|(socket, given)| {
            let at = socket.as_ref().and_then(ClientSocket::address);
            at.map_or(Vec::new(), |at| DaemonConfig::advertised(at, given))
        })
    }
}

/// Listens for clients on a Unix socket, or on TCP.
async fn listen_for_clients(
    key: &'static str,
    address: Option<&str>,
    port: u16,
) -> Result<Option<ClientSocket>, DaemonError> {
    let Some((text, path)) = address.and_then(|text| Some((text, unix_socket::path_of(text)?)))
    else {
        let tcp = listen(key, address, port).await?;
        return Ok(tcp.map(|(listener, local)| ClientSocket::Tcp(listener, local)));
    };
    let opened = path.map_err(io::Error::from).and_then(unix_socket::listen);
    let opened = opened.map_err(|cause| DaemonError::Address {
        key,
        address: text.to_owned(),
        cause,
    });
    opened.map(|(listener, file)| Some(ClientSocket::Unix(listener, file)))
}

/// Opens the listener for daemons and the socket of links, which has the same port: other daemons
/// know only one. Without a listener, it has any port.
async fn listen_for_daemons(
    config: &DaemonConfig,
) -> Result<(Option<Listener>, Option<Socket>), DaemonError> {
    let is_any_port = config.listen.as_ref().is_some_and(|at| at.ends_with(":0"));
    // They keep their ports, so that the system chooses another one each time.
    let mut others = Vec::new();
    loop {
        let listener = listen("listen", config.listen.as_deref(), DAEMON_PORT).await?;
        if !config.controller.needs_datagrams() {
            return Ok((listener, None));
        }
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let address = listener.as_ref().map_or(any, |(_, local)| *local);
        match Datagrams::bind(address) {
            Ok(socket) => return Ok((listener, Some(socket))),
            // The system chose a port of TCP whose number a UDP socket has.
            Err(cause)
                if cause.kind() == io::ErrorKind::AddrInUse
                    && is_any_port
                    && others.len() < PORTS_TRIED_MAX =>
            {
                others.push(listener);
            }
            Err(cause) => {
                let address = format!("{address} (UDP)");
                return Err(DaemonError::Address {
                    key: "listen",
                    address,
                    cause,
                });
            }
        }
    }
}

/// Listens on `address`. `port` is that of the examples if the text is no address.
async fn listen(
    key: &'static str,
    address: Option<&str>,
    port: u16,
) -> Result<Option<Listener>, DaemonError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let open = async {
        let resolved = Address::parse_listen(address, port)?;
        let listener = TcpListener::bind(resolved).await?;
        let local = listener.local_addr()?;
        Ok((listener.into_std()?, local))
    };
    let opened = open.await.map_err(|cause| DaemonError::Address {
        key,
        address: address.to_owned(),
        cause,
    });
    opened.map(Some)
}

/// Returns the listener of this runtime.
fn client_listener(socket: Option<ClientSocket>) -> Result<Option<ClientListener>, DaemonError> {
    let listener = socket.map(ClientSocket::listener).transpose();
    listener.map_err(DaemonError::Thread)
}

/// The parts of a running daemon.
struct Server {
    core: Rc<RefCell<DaemonCore>>,
    links: Rc<Links>,
    front: Option<Rc<Front>>,
    daemons: Option<TcpListener>,
    clients: Option<ClientListener>,
    clients_ws: Option<ClientListener>,
    spread: Option<(ClientListener, Rc<SpreadFront>)>,
    facts: Facts,
    hold: Duration,
    controller: ControllerConfig,
}

impl Server {
    fn new(
        mut config: DaemonConfig,
        sockets: Sockets,
        notary: Option<StateNotary>,
    ) -> Result<Server, DaemonError> {
        let id = config.number();
        let clock = Clock::start();
        let incarnation = incarnation();
        check_clock(&mut config, incarnation);
        let controller = controller(&config.controller, id, incarnation)?;
        let limits = ClientLimits::of(&config);
        let advertised = sockets.advertised(&config);
        let clients = client_listener(sockets.clients)?;
        let clients_ws = client_listener(sockets.clients_ws)?;
        let hello = hello(&config, id, incarnation);
        let facts = Facts::of(&config, incarnation);
        let group_bytes_max = config.overlay.share_bytes();
        let daemon = Daemon::new(config.overlay, controller, id, incarnation)?;
        let daemon = signing(daemon, notary);
        let datagrams = sockets.datagrams.map(Datagrams::new);
        let datagrams = datagrams.transpose().map_err(DaemonError::Thread)?;
        let core = DaemonCore::new(daemon, hello, clock, group_bytes_max);
        let core = Rc::new(RefCell::new(core));
        let links = Rc::new(Links {
            core: Rc::clone(&core),
            security: config.security,
            configured: config.links,
            accepts: config.accepts,
            datagrams: datagrams.clone(),
            handshakes: Handshakes::default(),
        });
        let clients_at = clients.as_ref().or(clients_ws.as_ref());
        let arrivals = Rc::new(Arrivals::new(facts.connections_max));
        let spread = client_listener(sockets.spread)?.map(|listener| {
            let (core, arrivals) = (Rc::clone(&core), Rc::clone(&arrivals));
            let front = SpreadFront::new(core, arrivals, &config.name, limits.payload_bytes_max);
            (listener, Rc::new(front))
        });
        let front = clients_at.map(|at| {
            Rc::new(Front {
                advertised,
                core: Rc::clone(&core),
                access: config.access,
                limits,
                server_id: facts.server_id.clone(),
                name: config.name,
                local: at.host_and_port(),
                origins: config.origins,
                tls: config.client_tls,
                greeting_bytes: Cell::new(0),
                arrivals: Rc::clone(&arrivals),
                is_retiring: Cell::new(false),
            })
        });
        let daemons = sockets
            .daemons
            .map(|(daemons, _)| TcpListener::from_std(daemons));
        Ok(Server {
            core,
            links,
            front,
            daemons: daemons.transpose().map_err(DaemonError::Thread)?,
            clients,
            clients_ws,
            spread,
            facts,
            hold: config.hold,
            controller: config.controller,
        })
    }

    async fn run(
        self,
        stopped: oneshot::Receiver<Duration>,
        status: watch::Sender<DaemonStatus>,
        asked: mpsc::Receiver<Question>,
    ) {
        spawn_local(run_timer(Rc::clone(&self.core)));
        if let Some(socket) = self.links.datagrams.clone() {
            let core = Rc::clone(&self.core);
            spawn_local(async move { socket.receive(&core).await });
        }
        for place in 0..self.links.configured.len() {
            let links = Rc::clone(&self.links);
            spawn_local(async move { links.dial(&links.configured[place]).await });
        }
        if let Some(listener) = self.daemons {
            spawn_local(accept_daemons(listener, Rc::clone(&self.links)));
        }
        let mut accepting = Vec::new();
        for (listener, is_websocket) in [(self.clients, false), (self.clients_ws, true)] {
            if let (Some(listener), Some(front)) = (listener, self.front.clone()) {
                let port = NatsPort {
                    front,
                    is_websocket,
                };
                accepting.push(accept_clients(listener, Rc::new(port)));
            }
        }
        if let Some((listener, front)) = self.spread {
            accepting.push(accept_clients(listener, front));
        }
        if let Some(front) = &self.front {
            spawn_local(announce_addresses(Rc::clone(front)));
        }
        let watched = Watched {
            core: Rc::clone(&self.core),
            front: self.front.clone(),
            facts: self.facts,
        };
        spawn_local(answer_questions(watched, asked));
        let core = Rc::clone(&self.core);
        let links = Rc::clone(&self.links);
        let report = report(core, self.hold, self.controller, links, status);
        spawn_local(report);
        // Without a grace, the handle was dropped or wants an end at once.
        if let Ok(grace) = stopped.await {
            for accepting in accepting {
                accepting.abort();
            }
            retire(&self.core, self.front.as_deref(), grace).await;
        }
        close(&self.core).await;
    }
}

/// Announces the addresses of this daemon for clients to other daemons, and those of all daemons to
/// the clients, whenever they change.
async fn announce_addresses(front: Rc<Front>) {
    let core = &front.core;
    core.borrow_mut().announce_addresses(&front.advertised);
    let changed = Rc::clone(&core.borrow().addresses_changed);
    loop {
        changed.notified().await;
        // A daemon often comes or goes with others.
        sleep(ADDRESSES_PAUSE).await;
        let core = core.borrow();
        if core.phase() == Phase::Serves {
            core.send_info(|peer| front.info(peer));
        }
    }
}

fn hello(config: &DaemonConfig, id: DaemonId, incarnation: u32) -> Hello {
    Hello {
        overlay: config.overlay_name.clone(),
        name: config.name.clone(),
        id,
        incarnation,
        dials: false,
        datagrams: config.controller.needs_datagrams(),
    }
}

fn controller(
    config: &ControllerConfig,
    here: DaemonId,
    incarnation: u32,
) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(match config {
        ControllerConfig::Open => Box::new(Open),
        ControllerConfig::CostBenefit(law, benefits) => {
            law.controller(here, u64::from(incarnation), benefits.clone())?
        }
        ControllerConfig::Tfrc(config) => Box::new(Tfrc::new(config.clone(), here)?),
    })
}

async fn run_timer(core: Rc<RefCell<DaemonCore>>) {
    loop {
        let (due, clock, timer) = {
            let core = core.borrow();
            (core.armed(), core.clock, Rc::clone(&core.timer))
        };
        tokio::select! {
            () = clock.sleep_until(due) => core.borrow_mut().handle_timeout(),
            () = timer.notified() => {}
        }
    }
}

async fn report(
    core: Rc<RefCell<DaemonCore>>,
    hold: Duration,
    controller: ControllerConfig,
    links: Rc<Links>,
    status: watch::Sender<DaemonStatus>,
) {
    let mut tick = interval(STATUS_INTERVAL);
    loop {
        tick.tick().await;
        let mut core = core.borrow_mut();
        core.forget_neighbours(hold);
        if let Some(socket) = &links.datagrams {
            core.counters.refused_packets = socket.refused();
        }
        core.expire_slow_members();
        core.log_refusals();
        status.send_replace(core.status(&controller, &links.configured));
    }
}

async fn accept_daemons(listener: TcpListener, links: Rc<Links>) {
    let mut failed = FailedAccepts::default();
    loop {
        let (socket, from) = retry(&mut failed, || listener.accept()).await;
        let links = Rc::clone(&links);
        spawn_local(async move { links.accept(socket, from).await });
    }
}
