//! Sessions that cannot be sent at the same time.

use std::net::{IpAddr, SocketAddr};

use super::Opened;
use crate::session::flows;

/// The reason why two sessions cannot be sent at the same time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Both have this TSI, which identifies a session among all of a host (RFC 5651 section 5.1).
    Tsi(u64),
    /// Both send to the same group.
    Group {
        /// The group and its UDP port.
        group: SocketAddr,
        /// The source address of both.
        source: IpAddr,
    },
}

impl Opened {
    /// Returns the reason why these sessions cannot be sent at the same time, if there is one.
    pub fn conflict(&self, other: &Opened) -> Option<Conflict> {
        let (one, two) = (&self.description, &other.description);
        if one.tsi == two.tsi {
            return Some(Conflict::Tsi(one.tsi));
        }
        if self.multicast.is_none() || other.multicast.is_none() {
            return None;
        }
        let groups = flows(one);
        let shared = flows(two).into_iter().find(|flow| groups.contains(flow))?;
        Some(Conflict::Group {
            group: shared.group,
            source: shared.source.ip(),
        })
    }
}
