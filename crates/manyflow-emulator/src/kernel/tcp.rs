//! Bulk TCP connections between namespaces, by ordinary sockets of the kernel.
//!
//! Each end has a thread that blocks in its socket, as in any program for bulk data.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use manyflow_tcp_info::TcpInfo;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::error::EmulateError;
use crate::netns::Namespace;

/// The longest time for which a thread blocks before it looks whether it has to end.
const PATIENCE: Duration = Duration::from_millis(100);
/// The time after which a connection that is not established is given up.
const CONNECT: Duration = Duration::from_secs(30);
/// The size of one read or write, as in common programs.
const CHUNK: usize = 64 << 10;
/// The bytes that the kernel accepts before it sends them. A sender that stops still sends these.
const UNSENT: u32 = 128 << 10;
/// The bytes of the timestamp option in each segment, which TCP_MAXSEG includes.
const TIMESTAMPS: u32 = 12;

/// The congestion control of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// NewReno, with selective acknowledgements.
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR.
    Bbr,
}

impl CongestionControl {
    /// Returns the kernel's name, for TCP_CONGESTION.
    pub fn name(self) -> &'static str {
        match self {
            CongestionControl::Reno => "reno",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Bbr => "bbr",
        }
    }
}

/// A connection that sends as much as it can.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// The address and port of the sender.
    pub from: SocketAddrV4,
    /// The address and port of the receiver.
    pub to: SocketAddrV4,
    /// The sender's congestion control.
    pub congestion_control: CongestionControl,
    /// The payload of a full segment in bytes; `None` for that of the path.
    pub segment_bytes: Option<u32>,
    /// The time at which the connection is opened.
    pub start: Instant,
    /// The time at which the sender has no more data. By default it always has more.
    pub stop: Option<Instant>,
    /// The bytes to send. By default there is no limit.
    pub transfer: Option<u64>,
}

/// The two threads of a connection. They end on drop.
#[derive(Debug)]
pub struct Running {
    /// Another descriptor of the sender's socket, for its state.
    socket: Socket,
    received: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Bulk {
    /// Begins to listen, and to send when it is time.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be made, or if the kernel lacks the congestion control.
    pub fn begin(&self, sender: &Namespace, receiver: &Namespace) -> Result<Running, EmulateError> {
        let failed = |what: &str, error| {
            let name = self.congestion_control.name();
            EmulateError::Socket(format!("TCP socket ({what}, {name})"), error)
        };
        let listener = receiver.enter(|| listen(self.to))?;
        let listener = listener.map_err(|error| failed("receiver", error))?;
        let socket = sender.enter(|| self.open())?;
        let socket = socket.map_err(|error| failed("sender", error))?;
        let watched = socket.try_clone();
        let watched = watched.map_err(|error| failed("sender", error))?;
        let received = Arc::new(AtomicU64::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (count, end) = (Arc::clone(&received), Arc::clone(&is_over));
        let receiving = thread::spawn(move || receive(&listener, &count, &end));
        let (bulk, end) = (self.clone(), Arc::clone(&is_over));
        // The connection's bytes show whether it succeeded.
        let sending = thread::spawn(move || drop(bulk.send(socket, &end)));
        Ok(Running {
            socket: watched,
            received,
            is_over,
            threads: vec![receiving, sending],
        })
    }

    fn open(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_congestion(self.congestion_control.name().as_bytes())?;
        if let Some(bytes) = self.segment_bytes {
            socket.set_tcp_mss(bytes + TIMESTAMPS)?;
        }
        socket.set_tcp_notsent_lowat(UNSENT)?;
        socket.set_reuse_address(true)?;
        socket.bind(&self.from.into())?;
        Ok(socket)
    }

    fn send(&self, socket: Socket, is_over: &AtomicBool) -> io::Result<()> {
        let has_ended = || is_over.load(Ordering::Relaxed);
        while let Some(wait) = self.start.checked_duration_since(Instant::now()) {
            if has_ended() {
                return Ok(());
            }
            thread::sleep(wait.min(PATIENCE));
        }
        socket.connect_timeout(&SockAddr::from(self.to), CONNECT)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut stream = TcpStream::from(socket);
        let chunk = vec![0; CHUNK];
        let mut left = self.transfer.unwrap_or(u64::MAX);
        let is_stopped = || self.stop.is_some_and(|stop| Instant::now() >= stop);
        while left > 0 && !is_stopped() {
            if has_ended() {
                // Data that is still unsent must not occupy the namespace.
                return socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            let length = left.min(CHUNK as u64) as usize;
            match stream.write(&chunk[..length]) {
                Ok(written) => left -= written as u64,
                Err(error) if is_patience_over(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // The other descriptor keeps the socket open, so dropping this one sends no FIN.
        stream.shutdown(Shutdown::Write)
    }
}

fn listen(address: SocketAddrV4) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.bind(&address.into())?;
    socket.listen(1)?;
    Ok(socket)
}

/// Accepts one connection, and counts its bytes until it ends.
fn receive(listener: &Socket, received: &AtomicU64, is_over: &AtomicBool) {
    let has_ended = || is_over.load(Ordering::Relaxed);
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if is_patience_over(&error) && !has_ended() => {}
            Err(_) => return,
        }
    };
    if stream.set_read_timeout(Some(PATIENCE)).is_err() {
        return;
    }
    let mut stream = TcpStream::from(stream);
    let mut chunk = vec![0; CHUNK];
    while !has_ended() {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => {
                received.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if is_patience_over(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_patience_over(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

impl Running {
    /// Returns the payload bytes that the receiver has read so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the sender's state.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn info(&self) -> io::Result<TcpInfo> {
        TcpInfo::of(&self.socket)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has printed its message.
            let _ = thread.join();
        }
    }
}
