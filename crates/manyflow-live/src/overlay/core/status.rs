//! The status of the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_overlay::DaemonId;
use manyflow_overlay::hop::Hop;

use super::{Core, NAMES, Neighbour};
use crate::net::tcp_info::TcpInfo;
use crate::overlay::config::ControllerConfig;
use crate::overlay::status::{DaemonStatus, GroupStatus, LinkStatus};

/// The number of groups in a status.
const GROUPS_SHOWN: usize = 100;

impl Core {
    /// Returns the names of all daemons that can be reached. A daemon that has not announced its
    /// name has its number instead.
    pub(super) fn daemon_names(&self) -> BTreeMap<DaemonId, String> {
        let mut names: BTreeMap<_, _> = self
            .daemon
            .topology()
            .daemons()
            .iter()
            .copied()
            .map(|id| (id, unnamed(id)))
            .collect();
        for (group, name) in &self.groups {
            let Some(name) = name.pattern.strip_prefix(NAMES) else {
                continue;
            };
            for (id, _) in self.daemon.members(*group) {
                names.insert(id, String::from_utf8_lossy(name).into_owned());
            }
        }
        names.insert(self.hello.id, self.hello.name.clone());
        names
    }

    /// Returns the round-trip time of a link, and how much was sent again: as the link measures
    /// them or, below streams, as the kernel does.
    fn path(&self, id: DaemonId, known: &Neighbour) -> (Option<Duration>, Option<u64>) {
        if known.out.is_none() {
            return (None, None);
        }
        if known.datagrams.is_some() {
            let hop = self.daemon.hop(id);
            return (hop.and_then(Hop::rtt), hop.map(|hop| hop.retransmissions()));
        }
        let info = known.socket.as_ref();
        let info = info.and_then(|socket| TcpInfo::of(socket).ok());
        let rtt = info.map(|info| info.rtt).filter(|rtt| !rtt.is_zero());
        (rtt, info.map(|info| info.retransmissions.into()))
    }

    /// Returns the present status.
    pub(in crate::overlay) fn status(&self, controller: &ControllerConfig) -> DaemonStatus {
        let names = self.daemon_names();
        let links = self.neighbours.iter().map(|(id, known)| {
            let queue_messages = self.daemon.queue_messages(*id).unwrap_or_default();
            let (rtt, retransmissions) = self.path(*id, known);
            LinkStatus {
                rtt_ms: rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                retransmissions,
                name: known.name.clone(),
                is_up: known.out.is_some(),
                queue_messages,
                price_dollars: controller.price(queue_messages),
                outgoing_bytes: known.out.as_ref().map_or(0, |out| out.bytes()),
            }
        });
        let own = self
            .groups
            .iter()
            .filter(|(_, name)| !name.pattern.starts_with(NAMES));
        let first_groups = own.clone().take(GROUPS_SHOWN).map(|(group, name)| {
            let members = self.daemon.members(*group);
            let named = |(id, count)| (daemon_name(&names, id), count);
            GroupStatus {
                pattern: String::from_utf8_lossy(&name.pattern).into_owned(),
                queue: name
                    .queue
                    .as_ref()
                    .map(|(queue, _)| String::from_utf8_lossy(queue).into_owned()),
                members: members.map(named).collect(),
            }
        });
        DaemonStatus {
            name: self.hello.name.clone(),
            overlay: self.hello.overlay.clone(),
            uptime_s: (self.clock.now() - Time::ZERO).as_secs_f64(),
            controller: controller.name(),
            topology_version: self.daemon.topology_version(),
            links: links.collect(),
            clients: self.sessions.len(),
            groups: own.clone().count(),
            first_groups: first_groups.collect(),
            counters: self.counters.clone(),
            daemons: names.into_values().collect(),
        }
    }
}

/// Returns the name of a daemon, or its number if the name is not known.
pub(super) fn daemon_name(names: &BTreeMap<DaemonId, String>, id: DaemonId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| unnamed(id))
}

fn unnamed(id: DaemonId) -> String {
    format!("#{}", id.0)
}
