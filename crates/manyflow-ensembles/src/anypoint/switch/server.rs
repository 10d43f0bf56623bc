//! The thread of a switch: its sockets, its commands and its timer.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use manyflow_core::time::Time;
use manyflow_net::background::Background;
use manyflow_net::clock::Clock;
use manyflow_net::udp::{Arrival, Inbox};
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;

use super::config::{ServiceConfig, ServiceError, SwitchOptions};
use super::hub::Hub;
use super::initiators::Initiators;
use super::output::Wires;
use super::status::SwitchStatus;
use super::upkeep::TICK;
use crate::anypoint::wire::Wire;
use crate::anypoint::{Endpoint, Options};

/// The batches that one socket gives before the switch sends and looks at the other socket.
const BATCHES: usize = 2;

/// The reason why a switch cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The service cannot be used.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The address cannot be used.
    #[error("the switch cannot listen on {0}: {1}; choose another address or port")]
    Address(SocketAddr, io::Error),
    /// There is no socket for the members.
    #[error("no socket for the members: {0}; check the limit of open files")]
    Socket(io::Error),
    /// An option of the connections is outside its range.
    #[error(transparent)]
    Connection(#[from] manyflow_anypoint::ConfigError),
    /// The thread cannot start.
    #[error("the switch's thread cannot start: {0}; check the limits of processes and of memory")]
    Thread(io::Error),
}

/// The ends that accept the connections of a switch.
#[derive(Debug)]
pub(super) enum Target {
    /// The members of a service, and a policy.
    Members(ServiceConfig),
    /// A service, whose clients share a connection.
    Peer(SocketAddr),
}

impl Target {
    fn is_of_initiators(&self) -> bool {
        matches!(self, Target::Peer(_))
    }

    /// Returns whether the target has addresses of IPv4.
    fn is_ipv4(&self) -> bool {
        match self {
            Target::Members(service) => {
                let first = service.members.first();
                first.is_none_or(|first| first.address.is_ipv4())
            }
            Target::Peer(address) => address.is_ipv4(),
        }
    }
}

/// The connections of a switch, as its thread serves them. The front is the socket for the ends
/// that open connections, and the back that for the ends that accept them.
pub(super) trait Traffic {
    fn wires(&self) -> &Wires;
    fn handle_front(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]);
    fn handle_back(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]);
    fn handle_timeouts(&mut self, now: Time);
    /// Does periodic work, every [`TICK`].
    fn handle_tick(&mut self, now: Time);
    /// Sends everything that waits.
    fn flush(&mut self, now: Time);
    fn next_timeout(&self) -> Option<Time>;
    fn set_target(&mut self, now: Time, target: &Target);
    /// Refuses further connections.
    fn begin_draining(&mut self);
    /// Returns whether all connections are finished.
    fn is_finished(&self) -> bool;
    /// Ends all connections.
    fn reset_all(&mut self);
    fn status(&self) -> SwitchStatus;
}

/// A request to a running switch.
#[derive(Debug)]
enum Command {
    /// Takes over other members, or another service.
    Target(Target),
    /// Accepts no further connections, and ends after this time.
    Drain(Duration),
}

/// The thread or the task that runs a switch.
#[derive(Debug)]
enum Worker {
    Thread(JoinHandle<()>),
    Task(tokio::task::JoinHandle<()>),
}

impl Worker {
    /// Waits for the end. Returns whether it came without a panic.
    async fn join(self) -> bool {
        match self {
            Worker::Thread(thread) => {
                let joined = tokio::task::spawn_blocking(|| thread.join().is_ok());
                joined.await.unwrap_or(false)
            }
            Worker::Task(task) => task.await.is_ok(),
        }
    }
}

/// A running switch. It stops when this is dropped.
#[derive(Debug)]
pub struct SwitchHandle {
    local: SocketAddr,
    is_ipv4: bool,
    is_of_initiators: bool,
    commands: Option<mpsc::UnboundedSender<Command>>,
    status: watch::Receiver<SwitchStatus>,
    worker: Option<Worker>,
}

impl SwitchHandle {
    /// Returns the address at which the switch listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Returns the status, which changes twice a second.
    pub fn status(&self) -> watch::Receiver<SwitchStatus> {
        self.status.clone()
    }

    /// Replaces the members and the policy. Members join and leave open connections, and finish
    /// the frames that they have.
    ///
    /// # Errors
    /// If the service cannot be used; the former one remains then.
    pub fn set_service(&self, service: ServiceConfig) -> Result<(), ServiceError> {
        service.check()?;
        if let Some(other) = service.members.first()
            && other.address.is_ipv4() != self.is_ipv4
        {
            return Err(ServiceError::Family(other.name.clone()));
        }
        self.set_target(Target::Members(service))
    }

    /// Replaces the address of the service of a switch that [`start_initiators`] has started, for
    /// connections that are opened from now on.
    ///
    /// # Errors
    /// If the switch has members, or the address has not the IP version of the first one.
    pub fn set_peer(&self, peer: SocketAddr) -> Result<(), ServiceError> {
        if peer.is_ipv4() != self.is_ipv4 {
            return Err(ServiceError::Family(peer.to_string()));
        }
        self.set_target(Target::Peer(peer))
    }

    fn set_target(&self, target: Target) -> Result<(), ServiceError> {
        if target.is_of_initiators() != self.is_of_initiators {
            return Err(ServiceError::Role);
        }
        self.send(Command::Target(target));
        Ok(())
    }

    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A thread that has ended needs no commands.
            let _ = commands.send(command);
        }
    }

    /// Resets all connections and stops, without waiting for the end.
    pub(super) fn stop(&self) {
        self.send(Command::Drain(Duration::ZERO));
    }

    /// Accepts no further connections, and waits until all are finished, but at most for `grace`.
    /// Then resets the others and stops.
    pub async fn drain(mut self, grace: Duration) {
        self.send(Command::Drain(grace));
        if let Some(worker) = self.worker.take()
            && !worker.join().await
        {
            tracing::error!("the switch panicked");
        }
    }
}

/// Starts a switch on a thread of its own.
///
/// # Errors
/// If the service cannot be used, or there is no socket or thread.
pub fn start(
    listen: SocketAddr,
    service: ServiceConfig,
    options: SwitchOptions,
) -> Result<SwitchHandle, StartError> {
    service.check()?;
    start_traffic(listen, Target::Members(service), |now, wires, target| {
        Hub::with_target(now, wires, target, &options)
    })
}

/// Starts a switch as a task of the current tokio runtime, for the connections that this endpoint
/// opens to the [address](SwitchHandle::local_address) of the switch.
pub(super) fn start_inside(
    service: ServiceConfig,
    options: SwitchOptions,
    connection: Options,
) -> Result<(SwitchHandle, Endpoint), StartError> {
    service.check()?;
    let target = Target::Members(service);
    let [front, end] = Wire::pair();
    let endpoint = Endpoint::inside(end, connection)?;
    let wires = Wires::new(front, target.is_ipv4()).map_err(StartError::Socket)?;
    let (mut handle, server) = prepare(Wire::INSIDE, wires, &target, |now, wires, target| {
        Hub::with_target(now, wires, target, &options)
    });
    handle.worker = Some(Worker::Task(tokio::spawn(server.run())));
    Ok((handle, endpoint))
}

/// Starts a switch of initiators on a thread of its own: the connections that clients open at
/// `listen` are one connection to `peer`, which is a server or the switch of a service, and have
/// one share of the way there.
///
/// # Errors
/// If there is no socket or thread.
pub fn start_initiators(
    listen: SocketAddr,
    peer: SocketAddr,
    options: SwitchOptions,
) -> Result<SwitchHandle, StartError> {
    start_traffic(listen, Target::Peer(peer), |now, wires, _| {
        Initiators::new(now, wires, peer, &options)
    })
}

fn start_traffic<T: Traffic + Send + 'static>(
    listen: SocketAddr,
    target: Target,
    create: impl FnOnce(Time, Wires, &Target) -> T,
) -> Result<SwitchHandle, StartError> {
    let is_ipv4 = target.is_ipv4();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let runtime = Background::new(runtime);
    let (wires, local) = {
        let _guard = runtime.runtime().enter();
        Wires::open(listen, is_ipv4).map_err(|cause| StartError::Address(listen, cause))?
    };
    let (mut handle, server) = prepare(local, wires, &target, create);
    let thread = std::thread::Builder::new().name("switch".to_owned());
    let thread = thread.spawn(move || runtime.block_on(server.run()));
    handle.worker = Some(Worker::Thread(thread.map_err(StartError::Thread)?));
    Ok(handle)
}

/// Creates a switch that nothing runs yet.
fn prepare<T: Traffic>(
    local: SocketAddr,
    wires: Wires,
    target: &Target,
    create: impl FnOnce(Time, Wires, &Target) -> T,
) -> (SwitchHandle, Server<T>) {
    let (commands, received) = mpsc::unbounded_channel();
    let (reports, status) = watch::channel(SwitchStatus::default());
    let clock = Clock::start();
    let server = Server {
        traffic: create(clock.now(), wires, target),
        clock,
        commands: received,
        reports,
        next_tick: Time::ZERO,
        drained_by: None,
    };
    let handle = SwitchHandle {
        local,
        is_ipv4: target.is_ipv4(),
        is_of_initiators: target.is_of_initiators(),
        commands: Some(commands),
        status,
        worker: None,
    };
    (handle, server)
}

/// A switch at work.
struct Server<T> {
    traffic: T,
    clock: Clock,
    commands: mpsc::UnboundedReceiver<Command>,
    reports: watch::Sender<SwitchStatus>,
    next_tick: Time,
    /// When to stop, if the switch drains.
    drained_by: Option<Time>,
}

impl<T: Traffic> Server<T> {
    async fn run(mut self) {
        let (mut front, mut back) = (Inbox::default(), Inbox::default());
        let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
        poll_fn(|context| {
            let is_stopped = self.handle_commands(context);
            let is_more = self.receive(&mut front, &mut back, context);
            let now = self.clock.now();
            self.traffic.handle_timeouts(now);
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                self.traffic.handle_tick(now);
                self.reports.send_replace(self.traffic.status());
            }
            self.traffic.flush(now);
            if is_stopped || self.is_drained(now) {
                return Poll::Ready(());
            }
            if is_more || self.arm(sleep.as_mut(), context) {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        self.traffic.reset_all();
        self.reports.send_replace(self.traffic.status());
    }

    /// Handles commands. Returns whether the handle was dropped.
    fn handle_commands(&mut self, context: &mut Context<'_>) -> bool {
        while let Poll::Ready(command) = self.commands.poll_recv(context) {
            let now = self.clock.now();
            match command {
                Some(Command::Target(target)) => self.traffic.set_target(now, &target),
                Some(Command::Drain(grace)) => {
                    self.traffic.begin_draining();
                    self.drained_by = Some(now + grace);
                }
                None if self.drained_by.is_some() => return false,
                None => return true,
            }
        }
        false
    }

    /// Handles datagrams. Returns whether more may wait.
    fn receive(&mut self, front: &mut Inbox, back: &mut Inbox, context: &mut Context<'_>) -> bool {
        let mut is_more = false;
        for (is_front, inbox) in [(true, front), (false, back)] {
            for batch in 1..=BATCHES {
                match poll_batch(self.wire(is_front), inbox, context) {
                    Poll::Pending => break,
                    Poll::Ready(()) => self.handle_batch(is_front, inbox),
                }
                is_more |= batch == BATCHES;
            }
        }
        is_more
    }

    fn wire(&self, is_front: bool) -> &Wire {
        match is_front {
            true => &self.traffic.wires().front,
            false => &self.traffic.wires().back,
        }
    }

    fn handle_batch(&mut self, is_front: bool, inbox: &mut Inbox) {
        let now = self.clock.now();
        while let Some(arrival) = inbox.next_arrival() {
            let bytes = inbox.bytes(arrival.payload.clone());
            match is_front {
                true => self.traffic.handle_front(now, &arrival, bytes),
                false => self.traffic.handle_back(now, &arrival, bytes),
            }
        }
    }

    fn is_drained(&self, now: Time) -> bool {
        self.drained_by
            .is_some_and(|by| now >= by || self.traffic.is_finished())
    }

    /// Sets the timer. Returns whether it is due already.
    fn arm(&self, mut sleep: Pin<&mut Sleep>, context: &mut Context<'_>) -> bool {
        let due = self.traffic.next_timeout().into_iter();
        let due = due.chain(self.drained_by).fold(self.next_tick, Time::min);
        let instant = self.clock.instant_of(due).into();
        if sleep.deadline() != instant {
            sleep.as_mut().reset(instant);
        }
        sleep.poll(context).is_ready()
    }
}

/// Receives one batch. An ICMP error of an earlier datagram counts as an empty batch.
fn poll_batch(wire: &Wire, inbox: &mut Inbox, context: &mut Context<'_>) -> Poll<()> {
    wire.poll_recv(inbox, context).map(|received| {
        if let Err(error) = received {
            tracing::debug!("a socket reports: {error}");
        }
    })
}
