//! One link of datagrams: packets to and from a neighbour.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use manyflow_core::Ecn;
use manyflow_net::train::Train;
use manyflow_overlay::DaemonId;
use tokio::io::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::Datagrams;
use super::seal::{HEADER_BYTES, Keys, LinkSeal, TAG_BYTES};

/// The kinds of bodies.
const KEEP_ALIVE: u8 = 0;
const FRAME: u8 = 1;
const DIRECT: u8 = 2;
/// Bytes of a direct message's route.
const DIRECT_BYTES: usize = 5;
/// The maximum number of links that a direct message takes.
const HOPS_MAX: u8 = 32;
/// The time between keep-alives: before the other end is heard, and afterwards.
const KEEP_ALIVE_INTERVAL: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1));
/// The time within which the other end must be heard: at first, and afterwards.
const SILENCE_MAX: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3));
/// Bytes of an [`Endpoint`].
const ENDPOINT_BYTES: usize = 10;

/// One end of a link, as the other end needs to know it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The port of its socket.
    pub(crate) port: u16,
    /// The number that packets to it carry.
    pub(crate) number: u64,
}

impl Endpoint {
    /// Writes the description to a control connection.
    pub(crate) async fn write(self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut bytes = [0; ENDPOINT_BYTES];
        bytes[..2].copy_from_slice(&self.port.to_be_bytes());
        bytes[2..].copy_from_slice(&self.number.to_be_bytes());
        writer.write_all(&bytes).await?;
        writer.flush().await
    }

    /// Reads a description.
    pub(crate) async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Endpoint> {
        let (port, number) = (reader.read_u16().await?, reader.read_u64().await?);
        Ok(Endpoint { port, number })
    }
}

/// The route of a direct message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Direct {
    pub(crate) from: DaemonId,
    pub(crate) to: DaemonId,
    /// The number of links that it may still take.
    hops: u8,
}

impl Direct {
    /// Returns the route of a new message.
    pub(crate) fn new(from: DaemonId, to: DaemonId) -> Direct {
        let hops = HOPS_MAX;
        Direct { from, to, hops }
    }

    /// Returns the route after a link, unless there were too many.
    pub(crate) fn forwarded(self) -> Option<Direct> {
        let hops = self.hops.checked_sub(1)?;
        Some(Direct { hops, ..self })
    }

    fn encode(self) -> [u8; DIRECT_BYTES] {
        let ([f0, f1], [t0, t1]) = (self.from.0.to_be_bytes(), self.to.0.to_be_bytes());
        [f0, f1, t0, t1, self.hops]
    }

    fn decode([f0, f1, t0, t1, hops]: [u8; DIRECT_BYTES]) -> Direct {
        Direct {
            from: DaemonId(u16::from_be_bytes([f0, f1])),
            to: DaemonId(u16::from_be_bytes([t0, t1])),
            hops,
        }
    }
}

/// The body of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// The other end is alive.
    KeepAlive,
    /// A frame of the neighbour, with its payload.
    Frame(Bytes),
    /// A direct message of any daemon.
    Direct(Direct, Bytes),
}

impl Body {
    /// Decodes a body. Returns `None` if it is none.
    fn decode(body: BytesMut) -> Option<Body> {
        let mut body = body.freeze();
        match body.try_get_u8().ok()? {
            KEEP_ALIVE if body.is_empty() => Some(Body::KeepAlive),
            FRAME => Some(Body::Frame(body)),
            DIRECT => {
                let route = Direct::decode(*body.first_chunk()?);
                body.advance(DIRECT_BYTES);
                Some(Body::Direct(route, body))
            }
            _ => None,
        }
    }
}

/// One end of a link. It is removed from the socket when its connection ends.
#[derive(Debug)]
pub(crate) struct DatagramLink {
    socket: Rc<Datagrams>,
    own: Endpoint,
    /// The neighbour and the number of the connection, when the link is attached to the daemon.
    pub(crate) attached: Cell<Option<(DaemonId, u64)>>,
    out: RefCell<Out>,
    heard_at: Cell<Option<Instant>>,
    sent_at: Cell<Instant>,
    heard: Notify,
}

/// The packets that wait to be sent together.
#[derive(Debug)]
struct Out {
    seal: LinkSeal,
    /// The address to which packets are sent.
    peer: SocketAddr,
    train: Train,
    /// An empty packet that keeps its memory.
    packet: Vec<u8>,
}

impl DatagramLink {
    pub(super) fn new(
        socket: Rc<Datagrams>,
        own: Endpoint,
        other: Endpoint,
        peer: SocketAddr,
        keys: Option<&Keys>,
        dialled: bool,
    ) -> DatagramLink {
        DatagramLink {
            socket,
            own,
            attached: Cell::new(None),
            out: RefCell::new(Out {
                seal: LinkSeal::new(other.number, keys, dialled),
                peer,
                train: Train::default(),
                packet: Vec::with_capacity(2048),
            }),
            heard_at: Cell::new(None),
            sent_at: Cell::new(Instant::now()),
            heard: Notify::new(),
        }
    }

    /// Opens a packet from this address.
    pub(super) fn open(&self, source: SocketAddr, packet: BytesMut) -> Result<Body, ()> {
        let mut out = self.out.borrow_mut();
        let body = out.seal.open(packet).map_err(|_| ())?;
        let body = Body::decode(body).ok_or(())?;
        if out.seal.is_latest() {
            out.peer = source;
        }
        if self.heard_at.replace(Some(Instant::now())).is_none() {
            self.heard.notify_one();
        }
        Ok(body)
    }

    /// Sends a frame of this daemon with the next [`flush`](DatagramLink::flush), or before.
    pub(crate) fn push_frame(&self, frame: &[u8], payload: &[u8]) {
        self.push(&[&[FRAME], frame, payload]);
    }

    /// Sends a direct message, as [`push_frame`](DatagramLink::push_frame) does a frame.
    pub(crate) fn push_direct(&self, route: Direct, frame: &[u8]) {
        self.push(&[&[DIRECT], &route.encode(), frame]);
    }

    fn push(&self, body: &[&[u8]]) {
        let out = &mut *self.out.borrow_mut();
        out.packet.clear();
        out.packet.resize(HEADER_BYTES, 0);
        body.iter()
            .for_each(|part| out.packet.extend_from_slice(part));
        out.seal.seal(&mut out.packet);
        if !out.train.push(&out.packet) {
            self.send(&mut out.train, out.peer);
            out.train.push(&out.packet);
        }
    }

    /// Sends the packets that wait.
    pub(crate) fn flush(&self) {
        let out = &mut *self.out.borrow_mut();
        if !out.train.is_empty() {
            self.send(&mut out.train, out.peer);
        }
    }

    fn send(&self, train: &mut Train, peer: SocketAddr) {
        self.sent_at.set(Instant::now());
        // Packets that the kernel does not take are lost like others, and repaired.
        let port = &self.socket.port;
        let (bytes, length) = (train.bytes(), train.length());
        let unsent = port.send(None, peer, Ecn::NotCapable, bytes, length);
        if unsent.too_long > 0 {
            self.socket.handle_too_long(peer);
        }
        train.clear();
    }

    /// Sends keep-alives until the other end is heard. Returns whether that was in time.
    pub(crate) async fn wait_until_heard(&self) -> bool {
        let ask = async {
            loop {
                self.push(&[&[KEEP_ALIVE]]);
                self.flush();
                sleep(KEEP_ALIVE_INTERVAL.0).await;
            }
        };
        let heard = async {
            tokio::select! {
                () = self.heard.notified() => {}
                () = ask => {}
            }
        };
        let is_heard = timeout(SILENCE_MAX.0, heard).await.is_ok();
        // The other end may not have heard this one.
        self.push(&[&[KEEP_ALIVE]]);
        self.flush();
        is_heard
    }

    /// Sends keep-alives while there is nothing else to send. Returns when the other end has been
    /// silent for too long.
    pub(crate) async fn keep_alive(&self) {
        loop {
            sleep(KEEP_ALIVE_INTERVAL.1 / 2).await;
            let silence = self.heard_at.get().map(|at| at.elapsed());
            if silence.is_none_or(|silence| silence > SILENCE_MAX.1) {
                return;
            }
            if self.sent_at.get().elapsed() >= KEEP_ALIVE_INTERVAL.1 / 2 {
                self.push(&[&[KEEP_ALIVE]]);
                self.flush();
            }
        }
    }

    /// Removes the link from its socket: later packets to it are refused.
    pub(crate) fn remove(&self) {
        self.attached.set(None);
        self.socket.links.borrow_mut().remove(&self.own.number);
    }
}

/// The number of bytes of a packet besides its body: with a seal, and the kind.
const _: () = assert!(
    // IPv6 and UDP, the packet, the number of a datagram, the header of a message, of a fragment.
    48 + HEADER_BYTES + TAG_BYTES + 1 + 8 + 28 + 5 + super::FRAGMENT_BYTES <= 1280,
    "a packet exceeds 1,280 bytes"
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_direct_message_is_read_as_it_was_written_and_takes_a_limited_number_of_links() {
        let route = Direct::new(DaemonId(3), DaemonId(65_535));
        assert_eq!(Direct::decode(route.encode()), route);
        let links = core::iter::successors(Some(route), |route| route.forwarded());
        assert_eq!(links.count(), usize::from(HOPS_MAX) + 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_body_or_refused(bytes: Vec<u8>) {
            let body = Body::decode(BytesMut::from(&bytes[..]));
            let length = match body {
                None => return Ok(()),
                Some(Body::KeepAlive) => 1,
                Some(Body::Frame(frame)) => 1 + frame.len(),
                Some(Body::Direct(_, frame)) => 1 + DIRECT_BYTES + frame.len(),
            };
            prop_assert_eq!(length, bytes.len());
        }
    }
}
