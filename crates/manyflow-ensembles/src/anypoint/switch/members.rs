//! The members of the service: their addresses, health, and counters.

use std::net::SocketAddr;
use std::time::Duration;

use manyflow_core::time::Time;
use manyflow_net::reach::{Notice, Reach};

use tokio::time::Instant;

use super::config::{MemberConfig, ServiceConfig};
use super::status::MemberStatus;
use crate::anypoint::envelope::{Cookie, NO_COOKIE};
use crate::anypoint::way::{Path, Way};

/// The silence after which a member counts as down. It is probed every second.
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// The silence after which a member counts as not reached, for warnings: it has not answered two
/// probes.
const SILENT_AFTER: Duration = Duration::from_millis(1_100);

/// The time after which a member counts as stalled in a connection, if it takes nothing.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(10);
/// The time for which a member takes part in no further connection after one has given it up
/// because it took nothing. The connections of that time need not wait for it. Each further time is
/// twice as long.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest such time, and the time without one after which the next is the shortest again.
const LONGEST_REST: Duration = Duration::from_secs(3600);

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
    /// The warnings of a member that is alive and takes nothing.
    stall: Reach,
    /// The last rest of the member: its length and its end.
    rest: Option<(Duration, Time)>,
    pub(super) way: Way,
    pub(super) status: MemberStatus,
}

impl Member {
    fn new(now: Time, config: &MemberConfig) -> Member {
        let status = MemberStatus {
            name: config.name.clone(),
            address: config.address.to_string(),
            is_present: true,
            is_up: true,
            ..MemberStatus::default()
        };
        let name = format!("the member {}", status.label());
        Member {
            address: config.address,
            cookie: NO_COOKIE,
            heard: now,
            is_known: false,
            reach: Reach::new(name.clone(), "does it run, and is its address right?"),
            stall: Reach::of_fault(
                name,
                "has taken no frames",
                "does its application read? remove it from the service if not",
            ),
            rest: None,
            way: Way::default(),
            status,
        }
    }

    /// Returns the path to the member.
    pub(super) fn path(&self) -> Path {
        Path {
            remote: self.address,
            local: None,
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

    /// Notes in how many connections the member is stalled. Returns a sentence for the log.
    fn note_stalled(&mut self, now: Time, connections: u64) -> Option<Notice> {
        self.status.stalled = connections;
        self.status.is_resting = self.is_resting(now);
        let reason = match connections {
            0 if !self.status.is_resting => return self.stall.up(),
            0 => "connections are opened without it for now".to_owned(),
            n => format!(
                "it grants no credit or acknowledges nothing in {n} connections, \
                 and others get its frames"
            ),
        };
        let present = Instant::now();
        let since = present.checked_sub(STALLED_AFTER).unwrap_or(present);
        self.stall.down_since(since, reason);
        self.stall.poll(present)
    }

    fn is_resting(&self, now: Time) -> bool {
        self.rest.is_some_and(|(_, until)| now < until)
    }

    /// Begins a rest, unless the member rests already.
    fn begin_rest(&mut self, now: Time) {
        if self.is_resting(now) {
            return;
        }
        let recent = self.rest.filter(|(_, until)| now - *until < LONGEST_REST);
        let length = recent.map_or(FIRST_REST, |(last, _)| (2 * last).min(LONGEST_REST));
        self.rest = Some((length, now + length));
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
        let listed = |member: &mut Member| std::mem::take(&mut member.status.is_present);
        let former: Vec<bool> = self.list.iter_mut().map(listed).collect();
        let mut numbers = Vec::new();
        for wanted in &config.members {
            let known = self.list.iter().position(|member| member.is(wanted));
            let place = known.unwrap_or_else(|| {
                self.list.push(Member::new(now, wanted));
                self.list.len() - 1
            });
            let member = &mut self.list[place];
            if !former.get(place).is_some_and(|was_listed| *was_listed) {
                member.rest = None;
                if !member.status.is_up {
                    member.heard = now;
                    member.status.is_up = true;
                }
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

    /// Notes in how many connections each member is stalled, and logs which are.
    pub(super) fn note_stalled(&mut self, now: Time, connections: &[u64]) {
        for (member, connections) in self.list.iter_mut().zip(connections) {
            if let Some(notice) = member.note_stalled(now, *connections) {
                notice.log();
            }
        }
    }

    /// Notes that a connection has given up a member because it took nothing.
    pub(super) fn note_stuck(&mut self, now: Time, number: u16) {
        self.list[usize::from(number)].begin_rest(now);
    }

    /// Returns the number of members, former ones included.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns whether the member may join connections now.
    pub(super) fn is_ready(&self, now: Time, number: u16) -> bool {
        let member = &self.list[usize::from(number)];
        member.status.is_present && member.status.is_up && !member.is_resting(now)
    }

    /// Returns whether the member belongs to the service.
    pub(super) fn is_present(&self, number: u16) -> bool {
        self.list[usize::from(number)].status.is_present
    }

    /// Returns the members of a new connection: those that are up and do not rest. Returns all
    /// members if each is down or rests.
    pub(super) fn for_connection(&self, now: Time) -> Vec<u16> {
        let numbers = || 0..self.list.len() as u16;
        let ready = numbers().filter(|number| self.is_ready(now, *number));
        let ready: Vec<_> = ready.collect();
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

#[cfg(test)]
mod tests {
    use super::super::config::PolicyName;
    use super::*;

    fn service(names: &[&str]) -> ServiceConfig {
        let member = |name: &&str| MemberConfig {
            name: (*name).to_owned(),
            address: ([192, 0, 2, 1], 7000).into(),
            weight: 1.0,
            keys: Vec::new(),
        };
        ServiceConfig {
            members: names.iter().map(member).collect(),
            policy: PolicyName::Hash,
        }
    }

    fn members(names: &[&str]) -> Members {
        let mut members = Members::default();
        members.set(Time::ZERO, &service(names));
        members
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_member_is_named_once_and_when_it_takes_frames_again() {
        let mut members = members(&["a"]);
        let member = members.get_mut(0);
        assert_eq!(member.note_stalled(at(0), 0), None);
        assert_eq!(
            member.note_stalled(at(1), 3).unwrap().to_string(),
            "the member a at 192.0.2.1:7000 has taken no frames for 10 s: it grants no credit or \
             acknowledges nothing in 3 connections, and others get its frames; still trying: does \
             its application read? remove it from the service if not"
        );
        assert_eq!(member.note_stalled(at(2), 4), None);
        assert_eq!(member.status.stalled, 4);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(
            member.note_stalled(at(32), 0).unwrap().to_string(),
            "the member a at 192.0.2.1:7000 is back after 40 s"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_was_given_up_rests_twice_as_long_each_time() {
        let mut members = members(&["a", "b"]);
        let mut now = at(0);
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            members.note_stuck(now, 1);
            // Other connections give it up at the same time.
            members.note_stuck(now + Duration::from_secs(1), 1);
            let end = now + Duration::from_secs(60 * minutes);
            let before = now + Duration::from_secs(60 * minutes - 1);
            assert!(!members.is_ready(before, 1), "{minutes} minutes");
            assert_eq!(members.for_connection(before), [0]);
            assert!(members.is_ready(end, 1), "{minutes} minutes");
            now = end;
        }
        now += LONGEST_REST;
        members.note_stuck(now, 1);
        assert!(members.is_ready(now + FIRST_REST, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_down_stays_down_when_the_list_is_read_again() {
        let mut members = members(&["a", "b"]);
        members.note_heard(at(9), 1);
        members.check_health(at(10));
        members.set(at(10), &service(&["a", "b"]));
        assert_eq!(members.for_connection(at(10)), [1]);
        members.set(at(11), &service(&["b"]));
        members.set(at(12), &service(&["a", "b"]));
        assert_eq!(members.for_connection(at(12)), [0, 1], "it is added");
    }

    #[tokio::test(start_paused = true)]
    async fn members_rest_only_while_others_do_not_and_until_they_are_added_again() {
        let mut members = members(&["a", "b"]);
        members.note_stuck(at(0), 0);
        assert_eq!(members.for_connection(at(1)), [1]);
        members.note_stuck(at(0), 1);
        assert_eq!(members.for_connection(at(1)), [0, 1]);
        members.set(at(1), &service(&["b"]));
        members.set(at(2), &service(&["a", "b"]));
        assert_eq!(members.for_connection(at(3)), [0]);
    }
}
