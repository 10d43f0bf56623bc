//! The longest packets that the interfaces of this host carry.
//!
//! A session's packets have one length for all receivers, so it is chosen before any receiver is
//! known: packets fit the interfaces by which they leave, and with tunnels the paths that exist
//! nearly everywhere. A path that is narrower further on gets fragments, which the kernel makes of
//! packets above the MTU that routers report.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::AsFd;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use rustix::net::sockopt::{
    self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, Socket, Type};

use super::multicast::Interface;

/// Length of a UDP header in bytes.
const UDP_BYTES: u32 = 8;
/// Length of the header of AMT's Multicast Data messages in bytes (RFC 7450 section 5.1.6).
const AMT_BYTES: u32 = 2;
/// The longest datagrams of tunnels that are chosen, in bytes. Every path of IPv6 carries them (RFC
/// 8200 section 5), and nearly every one of IPv4. A sender learns nothing of its receivers' paths,
/// and some of them drop longer datagrams without a message.
const TUNNEL_MTU: u32 = 1280;
/// The shortest packets that are chosen, in bytes. IPv4 carries 576 everywhere (RFC 791).
const PACKET_BYTES_MIN: u32 = 400;

/// The interfaces by which packets leave.
#[derive(Copy, Clone, Debug)]
pub enum Egress<'a> {
    /// The one with this name or address.
    Interface(&'a Interface),
    /// That of this address, or any if it is unspecified.
    Address(IpAddr),
}

impl<'a> Egress<'a> {
    /// Returns the way of multicast to `group`: by `interface`, or else by any.
    pub fn of_group(group: IpAddr, interface: Option<&'a Interface>) -> Egress<'a> {
        let any = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        interface.map_or(Egress::Address(any), Egress::Interface)
    }
}

/// The headers around the IP packets of a session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// None: IP multicast.
    None,
    /// AMT over the IP version of this address.
    Amt(IpAddr),
}

/// Returns the length of an IP header in bytes.
fn ip_bytes(address: IpAddr) -> u32 {
    if address.is_ipv4() { 20 } else { 40 }
}

impl Tunnel {
    /// Returns the longest datagrams that are sent on interfaces of this MTU, in bytes.
    fn carried(self, mtu: u32) -> u32 {
        match self {
            Tunnel::None => mtu,
            Tunnel::Amt(_) => mtu.min(TUNNEL_MTU),
        }
    }

    /// Returns the length of the headers around an IP packet, in bytes.
    fn bytes(self) -> u32 {
        match self {
            Tunnel::None => 0,
            Tunnel::Amt(outer) => ip_bytes(outer) + UDP_BYTES + AMT_BYTES,
        }
    }
}

/// Returns the maximum length of IP packets, headers included, that leave by `egress` without being
/// divided, in bytes: at most `wanted`, and in a tunnel so that its datagrams have at most 1,280
/// bytes. The result is `wanted` if the system does not tell the MTU, or if packets remain on this
/// host.
pub fn fitting_packet(wanted: u32, egress: Egress<'_>, tunnel: Tunnel) -> u32 {
    let Some(mtu) = smallest_mtu(egress) else {
        return wanted;
    };
    let carried = tunnel.carried(mtu);
    let fits = carried.saturating_sub(tunnel.bytes()).max(PACKET_BYTES_MIN);
    if fits < wanted && carried < mtu {
        tracing::info!("packets have at most {fits} bytes, so that tunnels on any path carry them");
    } else if fits < wanted {
        tracing::info!("packets have at most {fits} bytes, because an interface's MTU is {mtu}");
    }
    wanted.min(fits)
}

/// Returns the maximum length of UDP payloads to `group`, as [`fitting_packet`] does.
pub fn fitting_payload(wanted: u32, group: IpAddr, egress: Egress<'_>, tunnel: Tunnel) -> u32 {
    let headers = ip_bytes(group) + UDP_BYTES;
    fitting_packet(wanted + headers, egress, tunnel) - headers
}

/// Returns the smallest MTU of the interfaces of `egress` that are up, without loopback.
fn smallest_mtu(egress: Egress<'_>) -> Option<u32> {
    let is_meant = |entry: &InterfaceAddress| {
        let address = ip_of(entry);
        match egress {
            Egress::Interface(Interface::Name(name)) => entry.interface_name == *name,
            Egress::Interface(Interface::Address(wanted)) => address == Some(*wanted),
            Egress::Address(wanted) if wanted.is_unspecified() => {
                address.is_some_and(|address| wanted.is_ipv6() || address.is_ipv4())
            }
            Egress::Address(wanted) => address == Some(wanted),
        }
    };
    let is_up = |entry: &InterfaceAddress| {
        let flags = entry.flags;
        flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
    };
    let entries: Vec<_> = getifaddrs()
        .ok()?
        .filter(|entry| is_up(entry) && is_meant(entry))
        .collect();
    let mut seen = BTreeSet::new();
    let entries = entries.iter().filter_map(|entry| {
        let address = ip_of(entry)?;
        let is_new = seen.insert((entry.interface_name.clone(), address.is_ipv4()));
        let index = if_nametoindex(entry.interface_name.as_str()).ok()?;
        is_new.then(|| mtu_of(address, index).ok())?
    });
    entries.min()
}

fn ip_of(entry: &InterfaceAddress) -> Option<IpAddr> {
    let address = entry.address?;
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

/// Returns the MTU of the interface with this address and number. The kernel names it for a route
/// to all hosts on the link, without sending anything.
fn mtu_of(address: IpAddr, index: u32) -> io::Result<u32> {
    /// The discard service: the socket sends nothing.
    const PORT: u16 = 9;
    match address {
        IpAddr::V4(address) => {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            socket.set_multicast_if_v4(&address)?;
            let all_hosts = Ipv4Addr::new(224, 0, 0, 1);
            socket.connect(&std::net::SocketAddr::from((all_hosts, PORT)).into())?;
            Ok(sockopt::ip_mtu(&socket)?)
        }
        IpAddr::V6(_) => {
            let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
            socket.set_multicast_if_v6(index)?;
            let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            socket.connect(&SocketAddrV6::new(all_nodes, PORT, 0, index).into())?;
            Ok(sockopt::ipv6_mtu(&socket)?)
        }
    }
}

/// Lets the kernel divide datagrams that are longer than their path's MTU, as far as routers report
/// it. Others are not divided on the way. Sockets of quinn-udp refuse such datagrams otherwise.
///
/// A sender of multicast has no other way to reach one receiver behind a narrow path: the length of
/// its packets is that of all receivers.
pub(crate) fn allow_fragments(socket: &impl AsFd, address: IpAddr) -> io::Result<()> {
    if address.is_ipv6() {
        set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::WANT)?;
    }
    // Sockets of IPv6 can send over IPv4, too.
    Ok(set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_this_host_have_the_wanted_length() {
        let loopback = Egress::Address(Ipv4Addr::LOCALHOST.into());
        let tunnel = Tunnel::Amt(Ipv4Addr::LOCALHOST.into());
        assert_eq!(fitting_packet(60_000, loopback, tunnel), 60_000);
    }

    #[test]
    fn headers_of_tunnels_have_their_lengths() {
        let v6 = Tunnel::Amt(Ipv6Addr::UNSPECIFIED.into());
        let v4 = Tunnel::Amt(Ipv4Addr::UNSPECIFIED.into());
        assert_eq!([Tunnel::None, v4, v6].map(Tunnel::bytes), [0, 30, 50]);
    }

    #[test]
    fn tunnels_have_datagrams_that_every_path_carries() {
        let tunnel = Tunnel::Amt(Ipv4Addr::UNSPECIFIED.into());
        assert_eq!(
            [9000, 1500, 1280, 1000].map(|mtu| tunnel.carried(mtu)),
            [1280, 1280, 1280, 1000]
        );
        assert_eq!(Tunnel::None.carried(9000), 9000);
    }
}
