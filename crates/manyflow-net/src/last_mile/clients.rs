//! The clients of a last mile, each with a socket towards the server.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The maximum number of clients. Datagrams of further ones are dropped.
const CLIENTS_MAX: usize = 1000;
/// A client is forgotten after this time without a datagram in either direction. RFC 4787 section
/// 4.3 recommends 5 minutes for the mappings of NATs.
const SILENCE: Duration = Duration::from_secs(300);

/// A datagram of the server, and the client to which it goes.
pub(super) type FromServer = (SocketAddr, Vec<u8>);

/// The clients, by their addresses.
#[derive(Debug)]
pub(super) struct Clients {
    server: SocketAddr,
    clients: HashMap<SocketAddr, Client>,
    from_server: mpsc::Sender<FromServer>,
}

#[derive(Debug)]
struct Client {
    socket: Arc<UdpSocket>,
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
    pub(super) async fn socket(&mut self, address: SocketAddr) -> Option<Arc<UdpSocket>> {
        if let Some(client) = self.clients.get_mut(&address) {
            client.heard = Instant::now();
            return Some(Arc::clone(&client.socket));
        }
        if self.clients.len() >= CLIENTS_MAX {
            return None;
        }
        match self.open(address).await {
            Ok(client) => {
                let socket = Arc::clone(&client.socket);
                self.clients.insert(address, client);
                Some(socket)
            }
            Err(error) => {
                tracing::warn!(
                    "cannot open a socket for the client {address}, whose packets are dropped: {error}"
                );
                None
            }
        }
    }

    async fn open(&self, address: SocketAddr) -> io::Result<Client> {
        let any = match self.server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(self.server).await?;
        let socket = Arc::new(socket);
        Ok(Client {
            reader: tokio::spawn(read(address, Arc::clone(&socket), self.from_server.clone())),
            socket,
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
async fn read(client: SocketAddr, socket: Arc<UdpSocket>, to: mpsc::Sender<FromServer>) {
    let mut buffer = vec![0; 65_536];
    loop {
        // A port that is unreachable for a moment causes an error here. The link goes on.
        let Ok(length) = socket.recv(&mut buffer).await else {
            continue;
        };
        if to.send((client, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}
