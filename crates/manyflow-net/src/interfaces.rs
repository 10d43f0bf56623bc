//! The addresses of this machine, and the networks to which it is connected.

use std::net::{IpAddr, SocketAddr};
use std::{fs, io};

use manyflow_core::units::Rate;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use super::udp::route_to;

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The name of the interface.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// The mask of the network, as an address.
    mask: Option<IpAddr>,
    /// Whether the interface is the loopback interface.
    pub is_loopback: bool,
    /// Whether the interface is up.
    pub is_up: bool,
    /// Whether the interface carries multicast.
    pub is_multicast: bool,
}

impl OwnAddress {
    fn of(entry: &InterfaceAddress) -> Option<OwnAddress> {
        Some(OwnAddress {
            interface: entry.interface_name.clone(),
            ip: ip(entry.address.as_ref()?)?,
            mask: entry.netmask.as_ref().and_then(ip),
            is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
            is_multicast: entry.flags.contains(InterfaceFlags::IFF_MULTICAST),
        })
    }

    /// Whether `other` is in the network of this address, so that no router is between them.
    fn is_beside(&self, other: IpAddr) -> bool {
        match (self.ip, self.mask, other) {
            (IpAddr::V4(own), Some(IpAddr::V4(mask)), IpAddr::V4(other)) => {
                own.to_bits() & mask.to_bits() == other.to_bits() & mask.to_bits()
            }
            (IpAddr::V6(own), Some(IpAddr::V6(mask)), IpAddr::V6(other)) => {
                own.to_bits() & mask.to_bits() == other.to_bits() & mask.to_bits()
            }
            _ => false,
        }
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let ipv6 = || Some(IpAddr::from(address.as_sockaddr_in6()?.ip()));
    let ipv4 = address.as_sockaddr_in().map(|address| address.ip());
    ipv4.map(IpAddr::V4).or_else(ipv6)
}

/// Returns all addresses of this machine, in the kernel's order.
///
/// # Errors
/// If the kernel does not list them.
pub fn own_addresses() -> io::Result<Vec<OwnAddress>> {
    Ok(getifaddrs()?
        .filter_map(|entry| OwnAddress::of(&entry))
        .collect())
}

/// Returns the addresses under which other machines may reach a server on the unspecified address
/// `any`: those of interfaces that are up, without loopback and link-local addresses. A server on
/// `[::]` has addresses of both IP versions. Returns none if the kernel does not list them.
pub fn reachable_addresses(any: IpAddr) -> Vec<IpAddr> {
    let is_link_local = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let own = own_addresses().unwrap_or_default().into_iter();
    own.filter(|own| own.is_up && !own.is_loopback && !is_link_local(own.ip))
        .map(|own| own.ip)
        .filter(|ip| any.is_ipv6() || ip.is_ipv4())
        .collect()
}

/// Returns the speed of the fastest interface that is up and has an address for which `is_meant`
/// holds. Returns `None` if the kernel knows none, which is common in virtual machines.
pub fn fastest_speed(is_meant: impl Fn(&OwnAddress) -> bool) -> Option<Rate> {
    let own = own_addresses().unwrap_or_default().into_iter();
    own.filter(|own| own.is_up && is_meant(own))
        .filter_map(|own| speed(&own.interface))
        .max()
}

/// Returns the speed of an interface, which the kernel gives in Mbit/s, or as -1 if it knows none.
fn speed(interface: &str) -> Option<Rate> {
    // The name comes from the kernel, so it has no slash.
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let mbit = text.trim().parse::<u32>().ok().filter(|mbit| *mbit > 0)?;
    Some(Rate::from_bits_per_s(u64::from(mbit) * 1_000_000))
}

/// Whether no router is between this machine and `other`: `other` is an address of this machine,
/// or of one of its networks.
pub fn is_directly_connected(other: IpAddr) -> bool {
    let own = own_addresses().unwrap_or_default();
    other.is_loopback() || own.iter().any(|own| own.is_up && own.is_beside(other))
}

/// Returns the name of the interface on the route to `peer`, and this machine's address there.
/// Sends nothing.
///
/// # Errors
/// If there is no route.
pub fn interface_towards(peer: IpAddr) -> io::Result<OwnAddress> {
    let local = route_to(SocketAddr::new(peer, 9))?;
    let own = own_addresses()?.into_iter().find(|own| own.ip == local);
    own.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface has {local}")))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn own(ip: &str, mask: &str) -> OwnAddress {
        OwnAddress {
            interface: "eth0".to_owned(),
            ip: ip.parse().unwrap(),
            mask: Some(mask.parse().unwrap()),
            is_loopback: false,
            is_up: true,
            is_multicast: true,
        }
    }

    #[test]
    fn a_neighbour_is_in_the_network_of_the_mask() {
        let ipv4 = own("10.77.3.1", "255.255.254.0");
        assert!(ipv4.is_beside("10.77.2.9".parse().unwrap()));
        assert!(!ipv4.is_beside("10.77.4.1".parse().unwrap()));
        assert!(!ipv4.is_beside("2001:db8::1".parse().unwrap()));
        let ipv6 = own("2001:db8::1", "ffff:ffff:ffff:ffff::");
        assert!(ipv6.is_beside("2001:db8::9".parse().unwrap()));
        assert!(!ipv6.is_beside("2001:db8:0:1::1".parse().unwrap()));
    }

    #[test]
    fn the_loopback_interface_leads_to_the_loopback_address() {
        let found = interface_towards(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!(found.interface, "lo");
        assert!(is_directly_connected("127.0.0.9".parse().unwrap()));
        let any = reachable_addresses(Ipv4Addr::UNSPECIFIED.into());
        assert!(
            any.iter().all(|ip| ip.is_ipv4() && !ip.is_loopback()),
            "{any:?}"
        );
    }
}
