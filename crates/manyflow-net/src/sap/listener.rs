//! Listens to announcements.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{PACKET_BYTES_MAX, PORT, groups};
use crate::multicast::{Interface, MulticastError, interfaces_to_join, join_any_source};

/// How often new interfaces are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The pause after a socket has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// A socket that has joined all groups of announcements of one IP version.
#[derive(Debug)]
pub struct Listener {
    socket: UdpSocket,
    is_ipv4: bool,
    /// The only interface to listen on; `None` listens on all of them.
    interface: Option<Interface>,
    look: Interval,
    /// Whether the log says that the system has no place for a group.
    is_full: bool,
    buffer: Box<[u8]>,
}

impl Listener {
    /// Opens the socket, and joins the groups on this interface, or on all that carry multicast.
    /// Interfaces that appear later are joined then.
    ///
    /// # Errors
    /// If the port is taken by a program that does not share it, or the interface does not exist.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn open(is_ipv4: bool, interface: Option<Interface>) -> Result<Listener, MulticastError> {
        let socket = open_socket(is_ipv4).map_err(|cause| MulticastError::Refused {
            action: format!("listen to announcements on UDP port {PORT}"),
            cause,
            advice: "end the program that holds the port",
        })?;
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listener = Listener {
            socket,
            is_ipv4,
            interface,
            look,
            is_full: false,
            // One byte more than is allowed, so that longer packets are noticed.
            buffer: vec![0; PACKET_BYTES_MAX + 1].into(),
        };
        listener.join_groups()?;
        Ok(listener)
    }

    /// Waits for the next packet, which may be anything. Cancel safe.
    pub async fn recv(&mut self) -> &[u8] {
        let length = loop {
            tokio::select! {
                received = self.socket.recv(&mut self.buffer) => match received {
                    Ok(length) => break length,
                    Err(error) => {
                        tracing::debug!(%error, "announcements cannot be received");
                        tokio::time::sleep(FAILURE_PAUSE).await;
                    }
                },
                _ = self.look.tick() => if let Err(error) = self.join_groups() {
                    tracing::debug!(%error, "announcements cannot be joined");
                },
            }
        };
        &self.buffer[..length]
    }

    /// Joins the groups on interfaces that have not joined them yet.
    fn join_groups(&mut self) -> Result<(), MulticastError> {
        let mut full = 0;
        for index in interfaces_to_join(self.interface.as_ref(), self.is_ipv4)? {
            let mut is_full = false;
            for group in groups(self.is_ipv4) {
                let joined = join_any_source(&SockRef::from(&self.socket), group, index);
                match joined {
                    Err(error) if error.kind() != ErrorKind::AddrInUse => {
                        is_full |= error.raw_os_error() == Some(Errno::ENOBUFS as i32);
                        tracing::debug!(%group, index, %error, "a group cannot be joined");
                    }
                    _ => {}
                }
            }
            full += u32::from(is_full);
        }
        if full > 0 && !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                "announcements are not heard on {full} interfaces, because a socket has no place \
                 for their groups: raise net.ipv4.igmp_max_memberships, or name the interface of \
                 the announcements with --interface"
            );
        }
        Ok(())
    }
}

/// Opens a socket on the port of announcements, which all listeners of a host share.
fn open_socket(is_ipv4: bool) -> io::Result<UdpSocket> {
    let (domain, any): (_, IpAddr) = match is_ipv4 {
        true => (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()),
        false => (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    match is_ipv4 {
        true => socket.set_multicast_all_v4(false)?,
        false => {
            socket.set_only_v6(true)?;
            socket.set_multicast_all_v6(false)?;
        }
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any, PORT).into())?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_system_without_a_place_for_a_group_is_noticed() {
        let interface = Interface::Name("lo".to_owned());
        let mut listener = Listener::open(true, Some(interface.clone())).unwrap();
        assert!(!listener.is_full);
        let index = interfaces_to_join(Some(&interface), true).unwrap()[0];
        // Another socket, whose places other groups take.
        listener.socket = open_socket(true).unwrap();
        let others = (0..=u16::MAX).map(|other| {
            let [high, low] = other.to_be_bytes();
            IpAddr::from(Ipv4Addr::new(239, 192, high, low))
        });
        let full = others
            .map(|other| join_any_source(&SockRef::from(&listener.socket), other, index))
            .find_map(Result::err);
        assert!(full.is_some(), "the limit is above 65,536 groups");
        listener.join_groups().unwrap();
        assert!(listener.is_full);
    }
}
