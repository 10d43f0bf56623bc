//! A relay on a socket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use manyflow_amt::ip::{IpError, data_ecn, encode_data};
use manyflow_amt::{
    DownstreamLink, Flow, FlowMessages, Relay, RelayConfig, RelayCounters, RelayEvent,
};
use manyflow_core::{Ecn, Time};
use manyflow_layered::Feedback;
use manyflow_layered::hop::is_hop_message;
use manyflow_layered::relay::{HopStatus, Where};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::Instrument as _;

use super::streams::{HopTotals, Streams, StreamsConfig};
use super::{open_socket, random_seed};
use crate::clock::Clock;
use crate::mtu::allow_fragments;
use crate::train::Train;
use crate::udp::{Inbox, Port};

/// Pause after an error of the socket, so that a lasting failure does not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Maximum length of what a Multicast Data message adds to a payload.
const HEADERS_BYTES_MAX: usize = 50;
/// Maximum number of hop messages that wait for the way to the parent.
const FOR_PARENT_MAX: usize = 64;

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
    /// The hops of layered sessions; all 0 without any.
    pub hops: HopTotals,
}

/// The state that the server's task shares with the handles. Each train takes the lock, which
/// otherwise only the few control messages take: that costs less than passing each train to a task.
struct Shared {
    port: Port,
    local: SocketAddr,
    flows: Vec<Flow>,
    clock: Clock,
    machines: Mutex<Machines>,
    /// Notifies the task that [`RelayServer::next_event`] may return an event.
    handled: Notify,
    /// Notifies [`RelayServer::next_feedback`] and [`RelayServer::next_for_parent`].
    answered: Notify,
    /// Notifies the server's task that a message leaves a link before the relay's last deadline.
    queued: Notify,
    unsent: AtomicU64,
    too_long: AtomicU64,
}

/// The state machines of a relay.
struct Machines {
    relay: Relay,
    /// The layered sessions, if there are any.
    streams: Option<Streams>,
    /// Hop messages for the parent.
    for_parent: VecDeque<Vec<u8>>,
}

/// The parts of a relay that most do not have.
#[derive(Clone, Debug, Default)]
pub struct RelayOptions {
    /// Links to gateways with rates of their own.
    pub links: Vec<DownstreamLink>,
    /// Layered sessions.
    pub streams: Option<StreamsConfig>,
    /// The ECN field of the other sessions' packets that this host sends.
    pub ecn: Ecn,
    /// Whether any free port will do if that of the address is taken.
    pub or_any_port: bool,
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
        Self::bind_with(address, config, flows, RelayOptions::default())
    }

    /// Starts a relay as [`bind`](Self::bind) does, with links, layered sessions, or another port.
    ///
    /// # Errors
    /// As [`bind`](Self::bind), or if a parameter of the layered sessions is outside its range.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn bind_with(
        address: SocketAddr,
        config: RelayConfig,
        flows: Vec<Flow>,
        options: RelayOptions,
    ) -> io::Result<Self> {
        let RelayOptions {
            links,
            streams,
            ecn,
            or_any_port,
        } = options;
        let socket = open_socket(address).or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse if or_any_port => {
                open_socket(SocketAddr::new(address.ip(), 0))
            }
            _ => Err(error),
        });
        let port = Port::new(socket?)?;
        allow_fragments(port.socket(), address.ip())?;
        let clock = Clock::start();
        let streams = streams.map(|config| Streams::new(config, &links, clock.now()));
        let machines = Machines {
            relay: Relay::new(clock.now(), config, flows.clone(), random_seed())
                .with_links(&links)
                .with_ecn(ecn),
            streams: streams.transpose().map_err(io::Error::other)?,
            for_parent: VecDeque::new(),
        };
        let shared = Arc::new(Shared {
            local: port.socket().local_addr()?,
            port,
            clock,
            flows,
            machines: Mutex::new(machines),
            handled: Notify::new(),
            answered: Notify::new(),
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

    /// Waits for the next summary of reports, if this end is the sender of layered sessions. Cancel
    /// safe.
    pub async fn next_feedback(&self) -> Feedback {
        loop {
            let feedback = self.shared.machines().poll_feedback();
            match feedback {
                Some(feedback) => return feedback,
                None => self.shared.answered.notified().await,
            }
        }
    }

    /// Waits for the next hop message to the parent. Cancel safe.
    pub(crate) async fn next_for_parent(&self) -> Vec<u8> {
        loop {
            let message = self.shared.machines().for_parent.pop_front();
            match message {
                Some(message) => return message,
                None => self.shared.answered.notified().await,
            }
        }
    }

    /// Handles a message of data from the parent. Returns whether it has to be forwarded: one of a
    /// layered session may have arrived before.
    pub(crate) fn handle_parent_data(&self, flow: usize, message: &[u8]) -> bool {
        let streams = &mut self.shared.machines().streams;
        let streams = streams.as_mut();
        streams.is_none_or(|streams| streams.handle_parent_data(flow, message))
    }

    /// Handles a hop message of the parent.
    pub(crate) fn handle_parent_datagram(&self, datagram: &[u8]) {
        let mut machines = self.shared.machines();
        if let Some(streams) = &mut machines.streams {
            streams.handle_parent_datagram(self.shared.clock.now(), datagram);
            self.shared.run_streams(&mut machines);
        }
    }

    /// Returns the state of the hop to each gateway of layered sessions.
    pub fn hops(&self) -> Vec<(SocketAddr, HopStatus)> {
        let machines = self.shared.machines();
        machines
            .streams
            .as_ref()
            .map(Streams::hops)
            .unwrap_or_default()
    }

    /// Waits for the next flow that gets its first gateway or loses its last one. Cancel safe.
    pub async fn next_event(&self) -> RelayEvent {
        loop {
            let event = self.shared.machines().relay.poll_event();
            match event {
                Some(event) => return event,
                None => self.shared.handled.notified().await,
            }
        }
    }

    /// Returns the relay's present load and its counts.
    pub fn stats(&self) -> RelayStats {
        let machines = self.shared.machines();
        let (relay, streams) = (&machines.relay, machines.streams.as_ref());
        RelayStats {
            gateways: relay.gateways(),
            joins: relay.joins(),
            counters: relay.counters(),
            unsent: self.shared.unsent.load(Ordering::Relaxed),
            too_long: self.shared.too_long.load(Ordering::Relaxed),
            hops: streams.map(Streams::totals).unwrap_or_default(),
        }
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RelaySender {
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
        self.send_all([(flow, train)].into_iter())
    }

    /// Sends the trains of several flows, as [`send`](Self::send) does that of one. Datagrams to
    /// one gateway leave together.
    ///
    /// # Errors
    /// If a payload or addresses do not form a UDP datagram.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn send_all<'a>(
        &self,
        trains: impl Iterator<Item = (usize, &'a Train)> + Clone,
    ) -> Result<(), IpError> {
        let shared = &*self.shared;
        let machines = &mut *shared.machines();
        let before = machines.poll_timeout();
        if machines.streams.is_some() {
            let layered = trains
                .clone()
                .filter(|(flow, _)| machines.has_stream(*flow));
            let messages = encode_layered(&shared.flows, layered)?;
            if !messages.is_empty() {
                shared.push_streams(machines, &messages);
            }
        }
        let Machines { relay, streams, .. } = machines;
        let has_stream = |flow| streams.as_ref().is_some_and(|streams| streams.has(flow));
        let others = trains.filter(|(flow, _)| !has_stream(*flow));
        relay.forward_all(
            shared.clock.now(),
            others.map(|(flow, train)| (flow, train.datagrams())),
            |gateway, local, messages, length| shared.send_data(local, gateway, messages, length),
        )?;
        shared.note_queued(machines.poll_timeout(), before);
        Ok(())
    }

    /// Sets the items of `joined` that are flows which any gateway has joined, and clears the
    /// others. Packets of other flows need not be encoded.
    ///
    /// # Panics
    /// If there are fewer flows than items.
    pub fn note_joined(&self, joined: &mut [bool]) {
        let machines = self.shared.machines();
        for (flow, joined) in joined.iter_mut().enumerate() {
            *joined = machines.relay.is_joined(flow);
        }
    }

    /// Sends Multicast Data messages of several flows to all gateways that have joined them, as
    /// [`send`](Self::send) sends payloads.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn send_messages(&self, batch: &[FlowMessages<'_>]) {
        let shared = &*self.shared;
        let machines = &mut *shared.machines();
        let before = machines.poll_timeout();
        let (layered, others): (Vec<_>, Vec<_>) = batch
            .iter()
            .copied()
            .partition(|messages| machines.has_stream(messages.flow));
        machines.relay.forward_messages(
            shared.clock.now(),
            &others,
            |gateway, local, messages, length| shared.send_data(local, gateway, messages, length),
        );
        let single = |batch: &FlowMessages<'_>| {
            let messages = batch.messages.chunks(batch.length.max(1));
            let flow = batch.flow;
            messages
                .map(move |message| (flow, message.into()))
                .collect::<Vec<_>>()
        };
        let layered: Vec<_> = layered.iter().flat_map(single).collect();
        if !layered.is_empty() {
            shared.push_streams(machines, &layered);
        }
        shared.note_queued(machines.poll_timeout(), before);
    }
}

/// A message of a layered session, with its flow.
type LayeredMessage = (usize, Arc<[u8]>);

/// Encodes the datagrams of layered sessions, whose messages have ECN fields.
fn encode_layered<'a>(
    flows: &[Flow],
    trains: impl Iterator<Item = (usize, &'a Train)>,
) -> Result<Vec<LayeredMessage>, IpError> {
    let datagrams =
        trains.flat_map(|(flow, train)| train.datagrams().map(move |datagram| (flow, datagram)));
    let message = |(flow, datagram): (usize, &[u8])| {
        let mut message = Vec::with_capacity(datagram.len() + HEADERS_BYTES_MAX);
        encode_data(&flows[flow], Ecn::Capable, datagram, &mut message)?;
        Ok((flow, message.into()))
    };
    datagrams.map(message).collect()
}

impl Machines {
    fn has_stream(&self, flow: usize) -> bool {
        self.streams
            .as_ref()
            .is_some_and(|streams| streams.has(flow))
    }

    fn poll_feedback(&mut self) -> Option<Feedback> {
        self.streams.as_mut()?.poll_feedback()
    }

    fn poll_timeout(&self) -> Time {
        let relay = self.relay.poll_timeout();
        let streams = self.streams.as_ref().and_then(Streams::poll_timeout);
        streams.map_or(relay, |streams| streams.min(relay))
    }
}

impl Shared {
    fn machines(&self) -> MutexGuard<'_, Machines> {
        self.machines
            .lock()
            .expect("no datagram makes a relay panic")
    }

    /// Queues messages of layered sessions, and sends what is due.
    fn push_streams(&self, machines: &mut Machines, messages: &[LayeredMessage]) {
        let now = self.clock.now();
        if let Some(streams) = &mut machines.streams {
            streams.push(now, &mut machines.relay, messages);
        }
        self.run_streams(machines);
    }

    /// Sends what hops have to send, and keeps what goes to the parent.
    fn run_streams(&self, machines: &mut Machines) {
        let Machines {
            streams: Some(streams),
            for_parent,
            ..
        } = machines
        else {
            return;
        };
        streams.run(self.clock.now(), |datagrams, bytes| match datagrams.place {
            // The hop sees losses and delay, but no marks of the outer header (RFC 6040 section
            // 4.3, compatibility mode).
            Where::Child { to, local } => {
                self.send(local, to, Ecn::NotCapable, bytes, datagrams.segment_bytes);
            }
            Where::Parent => {
                if for_parent.len() < FOR_PARENT_MAX {
                    for_parent.push_back(bytes.to_vec());
                }
            }
        });
        self.answered.notify_one();
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
        let machines = &mut *self.machines();
        machines.relay.handle_timeout(now);
        machines
            .relay
            .poll_links(now, |gateway, local, messages, length| {
                self.send_data(local, gateway, messages, length);
            });
        if let Some(streams) = &mut machines.streams {
            streams.follow_all(now, &machines.relay);
        }
        self.run_streams(machines);
        self.handled.notify_one();
    }

    /// Sends Multicast Data messages, whose datagrams all have the ECN field of the first.
    fn send_data(&self, local: IpAddr, gateway: SocketAddr, messages: &[u8], length: usize) {
        self.send(local, gateway, data_ecn(messages), messages, length);
    }

    fn send(
        &self,
        local: IpAddr,
        destination: SocketAddr,
        ecn: Ecn,
        messages: &[u8],
        length: usize,
    ) {
        let source = Some(local).filter(|address| !address.is_unspecified());
        let unsent = self.port.send(source, destination, ecn, messages, length);
        self.unsent.fetch_add(unsent.refused, Ordering::Relaxed);
        let too_long = unsent.too_long;
        if too_long > 0 && self.too_long.fetch_add(too_long, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "a packet of {length} B to {destination} is longer than the interface's MTU: reduce --packet (logged once; more are counted)"
            );
        }
    }

    /// Handles a datagram for this host's address `local`, and answers from that address (RFC 7450,
    /// sections 5.3.3.3 and 5.3.3.6.3): a gateway accepts no answer from another.
    fn handle_datagram(&self, from: SocketAddr, local: Option<IpAddr>, datagram: &[u8]) {
        let local = local.unwrap_or(self.local.ip());
        let now = self.clock.now();
        let machines = &mut *self.machines();
        if let Some(streams) = &mut machines.streams
            && is_hop_message(datagram)
        {
            return streams.handle_datagram(now, from, local, datagram);
        }
        machines.relay.handle_datagram(now, from, local, datagram);
        if let Some(reply) = machines.relay.poll_transmit() {
            let message = &reply.contents;
            let to = reply.destination;
            self.send(local, to, Ecn::NotCapable, message, message.len());
        }
        if let Some(streams) = &mut machines.streams {
            streams.follow(now, &machines.relay, from, local);
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
        let deadline = shared.machines().poll_timeout();
        tokio::select! {
            received = poll_fn(|context| shared.port.poll_recv(&mut inbox, context)) => match received {
                Ok(()) => while let Some(arrival) = inbox.next_arrival() {
                    let datagram = inbox.bytes(arrival.payload);
                    shared.handle_datagram(arrival.source, arrival.destination, datagram);
                },
                Err(error) => {
                    tracing::warn!("the relay's socket failed, and is tried again: {error}");
                    sleep(ERROR_PAUSE).await;
                }
            },
            () = shared.clock.sleep_until(Some(deadline)) => {}
            () = shared.queued.notified() => {}
        }
        shared.handle_timeout();
    }
}
