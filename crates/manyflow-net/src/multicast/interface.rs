//! The network interface that multicast uses.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::if_nametoindex;

use super::MulticastError;

/// A network interface as a user names it. Text that is not an address is parsed as a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// An interface by its name, such as `eth0`.
    Name(String),
    /// An interface by one of its addresses, such as `192.0.2.7`.
    Address(IpAddr),
}

impl Interface {
    /// Returns the kernel's number of the interface.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn index(&self) -> Result<u32, MulticastError> {
        LocalInterface::find(self).map(|found| found.index)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl FromStr for Interface {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text
            .parse()
            .map_or_else(|_| Self::Name(text.to_owned()), Self::Address))
    }
}

/// A network interface of this host.
#[derive(Clone, Debug)]
pub(super) struct LocalInterface {
    name: String,
    /// The kernel's number of the interface, for socket options and IPv6 scopes.
    pub(super) index: u32,
    ipv4: Option<Ipv4Addr>,
}

impl LocalInterface {
    /// Looks up `wanted` among this host's interfaces.
    pub(super) fn find(wanted: &Interface) -> Result<Self, MulticastError> {
        let no_such = || MulticastError::NoSuchInterface(wanted.to_string());
        let addresses: Vec<InterfaceAddress> = getifaddrs()
            .map_err(io::Error::from)
            .map_err(MulticastError::refused(
                "list the interfaces",
                "check the limits on open files and memory",
            ))?
            .collect();
        let matches = |entry: &&InterfaceAddress| match wanted {
            Interface::Name(name) => entry.interface_name == *name,
            Interface::Address(address) => ip(entry) == Some(*address),
        };
        let found = addresses.iter().filter(matches);
        let name = only_name(wanted, found.map(|entry| &entry.interface_name))?;
        let name = &name.ok_or_else(no_such)?;
        let ipv4 = match wanted {
            Interface::Address(IpAddr::V4(address)) => Some(*address),
            _ => addresses
                .iter()
                .filter(|entry| entry.interface_name == *name)
                .find_map(ipv4),
        };
        let index = if_nametoindex(name.as_str()).map_err(|_| no_such())?;
        Ok(Self {
            name: name.clone(),
            index,
            ipv4,
        })
    }

    /// Returns the interface's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the source address of IPv4 packets on this interface.
    pub(super) fn ipv4(&self) -> Result<Ipv4Addr, MulticastError> {
        self.ipv4
            .ok_or_else(|| MulticastError::NoIpv4Address(self.name.clone()))
    }

    /// Returns `address` on this interface, with any port. A link-local IPv6 address is meaningless
    /// without its interface.
    pub(super) fn scoped(&self, address: IpAddr) -> SocketAddr {
        match address {
            IpAddr::V4(address) => SocketAddrV4::new(address, 0).into(),
            IpAddr::V6(address) => SocketAddrV6::new(address, 0, 0, self.index).into(),
        }
    }
}

/// Returns the name that all these entries have; `None` if there are none.
///
/// # Errors
/// If they have different names.
fn only_name<'a>(
    wanted: &Interface,
    names: impl Iterator<Item = &'a String>,
) -> Result<Option<String>, MulticastError> {
    let mut names: Vec<_> = names.cloned().collect();
    names.dedup();
    match (wanted, &names[..]) {
        (Interface::Address(address), [_, _, ..]) => Err(MulticastError::SeveralInterfaces {
            address: *address,
            names: names.join(", "),
        }),
        _ => Ok(names.into_iter().next()),
    }
}

fn ipv4(entry: &InterfaceAddress) -> Option<Ipv4Addr> {
    Some(entry.address.as_ref()?.as_sockaddr_in()?.ip())
}

fn ip(entry: &InterfaceAddress) -> Option<IpAddr> {
    let ipv6 = || Some(entry.address.as_ref()?.as_sockaddr_in6()?.ip().into());
    ipv4(entry).map(IpAddr::V4).or_else(ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_an_address_or_else_a_name() {
        assert_eq!("eth0".parse(), Ok(Interface::Name("eth0".to_owned())));
        assert_eq!(
            "::1".parse(),
            Ok(Interface::Address("::1".parse().unwrap()))
        );
    }

    #[test]
    fn loopback_is_found_by_name_and_by_address() {
        for text in ["lo", "127.0.0.1"] {
            let found = LocalInterface::find(&text.parse().unwrap()).unwrap();
            assert_eq!(found.name, "lo");
            assert_eq!(found.ipv4().unwrap(), Ipv4Addr::LOCALHOST);
        }
    }

    #[test]
    fn an_address_of_several_interfaces_needs_a_name() {
        let names = ["eth0".to_owned(), "eth1".to_owned()];
        let address = "fe80::1".parse().unwrap();
        let error = only_name(&address, names.iter()).unwrap_err().to_string();
        assert!(
            error.contains("fe80::1") && error.contains("eth0, eth1"),
            "{error}"
        );
        let twice = [&names[0], &names[0]];
        let found = only_name(&address, twice.into_iter()).unwrap();
        assert_eq!(found.as_deref(), Some("eth0"));
    }

    #[test]
    fn a_missing_interface_is_named_in_the_error() {
        let error = LocalInterface::find(&"nosuch0".parse().unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("no interface nosuch0"),
            "{error}"
        );
    }
}
