//! The connection of a Spread client.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::handshake::{HANDSHAKE_BYTES_MAX, Handshake, Wish};
use super::session::Request;
use super::wire::{Refusal, WireError};
use crate::accept::{Arrivals, Port};
use crate::client_stream::{ClientStream, PeerAddress};
use crate::core::{DaemonCore, Phase, SpreadKey};
use crate::nats::serve::CONNECT_TIMEOUT;
use crate::outgoing::Outgoing;

/// The number of bytes that the buffer of a socket grows by.
const READ_BYTES: usize = 64 * 1024;
/// The time without traffic after which the kernel asks whether a client is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The parts that all connections of Spread clients share.
pub(crate) struct SpreadFront {
    core: Rc<RefCell<DaemonCore>>,
    arrivals: Rc<Arrivals>,
    /// The name of the daemon.
    name: String,
    /// Bytes of the longest payload.
    payload_bytes_max: usize,
    /// The names that clients of this daemon have chosen, or have got.
    names: RefCell<BTreeSet<String>>,
}

impl SpreadFront {
    /// Returns the port of the daemon with this name, for payloads of at most `payload_bytes_max`
    /// bytes.
    pub(crate) fn new(
        core: Rc<RefCell<DaemonCore>>,
        arrivals: Rc<Arrivals>,
        name: &str,
        payload_bytes_max: usize,
    ) -> SpreadFront {
        SpreadFront {
            core,
            arrivals,
            name: name.to_owned(),
            payload_bytes_max,
            names: RefCell::default(),
        }
    }
}

/// The reason why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    /// The client closed it, or it broke.
    #[error("closed")]
    Closed,
    /// The client is not welcome, and learns it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The client sends too slowly before it is accepted.
    #[error("the handshake has taken more than {} s", CONNECT_TIMEOUT.as_secs())]
    Slow,
    /// The client has violated the protocol.
    #[error(transparent)]
    Violation(#[from] WireError),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Closed
    }
}

impl Port for SpreadFront {
    fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    async fn serve(&self, socket: impl ClientStream, peer: PeerAddress, number: u64) {
        if socket.prepare().is_err() || socket.keep_alive(KEEP_ALIVE).is_err() {
            return;
        }
        let (mut reader, writer) = socket.into_halves();
        let out = Rc::new(Outgoing::default());
        let writing = Outgoing::begin_writing(&out, writer, || {});
        let mut connection = Connection {
            front: self,
            peer,
            number,
            out: Rc::clone(&out),
            bytes: BytesMut::new(),
            name: None,
            session: None,
        };
        let end = tokio::select! {
            end = connection.run(&mut reader) => end,
            () = out.aborted() => Err(End::Closed),
        };
        connection.finish(end).await;
        // A client that does not read its last bytes must not hold the connection.
        let _ = timeout(CONNECT_TIMEOUT, writing).await;
    }

    async fn refuse(&self, mut socket: impl ClientStream, _: PeerAddress, _: u64) {
        // The client may have gone.
        let _ = socket.write_all(&[Refusal::Quota.byte()]).await;
    }
}

/// The reading half of a connection.
struct Connection<'a> {
    front: &'a SpreadFront,
    peer: PeerAddress,
    number: u64,
    out: Rc<Outgoing>,
    bytes: BytesMut,
    /// The name that the client has, until it ends.
    name: Option<String>,
    session: Option<SpreadKey>,
}

impl Connection<'_> {
    async fn run(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), End> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let greeted = timeout_at(deadline, self.greet(reader)).await;
        let key = greeted.map_err(|_| End::Slow)??;
        while let Some(request) = self.next_request(key, reader).await? {
            match request {
                Request::Message(message) => {
                    let mut core = self.front.core.borrow_mut();
                    core.handle_spread(key, &message, self.front.payload_bytes_max);
                }
                Request::Disconnect => return Ok(()),
            }
            self.wait_until_sent(key).await;
            self.out.wait_for_answers().await;
        }
        Ok(())
    }

    /// Exchanges the handshake with the client, and connects it.
    async fn greet(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Result<SpreadKey, End> {
        let mut handshake = Handshake::new(&self.front.name);
        self.bytes.reserve(HANDSHAKE_BYTES_MAX);
        loop {
            match handshake.read(&mut self.bytes)? {
                None => read(reader, &mut self.bytes).await?,
                Some(Wish::Name(wanted)) => {
                    let name = self.take_name(wanted)?;
                    self.out.push_answer(&[&handshake.name(&name)]);
                }
                Some(Wish::Connection) => {
                    let mut core = self.front.core.borrow_mut();
                    let (out, name) = (Rc::clone(&self.out), handshake.private_group());
                    let views = handshake.wants_views();
                    let key = core.connect_spread(out, name, self.peer, views);
                    let key = key.map_err(|_| Refusal::NotUnique)?;
                    self.session = Some(key);
                    self.out.push_answer(&[&handshake.acceptance()]);
                    return Ok(key);
                }
            }
        }
    }

    /// Reserves the name that the client wants, or one that no other client has.
    fn take_name(&mut self, wanted: String) -> Result<String, Refusal> {
        let mut names = self.front.names.borrow_mut();
        let name = match wanted.is_empty() {
            false => wanted,
            true => {
                let numbers = (self.number..).map(|number| format!("r{}", number % 1_000_000_000));
                let mut free = numbers.filter(|name| !names.contains(name));
                free.next().expect("there are fewer clients than numbers")
            }
        };
        if !names.insert(name.clone()) {
            return Err(Refusal::NotUnique);
        }
        self.name = Some(name.clone());
        Ok(name)
    }

    /// Returns the next request of the client; `None` if the daemon takes no more.
    async fn next_request(
        &mut self,
        key: SpreadKey,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Request>, End> {
        loop {
            if self.front.core.borrow().phase() != Phase::Serves {
                return discard(reader).await.map(|()| None);
            }
            let request = {
                let mut core = self.front.core.borrow_mut();
                core.spread_session(key).read(&mut self.bytes)?
            };
            if request.is_some() {
                return Ok(request);
            }
            if self.bytes.capacity() - self.bytes.len() < READ_BYTES / 4 {
                self.bytes.reserve(READ_BYTES);
            }
            read(reader, &mut self.bytes).await?;
        }
    }

    /// Waits until the client's message has entered the stream of the daemon, or the daemon ends.
    async fn wait_until_sent(&self, key: SpreadKey) {
        loop {
            let ready = {
                let mut core = self.front.core.borrow_mut();
                let has_ended = core.phase() == Phase::Closes;
                let session = core.spread_session(key);
                if has_ended || !session.is_sending {
                    return;
                }
                Rc::clone(&session.ready)
            };
            ready.notified().await;
        }
    }

    /// Ends the connection: the client leaves its groups, after its messages.
    async fn finish(mut self, end: Result<(), End>) {
        match &end {
            Ok(()) | Err(End::Closed) => {}
            Err(error) => {
                let mut core = self.front.core.borrow_mut();
                core.refuse_spread(self.peer.ip(), error);
            }
        }
        if let Err(End::Refused(refusal)) = end {
            self.out.push(&[refusal.byte()], Bytes::new());
        }
        if let Some(key) = self.session.take() {
            self.wait_until_sent(key).await;
            self.front.core.borrow_mut().disconnect_spread(key);
        }
        self.out.close();
        if let Some(name) = self.name.take() {
            self.front.names.borrow_mut().remove(&name);
        }
    }
}

async fn read(reader: &mut (impl AsyncRead + Unpin), bytes: &mut BytesMut) -> Result<(), End> {
    match reader.read_buf(bytes).await? {
        0 => Err(End::Closed),
        _ => Ok(()),
    }
}

/// Reads what a client sends to a daemon that stops, until the client closes the connection:
/// unread bytes would make the kernel reset it, and the client's last messages could get lost.
async fn discard(reader: &mut (impl AsyncRead + Unpin)) -> Result<(), End> {
    let mut bytes = BytesMut::with_capacity(READ_BYTES);
    loop {
        bytes.clear();
        read(reader, &mut bytes).await?;
    }
}
