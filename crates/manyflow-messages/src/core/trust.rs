//! Neighbours and other daemons that do what no daemon does, and daemons that have the same name.

use std::collections::HashMap;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_net::seldom::{LOG_INTERVAL, Seldom};
use manyflow_overlay::{DaemonId, Misconduct};

use super::DaemonCore;
use super::status::daemon_name;

/// The time for which a neighbour that announced a state that no daemon can have is refused.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The daemons that disturb this one.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Neighbours that are refused until a time.
    refused: HashMap<DaemonId, Time>,
    no_room: Seldom,
    invalid_messages: Seldom,
    invalid_names: Seldom,
    /// When another daemon last announced a later incarnation of this one.
    outbid_at: Option<Time>,
    same_name: Seldom,
}

impl DaemonCore {
    /// Handles a neighbour that has announced a state that no daemon can have. The overlay has
    /// removed its link.
    pub(super) fn handle_misconduct(
        &mut self,
        neighbour: DaemonId,
        origin: DaemonId,
        misconduct: Misconduct,
    ) {
        let now = self.clock.now();
        self.counters.refused_states += 1;
        self.trust.refused.insert(neighbour, now + REFUSED_FOR);
        let whose = match origin == neighbour {
            true => "its own".to_owned(),
            false => format!("that of {}", daemon_name(&self.daemon_names(), origin)),
        };
        if let Some(known) = self.neighbours.get(&neighbour) {
            tracing::warn!(
                "the link to the daemon {} is refused for a minute: it announced a state, {whose}, \
                 with {misconduct}; check that daemon's program and clock",
                known.name,
            );
        }
        self.end_link(neighbour);
    }

    /// Returns whether a neighbour is refused now.
    pub(crate) fn is_refused(&self, neighbour: DaemonId) -> bool {
        let until = self.trust.refused.get(&neighbour);
        until.is_some_and(|until| self.clock.now() < *until)
    }

    /// Handles a group of another daemon that does not count.
    pub(super) fn handle_no_room(&mut self, origin: DaemonId) {
        self.counters.refused_groups += 1;
        if let Some(count) = self.trust.no_room.count(self.clock.now()) {
            let name = daemon_name(&self.daemon_names(), origin);
            tracing::warn!(
                "{count} groups of other daemons do not count, the last of the daemon {name}: groups \
                 take too much memory, so messages from here do not reach their members",
            );
        }
    }

    /// Handles a daemon that is reachable again after it was not for longer than the hold time.
    pub(super) fn handle_gap(&mut self, origin: DaemonId) {
        self.counters.gaps += 1;
        let name = daemon_name(&self.daemon_names(), origin);
        tracing::warn!(
            "the daemon {name} can be reached again, after the time for which messages to it were \
             kept: clients here miss what its clients sent since, and its clients what was sent here",
        );
    }

    /// Handles a message that another daemon has sent, and no client can have published.
    pub(super) fn handle_invalid_message(&mut self, origin: DaemonId) {
        self.counters.refused_messages += 1;
        if let Some(count) = self.trust.invalid_messages.count(self.clock.now()) {
            let name = daemon_name(&self.daemon_names(), origin);
            tracing::warn!(
                "dropped {count} messages that no client can have published, the last from the daemon \
                 {name}: check that daemon's program",
            );
        }
    }

    /// Handles a group with a name that no client can have given it.
    pub(super) fn handle_invalid_name(&mut self) {
        if let Some(count) = self.trust.invalid_names.count(self.clock.now()) {
            tracing::warn!(
                "ignored {count} groups whose names no client can have given them: another daemon's \
                 program is faulty or lies",
            );
        }
    }

    /// Handles a later incarnation of this daemon that another one announced. It is once no more
    /// than the last run of this daemon, before its clock went back.
    pub(super) fn handle_outbid(&mut self, incarnation: u32) {
        self.hello.incarnation = incarnation;
        let now = self.clock.now();
        let last = self.trust.outbid_at.replace(now);
        let is_repeated = last.is_some_and(|at| now - at < LOG_INTERVAL);
        if is_repeated && let Some(count) = self.trust.same_name.count(now) {
            let (name, id) = (&self.hello.name, self.hello.id.0);
            tracing::warn!(
                "another daemon has announced states in the name of {name} ({count} times): either \
                 two daemons have this name or its number {id}, and one of them needs another name \
                 or `id`, or a daemon of the overlay lies",
            );
        }
    }
}
