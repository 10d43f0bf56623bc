//! A link in user space: datagrams between clients and one server pass through two [`Link`]s in
//! real time.
//!
//! ```text
//!   client a --+                     +-- socket for a --+
//!              +-- address [ links ] +                  +-- server
//!   client b --+                     +-- socket for b --+
//! ```
//!
//! The clients send to [`LastMile::address`] instead of the server, and share the links. The server
//! sees each client at a port of its own. This needs no privileges, and the links are the
//! simulator's: if they speak XCP, they lower the window changes in ACP's frames
//! ([`manyflow_anypoint`]), and count all other datagrams as traffic. Datagrams of the server keep
//! their ECN field, and a link may mark them. Those of clients lose theirs, and empty datagrams of
//! the server do not pass.
//!
//! | file | what it holds |
//! |---|---|
//! | `clients.rs` | the clients, with the socket of each |
//! | `datagram.rs` | a datagram on a link, with XCP's header if it has one |

mod clients;
mod datagram;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manyflow_core::Ecn;
use manyflow_core::link::{Counters, Link, LinkConfig};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use self::clients::{Clients, FromServer};
use self::datagram::Datagram;
use crate::clock::Clock;
use crate::udp::{Inbox, Port};

/// Bytes that IPv4 and UDP headers add to a datagram on a link.
pub const IP_UDP_BYTES: u32 = 28;

/// Datagrams that are read at a time before others have their turn.
const BURST: usize = 64;
/// Datagrams from the server that wait for the task. The kernel's buffers hold more.
const QUEUE_DATAGRAMS: usize = 256;
/// Time between two looks for clients that have fallen silent.
const SWEEP: Duration = Duration::from_secs(10);

/// A running last mile, which ends when it is dropped.
#[derive(Debug)]
pub struct LastMile {
    address: SocketAddr,
    counters: Arc<Mutex<Directions>>,
    changes: mpsc::UnboundedSender<Change>,
    task: JoinHandle<io::Result<()>>,
}

/// The counts of both links.
#[derive(Copy, Clone, Debug, Default)]
struct Directions {
    down: Counters,
    up: Counters,
}

impl LastMile {
    /// Puts a last mile on loopback in front of `server`, with the link `down` towards the clients
    /// and `up` towards the server.
    ///
    /// # Errors
    /// If no socket can be bound.
    pub async fn start(
        server: SocketAddr,
        down: LinkConfig,
        up: LinkConfig,
        seed: u64,
    ) -> io::Result<LastMile> {
        let loopback: SocketAddr = if server.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        }
        .parse()
        .expect("an address");
        LastMile::listen(loopback, server, down, up, seed).await
    }

    /// Puts a last mile at address `listen` in front of `server`.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn listen(
        listen: SocketAddr,
        server: SocketAddr,
        down: LinkConfig,
        up: LinkConfig,
        seed: u64,
    ) -> io::Result<LastMile> {
        let socket = UdpSocket::bind(listen)?;
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let counters = Arc::<Mutex<Directions>>::default();
        let (changes, changed) = mpsc::unbounded_channel();
        let (from_server, answers) = mpsc::channel(QUEUE_DATAGRAMS);
        let pipe = Pipe {
            clock: Clock::start(),
            port: Port::new(socket.into())?,
            clients: Clients::new(server, from_server),
            down: Link::new(down, seed),
            up: Link::new(up, seed.wrapping_add(1)),
            counters: Arc::clone(&counters),
            changes: changed,
            answers,
            inbox: Inbox::default(),
        };
        Ok(LastMile {
            address,
            counters,
            changes,
            task: tokio::spawn(pipe.run()),
        })
    }

    /// Returns the address that the clients send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts both directions, which then lose all packets on them, or restores them.
    pub fn set_cut(&self, cut: bool) {
        self.change(Change::Cut(cut));
    }

    /// Changes the link towards the clients. Packets that are on it keep their times.
    pub fn reconfigure(&self, down: LinkConfig) {
        self.change(Change::Down(down));
    }

    /// Changes the link towards the server. Packets that are on it keep their times.
    pub fn reconfigure_upstream(&self, up: LinkConfig) {
        self.change(Change::Up(up));
    }

    fn change(&self, change: Change) {
        // The task runs as long as the last mile exists, unless a socket failed.
        let _ = self.changes.send(change);
    }

    /// Returns the counts of packets towards the clients.
    pub fn downstream(&self) -> Counters {
        self.counters().down
    }

    /// Returns the counts of packets towards the server.
    pub fn upstream(&self) -> Counters {
        self.counters().up
    }

    fn counters(&self) -> Directions {
        *self.counters.lock().expect("the lock is only held to copy")
    }
}

impl Drop for LastMile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A change of the links.
#[derive(Debug)]
enum Change {
    Cut(bool),
    Down(LinkConfig),
    Up(LinkConfig),
}

struct Pipe {
    clock: Clock,
    /// The socket of all clients.
    port: Port,
    clients: Clients,
    down: Link<Datagram<SocketAddr>>,
    up: Link<Datagram<Arc<Port>>>,
    counters: Arc<Mutex<Directions>>,
    changes: mpsc::UnboundedReceiver<Change>,
    answers: mpsc::Receiver<FromServer>,
    /// Takes a datagram of a client.
    inbox: Inbox,
}

impl Pipe {
    async fn run(mut self) -> io::Result<()> {
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = [self.down.next_time(), self.up.next_time()]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                Some(change) = self.changes.recv() => self.apply(change),
                Some(answer) = self.answers.recv() => self.take_answers(answer),
                _ = sweep.tick() => self.clients.forget_silent(),
                ready = self.port.socket().readable() => {
                    ready?;
                    self.read_clients();
                }
            }
            self.deliver();
        }
    }

    fn apply(&mut self, change: Change) {
        let now = self.clock.now();
        match change {
            Change::Cut(cut) => {
                self.down.set_cut(now, cut);
                self.up.set_cut(now, cut);
            }
            Change::Down(config) => self.down.reconfigure(now, config),
            Change::Up(config) => self.up.reconfigure(now, config),
        }
    }

    fn read_clients(&mut self) {
        for _ in 0..BURST {
            match self.port.try_recv(&mut self.inbox) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A port that is unreachable for a moment causes an error here. The link goes on.
                Err(_) => continue,
            }
            while let Some(arrival) = self.inbox.next_arrival() {
                if let Some(port) = self.clients.port(arrival.source) {
                    let bytes = self.inbox.bytes(arrival.payload);
                    push(&mut self.up, &self.clock, port, Ecn::NotCapable, bytes);
                }
            }
        }
    }

    fn take_answers(&mut self, first: FromServer) {
        let mut next = Some(first);
        for _ in 0..BURST {
            let Some((client, ecn, bytes)) = next else {
                return;
            };
            self.clients.note_answer(client);
            push(&mut self.down, &self.clock, client, ecn, &bytes);
            next = self.answers.try_recv().ok();
        }
        if let Some((client, ecn, bytes)) = next {
            push(&mut self.down, &self.clock, client, ecn, &bytes);
        }
    }

    /// Sends the datagrams that have crossed the link. A full socket drops them, as a network does.
    fn deliver(&mut self) {
        let now = self.clock.now();
        while let Some(datagram) = self.up.pop_ready(now) {
            let (port, _, bytes) = datagram.finish();
            let _ = port.socket().try_send(&bytes);
        }
        while let Some(datagram) = self.down.pop_ready(now) {
            let (client, ecn, bytes) = datagram.finish();
            let _ = self.port.send(None, client, ecn, &bytes, bytes.len());
        }
        *self.counters.lock().expect("the lock is only held to copy") = Directions {
            down: self.down.counters(),
            up: self.up.counters(),
        };
    }
}

fn push<E: Clone>(link: &mut Link<Datagram<E>>, clock: &Clock, end: E, ecn: Ecn, bytes: &[u8]) {
    let datagram = Datagram::new(end, ecn, bytes, link.config().xcp.is_some());
    // The link counts what it drops.
    let _ = link.push(clock.now(), datagram, bytes.len() as u32 + IP_UDP_BYTES);
}
