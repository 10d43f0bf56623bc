//! Clients that connect, whatever protocol they speak.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use manyflow_net::accepting::FailedAccepts;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use super::client_names::names_shown_in;
use super::client_stream::{ClientListener, ClientStream, PeerAddress};
use super::nats::serve::Front;
use super::nats::session::Peer;
use super::nkey::Nonce;
use super::server::TLS_TIMEOUT;
use super::websocket::{self, STRANGERS_MAX};

/// The connections of clients, whether they have been admitted or not.
pub(crate) struct Arrivals {
    /// The number of connections that clients have made.
    made: Cell<u64>,
    /// The number of connections now.
    pub(crate) connected: Cell<usize>,
    /// The number of connections that there may be.
    connections_max: usize,
    /// Permits for WebSockets of clients that have not sent CONNECT.
    pub(crate) strangers: Semaphore,
}

impl Arrivals {
    /// Returns the connections of a daemon that may have this number of them.
    pub(crate) fn new(connections_max: usize) -> Arrivals {
        Arrivals {
            made: Cell::new(0),
            connected: Cell::new(0),
            connections_max,
            strangers: Semaphore::new(STRANGERS_MAX),
        }
    }

    /// Returns the number of a connection that has been made.
    fn next_number(&self) -> u64 {
        self.made.set(self.made.get() + 1);
        self.made.get()
    }
}

/// A protocol at an address.
pub(crate) trait Port: 'static {
    /// Returns the connections of clients of all protocols.
    fn arrivals(&self) -> &Arrivals;

    /// Serves a client until its connection ends. `number` is that of the connection.
    async fn serve(&self, socket: impl ClientStream, peer: PeerAddress, number: u64);

    /// Refuses a client because there are too many.
    async fn refuse(&self, socket: impl ClientStream, peer: PeerAddress, number: u64);
}

/// Accepts clients on TCP or a Unix socket.
pub(crate) fn accept_clients(listener: ClientListener, port: Rc<impl Port>) -> JoinHandle<()> {
    match listener {
        ClientListener::Tcp(listener, _) => spawn_local(accept::<TcpStream>(listener, port)),
        ClientListener::Unix(listener, file) => spawn_local(async move {
            // The file is there as long as clients can connect.
            let _file = file;
            accept::<UnixStream>(listener, port).await;
        }),
    }
}

async fn accept<S: ClientStream>(listener: S::Listener, port: Rc<impl Port>) {
    let mut failed = FailedAccepts::default();
    loop {
        let (socket, peer) = retry(&mut failed, || S::accept(&listener)).await;
        let port = Rc::clone(&port);
        spawn_local(async move {
            let arrivals = port.arrivals();
            let (connected, number) = (&arrivals.connected, arrivals.next_number());
            connected.set(connected.get() + 1);
            match connected.get() <= arrivals.connections_max {
                true => port.serve(socket, peer, number).await,
                false => port.refuse(socket, peer, number).await,
            }
            connected.set(connected.get() - 1);
        });
    }
}

/// Returns the next connection. Waits if the process has too many files open.
pub(crate) async fn retry<T>(
    failed: &mut FailedAccepts,
    mut accept: impl AsyncFnMut() -> io::Result<T>,
) -> T {
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(error) => failed.pause(&error).await,
        }
    }
}

/// NATS, with or without WebSocket.
pub(crate) struct NatsPort {
    pub(crate) front: Rc<Front>,
    pub(crate) is_websocket: bool,
}

impl NatsPort {
    fn peer(&self, address: PeerAddress, number: u64) -> Peer {
        Peer {
            number,
            address,
            is_websocket: self.is_websocket,
            nonce: self.front.access.needs_nonce().then(Nonce::random),
        }
    }
}

impl Port for NatsPort {
    fn arrivals(&self) -> &Arrivals {
        &self.front.arrivals
    }

    async fn serve(&self, socket: impl ClientStream, address: PeerAddress, number: u64) {
        let peer = self.peer(address, number);
        match self.is_websocket {
            true => websocket::serve(socket, peer, &self.front, true).await,
            false => serve_client(socket, peer, &self.front).await,
        }
    }

    async fn refuse(&self, mut socket: impl ClientStream, address: PeerAddress, number: u64) {
        match self.is_websocket {
            true => {
                let peer = self.peer(address, number);
                websocket::serve(socket, peer, &self.front, false).await;
            }
            false => {
                let error = b"-ERR 'maximum connections exceeded'\r\n";
                // The client may have gone.
                let _ = socket.write_all(error).await;
            }
        }
    }
}

async fn serve_client(mut socket: impl ClientStream, peer: Peer, front: &Front) {
    let greeted = socket.write_all(front.info(peer).as_bytes()).await;
    if greeted.is_err() || socket.prepare().is_err() {
        return;
    }
    let Some(tls) = &front.tls else {
        let (reader, writer) = socket.into_halves();
        return front.serve(peer, Vec::new(), reader, writer, || {}).await;
    };
    let accepted = timeout(TLS_TIMEOUT, tls.acceptor().accept(socket)).await;
    if let Ok(Ok(stream)) = accepted {
        let names = names_shown_in(&stream);
        let (reader, writer) = tokio::io::split(stream);
        front.serve(peer, names, reader, writer, || {}).await;
    }
}
