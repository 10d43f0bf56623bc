//! A relay on a socket.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use manyflow_amt::ip::IpError;
use manyflow_amt::{
    DownstreamLink, Flow, FlowMessages, Relay, RelayConfig, RelayCounters, RelayEvent,
};
use manyflow_core::Time;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::Instrument as _;

use super::open_socket;
use crate::net::clock::Clock;
use crate::net::train::Train;
use crate::net::udp::{Inbox, Port};

/// Pause after an error of the socket, so that a lasting failure does not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// A relay that answers gateways in the background until it is dropped.
#[derive(Debug)]
pub struct RelayServer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// A handle that sends the packets of flows to the gateways of a [`RelayServer`]. Clones share the
/// relay.
#[derive(Clone, Debug)]
pub struct RelaySender {
    shared: Arc<Shared>,
}

/// A relay's present load, and the counts of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Number of gateways that have joined a flow.
    pub gateways: usize,
    /// Number of joins of all gateways.
    pub joins: usize,
    /// Counts since the relay started.
    pub counters: RelayCounters,
    /// Datagrams that the kernel refused: its queue was full, or there is no route.
    pub unsent: u64,
    /// Datagrams that were longer than the MTU of the interface to their gateway.
    pub too_long: u64,
}

/// The state that the server's task shares with the handles. Each train takes the lock, which
/// otherwise only the few control messages take: that costs less than passing each train to a task.
struct Shared {
    port: Port,
    local: SocketAddr,
    clock: Clock,
    relay: Mutex<Relay>,
    /// Notifies the task that [`RelayServer::next_event`] may return an event.
    handled: Notify,
    /// Notifies the server's task that a message leaves a link before the relay's last deadline.
    queued: Notify,
    unsent: AtomicU64,
    too_long: AtomicU64,
}

impl RelayServer {
    /// Starts a relay for `flows` at `address`. Port 0 takes any free port.
    ///
    /// # Errors
    /// If the address cannot be bound, or the operating system gives no random seed.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn bind(address: SocketAddr, config: RelayConfig, flows: Vec<Flow>) -> io::Result<Self> {
        Self::bind_with_links(address, config, flows, &[])
    }

    /// Starts a relay as [`bind`](Self::bind) does, which sends the data of gateways behind `links`
    /// over these links.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn bind_with_links(
        address: SocketAddr,
        config: RelayConfig,
        flows: Vec<Flow>,
        links: &[DownstreamLink],
    ) -> io::Result<Self> {
        let port = Port::new(open_socket(address)?)?;
        let clock = Clock::start();
        let relay = Relay::new(clock.now(), config, flows, random_seed()).with_links(links);
        let shared = Arc::new(Shared {
            local: port.socket().local_addr()?,
            port,
            clock,
            relay: Mutex::new(relay),
            handled: Notify::new(),
            queued: Notify::new(),
            unsent: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
        });
        let task = tokio::spawn(serve(shared.clone()).in_current_span());
        Ok(Self { shared, task })
    }

    /// Returns the bound address, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// Returns a handle that sends the session's packets.
    pub fn sender(&self) -> RelaySender {
        RelaySender {
            shared: self.shared.clone(),
        }
    }

    /// Waits for the next flow that gets its first gateway or loses its last one. Cancel safe.
    pub async fn next_event(&self) -> RelayEvent {
        loop {
            let event = self.shared.relay().poll_event();
            match event {
                Some(event) => return event,
                None => self.shared.handled.notified().await,
            }
        }
    }

    /// Returns the relay's present load and its counts.
    pub fn stats(&self) -> RelayStats {
        let relay = self.shared.relay();
        RelayStats {
            gateways: relay.gateways(),
            joins: relay.joins(),
            counters: relay.counters(),
            unsent: self.shared.unsent.load(Ordering::Relaxed),
            too_long: self.shared.too_long.load(Ordering::Relaxed),
        }
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RelaySender {
    /// Whether any gateway has joined the flow. Packets of other flows need not be encoded.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn is_joined(&self, flow: usize) -> bool {
        self.shared.relay().is_joined(flow)
    }

    /// Sends the datagrams of `train` to all gateways that have joined the flow. `flow` is an index
    /// into the list given to [`RelayServer::bind`]. Never waits: datagrams that the kernel refuses
    /// are dropped and counted, as in any full queue.
    ///
    /// # Errors
    /// If payload or addresses do not form a UDP datagram.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn send(&self, flow: usize, train: &Train) -> Result<(), IpError> {
        let shared = &*self.shared;
        let mut relay = shared.relay();
        let before = relay.poll_timeout();
        relay.forward(
            shared.clock.now(),
            flow,
            train.datagrams(),
            |gateway, local, messages, length| shared.send(local, gateway, messages, length),
        )?;
        shared.note_queued(relay.poll_timeout(), before);
        Ok(())
    }

    /// Sends Multicast Data messages of several flows to all gateways that have joined them, as
    /// [`send`](Self::send) sends payloads.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn send_messages(&self, batch: &[FlowMessages<'_>]) {
        let shared = &*self.shared;
        let mut relay = shared.relay();
        let before = relay.poll_timeout();
        relay.forward_messages(
            shared.clock.now(),
            batch,
            |gateway, local, messages, length| shared.send(local, gateway, messages, length),
        );
        shared.note_queued(relay.poll_timeout(), before);
    }
}

impl Shared {
    fn relay(&self) -> MutexGuard<'_, Relay> {
        self.relay.lock().expect("no datagram makes a relay panic")
    }

    /// Wakes the server's task if it would sleep past the time at which a message leaves a link.
    fn note_queued(&self, deadline: Time, before: Time) {
        if deadline < before {
            self.queued.notify_one();
        }
    }

    /// Runs the relay's timers, and sends the messages that have crossed their links.
    fn handle_timeout(&self) {
        let now = self.clock.now();
        let mut relay = self.relay();
        relay.handle_timeout(now);
        relay.poll_links(now, |gateway, local, messages, length| {
            self.send(local, gateway, messages, length);
        });
        drop(relay);
        self.handled.notify_one();
    }

    fn send(&self, local: IpAddr, destination: SocketAddr, messages: &[u8], length: usize) {
        let source = Some(local).filter(|address| !address.is_unspecified());
        let unsent = self.port.send(source, destination, messages, length);
        self.unsent.fetch_add(unsent.refused, Ordering::Relaxed);
        let too_long = unsent.too_long;
        if too_long > 0 && self.too_long.fetch_add(too_long, Ordering::Relaxed) == 0 {
            tracing::warn!(
                bytes = length,
                gateway = %destination,
                "a packet is longer than the interface's MTU: reduce --packet (logged once; more are counted)"
            );
        }
    }

    /// Handles a datagram for this host's address `local`, and answers from that address (RFC 7450,
    /// sections 5.3.3.3 and 5.3.3.6.3): a gateway accepts no answer from another.
    fn handle_datagram(&self, from: SocketAddr, local: Option<IpAddr>, datagram: &[u8]) {
        let local = local.unwrap_or(self.local.ip());
        let mut relay = self.relay();
        relay.handle_datagram(self.clock.now(), from, local, datagram);
        if let Some(reply) = relay.poll_transmit() {
            let message = &reply.contents;
            self.send(local, reply.destination, message, message.len());
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

/// Answers gateways and runs the relay's timers until the task is aborted.
async fn serve(shared: Arc<Shared>) {
    let mut inbox = Inbox::default();
    loop {
        let deadline = shared.relay().poll_timeout();
        tokio::select! {
            received = poll_fn(|context| shared.port.poll_recv(&mut inbox, context)) => match received {
                Ok(()) => while let Some(arrival) = inbox.next() {
                    let datagram = inbox.bytes(arrival.payload);
                    shared.handle_datagram(arrival.source, arrival.destination, datagram);
                },
                Err(error) => {
                    tracing::warn!(%error, "the relay's socket failed");
                    sleep(ERROR_PAUSE).await;
                }
            },
            () = shared.clock.sleep_until(Some(deadline)) => {}
            () = shared.queued.notified() => {}
        }
        shared.handle_timeout();
    }
}

/// Returns a random seed from the operating system.
pub(super) fn random_seed() -> [u8; 32] {
    rand::make_rng::<StdRng>().random()
}
