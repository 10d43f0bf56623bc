//! A link of limited rate in user space: TCP connections to one server pass through two [`Link`]s
//! in real time.
//!
//! The client connects to [`ThinLink::address`] instead of the server. A full link reads no more
//! bytes, and its sockets have small buffers, so the sender's TCP is slowed down as if it crossed
//! that link. No byte of a connection is lost unless the connection breaks. This needs no
//! privileges.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyflow_core::Time;
use manyflow_core::link::{Carried, Link, LinkConfig, QueueLimit};
use manyflow_core::units::Rate;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::accepting::FailedAccepts;
use crate::clock::Clock;

/// The number of bytes that a link carries as one packet.
const PACKET_BYTES: usize = 1448;
/// The buffers of sockets, in bytes. They add to the queue of the link. A receive buffer must hold
/// several segments with the kernel's overhead: otherwise TCP drops segments, and sends the next
/// after a time-out.
const SOCKET_BYTES: u32 = 16 * 1024;
/// The shortest wait for room in a queue: the resolution of the runtime's timer.
const ROOM_WAIT_MIN: Duration = Duration::from_millis(1);

/// The parameters of both directions of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ThinLinkConfig {
    /// The rate of TCP's payload in each direction.
    pub rate: Rate,
    /// The one-way delay.
    pub delay: Duration,
    /// The number of packets of up to 1448 bytes that wait in each direction before the link reads
    /// no more, at least 1.
    pub queue_packets: u32,
}

/// A running link. It ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct ThinLink {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

/// The settings that all connections of a link follow.
#[derive(Copy, Clone, Debug)]
struct State {
    config: ThinLinkConfig,
    /// Whether the link takes connections.
    is_up: bool,
    /// The number of times that connections were broken: older connections end.
    breaks: u64,
}

impl ThinLink {
    /// Puts a link on loopback in front of `server`.
    ///
    /// # Errors
    /// Returns an error if no socket can be bound.
    pub async fn start(server: SocketAddr, config: ThinLinkConfig) -> io::Result<ThinLink> {
        let (socket, loopback): (_, SocketAddr) = match server {
            SocketAddr::V4(_) => (TcpSocket::new_v4()?, (Ipv4Addr::LOCALHOST, 0).into()),
            SocketAddr::V6(_) => (TcpSocket::new_v6()?, (Ipv6Addr::LOCALHOST, 0).into()),
        };
        limit_window(&socket)?;
        socket.bind(loopback)?;
        let listener = socket.listen(64)?;
        let address = listener.local_addr()?;
        let (state, settings) = watch::channel(State {
            config,
            is_up: true,
            breaks: 0,
        });
        let task = tokio::spawn(accept(listener, server, settings));
        Ok(ThinLink {
            address,
            state,
            task,
        })
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the rate of both directions. Bytes that wait are sent at the new rate.
    pub fn set_rate(&self, rate: Rate) {
        self.state.send_modify(|state| state.config.rate = rate);
    }

    /// Returns the present rate of each direction.
    pub fn rate(&self) -> Rate {
        self.state.borrow().config.rate
    }

    /// Breaks all connections. Bytes on the link are lost; clients may connect again at once.
    pub fn break_connections(&self) {
        self.state.send_modify(|state| state.breaks += 1);
    }

    /// Takes the link down, which breaks its connections and refuses new ones, or up again.
    pub fn set_up(&self, is_up: bool) {
        self.state.send_modify(|state| {
            state.breaks += u64::from(state.is_up && !is_up);
            state.is_up = is_up;
        });
    }

    /// Returns whether the link takes connections.
    pub fn is_up(&self) -> bool {
        self.state.borrow().is_up
    }
}

impl Drop for ThinLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections until the task is aborted, which aborts those of the connections, too.
async fn accept(listener: TcpListener, server: SocketAddr, settings: watch::Receiver<State>) {
    let (mut connections, mut failed) = (JoinSet::new(), FailedAccepts::default());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if settings.borrow().is_up => {
                    connections.spawn(forward(client, server, settings.clone()));
                }
                // The client's next read fails.
                Ok((client, _)) => drop(client),
                Err(error) => failed.pause(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries a connection until one of its ends closes it, or until the link breaks it.
async fn forward(client: TcpStream, server: SocketAddr, settings: watch::Receiver<State>) {
    let mut breaking = settings.clone();
    let breaks = settings.borrow().breaks;
    let carried = async {
        let server = connect(server).await?;
        prepare(&client)?;
        let (client_reader, client_writer) = client.into_split();
        let (server_reader, server_writer) = server.into_split();
        tokio::select! {
            ended = carry(client_reader, server_writer, settings.clone()) => ended,
            ended = carry(server_reader, client_writer, settings) => ended,
        }
    };
    tokio::select! {
        ended = carried => if let Err(error) = ended {
            tracing::debug!("a connection over a link ended: {error}");
        },
        _ = breaking.wait_for(|state| state.breaks != breaks) => {}
    }
}

async fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    limit_window(&socket)?;
    let stream = socket.connect(server).await?;
    prepare(&stream)?;
    Ok(stream)
}

/// Limits the window and the segments of the other end's TCP. Accepted connections inherit this.
fn limit_window(socket: &TcpSocket) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_recv_buffer_size(SOCKET_BYTES as usize)?;
    // Segments on loopback have up to 64 KiB, which is more than the buffer holds.
    socket.set_tcp_mss(PACKET_BYTES as u32)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_send_buffer_size(SOCKET_BYTES as usize)
}

/// Carries one direction of a connection until its sender closes it.
async fn carry(
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    mut settings: watch::Receiver<State>,
) -> io::Result<()> {
    let (clock, mut buffer) = (Clock::start(), BytesMut::new());
    let mut lane = Lane::new(settings.borrow_and_update().config);
    loop {
        // While the receiver reads nothing, nothing is read from the sender either.
        while let Some(packet) = lane.pop(clock.now()) {
            writer.write_all(&packet).await?;
        }
        let room_wait = lane.room_wait(clock.now());
        buffer.reserve(PACKET_BYTES);
        tokio::select! {
            read = read_packet(&mut reader, &mut buffer), if room_wait.is_none() => {
                lane.push(clock.now(), read?);
            }
            () = sleep(room_wait.unwrap_or_default()), if room_wait.is_some() => {}
            () = clock.sleep_until(lane.next_time()) => {}
            changed = settings.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                lane.reconfigure(clock.now(), settings.borrow_and_update().config);
            }
        }
    }
}

/// Reads up to a packet.
async fn read_packet(reader: &mut OwnedReadHalf, buffer: &mut BytesMut) -> io::Result<Bytes> {
    let mut limited = reader.take(PACKET_BYTES as u64);
    match limited.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => Ok(buffer.split_to(length).freeze()),
    }
}

/// A packet on a link.
#[derive(Clone, Debug)]
struct Packet(Bytes);

impl Carried for Packet {}

/// One direction of a connection.
#[derive(Debug)]
struct Lane {
    link: Link<Packet>,
    config: ThinLinkConfig,
}

impl Lane {
    fn new(config: ThinLinkConfig) -> Lane {
        Lane {
            link: Link::new(link_config(config), 0),
            config,
        }
    }

    fn push(&mut self, now: Time, packet: Bytes) {
        let bytes = packet.len() as u32;
        let pushed = self.link.push(now, Packet(packet), bytes);
        debug_assert!(pushed == Ok(1), "the link drops and loses nothing");
    }

    fn pop(&mut self, now: Time) -> Option<Bytes> {
        self.link.pop_ready(now).map(|packet| packet.0)
    }

    fn next_time(&self) -> Option<Time> {
        self.link.next_time()
    }

    /// Returns the time after which to look for room in the queue; `None` if it has room.
    fn room_wait(&mut self, now: Time) -> Option<Duration> {
        let limit = self.config.queue_packets.max(1) as usize;
        let is_full = self.link.queue_packets(now) >= limit;
        let packet = 1.0 / self.config.rate.packets_per_s(PACKET_BYTES as u32);
        let wait = Duration::try_from_secs_f64(packet).unwrap_or(Duration::MAX);
        is_full.then_some(wait.max(ROOM_WAIT_MIN))
    }

    fn reconfigure(&mut self, now: Time, config: ThinLinkConfig) {
        if config != self.config {
            self.config = config;
            self.link.reconfigure(now, link_config(config));
        }
    }
}

/// The link takes every packet: [`Lane::room_wait`] limits its queue.
fn link_config(config: ThinLinkConfig) -> LinkConfig {
    LinkConfig {
        rate: Some(config.rate),
        delay: config.delay,
        queue: QueueLimit::Unlimited,
        ..LinkConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: ThinLinkConfig = ThinLinkConfig {
        rate: Rate::from_bits_per_s(8_000_000),
        delay: Duration::from_millis(20),
        queue_packets: 4,
    };

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    fn packet() -> Bytes {
        Bytes::from(vec![0; 1000])
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let mut lane = Lane::new(CONFIG);
        for _ in 0..3 {
            lane.push(at(0), packet());
        }
        for arrival in [21_000, 22_000, 23_000] {
            assert_eq!(lane.next_time(), Some(at(arrival)));
            assert_eq!(lane.pop(at(arrival - 1)), None);
            assert_eq!(lane.pop(at(arrival)), Some(packet()));
        }
        assert_eq!(lane.next_time(), None);
    }

    #[test]
    fn a_full_queue_takes_packets_again_when_one_has_left() {
        let mut lane = Lane::new(CONFIG);
        let mut taken = 0;
        while lane.room_wait(at(0)).is_none() {
            lane.push(at(0), packet());
            taken += 1;
        }
        assert_eq!(taken, 5, "one in transmission, and four in the queue");
        assert_eq!(lane.room_wait(at(999)), Some(Duration::from_micros(1448)));
        assert_eq!(lane.room_wait(at(1000)), None);
    }

    #[test]
    fn waiting_packets_follow_a_change_of_the_rate() {
        let mut lane = Lane::new(CONFIG);
        for _ in 0..3 {
            lane.push(at(0), packet());
        }
        let rate = Rate::from_bits_per_s(800_000);
        lane.reconfigure(at(500), ThinLinkConfig { rate, ..CONFIG });
        for arrival in [21_000, 31_000, 41_000] {
            assert_eq!(lane.next_time(), Some(at(arrival)));
            assert!(lane.pop(at(arrival)).is_some());
        }
    }

    /// A server that returns all bytes, and a link in front of it.
    async fn echo() -> ThinLink {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    let _ = tokio::io::copy(&mut reader, &mut writer).await;
                });
            }
        });
        let config = ThinLinkConfig {
            rate: Rate::from_bits_per_s(50_000_000),
            delay: Duration::from_millis(2),
            queue_packets: 16,
        };
        ThinLink::start(server, config).await.unwrap()
    }

    async fn exchange(stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(b"hello").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"hello");
        Ok(())
    }

    #[tokio::test]
    async fn bytes_cross_a_link_complete_and_in_order() {
        let link = echo().await;
        let sent: Vec<u8> = (0..1_000_000u32)
            .map(|n| (n.wrapping_mul(7919) >> 5) as u8)
            .collect();
        let (mut reader, mut writer) = TcpStream::connect(link.address())
            .await
            .unwrap()
            .into_split();
        let mut received = vec![0; sent.len()];
        let writing = async {
            for (part, mbit_per_s) in sent.chunks(200_000).zip([50, 20, 80, 40, 60]) {
                link.set_rate(Rate::from_bits_per_s(mbit_per_s * 1_000_000));
                writer.write_all(part).await.unwrap();
            }
        };
        let (_, read) = tokio::join!(writing, reader.read_exact(&mut received));
        read.unwrap();
        assert!(received == sent);
    }

    #[tokio::test]
    async fn long_and_short_writes_in_both_directions_do_not_stall_a_link() {
        let link = echo().await;
        let stream = TcpStream::connect(link.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let pieces = [40, 1100, 9, 200, 30_000].repeat(100);
        let total = pieces.iter().sum();
        let writing = async {
            for piece in pieces {
                writer.write_all(&vec![7; piece]).await.unwrap();
            }
        };
        let mut received = vec![0; total];
        let both = async { tokio::join!(writing, reader.read_exact(&mut received)).1 };
        let ended = tokio::time::timeout(manyflow_testing::LIMIT, both).await;
        ended.expect("3 MB arrive").unwrap();
    }

    #[tokio::test]
    async fn broken_connections_end_and_new_ones_are_taken() {
        let link = echo().await;
        let mut old = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut old).await.unwrap();
        link.break_connections();
        assert_eq!(old.read(&mut [0]).await.unwrap_or(0), 0);
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut new).await.unwrap();
    }

    #[tokio::test]
    async fn a_link_that_is_down_refuses_connections_until_it_is_up() {
        let link = echo().await;
        let mut old = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut old).await.unwrap();
        link.set_up(false);
        assert_eq!(old.read(&mut [0]).await.unwrap_or(0), 0);
        let mut refused = TcpStream::connect(link.address()).await.unwrap();
        assert!(exchange(&mut refused).await.is_err());
        link.set_up(true);
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        exchange(&mut new).await.unwrap();
    }
}
