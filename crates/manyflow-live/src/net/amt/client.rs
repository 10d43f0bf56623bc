//! A gateway on a socket.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use manyflow_amt::{Flow, Gateway, GatewayConfig, GatewayEvent, JoinError, Subscription};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::server::random_seed;
use super::{DATAGRAM_BYTES_MAX, any_address, open_socket};
use crate::net::clock::Clock;
use crate::net::udp::route_to;

/// Size of the chunks that datagrams are split from, so that hundreds of them share one allocation.
const CHUNK_BYTES: usize = 1 << 20;

/// A packet that came through the tunnel.
#[derive(Clone, Debug)]
pub struct TunnelDatagram {
    /// The flow that the packet belongs to.
    pub flow: Flow,
    /// The UDP payload.
    pub payload: Bytes,
    /// Time at which the packet was taken from the kernel.
    pub received_at: Instant,
}

/// The result of [`GatewayClient::recv`].
#[derive(Clone, Debug)]
pub enum Incoming {
    /// A packet of a joined flow.
    Datagram(TunnelDatagram),
    /// The tunnel came up or went down.
    Event(GatewayEvent),
}

/// A gateway with its socket. It has no task of its own: it works while [`recv`](Self::recv) is
/// awaited.
pub struct GatewayClient {
    gateway: Gateway,
    socket: UdpSocket,
    peer: SocketAddr,
    /// Whether no route led to the relay at the last check.
    is_cut_off: bool,
    clock: Clock,
    buffer: BytesMut,
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
            socket: connected_socket(peer)?,
            peer,
            is_cut_off: false,
            clock,
            buffer: BytesMut::new(),
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
        let before = self.socket.local_addr().map(|local| local.ip());
        if !self.is_cut_off && before.is_ok_and(|before| before == address) {
            return;
        }
        let Ok(socket) = connected_socket(self.peer) else {
            self.is_cut_off = true;
            return;
        };
        tracing::info!(%address, relay = %self.peer, "the network has changed; opening the tunnel again");
        (self.socket, self.is_cut_off) = (socket, false);
        self.gateway.handle_network_change(self.clock.now());
        self.flush();
    }

    /// Waits for the next packet or event, and keeps the tunnel up meanwhile. Cancel safe: nothing
    /// that is not returned is lost.
    ///
    /// # Errors
    /// If the socket fails. An unreachable relay is not an error: after some attempts, it is
    /// reported as an event.
    pub async fn recv(&mut self) -> io::Result<Incoming> {
        loop {
            if let Some(event) = self.gateway.poll_event() {
                return Ok(Incoming::Event(event));
            }
            if let Some(datagram) = self.turn().await? {
                return Ok(Incoming::Datagram(datagram));
            }
        }
    }

    /// Ends the tunnel, and tells the relay as often as its robustness variable asks. With a
    /// relay's default parameters, this takes at most 1 s.
    pub async fn close(mut self) {
        self.gateway.close(self.clock.now());
        self.flush();
        while !self.gateway.is_closed() && self.turn().await.is_ok() {}
    }

    /// Handles one datagram or timer, whichever comes first.
    async fn turn(&mut self) -> io::Result<Option<TunnelDatagram>> {
        self.flush();
        let mut received = None;
        tokio::select! {
            biased;
            ready = self.socket.ready(Interest::READABLE | Interest::ERROR) => {
                if ready?.is_error() {
                    self.take_error();
                }
                received = self.read()?;
            }
            () = self.clock.sleep_until(self.gateway.poll_timeout()) => {}
        }
        self.gateway.handle_timeout(self.clock.now());
        self.flush();
        Ok(received)
    }

    /// Handles an ICMP Destination Unreachable, which makes a socket ready but not readable.
    fn take_error(&mut self) {
        let pending = || {
            self.socket
                .take_error()?
                .map_or(Err(io::ErrorKind::WouldBlock.into()), Err)
        };
        let outcome: io::Result<()> = self.socket.try_io(Interest::ERROR, pending);
        if outcome.is_err_and(|error| is_unreachable(&error)) {
            self.gateway.handle_unreachable(self.clock.now());
        }
    }

    fn read(&mut self) -> io::Result<Option<TunnelDatagram>> {
        if self.buffer.capacity() < DATAGRAM_BYTES_MAX {
            self.buffer.reserve(CHUNK_BYTES);
        }
        let from = match self.socket.try_recv_buf_from(&mut self.buffer) {
            Ok((_, from)) => from,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if is_unreachable(&error) => {
                self.gateway.handle_unreachable(self.clock.now());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let received_at = Instant::now();
        let datagram = self.buffer.split().freeze();
        let data = self
            .gateway
            .handle_datagram(self.clock.time_of(received_at), from, &datagram);
        Ok(data.map(|(flow, payload)| TunnelDatagram {
            flow,
            payload: datagram.slice_ref(payload),
            received_at,
        }))
    }

    /// Sends the gateway's messages. A message that cannot be sent counts as lost: the gateway
    /// repeats those that matter.
    fn flush(&mut self) {
        while let Some(transmit) = self.gateway.poll_transmit() {
            if transmit.destination != self.peer {
                self.peer = transmit.destination;
                if let Err(error) = SockRef::from(&self.socket).connect(&self.peer.into()) {
                    tracing::debug!(%error, relay = %self.peer, "no route to the relay");
                }
            }
            // tokio's `try_send` fails until tokio has polled the socket: the first Request would
            // be lost.
            let send = || SockRef::from(&self.socket).send(&transmit.contents);
            // The error may belong to an earlier datagram. Then the kernel has not tried to send
            // this one.
            if let Err(error) = send().or_else(|error| {
                if is_unreachable(&error) {
                    send()
                } else {
                    Err(error)
                }
            }) {
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
fn connected_socket(peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open_socket(any_address(peer))?;
    socket.connect(&peer.into())?;
    UdpSocket::from_std(socket.into())
}

/// Whether a connected UDP socket reports an ICMP Destination Unreachable.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable};
    matches!(
        error.kind(),
        ConnectionRefused | HostUnreachable | NetworkDown | NetworkUnreachable
    )
}
