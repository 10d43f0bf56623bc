//! The clients of a last mile, each with a socket towards the server.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use manyflow_core::Ecn;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::udp::{Inbox, Port};

/// The maximum number of clients. Datagrams of further ones are dropped.
const CLIENTS_MAX: usize = 1000;
/// A client is forgotten after this time without a datagram in either direction. RFC 4787 section
/// 4.3 recommends 5 minutes for the mappings of NATs.
const SILENCE: Duration = Duration::from_secs(300);

/// A datagram of the server with its ECN field, and the client to which it goes.
pub(super) type FromServer = (SocketAddr, Ecn, Vec<u8>);

/// The clients, by their addresses.
#[derive(Debug)]
pub(super) struct Clients {
    server: SocketAddr,
    clients: HashMap<SocketAddr, Client>,
    from_server: mpsc::Sender<FromServer>,
}

#[derive(Debug)]
struct Client {
    port: Arc<Port>,
    /// When the last datagram came from the client or the server.
    heard: Instant,
    /// Reads what the server sends to this client.
    reader: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Clients {
    /// Creates an empty table. Datagrams of `server` go to `from_server`.
    pub(super) fn new(server: SocketAddr, from_server: mpsc::Sender<FromServer>) -> Clients {
        Clients {
            server,
            clients: HashMap::new(),
            from_server,
        }
    }

    /// Returns the socket of a client that has sent a datagram, and opens one for a new client.
    /// Returns `None` if that fails or if there are too many clients.
    pub(super) fn port(&mut self, address: SocketAddr) -> Option<Arc<Port>> {
        if let Some(client) = self.clients.get_mut(&address) {
            client.heard = Instant::now();
            return Some(Arc::clone(&client.port));
        }
        if self.clients.len() >= CLIENTS_MAX {
            return None;
        }
        match self.open(address) {
            Ok(client) => {
                let port = Arc::clone(&client.port);
                self.clients.insert(address, client);
                Some(port)
            }
            Err(error) => {
                tracing::warn!(
                    "cannot open a socket for the client {address}, whose packets are dropped: {error}"
                );
                None
            }
        }
    }

    fn open(&self, address: SocketAddr) -> io::Result<Client> {
        let any = match self.server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.server)?;
        socket.set_nonblocking(true)?;
        let port = Arc::new(Port::new(socket.into())?);
        Ok(Client {
            reader: tokio::spawn(read(address, Arc::clone(&port), self.from_server.clone())),
            port,
            heard: Instant::now(),
        })
    }

    /// Notes a datagram of the server to this client.
    pub(super) fn note_answer(&mut self, address: SocketAddr) {
        if let Some(client) = self.clients.get_mut(&address) {
            client.heard = Instant::now();
        }
    }

    /// Forgets clients that have been silent for long.
    pub(super) fn forget_silent(&mut self) {
        self.clients
            .retain(|_, client| client.heard.elapsed() < SILENCE);
    }
}

/// Passes on what the server sends to one client. While the queue is full, datagrams wait in the
/// socket's buffer.
async fn read(client: SocketAddr, port: Arc<Port>, to: mpsc::Sender<FromServer>) {
    // There can be many clients.
    let mut inbox = Inbox::with_messages(1);
    loop {
        let received = poll_fn(|context| port.poll_recv(&mut inbox, context)).await;
        // A port that is unreachable for a moment causes an error here. The link goes on.
        if received.is_err() {
            continue;
        }
        while let Some(arrival) = inbox.next_arrival() {
            let bytes = inbox.bytes(arrival.payload).to_vec();
            if to.send((client, arrival.ecn, bytes)).await.is_err() {
                return;
            }
        }
    }
}
