//! A WEBRC receiver on sockets of the standard library, and a sender in a thread beside it, for six
//! seconds over loopback. Instead of IGMP, the receiver sends joins and leaves to the sender
//! itself.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use manyflow_core::{Action, Channel, Destination, Endpoint, Packet, Time};
use manyflow_webrc::{Cci, Receiver, ReceiverConfig, Sender, Session, SessionConfig};

const RUN: Duration = Duration::from_secs(6);
const ID: u32 = 0;

fn main() -> Result<(), Box<dyn Error>> {
    let session = Session::new(SessionConfig::lan("4 Mbit/s".parse()?))?;
    let [sending, receiving] = [
        UdpSocket::bind("127.0.0.1:0")?,
        UdpSocket::bind("127.0.0.1:0")?,
    ];
    let (source, sink) = (sending.local_addr()?, receiving.local_addr()?);
    let sender = Sender::new(session.clone(), ID, Time::ZERO);
    // The sockets outlive both loops: what the one that ends last sends would otherwise be refused.
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(&sending, sink, sender));
        receive(&receiving, source, session)?;
        Ok(sender.join().map_err(|_| "the sender panicked")??)
    })
}

/// Waits for a datagram until `due`; `None` if none came.
fn wait(
    socket: &UdpSocket,
    buffer: &mut [u8],
    start: Instant,
    due: Time,
) -> io::Result<Option<usize>> {
    let until = start + (due - Time::ZERO);
    let left = until.saturating_duration_since(Instant::now());
    socket.set_read_timeout(Some(left.max(Duration::from_micros(100))))?;
    match socket.recv(buffer) {
        Ok(length) => Ok(Some(length)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, mut sender: Sender) -> io::Result<()> {
    let start = Instant::now();
    let mut joined = BTreeSet::new();
    let mut buffer = [0; 2048];
    while start.elapsed() < RUN {
        let due = sender.poll_timeout().unwrap_or(Time::ZERO);
        if let Some(3) = wait(socket, &mut buffer, start, due)? {
            let number = u16::from_be_bytes([buffer[1], buffer[2]]);
            if buffer[0] == 1 {
                joined.insert(number);
            } else {
                joined.remove(&number);
            }
        }
        let now = Time::ZERO + start.elapsed();
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            if joined.contains(&packet.header.channel) {
                let (cci, length) = packet.header.encode();
                let mut datagram = cci[..length].to_vec();
                datagram.resize(packet.wire_bytes() as usize, 0);
                socket.send_to(&datagram, to)?;
            }
        }
    }
    Ok(())
}

fn receive(socket: &UdpSocket, from: SocketAddr, session: Session) -> Result<(), Box<dyn Error>> {
    socket.connect(from)?;
    let config = Arc::new(ReceiverConfig::default());
    let mut receiver = Receiver::new(Arc::new(session), config, ID, Time::ZERO)?;
    let start = Instant::now();
    let mut buffer = [0; 2048];
    let mut report = 1;
    while start.elapsed() < RUN {
        let Some(due) = receiver.poll_timeout() else {
            break;
        };
        if let Some(length) = wait(socket, &mut buffer, start, due)?
            && let Some(cci) = Cci::decode(&buffer[..length.min(4)])
        {
            let channel = Channel {
                session: ID,
                number: cci.channel,
            };
            let payload_bytes = length as u32 - 4;
            let packet = Packet::new(Destination::Channel(channel), cci, payload_bytes);
            receiver.handle_packet(Time::ZERO + start.elapsed(), &packet);
        }
        let now = Time::ZERO + start.elapsed();
        receiver.handle_timeout(now);
        while let Some(action) = receiver.poll_action(now) {
            let (operation, channel) = match action {
                Action::Join(channel) => (1, channel),
                Action::Leave(channel) => (0, channel),
                Action::Send(never) => match never.header {},
            };
            let [high, low] = channel.number.to_be_bytes();
            socket.send(&[operation, high, low])?;
        }
        while receiver.poll_event().is_some() {}
        if start.elapsed() >= Duration::from_secs(report) {
            report += 1;
            if let Some(status) = receiver.status() {
                println!("{now}: {} waves, {}", status.waves, status.received);
            }
        }
    }
    Ok(())
}
