//! The members of the service: their addresses, health, and counters.

use std::net::SocketAddr;
use std::time::Duration;

use manyflow_core::time::Time;

use tokio::time::Instant;

use super::config::{MemberConfig, ServiceConfig};
use super::status::MemberStatus;
use crate::anypoint::envelope::{Cookie, NO_COOKIE};
use crate::anypoint::way::Way;
use crate::net::reach::Reach;

/// The silence after which a member counts as down. It is probed every second.
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// The silence after which a member counts as not reached, for warnings: it has not answered two
/// probes.
const SILENT_AFTER: Duration = Duration::from_millis(1_100);

/// A member of the service, present or former.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddr,
    /// The cookie of the member's last Challenge.
    pub(super) cookie: Cookie,
    heard: Time,
    /// Whether a datagram has ever come from the member.
    is_known: bool,
    reach: Reach,
    pub(super) way: Way,
    pub(super) status: MemberStatus,
}

impl Member {
    fn new(now: Time, config: &MemberConfig) -> Member {
        Member {
            address: config.address,
            cookie: NO_COOKIE,
            heard: now,
            is_known: false,
            reach: Reach::new(
                format!("the member {} at {}", config.name, config.address),
                "does it run, and is its address right?",
            ),
            way: Way::default(),
            status: MemberStatus {
                name: config.name.clone(),
                address: config.address.to_string(),
                is_present: true,
                is_up: true,
                ..MemberStatus::default()
            },
        }
    }

    fn warn_while_silent(&mut self, is_silent: bool) {
        let notice = match is_silent {
            true => {
                self.reach.down("nothing comes from it");
                self.reach.poll(Instant::now())
            }
            false => self.reach.up(),
        };
        if let Some(notice) = notice {
            notice.log();
        }
    }

    fn is(&self, config: &MemberConfig) -> bool {
        self.address == config.address && self.status.name == config.name
    }
}

/// All members that the switch has had. Their numbers never change.
#[derive(Debug, Default)]
pub(super) struct Members {
    list: Vec<Member>,
    /// The member that sent the last datagram.
    last: usize,
}

impl Members {
    /// Takes over a list. Returns the number of each of its members.
    pub(super) fn set(&mut self, now: Time, config: &ServiceConfig) -> Vec<u16> {
        for member in &mut self.list {
            member.status.is_present = false;
        }
        let mut numbers = Vec::new();
        for wanted in &config.members {
            let known = self.list.iter().position(|member| member.is(wanted));
            let place = known.unwrap_or_else(|| {
                self.list.push(Member::new(now, wanted));
                self.list.len() - 1
            });
            let member = &mut self.list[place];
            if !member.status.is_present && !member.status.is_up {
                member.heard = now;
                member.status.is_up = true;
            }
            member.status.is_present = true;
            numbers.push(place as u16);
        }
        numbers
    }

    /// Returns the number of the member that sends from this address.
    pub(super) fn find(&mut self, address: SocketAddr) -> Option<u16> {
        let is_last = |member: &Member| member.address == address;
        if !self.list.get(self.last).is_some_and(is_last) {
            // A former member may have had the address under another name.
            let mut reversed = self
                .list
                .iter()
                .rposition(|member| member.address == address);
            let present = self
                .list
                .iter()
                .position(|member| member.address == address && member.status.is_present);
            reversed = present.or(reversed);
            self.last = reversed?;
        }
        Some(self.last as u16)
    }

    pub(super) fn get_mut(&mut self, number: u16) -> &mut Member {
        &mut self.list[usize::from(number)]
    }

    /// Notes that a datagram came from a member.
    pub(super) fn note_heard(&mut self, now: Time, number: u16) {
        let member = &mut self.list[usize::from(number)];
        member.heard = now;
        member.is_known = true;
    }

    /// Marks members as up or down by the time of their last datagram, and logs which are silent.
    pub(super) fn check_health(&mut self, now: Time) {
        for member in &mut self.list {
            let is_up = now - member.heard < DOWN_AFTER;
            member.status.is_up = is_up;
            if member.status.is_present {
                let is_silent = !member.is_known || now - member.heard >= SILENT_AFTER;
                member.warn_while_silent(is_silent);
            }
        }
    }

    /// Returns whether the member takes part in new connections.
    pub(super) fn is_ready(&self, number: u16) -> bool {
        let status = &self.list[usize::from(number)].status;
        status.is_present && status.is_up
    }

    /// Returns whether the member belongs to the service.
    pub(super) fn is_present(&self, number: u16) -> bool {
        self.list[usize::from(number)].status.is_present
    }

    /// Returns the members for a new connection: those that are up, or all if none is.
    pub(super) fn for_connection(&self) -> Vec<u16> {
        let numbers = || 0..self.list.len() as u16;
        let ready: Vec<_> = numbers().filter(|number| self.is_ready(*number)).collect();
        match ready.is_empty() {
            true => numbers()
                .filter(|number| self.is_present(*number))
                .collect(),
            false => ready,
        }
    }

    /// Iterates over the members that belong to the service, with their numbers.
    pub(super) fn present(&self) -> impl Iterator<Item = (u16, &Member)> {
        let numbered = (0..).zip(&self.list);
        numbered.filter(|(_, member)| member.status.is_present)
    }

    pub(super) fn statuses(&self) -> Vec<MemberStatus> {
        self.list
            .iter()
            .map(|member| member.status.clone())
            .collect()
    }
}
