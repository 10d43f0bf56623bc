//! The Session Announcement Protocol (SAP, RFC 2974): descriptions of sessions on a multicast
//! group that anyone can listen to.
//!
//! | file | what it holds |
//! |---|---|
//! | `packet.rs` | [`Packet`]: the format (section 6) |
//! | `schedule.rs` | [`Schedule`]: the times of announcements (section 3.1), without a clock |
//! | `announcer.rs` | [`announce`]: announces a session for as long as it is sent |
//! | `listener.rs` | [`Listener`]: the announcements of others |
//!
//! Announcements are as trustworthy as their network, since anyone can send them. The payload is a
//! description with a signature of its own, so the authentication data of section 8 is neither sent
//! nor read.
//!
//! # Where this is not RFC 2974
//!
//! - Deletions (section 4) are neither sent nor obeyed: without authentication, anyone could delete
//!   a session. A session that is no longer announced is forgotten after [`TIMEOUT_MIN`].
//! - Encrypted and compressed payloads (sections 6 and 7) are refused.
//! - A session is announced more often at its start: see [`Schedule`].
//! - Announcements have the TTL of their session, not 255, so that both reach the same receivers.
//!   Source-specific groups (232.0.0.0/8), which are younger than the RFC, count as global ones.

mod announcer;
mod listener;
mod packet;
mod schedule;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

pub use announcer::announce;
pub use listener::Listener;
pub use packet::{Packet, PacketError, PacketKind};
pub use schedule::{INTERVAL_MIN, Schedule};

/// The UDP port of announcements (RFC 2974 section 3).
pub const PORT: u16 = 9875;
/// The least time without an announcement after which a session is forgotten (RFC 2974 section 4).
pub const TIMEOUT_MIN: Duration = Duration::from_secs(3600);
/// The maximum length of an announcement in bytes. Longer ones than 1 KiB are discouraged (RFC 2974
/// section 6); descriptions with a signature take about 900 bytes.
pub const PACKET_BYTES_MAX: usize = 4096;

/// The group for sessions of global scope (RFC 2974 section 3).
const GLOBAL: Ipv4Addr = Ipv4Addr::new(224, 2, 127, 254);
/// The highest addresses of the local and the organisation's scope (RFC 2365 section 6), which
/// announce the sessions of these scopes.
const LOCAL: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 255);
const ORGANISATION: Ipv4Addr = Ipv4Addr::new(239, 195, 255, 255);
/// The scopes of IPv6 groups that have routers or hosts behind them: link, site, organisation,
/// global (RFC 7346).
const SCOPES: [u16; 4] = [2, 5, 8, 0xe];

/// Returns the group on which a session with this group is announced (RFC 2974 section 3).
pub fn group_for(session: IpAddr) -> IpAddr {
    match session {
        IpAddr::V4(group) => match group.octets() {
            [239, 255, ..] => LOCAL.into(),
            [239, 192..=195, ..] => ORGANISATION.into(),
            _ => GLOBAL.into(),
        },
        IpAddr::V6(group) => ipv6_group(group.segments()[0] & 0xf).into(),
    }
}

/// Returns the groups that a listener joins, in one IP version.
fn groups(is_ipv4: bool) -> Vec<IpAddr> {
    match is_ipv4 {
        true => [GLOBAL, ORGANISATION, LOCAL].map(IpAddr::V4).to_vec(),
        false => SCOPES.map(|scope| ipv6_group(scope).into()).to_vec(),
    }
}

fn ipv6_group(scope: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xff00 | scope, 0, 0, 0, 0, 0, 2, 0x7ffe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_announced_in_its_scope() {
        for (session, expected) in [
            ("224.2.128.7", "224.2.127.254"),
            ("232.1.2.0", "224.2.127.254"),
            ("239.255.7.7", "239.255.255.255"),
            ("239.194.1.1", "239.195.255.255"),
            ("239.1.2.3", "224.2.127.254"),
            ("ff3e::8000:1", "ff0e::2:7ffe"),
            ("ff15::1", "ff05::2:7ffe"),
        ] {
            let group = group_for(session.parse().unwrap());
            assert_eq!(group, expected.parse::<IpAddr>().unwrap(), "{session}");
            assert!(groups(group.is_ipv4()).contains(&group), "{session}");
        }
    }
}
