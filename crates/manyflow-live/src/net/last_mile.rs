//! A last mile in user space: datagrams between one client and one server pass through two
//! [`Link`]s in real time.
//!
//! The client sends to [`LastMile::address`] instead of the server. This needs no privileges, and
//! the link is the simulator's.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use manyflow_core::link::{Carried, Counters, Link, LinkConfig};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::net::clock::Clock;

/// Bytes that IPv4 and UDP headers add to a datagram on a link.
pub const IP_UDP_BYTES: u32 = 28;

/// A running last mile, which ends when it is dropped.
#[derive(Debug)]
pub struct LastMile {
    address: SocketAddr,
    downstream: Arc<Mutex<Counters>>,
    changes: mpsc::UnboundedSender<Change>,
    task: JoinHandle<io::Result<()>>,
}

impl LastMile {
    /// Puts a last mile on loopback in front of `server`, with the link `down` towards the client
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
        let (client_side, server_side) = (
            UdpSocket::bind(loopback).await?,
            UdpSocket::bind(loopback).await?,
        );
        server_side.connect(server).await?;
        let address = client_side.local_addr()?;
        let downstream = Arc::new(Mutex::new(Counters::default()));
        let (changes, changed) = mpsc::unbounded_channel();
        let pipe = Pipe {
            clock: Clock::start(),
            client: None,
            client_side,
            server_side,
            down: Link::new(down, seed),
            up: Link::new(up, seed.wrapping_add(1)),
            counters: Arc::clone(&downstream),
            changes: changed,
        };
        Ok(LastMile {
            address,
            downstream,
            changes,
            task: tokio::spawn(pipe.run()),
        })
    }

    /// Returns the address that the client sends to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts both directions, which then lose all packets on them, or restores them.
    pub fn set_cut(&self, cut: bool) {
        self.change(Change::Cut(cut));
    }

    /// Changes the link towards the client. Packets that are on it keep their times.
    pub fn reconfigure(&self, down: LinkConfig) {
        self.change(Change::Down(down));
    }

    fn change(&self, change: Change) {
        // The task runs as long as the last mile exists, unless a socket failed.
        let _ = self.changes.send(change);
    }

    /// Returns the counts of packets towards the client.
    pub fn downstream(&self) -> Counters {
        *self
            .downstream
            .lock()
            .expect("the lock is only held to copy")
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
}

/// A datagram on a link.
#[derive(Clone)]
struct Frame(Bytes);

impl Carried for Frame {}

struct Pipe {
    clock: Clock,
    client: Option<SocketAddr>,
    client_side: UdpSocket,
    server_side: UdpSocket,
    down: Link<Frame>,
    up: Link<Frame>,
    counters: Arc<Mutex<Counters>>,
    changes: mpsc::UnboundedReceiver<Change>,
}

impl Pipe {
    async fn run(mut self) -> io::Result<()> {
        let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            let next = [self.down.next_time(), self.up.next_time()]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                Some(change) = self.changes.recv() => self.apply(change),
                received = self.client_side.recv_from(&mut from_client) => {
                    // A port that is unreachable for a moment causes an error here. The link goes
                    // on.
                    let Ok((length, client)) = received else { continue };
                    self.client = Some(client);
                    push(&mut self.up, &self.clock, &from_client[..length]);
                }
                received = self.server_side.recv(&mut from_server) => {
                    let Ok(length) = received else { continue };
                    push(&mut self.down, &self.clock, &from_server[..length]);
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
        }
    }

    /// Sends the datagrams that have crossed the link. A full socket drops them, as a network does.
    fn deliver(&mut self) {
        let now = self.clock.now();
        while let Some(datagram) = self.up.pop_ready(now) {
            let _ = self.server_side.try_send(&datagram.0);
        }
        while let Some(datagram) = self.down.pop_ready(now) {
            if let Some(client) = self.client {
                let _ = self.client_side.try_send_to(&datagram.0, client);
            }
        }
        *self.counters.lock().expect("the lock is only held to copy") = self.down.counters();
    }
}

fn push(link: &mut Link<Frame>, clock: &Clock, datagram: &[u8]) {
    // The link counts what it drops.
    let _ = link.push(
        clock.now(),
        Frame(Bytes::copy_from_slice(datagram)),
        datagram.len() as u32 + IP_UDP_BYTES,
    );
}
