//! Sockets on loopback: UDP, TCP, IPv6 and the offloading of datagrams.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::{Check, Status};

/// The maximum time that a datagram may take over loopback, also on a busy computer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The length of each datagram in the probe of GSO, and their number.
const SEGMENT_BYTES: usize = 500;
const SEGMENTS: usize = 4;

pub(super) fn checks() -> Vec<Check> {
    let v4 = Ipv4Addr::LOCALHOST.into();
    vec![udp(v4), tcp(v4), ipv6(), gso(), gro()]
}

fn udp(address: IpAddr) -> Check {
    match exchange_datagram(address) {
        Ok(()) => Check::ok("udp", "datagrams arrive over loopback"),
        Err(error) => Check::unmet(
            "udp",
            Status::Failed,
            format!("no datagram over loopback: {error}"),
            "nothing can be sent or received",
        )
        .fix("sudo ip link set lo up"),
    }
}

fn tcp(address: IpAddr) -> Check {
    match exchange_bytes(address) {
        Ok(()) => Check::ok("tcp", "connections work over loopback"),
        Err(error) => Check::unmet(
            "tcp",
            Status::Failed,
            format!("no connection over loopback: {error}"),
            "descriptions, daemons and services cannot be reached",
        )
        .fix("sudo ip link set lo up"),
    }
}

fn ipv6() -> Check {
    match exchange_datagram(Ipv6Addr::LOCALHOST.into()) {
        Ok(()) => Check::ok("ipv6", "datagrams arrive over loopback"),
        Err(error) => Check::unmet(
            "ipv6",
            Status::Missing,
            format!("no datagram over ::1: {error}"),
            "sessions over IPv6 do not work",
        )
        .fix("sudo sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.lo.disable_ipv6=0"),
    }
}

/// Generic segmentation offload: the kernel cuts one buffer into datagrams.
fn gso() -> Check {
    let lengths = segmented(false);
    match lengths {
        Ok(lengths) if lengths == [SEGMENT_BYTES; SEGMENTS] => {
            Check::ok("udp-gso", "the kernel cuts trains into datagrams")
        }
        other => Check::unmet(
            "udp-gso",
            Status::Limited,
            outcome(other),
            "senders make one system call for each datagram; Linux 4.18 and later have UDP_SEGMENT",
        ),
    }
}

/// Generic receive offload: the kernel hands over several datagrams at once.
fn gro() -> Check {
    match segmented(true) {
        Ok(lengths) if lengths.len() < SEGMENTS && !lengths.is_empty() => {
            Check::ok("udp-gro", "the kernel hands over trains in one read")
        }
        other => Check::unmet(
            "udp-gro",
            Status::Limited,
            outcome(other),
            "receivers make one system call for each datagram; Linux 5.0 and later have UDP_GRO",
        ),
    }
}

fn outcome(lengths: io::Result<Vec<usize>>) -> String {
    match lengths {
        Ok(lengths) => format!("datagrams arrived with these lengths: {lengths:?}"),
        Err(error) => error.to_string(),
    }
}

/// Returns two sockets of which the first is connected to the second.
fn pair(address: IpAddr) -> io::Result<(UdpSocket, UdpSocket)> {
    let (from, to) = (
        UdpSocket::bind((address, 0))?,
        UdpSocket::bind((address, 0))?,
    );
    from.connect(to.local_addr()?)?;
    to.set_read_timeout(Some(PATIENCE))?;
    Ok((from, to))
}

fn exchange_datagram(address: IpAddr) -> io::Result<()> {
    let (from, to) = pair(address)?;
    from.send(b"doctor")?;
    let mut bytes = [0; 16];
    let length = to.recv(&mut bytes)?;
    match &bytes[..length] {
        b"doctor" => Ok(()),
        _ => Err(io::Error::other("another datagram arrived")),
    }
}

fn exchange_bytes(address: IpAddr) -> io::Result<()> {
    let listener = TcpListener::bind((address, 0))?;
    let mut client = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (mut server, _) = listener.accept()?;
    server.set_read_timeout(Some(PATIENCE))?;
    client.write_all(b"doctor")?;
    server.read_exact(&mut [0; 6])
}

/// Sends one buffer as several datagrams, and returns the lengths that the reads return. With
/// `is_joined`, the receiver asks for datagrams together (GRO).
fn segmented(is_joined: bool) -> io::Result<Vec<usize>> {
    let (from, to) = pair(Ipv4Addr::LOCALHOST.into())?;
    setsockopt(&from, sockopt::UdpGsoSegment, &(SEGMENT_BYTES as i32))?;
    if is_joined {
        setsockopt(&to, sockopt::UdpGroSegment, &true)?;
    }
    let sent = from.send(&[0; SEGMENT_BYTES * SEGMENTS])?;
    let (mut bytes, mut lengths) = ([0; 65_536], Vec::new());
    while lengths.iter().sum::<usize>() < sent {
        lengths.push(to.recv(&mut bytes)?);
    }
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_carries_datagrams_and_connections() {
        let v4 = Ipv4Addr::LOCALHOST.into();
        assert_eq!(udp(v4).status, Status::Ok);
        assert_eq!(tcp(v4).status, Status::Ok);
    }

    #[test]
    fn an_address_of_another_host_fails() {
        // RFC 5737 reserves this address for documentation, so no host has it.
        let check = udp("192.0.2.1".parse().unwrap());
        assert_eq!(check.status, Status::Failed);
        assert!(check.command.is_some());
    }
}
