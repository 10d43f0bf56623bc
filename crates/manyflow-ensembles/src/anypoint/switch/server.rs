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
use manyflow_net::udp::{Inbox, Port};
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;

use super::config::{ServiceConfig, ServiceError, SwitchOptions};
use super::hub::Hub;
use super::output::Wires;
use super::status::SwitchStatus;
use super::upkeep::TICK;

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
    /// The thread cannot start.
    #[error("the switch's thread cannot start: {0}; check the limits of processes and of memory")]
    Thread(io::Error),
}

/// A request to a running switch.
#[derive(Debug)]
enum Command {
    /// Takes over another list of members, and another policy.
    Service(ServiceConfig),
    /// Accepts no further connections, and ends after this time.
    Drain(Duration),
}

/// A running switch. It stops when this is dropped.
#[derive(Debug)]
pub struct SwitchHandle {
    local: SocketAddr,
    is_ipv4: bool,
    commands: Option<mpsc::UnboundedSender<Command>>,
    status: watch::Receiver<SwitchStatus>,
    thread: Option<JoinHandle<()>>,
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
        self.send(Command::Service(service));
        Ok(())
    }

    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A thread that has ended needs no commands.
            let _ = commands.send(command);
        }
    }

    /// Accepts no further connections, and waits until all are finished, but at most for `grace`.
    /// Then resets the others and stops.
    pub async fn drain(mut self, grace: Duration) {
        self.send(Command::Drain(grace));
        if let Some(thread) = self.thread.take() {
            let joined = tokio::task::spawn_blocking(|| thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the switch's thread panicked");
            }
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
    let is_ipv4 = service
        .members
        .first()
        .is_none_or(|first| first.address.is_ipv4());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let runtime = Background::new(runtime);
    let (wires, local) = {
        let _guard = runtime.runtime().enter();
        Wires::open(listen, is_ipv4).map_err(|cause| StartError::Address(listen, cause))?
    };
    let (commands, received) = mpsc::unbounded_channel();
    let (reports, status) = watch::channel(SwitchStatus::default());
    let mut hub = Hub::new(wires, &options);
    let clock = Clock::start();
    hub.set_service(clock.now(), &service);
    let thread = std::thread::Builder::new().name("switch".to_owned());
    let thread = thread.spawn(move || {
        let server = Server {
            hub,
            clock,
            commands: received,
            reports,
            next_tick: Time::ZERO,
            drained_by: None,
        };
        runtime.block_on(server.run());
    });
    Ok(SwitchHandle {
        local,
        is_ipv4,
        commands: Some(commands),
        status,
        thread: Some(thread.map_err(StartError::Thread)?),
    })
}

/// A switch at work.
struct Server {
    hub: Hub,
    clock: Clock,
    commands: mpsc::UnboundedReceiver<Command>,
    reports: watch::Sender<SwitchStatus>,
    next_tick: Time,
    /// When to stop, if the switch drains.
    drained_by: Option<Time>,
}

impl Server {
    async fn run(mut self) {
        let (mut front, mut back) = (Inbox::default(), Inbox::default());
        let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
        poll_fn(|context| {
            let is_stopped = self.handle_commands(context);
            let is_more = self.receive(&mut front, &mut back, context);
            let now = self.clock.now();
            self.hub.handle_timeouts(now);
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                self.hub.handle_tick(now);
                self.reports.send_replace(self.hub.status());
            }
            self.hub.flush(now);
            if is_stopped || self.is_drained(now) {
                return Poll::Ready(());
            }
            if is_more || self.arm(sleep.as_mut(), context) {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        self.hub.reset_all();
        self.reports.send_replace(self.hub.status());
    }

    /// Handles commands. Returns whether the handle was dropped.
    fn handle_commands(&mut self, context: &mut Context<'_>) -> bool {
        while let Poll::Ready(command) = self.commands.poll_recv(context) {
            let now = self.clock.now();
            match command {
                Some(Command::Service(service)) => self.hub.set_service(now, &service),
                Some(Command::Drain(grace)) => {
                    self.hub.is_draining = true;
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
                match poll_batch(self.port(is_front), inbox, context) {
                    Poll::Pending => break,
                    Poll::Ready(()) => self.handle_batch(is_front, inbox),
                }
                is_more |= batch == BATCHES;
            }
        }
        is_more
    }

    fn port(&self, is_front: bool) -> &Port {
        match is_front {
            true => &self.hub.wires.front,
            false => &self.hub.wires.back,
        }
    }

    fn handle_batch(&mut self, is_front: bool, inbox: &mut Inbox) {
        let now = self.clock.now();
        while let Some(arrival) = inbox.next_arrival() {
            let bytes = inbox.bytes(arrival.payload.clone());
            match is_front {
                true => self.hub.handle_peer(now, &arrival, bytes),
                false => self.hub.handle_member(now, &arrival, bytes),
            }
        }
    }

    fn is_drained(&self, now: Time) -> bool {
        self.drained_by
            .is_some_and(|by| now >= by || self.hub.is_finished())
    }

    /// Sets the timer. Returns whether it is due already.
    fn arm(&self, mut sleep: Pin<&mut Sleep>, context: &mut Context<'_>) -> bool {
        let due = self.hub.timers.next().into_iter();
        let due = due.chain(self.drained_by).fold(self.next_tick, Time::min);
        let instant = self.clock.instant_of(due).into();
        if sleep.deadline() != instant {
            sleep.as_mut().reset(instant);
        }
        sleep.poll(context).is_ready()
    }
}

/// Receives one batch. An ICMP error of an earlier datagram counts as an empty batch.
fn poll_batch(port: &Port, inbox: &mut Inbox, context: &mut Context<'_>) -> Poll<()> {
    port.poll_recv(inbox, context).map(|received| {
        if let Err(error) = received {
            tracing::debug!("a socket reports: {error}");
        }
    })
}
