//! The status of the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_overlay::cost_benefit::live::LiveCostBenefit;
use manyflow_overlay::hop::Hop;
use manyflow_overlay::tfrc::Tfrc;
use manyflow_overlay::{ClientId, DaemonId, GroupId, LinkId, Verdict};

use super::{DaemonCore, NAMES, Neighbour, Owner};
use crate::config::{ControllerConfig, LinkConfig};
use crate::nats::interest::GroupName;
use crate::nats::session::NatsSession;
use crate::status::{DaemonStatus, GroupStatus, LinkStatus, SlowMemberStatus};

/// The number of groups in a status.
const GROUPS_SHOWN: usize = 100;
/// The number of slow members in a status.
const SLOW_MEMBERS_SHOWN: usize = 100;
/// The number of characters of a client's name in a status, and of other texts of the client.
const NAME_CHARS_SHOWN: usize = 100;

impl DaemonCore {
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
        for group in &self.daemon_groups {
            let name = self.groups.get(group);
            let Some(name) = name.and_then(|name| name.pattern.strip_prefix(NAMES)) else {
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
        (known.traffic.rtt(), known.traffic.retransmissions())
    }

    /// Returns the links to neighbours, by their numbers. A configured link is listed even if it is
    /// down.
    fn links(&self, controller: &ControllerConfig, configured: &[LinkConfig]) -> Vec<LinkStatus> {
        let links = self.neighbours.iter().map(|(id, known)| {
            let queue_messages = self.daemon.queue_messages(*id).unwrap_or_default();
            let live = self.daemon.controller::<LiveCostBenefit>();
            let (from, to) = (self.hello.id, *id);
            let price = live.map(|live| live.price(LinkId { from, to }));
            let (rtt, retransmissions) = self.path(*id, known);
            LinkStatus {
                rtt_ms: rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                retransmissions,
                name: known.name.clone(),
                is_up: known.out.is_some(),
                queue_messages,
                price_dollars: price.or_else(|| controller.price(queue_messages)),
                outgoing_bytes: known.out.as_ref().map_or(0, |out| out.bytes()),
                sent_bytes: known.traffic.sent_bytes,
                received_bytes: known.traffic.received_bytes,
                sent_messages: known.traffic.sent_messages,
                received_messages: known.traffic.received_messages,
            }
        });
        let links = self.neighbours.keys().copied().zip(links);
        let mut links: BTreeMap<_, _> = links.collect();
        for link in configured {
            let down = LinkStatus {
                name: link.name.clone(),
                price_dollars: controller.price(0),
                ..LinkStatus::default()
            };
            links.entry(link.number()).or_insert(down);
        }
        links.into_values().collect()
    }

    /// Returns the present status.
    pub(crate) fn status(
        &self,
        controller: &ControllerConfig,
        configured: &[LinkConfig],
    ) -> DaemonStatus {
        let names = self.daemon_names();
        let links = self.links(controller, configured);
        let own = self.groups.iter();
        let own = own.filter(|(group, _)| !self.daemon_groups.contains(group));
        let tfrc = self.daemon.controller::<Tfrc>();
        let first_groups = own.take(GROUPS_SHOWN).map(|(group, name)| {
            let members = self.daemon.members(*group);
            let named = |(id, count)| (daemon_name(&names, id), count);
            GroupStatus {
                pattern: pattern_name(name),
                queue: queue_name(name),
                members: members.map(named).collect(),
                allowed_bits_per_s: tfrc
                    .and_then(|tfrc| tfrc.allowed_rate(*group))
                    .map(|rate| rate.bits_per_s()),
            }
        });
        DaemonStatus {
            name: self.hello.name.clone(),
            overlay: self.hello.overlay.clone(),
            uptime_s: (self.clock.now() - Time::ZERO).as_secs_f64(),
            controller: controller.name().to_owned(),
            topology_version: self.daemon.topology_version(),
            links,
            unacknowledged_bytes: self.daemon.unacknowledged_bytes(),
            clients: self.sessions.len() + self.spread.len(),
            groups: self.groups.len() - self.daemon_groups.len(),
            first_groups: first_groups.collect(),
            slow_members: self.slow_members.len(),
            first_slow_members: self.first_slow_members(),
            counters: self.counters.clone(),
            daemons: names.into_values().collect(),
        }
    }
}

/// Slow members.
impl DaemonCore {
    fn first_slow_members(&self) -> Vec<SlowMemberStatus> {
        let now = self.clock.now();
        let first = self.slow_members.iter().take(SLOW_MEMBERS_SHOWN);
        let first = first.map(|(client, slow)| {
            let (name, session) = (slow.group.as_ref(), self.session_of(client));
            let client_name = session.and_then(|session| session.options.name.as_ref());
            SlowMemberStatus {
                pattern: name.map_or_else(String::new, pattern_name),
                queue: name.and_then(queue_name),
                client: session.map(|session| session.peer.number),
                name: client_name.map(|name| shortened(name)),
                address: session.map(|session| session.peer.address.to_string()),
                verdict: slow.verdict,
                slow_for_s: (now - slow.since).as_secs_f64(),
                missed_messages: slow.missed_messages,
            }
        });
        first.collect()
    }

    /// Returns the session of a client; `None` for the clients that stand for
    /// others.
    fn session_of(&self, client: ClientId) -> Option<&NatsSession> {
        match self.owners.get(&client)? {
            Owner::Session(key) => self.sessions.get(*key),
            Owner::Queue(_) | Owner::Orderer | Owner::User(_) => None,
        }
    }

    /// Removes members that are no longer slow from the list.
    pub(crate) fn expire_slow_members(&mut self) {
        self.slow_members.expire(self.clock.now());
    }

    /// Logs an action on a slow member.
    pub(super) fn log_slow_member(&self, client: ClientId, group: GroupId, verdict: Verdict) {
        let group = self.groups.get(&group).map(pattern_name);
        let session = self.session_of(client);
        let peer = session.map(|session| tracing::field::display(session.peer.address));
        let client = session.map(|session| session.peer.number);
        let name = session.and_then(|session| session.options.name.as_deref());
        let reason = match verdict {
            Verdict::Blocked => "senders of the group wait for it",
            Verdict::Dropped => "it misses messages",
            _ => "it was removed from the group",
        };
        tracing::warn!(
            group,
            client,
            name,
            peer,
            reason,
            "a member reads too slowly"
        );
    }
}

/// Returns the beginning of a text that a client has chosen.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(NAME_CHARS_SHOWN).collect()
}

fn pattern_name(name: &GroupName) -> String {
    String::from_utf8_lossy(&name.pattern).into_owned()
}

fn queue_name(name: &GroupName) -> Option<String> {
    let (queue, _) = name.queue.as_ref()?;
    Some(String::from_utf8_lossy(queue).into_owned())
}

/// Returns the name of a daemon, or its number if the name is not known.
pub(super) fn daemon_name(names: &BTreeMap<DaemonId, String>, id: DaemonId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| unnamed(id))
}

fn unnamed(id: DaemonId) -> String {
    format!("#{}", id.0)
}
