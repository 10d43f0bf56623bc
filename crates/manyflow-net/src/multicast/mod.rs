//! IP multicast sockets (RFC 1112, RFC 4607): a sender to the consecutive groups of a session, and
//! a receiver of any number of them. Linux only.
//!
//! The group's address decides how it is joined. In the source-specific range (232.0.0.0/8 and
//! ff3x::/32, RFC 4607 section 1), a join names the source, and the network delivers only packets
//! of that source. Elsewhere a join accepts any source, and [`MulticastReceiver`] drops and counts
//! packets of other hosts than the session's sender.

mod choice;
mod group_range;
mod groups;
mod interface;
mod membership;
mod receiver;
mod router;
mod sender;
mod silence;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use nix::time::ClockId;
use socket2::SockRef;

pub use choice::Choice;
pub use group_range::GroupRange;
pub use groups::Groups;
pub use interface::Interface;
pub use receiver::{Datagram, MulticastReceiver, ReceiverConfig};
pub(crate) use router::MulticastRouter;
pub use sender::{MulticastSender, SenderConfig};

/// Returns the least time from a join until the kernel sends the report for it. Linux arms a timer
/// for two ticks (`igmp_ifc_event` and `mld_ifc_event`): 8 ms if it has 250 ticks in a second.
pub fn join_delay() -> Duration {
    // The resolution of the coarse clock is the duration of a tick.
    let tick = nix::time::clock_getres(ClockId::CLOCK_MONOTONIC_COARSE);
    tick.map_or(Duration::ZERO, |tick| 2 * Duration::from(tick))
}

/// Whether `group` is in a source-specific range: 232.0.0.0/8 or ff3x::/32 (RFC 4607 section 1).
pub fn is_source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[0] == 232,
        IpAddr::V6(group) => group.segments()[0] & 0xfff0 == 0xff30 && group.segments()[1] == 0,
    }
}

/// Returns the kernel's numbers of the interfaces on which a listener to well-known groups joins
/// them: the named one, or all that are up and carry multicast.
///
/// # Errors
/// If there is no such interface, or the kernel does not list them.
pub(crate) fn interfaces_to_join(
    named: Option<&Interface>,
    is_ipv4: bool,
) -> Result<Vec<u32>, MulticastError> {
    match named {
        Some(interface) => Ok(vec![interface.index()?]),
        None => choice::indices(is_ipv4),
    }
}

/// Joins a group for packets of any source.
pub(crate) fn join_any_source(
    socket: &SockRef<'_>,
    group: IpAddr,
    interface: u32,
) -> io::Result<()> {
    let membership = membership::Membership {
        group,
        source: None,
        interface,
    };
    membership.join(socket)
}

/// The reason why a multicast socket cannot be opened, or cannot join or leave a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// The group is a unicast address.
    #[error("{0} is not a multicast group: choose one from 232.0.0.0/8 or ff3e::/32")]
    NotMulticast(IpAddr),
    /// The text is neither a group nor a range of groups.
    #[error("`{0}` is not a multicast group or range such as 232.1.2.0/24 or ff3e::8000:0/112")]
    NotRange(String),
    /// One address is IPv4 and the other IPv6.
    #[error("{0} and {1} have different IP versions: choose both from IPv4 or both from IPv6")]
    MixedVersions(IpAddr, IpAddr),
    /// No interface has this name or address.
    #[error("this host has no interface {0}: `ip address` lists names and addresses")]
    NoSuchInterface(String),
    /// Several interfaces have this address, as link-local ones may.
    #[error("{address} is an address of several interfaces: name one of {names}")]
    SeveralInterfaces {
        /// The address.
        address: IpAddr,
        /// The names, separated by commas.
        names: String,
    },
    /// No route leads to the other side, and several interfaces or none could.
    #[error("no route to {peer} shows which interface its multicast uses: name it with --interface{}", choices(.names))]
    NoRoute {
        /// The other side.
        peer: IpAddr,
        /// The names of the interfaces to choose from, separated by commas.
        names: String,
    },
    /// The interface has no IPv4 address to send from.
    #[error("interface {0} has no IPv4 address: give it one or choose another interface")]
    NoIpv4Address(String),
    /// The kernel refused a system call.
    #[error("cannot {action}: {cause}; {advice}")]
    Refused {
        /// The attempted action, as a verb phrase that follows "cannot".
        action: String,
        /// The kernel's reason.
        cause: io::Error,
        /// Advice to the user.
        advice: &'static str,
    },
}

impl MulticastError {
    /// Whether a later attempt may succeed with the same configuration: an interface, an address or
    /// a right may be there then.
    pub fn may_pass(&self) -> bool {
        !matches!(
            self,
            Self::NotMulticast(_) | Self::NotRange(_) | Self::MixedVersions(..)
        )
    }

    /// Returns a function for `map_err`: the kernel refused `action`, and `advice` says what to do.
    fn refused(action: impl Into<String>, advice: &'static str) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |cause| Self::Refused {
            action,
            cause,
            advice,
        }
    }
}

/// Lists the interfaces to choose from, if there are any.
fn choices(names: &str) -> String {
    match names {
        "" => ", once one is up".to_owned(),
        names => format!(": {names}"),
    }
}

/// Advice that helps with most refusals, since the kernel's choice of interface is rarely obvious.
const NAME_THE_INTERFACE: &str = "name the interface that leads to the other side with --interface";

/// Time between leaving the groups of a silent session and joining them again. A router forgets a
/// group two seconds after the last host has left it (RFC 3376 sections 8.8 and 8.9); only then is
/// the next join a change that it passes on to the routers before it, which may have been
/// restarted.
pub(crate) const REJOIN_PAUSE: Duration = Duration::from_secs(3);

/// Advice for the sockets of a router.
const ROUTER_ADVICE: &str =
    "run the relay as root, or with the capabilities CAP_NET_RAW and CAP_NET_ADMIN";

fn check_same_version(one: IpAddr, other: IpAddr) -> Result<(), MulticastError> {
    if one.is_ipv4() == other.is_ipv4() {
        return Ok(());
    }
    Err(MulticastError::MixedVersions(one, other))
}

fn check_multicast(group: IpAddr) -> Result<(), MulticastError> {
    if group.is_multicast() {
        return Ok(());
    }
    Err(MulticastError::NotMulticast(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_specific_ranges_are_those_of_rfc_4607() {
        for (group, expected) in [
            ("232.0.0.1", true),
            ("232.255.255.255", true),
            ("231.255.255.255", false),
            ("233.0.0.0", false),
            ("ff3e::8000:1", true),
            ("ff35::1", true),
            ("ff3e:1::1", false),
            ("ff1e::1", false),
        ] {
            assert_eq!(
                is_source_specific(group.parse().unwrap()),
                expected,
                "{group}"
            );
        }
    }

    #[test]
    fn an_error_is_one_line_that_says_what_to_do() {
        let error = MulticastError::NotMulticast("10.0.0.1".parse().unwrap()).to_string();
        assert_eq!(
            error,
            "10.0.0.1 is not a multicast group: choose one from 232.0.0.0/8 or ff3e::/32"
        );
    }
}
