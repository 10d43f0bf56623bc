//! The choice of an interface that the user has not named.

use std::fmt;
use std::net::IpAddr;

use super::MulticastError;
use super::interface::LocalInterface;
use crate::interfaces::{OwnAddress, interface_towards, own_addresses};

/// An interface that a route has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name of the interface.
    pub interface: String,
    /// The interfaces that `--interface` could name instead.
    pub others: Vec<String>,
}

impl Choice {
    /// Chooses the interface on which multicast from `source` arrives: the one of the route to the
    /// source, since routers send a source's packets where they would send the answers (RFC 4607
    /// section 6). Without a route, the only interface with multicast.
    ///
    /// # Errors
    /// If there is no route, and none or several interfaces.
    pub fn towards(source: IpAddr) -> Result<Choice, MulticastError> {
        let own = list_addresses()?;
        let routed = interface_towards(source).ok();
        let routed = routed.map(|found| found.interface);
        Choice::among(source, routed, &candidates(&own, source.is_ipv4()))
    }

    fn among(
        peer: IpAddr,
        routed: Option<String>,
        candidates: &[String],
    ) -> Result<Choice, MulticastError> {
        let interface = match (routed, candidates) {
            (Some(routed), _) => routed,
            (None, [only]) => only.clone(),
            (None, _) => {
                let names = candidates.join(", ");
                return Err(MulticastError::NoRoute { peer, names });
            }
        };
        let others = candidates.iter().filter(|name| **name != interface);
        Ok(Choice {
            others: others.cloned().collect(),
            interface,
        })
    }

    /// Returns the kernel's number of the interface.
    pub(super) fn index(&self) -> Result<u32, MulticastError> {
        let name = super::Interface::Name(self.interface.clone());
        LocalInterface::find(&name).map(|found| found.index)
    }
}

fn list_addresses() -> Result<Vec<OwnAddress>, MulticastError> {
    own_addresses().map_err(MulticastError::refused(
        "list the interfaces",
        "check the limits on open files and memory",
    ))
}

/// Returns the kernel's numbers of the interfaces that are up and carry multicast of an IP version.
pub(super) fn indices(is_ipv4: bool) -> Result<Vec<u32>, MulticastError> {
    let names = candidates(&list_addresses()?, is_ipv4).into_iter();
    // An interface may vanish between the two steps.
    let indices = names.filter_map(|name| super::Interface::Name(name).index().ok());
    Ok(indices.collect())
}

/// Writes the name, and how to choose another one if there are others.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        match self.others.is_empty() {
            true => Ok(()),
            false => write!(
                f,
                " (--interface names another: {})",
                self.others.join(", ")
            ),
        }
    }
}

/// Returns the names of the interfaces that are up and carry multicast of an IP version.
fn candidates(own: &[OwnAddress], is_ipv4: bool) -> Vec<String> {
    let mut names = Vec::new();
    for own in own {
        let fits = own.ip.is_ipv4() == is_ipv4 && own.is_up && own.is_multicast;
        if fits && !own.is_loopback && !names.contains(&own.interface) {
            names.push(own.interface.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(routed: Option<&str>, candidates: &[&str]) -> Result<Choice, MulticastError> {
        let candidates: Vec<_> = candidates.iter().map(|name| (*name).to_owned()).collect();
        let peer = "192.0.2.1".parse().unwrap();
        Choice::among(peer, routed.map(str::to_owned), &candidates)
    }

    #[test]
    fn the_route_decides_and_the_other_interfaces_are_named() {
        let chosen = choose(Some("eth1"), &["eth0", "eth1", "wg0"]).unwrap();
        assert_eq!(
            chosen.to_string(),
            "eth1 (--interface names another: eth0, wg0)"
        );
        assert_eq!(choose(Some("lo"), &[]).unwrap().to_string(), "lo");
    }

    #[test]
    fn without_a_route_only_a_single_interface_is_chosen() {
        assert_eq!(choose(None, &["eth0"]).unwrap().interface, "eth0");
        let error = choose(None, &["eth0", "eth1"]).unwrap_err().to_string();
        assert!(
            error.contains("192.0.2.1") && error.contains("--interface"),
            "{error}"
        );
        assert!(error.contains("eth0, eth1"), "{error}");
        assert!(choose(None, &[]).is_err());
    }
}
