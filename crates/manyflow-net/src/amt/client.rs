//! A gateway on a socket.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use manyflow_amt::ip::combine_ecn;
use manyflow_amt::{Flow, Gateway, GatewayConfig, GatewayEvent, JoinError, Subscription};
use manyflow_layered::hop;
use socket2::SockRef;
use tokio::io::Interest;

use super::{any_address, open_socket, random_seed};
use crate::clock::Clock;
use crate::udp::{Inbox, Port, route_to};

/// A packet that came through the tunnel.
#[derive(Clone, Debug)]
pub struct TunnelDatagram<'a> {
    /// The flow that the packet belongs to.
    pub flow: Flow,
    /// The UDP payload.
    pub payload: &'a [u8],
    /// The whole Multicast Data message, which contains the packet.
    pub message: &'a [u8],
    /// Time at which the packet was taken from the kernel.
    pub received_at: Instant,
    /// Time at which the kernel got the packet; `received_at` if the kernel does not say.
    pub arrived_at: Instant,
}

/// A datagram from the relay.
#[derive(Clone, Debug)]
pub enum FromRelay<'a> {
    /// A packet that came through the tunnel.
    Packet(TunnelDatagram<'a>),
    /// A message of the relay's hop to this host ([`manyflow_layered::hop`]), which shares the
    /// tunnel's ports.
    Hop(&'a [u8]),
}

/// The result of [`GatewayClient::recv`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Packets of joined flows, for [`GatewayClient::next_datagram`].
    Datagrams,
    /// The tunnel came up or went down.
    Event(GatewayEvent),
}

/// A gateway with its socket. It has no task of its own: it works while [`recv`](Self::recv) is
/// awaited.
pub struct GatewayClient {
    gateway: Gateway,
    port: Port,
    peer: SocketAddr,
    /// Whether no route led to the relay at the last check.
    is_cut_off: bool,
    has_warned_of_mark: bool,
    clock: Clock,
    inbox: Inbox,
    /// Packets and hop messages in the inbox, in the order of their arrival.
    received: VecDeque<Received>,
}

/// A datagram in the inbox.
enum Received {
    Packet(Packet),
    /// The place of a hop message.
    Hop(Range<usize>),
}

/// A packet of a flow, with the place of its payload in the inbox.
struct Packet {
    flow: Flow,
    payload: Range<usize>,
    message: Range<usize>,
    received_at: Instant,
    arrived_at: Instant,
}

impl GatewayClient {
    /// Opens a socket and starts to look for the relay. Groups can be joined immediately.
    ///
    /// # Errors
    /// If no socket can be opened, or no route leads to the relay.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn connect(config: GatewayConfig) -> io::Result<Self> {
        let clock = Clock::start();
        let gateway = Gateway::new(clock.now(), config, random_seed());
        let peer = gateway.relay();
        Ok(Self {
            gateway,
            port: connected_port(peer)?,
            peer,
            is_cut_off: false,
            has_warned_of_mark: false,
            clock,
            inbox: Inbox::default(),
            received: VecDeque::new(),
        })
    }

    /// Subscribes to a group. If the relay has already answered, the join is sent before this
    /// returns.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&mut self, subscription: impl Into<Subscription>) -> Result<(), JoinError> {
        self.gateway.join(self.clock.now(), subscription.into())?;
        self.flush();
        Ok(())
    }

    /// Ends a subscription. The leave is sent before this returns. Packets that are already on
    /// their way may still arrive.
    pub fn leave(&mut self, subscription: impl Into<Subscription>) {
        self.gateway.leave(self.clock.now(), subscription.into());
        self.flush();
    }

    /// Asks the relay whether it is alive, with a Request that is sent before this returns. If it
    /// does not answer, [`GatewayEvent::RelayLost`] follows.
    pub fn check_relay(&mut self) {
        self.gateway.handle_unreachable(self.clock.now());
        self.flush();
    }

    /// Opens the socket again if this host has another address towards the relay than before, or
    /// has a route to the relay again. The relay's answer to a Request from the new address moves
    /// the tunnel there. The caller calls this once a second or so.
    pub fn follow_network(&mut self) {
        let Ok(address) = route_to(self.peer) else {
            self.is_cut_off = true;
            return;
        };
        let before = self.port.socket().local_addr().map(|local| local.ip());
        if !self.is_cut_off && before.is_ok_and(|before| before == address) {
            return;
        }
        let Ok(port) = connected_port(self.peer) else {
            self.is_cut_off = true;
            return;
        };
        tracing::info!(%address, relay = %self.peer, "the network has changed; opening the tunnel again");
        (self.port, self.is_cut_off) = (port, false);
        self.gateway.handle_network_change(self.clock.now());
        self.flush();
    }

    /// Waits for packets or an event, and keeps the tunnel up meanwhile. Cancel safe: nothing that
    /// is not returned is lost. Packets that were not taken by then are dropped.
    ///
    /// # Errors
    /// If the socket fails. An unreachable relay is not an error: after some attempts, it is
    /// reported as an event.
    pub async fn recv(&mut self) -> io::Result<Incoming> {
        self.received.clear();
        loop {
            if let Some(event) = self.gateway.poll_event() {
                return Ok(Incoming::Event(event));
            }
            if !self.received.is_empty() {
                return Ok(Incoming::Datagrams);
            }
            self.turn().await?;
        }
    }

    /// Returns the next of the packets that were received together. Drops hop messages.
    pub fn next_datagram(&mut self) -> Option<TunnelDatagram<'_>> {
        while let Some(Received::Hop(..)) = self.received.front() {
            self.received.pop_front();
        }
        match self.next_received()? {
            FromRelay::Packet(datagram) => Some(datagram),
            FromRelay::Hop(_) => None,
        }
    }

    /// Returns the next of the packets and hop messages that were received together.
    pub fn next_received(&mut self) -> Option<FromRelay<'_>> {
        Some(match self.received.pop_front()? {
            Received::Packet(packet) => FromRelay::Packet(TunnelDatagram {
                flow: packet.flow,
                payload: self.inbox.bytes(packet.payload),
                message: self.inbox.bytes(packet.message),
                received_at: packet.received_at,
                arrived_at: packet.arrived_at,
            }),
            Received::Hop(place) => FromRelay::Hop(self.inbox.bytes(place)),
        })
    }

    /// Sends a hop message to the relay. A message that the kernel does not take is lost.
    pub fn send_hop_message(&self, message: &[u8]) {
        if let Err(error) = self.send(message) {
            tracing::debug!(%error, relay = %self.peer, "a hop message was not sent");
        }
    }

    /// Sends a datagram to the relay. Tries twice if the error may belong to an earlier datagram:
    /// then the kernel has not tried to send this one.
    ///
    /// tokio's `try_send` fails until tokio has polled the socket: the first Request would be lost.
    fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        let send = || SockRef::from(self.port.socket()).send(datagram);
        send().or_else(|error| match is_unreachable(&error) {
            true => send(),
            false => Err(error),
        })
    }

    /// Ends the tunnel, and tells the relay as often as its robustness variable asks. With a
    /// relay's default parameters, this takes at most 1 s.
    pub async fn close(mut self) {
        self.gateway.close(self.clock.now());
        self.flush();
        while !self.gateway.is_closed() && self.turn().await.is_ok() {}
    }

    /// Handles datagrams or a timer, whichever comes first.
    async fn turn(&mut self) -> io::Result<()> {
        self.flush();
        tokio::select! {
            biased;
            ready = self.port.socket().ready(Interest::READABLE | Interest::ERROR) => {
                if ready?.is_error() {
                    self.take_error();
                }
                self.read()?;
            }
            () = self.clock.sleep_until(self.gateway.poll_timeout()) => {}
        }
        self.gateway.handle_timeout(self.clock.now());
        self.flush();
        Ok(())
    }

    /// Handles an ICMP Destination Unreachable, which makes a socket ready but not readable.
    fn take_error(&mut self) {
        let socket = self.port.socket();
        let pending = || {
            socket
                .take_error()?
                .map_or(Err(io::ErrorKind::WouldBlock.into()), Err)
        };
        let outcome: io::Result<()> = socket.try_io(Interest::ERROR, pending);
        if outcome.is_err_and(|error| is_unreachable(&error)) {
            self.gateway.handle_unreachable(self.clock.now());
        }
    }

    fn read(&mut self) -> io::Result<()> {
        self.inbox.clear();
        match self.port.try_recv(&mut self.inbox) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if is_unreachable(&error) => {
                self.gateway.handle_unreachable(self.clock.now());
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        while let Some(arrival) = self.inbox.next_arrival() {
            let datagram = self.inbox.bytes(arrival.payload.clone());
            let now = self.clock.time_of(arrival.received_at);
            if hop::is_hop_message(datagram) {
                self.received.push_back(Received::Hop(arrival.payload));
                continue;
            }
            let data = self.gateway.handle_datagram(now, arrival.source, datagram);
            let Some((flow, payload)) = data else {
                continue;
            };
            // The payload is a part of the datagram.
            let offset = payload.as_ptr().addr() - datagram.as_ptr().addr();
            let start = arrival.payload.start + offset;
            let length = payload.len();
            let message = self.inbox.bytes_mut(arrival.payload.clone());
            if !combine_ecn(message, arrival.ecn) {
                self.warn_of_mark();
                continue;
            }
            self.received.push_back(Received::Packet(Packet {
                flow,
                payload: start..start + length,
                message: arrival.payload,
                received_at: arrival.received_at,
                arrived_at: arrival.arrived_at,
            }));
        }
        Ok(())
    }

    fn warn_of_mark(&mut self) {
        if !std::mem::replace(&mut self.has_warned_of_mark, true) {
            tracing::warn!(
                "a router marks packets without ECN in the tunnel to the relay {}; they are dropped, as RFC 6040 asks (logged once)",
                self.peer
            );
        }
    }

    /// Sends the gateway's messages. A message that cannot be sent counts as lost: the gateway
    /// repeats those that matter.
    fn flush(&mut self) {
        while let Some(transmit) = self.gateway.poll_transmit() {
            if transmit.destination != self.peer {
                self.peer = transmit.destination;
                if let Err(error) = SockRef::from(self.port.socket()).connect(&self.peer.into()) {
                    tracing::debug!(%error, relay = %self.peer, "no route to the relay");
                }
            }
            if let Err(error) = self.send(&transmit.contents) {
                tracing::debug!(%error, relay = %self.peer, "a message to the relay was not sent");
            }
        }
    }
}

impl std::fmt::Debug for GatewayClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayClient")
            .field("relay", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Opens a socket that sends to `peer`, and receives only from it.
fn connected_port(peer: SocketAddr) -> io::Result<Port> {
    let socket = open_socket(any_address(peer))?;
    socket.connect(&peer.into())?;
    Port::new(socket)
}

/// Whether a connected UDP socket reports an ICMP Destination Unreachable.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable};
    matches!(
        error.kind(),
        ConnectionRefused | HostUnreachable | NetworkDown | NetworkUnreachable
    )
}
