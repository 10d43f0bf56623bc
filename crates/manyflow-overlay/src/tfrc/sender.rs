//! The groups to which a sending daemon's clients send, the remote daemons with members, and the
//! division of their limits among the groups.

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Outbox;
use super::config::TfrcConfig;
use super::division::Division;
use super::earliest;
use super::group::Group;
use super::pair::{self, Pair};
use super::rtt::Acknowledged;
use crate::controller::Request;
use crate::message::{ClientId, DaemonId, GroupId, Report};
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

/// A sending daemon. All rates are in bytes per second.
#[derive(Debug, Default)]
pub(super) struct Sending {
    groups: BTreeMap<GroupId, Group>,
    /// The remote daemons with members of these groups.
    pairs: BTreeMap<DaemonId, Pair>,
    division: Division,
    /// The earliest timer, or an earlier time: nothing is searched when a message enters.
    due: Option<Time>,
}

/// The controller's parameters, and its results that have not been polled.
type Terms<'a> = (&'a TfrcConfig, &'a mut Outbox);

/// The result of a report: a sample of the round-trip time, and the new average.
pub(super) type Measured = Option<(Duration, Duration)>;

impl Sending {
    /// Returns the number of groups and pairs with state.
    pub(super) fn state_size(&self) -> usize {
        self.groups.len() + self.pairs.len()
    }

    /// Returns the sum of the rates at which local clients may send to a group; `None` if none of
    /// them sends to it, or if no other daemon has members.
    pub(super) fn allowed(&self, group: GroupId) -> Option<f64> {
        let group = self.groups.get(&group)?;
        Some(group.allocation.rate())
    }

    /// Admits a client's message to a group, if the client has tokens. `members` are the remote
    /// daemons with members, at least one.
    pub(super) fn try_admit(
        &mut self,
        now: Time,
        request: &Request,
        members: impl Iterator<Item = DaemonId>,
        (config, outbox): Terms<'_>,
    ) -> bool {
        let (id, bytes) = (request.groups.first(), f64::from(request.bytes));
        if let Entry::Vacant(new) = self.groups.entry(id) {
            new.insert(Group::new(config));
            self.replace_members(id, members);
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return false;
        };
        let allocation = &mut group.allocation;
        let admitted = allocation.try_admit(now, request.client, bytes, config);
        self.due = earliest(self.due, allocation.poll_timeout());
        if group.has_other_demand() {
            self.divide(now, (config, outbox));
        }
        admitted
    }

    pub(super) fn on_sent(&mut self, now: Time, id: GroupId, sequence: OriginSeq, bytes: u32) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.log.on_sent(now, sequence);
        for member in &group.members {
            if let Some(pair) = self.pairs.get_mut(member) {
                pair.on_sent(now, bytes);
                self.due = earliest(self.due, pair.poll_timeout());
            }
        }
    }

    /// Handles a report of a daemon. Returns `None` if the daemon has no members.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        from: DaemonId,
        report: &Report,
        (config, outbox): Terms<'_>,
    ) -> Option<Measured> {
        let group = self.groups.get(&report.group);
        let acknowledged = group.and_then(|group| group.log.acknowledged(now, report));
        let pair = self.pairs.get_mut(&from)?;
        outbox.report_acceptable(from, pair::acceptable(report, config));
        pair.on_report(now, report, acknowledged, config);
        let rtt = pair.rtt();
        self.due = earliest(self.due, pair.poll_timeout());
        if pair.is_full || pair.is_reached() {
            self.divide(now, (config, &mut *outbox));
        }
        let measured = |sample: Acknowledged| Some((sample.rtt, rtt?));
        Some(acknowledged.and_then(measured))
    }

    /// Handles a change of the remote daemons with members of a group. A daemon that no longer has
    /// members of any group is forgotten. A new daemon counts from its first report, or from its
    /// time-out.
    pub(super) fn set_members(
        &mut self,
        now: Time,
        id: GroupId,
        members: impl Iterator<Item = DaemonId>,
        (config, outbox): Terms<'_>,
    ) {
        if !self.groups.contains_key(&id) {
            return;
        }
        self.replace_members(id, members);
        let group = self.groups.get_mut(&id);
        if let Some(group) = group.filter(|group| group.members.is_empty()) {
            outbox.ready.extend(group.allocation.release());
            self.groups.remove(&id);
        }
        self.divide(now, (config, &mut *outbox));
    }

    /// The groups to which local clients send.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.keys().copied()
    }

    fn replace_members(&mut self, id: GroupId, members: impl Iterator<Item = DaemonId>) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(&mut group.members, members.collect());
        for member in &group.members {
            let pair = self.pairs.entry(*member);
            pair.or_insert_with(|| Pair::new(group.allocation.rate()))
                .groups += 1;
        }
        for member in before {
            if let Some(pair) = self.pairs.get_mut(&member) {
                pair.groups -= 1;
                if pair.groups == 0 {
                    self.pairs.remove(&member);
                }
            }
        }
    }

    pub(super) fn remove_client(
        &mut self,
        now: Time,
        client: ClientId,
        (config, outbox): Terms<'_>,
    ) {
        let mut any = false;
        for group in self.groups.values_mut() {
            let was_known = group.allocation.remove(now, client);
            any |= was_known && group.has_other_demand();
            // The others have a larger share, and wait for a shorter time.
            self.due = earliest(self.due, group.allocation.poll_timeout());
        }
        if any {
            self.divide(now, (config, &mut *outbox));
        }
    }

    /// Handles the timers of pairs, and updates the demands of clients.
    pub(super) fn handle_timeout(&mut self, now: Time, (config, outbox): Terms<'_>) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let mut any = false;
        for pair in self.pairs.values_mut() {
            any |= pair.handle_timeout(now, config);
        }
        for group in self.groups.values_mut() {
            any |= group.allocation.update_demands(now, config) && group.has_other_demand();
        }
        if any {
            self.divide(now, (config, &mut *outbox));
        }
        for group in self.groups.values_mut() {
            let ready = &mut outbox.ready;
            group.allocation.wake(now, |client| ready.push_back(client));
        }
        self.due = self.earliest_timer();
    }

    /// Returns the time of the earliest timer, or an earlier time.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    fn earliest_timer(&self) -> Option<Time> {
        let silences = self.pairs.values().filter_map(Pair::poll_timeout);
        let groups = self.groups.values();
        let allocations = groups.filter_map(|group| group.allocation.poll_timeout());
        silences.chain(allocations).min()
    }

    /// Divides the limits of the pairs among the groups, by max-min. A daemon that has not reported
    /// yet limits only groups that no other daemon limits, to the initial rate together.
    fn divide(&mut self, now: Time, (config, outbox): Terms<'_>) {
        let initial = config.initial_bytes_per_s();
        for (place, pair) in self.pairs.values_mut().enumerate() {
            (pair.place, pair.carried, pair.longest) = (place, 0.0, 0.0);
        }
        for group in self.groups.values() {
            let longest = group.allocation.longest();
            for member in &group.members {
                if let Some(pair) = self.pairs.get_mut(member) {
                    pair.longest = pair.longest.max(longest);
                }
            }
        }
        let limits = self.pairs.values().map(Pair::limit);
        self.division
            .begin(limits.map(|limit| limit.unwrap_or(initial)));
        for group in self.groups.values_mut() {
            group.divided_demand = group.allocation.demand();
            let pairs = || group.members.iter().filter_map(|id| self.pairs.get(id));
            let is_limited = pairs().any(|pair| pair.limit().is_some());
            let limiting = pairs().filter(|pair| pair.limit().is_some() == is_limited);
            // A group without clients demands nothing: an unused share would hold back slow start.
            self.division.push(
                group.divided_demand,
                group.allocation.is_used(),
                limiting.map(|pair| pair.place),
            );
        }
        for ((id, group), rate) in self.groups.iter_mut().zip(self.division.shares()) {
            group.set_rate(now, *id, rate, outbox);
            for member in &group.members {
                if let Some(pair) = self.pairs.get_mut(member) {
                    pair.carried += rate;
                }
            }
        }
        for pair in self.pairs.values_mut() {
            if pair.carried == 0.0 {
                // A client that begins to send may use all of the limit.
                pair.carried = pair.limit().unwrap_or(initial);
            }
            pair.is_full = pair.is_reached();
        }
        self.due = self.earliest_timer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::time::seconds;

    const GROUP: GroupId = GroupId(1);
    const OTHER: GroupId = GroupId(2);
    const CLIENT: ClientId = ClientId(3);
    const NEAR: DaemonId = DaemonId(1);
    const FAR: DaemonId = DaemonId(2);
    /// The default initial rate in bytes per second.
    const INITIAL: f64 = 12_500.0;

    /// A group whose messages of 1000 bytes are sent exactly at the allowed rate, with a round-trip
    /// time of 0.1 s. No client waits for tokens.
    struct World {
        sending: Sending,
        config: TfrcConfig,
        outbox: Outbox,
        now: Time,
        sequence: u64,
    }

    impl World {
        fn new(members: &[DaemonId]) -> World {
            let mut world = World {
                sending: Sending::default(),
                config: TfrcConfig::default(),
                outbox: Outbox::default(),
                now: Time::ZERO,
                sequence: 0,
            };
            world.add(GROUP, members);
            world
        }

        /// Adds a group, with a client.
        fn add(&mut self, group: GroupId, members: &[DaemonId]) {
            assert!(self.offer(group, members), "the first message waits");
        }

        /// Offers a message. Returns whether it was admitted.
        fn offer(&mut self, group: GroupId, members: &[DaemonId]) -> bool {
            let request = Request {
                client: CLIENT,
                groups: group.into(),
                bytes: 1000,
                purse: None,
            };
            let terms = (&self.config, &mut self.outbox);
            let members = members.iter().copied();
            self.sending.try_admit(self.now, &request, members, terms)
        }

        fn set_members(&mut self, members: &[DaemonId]) {
            let terms = (&self.config, &mut self.outbox);
            let members = members.iter().copied();
            self.sending.set_members(self.now, GROUP, members, terms);
        }

        fn allowed(&self) -> f64 {
            self.sending.allowed(GROUP).unwrap()
        }

        fn send_one(&mut self) {
            self.sequence += 1;
            let sequence = OriginSeq::new(self.sequence);
            self.sending.on_sent(self.now, GROUP, sequence, 1000);
        }

        fn handle_timeout(&mut self) {
            let terms = (&self.config, &mut self.outbox);
            self.sending.handle_timeout(self.now, terms);
        }

        /// Sends at the allowed rate times `part` for `span_s` seconds, and handles timers.
        fn send(&mut self, span_s: f64, part: f64) {
            let end = self.now + seconds(span_s);
            while self.now < end {
                let rate = part * self.allowed();
                self.now = (self.now + seconds(1000.0 / rate)).min(end);
                self.send_one();
                self.handle_timeout();
            }
        }

        /// Handles a report that acknowledges the last message sent at least a round-trip time ago.
        fn report(&mut self, from: DaemonId, rate_bytes_per_s: u32, repaired: u16) {
            let log = &self.sending.groups[&GROUP].log;
            let sent = |sequence: &u64| {
                let found = log.acknowledged(self.now, &report(0, 0, *sequence));
                found.is_some_and(|found| found.rtt.as_secs_f64() >= 0.1 - 1e-6)
            };
            let acknowledged = (1..=self.sequence).rev().find(sent).unwrap_or(0);
            self.handle_report(from, &report(rate_bytes_per_s, repaired, acknowledged));
        }

        fn handle_report(&mut self, from: DaemonId, report: &Report) {
            let terms = (&self.config, &mut self.outbox);
            self.sending.on_report(self.now, from, report, terms);
        }
    }

    fn report(rate_bytes_per_s: u32, repaired: u16, acknowledged: u64) -> Report {
        Report {
            group: GROUP,
            rate_bytes_per_s,
            repaired,
            acknowledged: OriginSeq::new(acknowledged),
            received_bytes: 1000 * acknowledged as u32,
            held_us: 0,
        }
    }

    #[test]
    fn the_slowest_daemon_limits_until_it_leaves() {
        let mut world = World::new(&[NEAR, FAR]);
        world.send(1.0, 1.0);
        for _ in 0..10 {
            world.send(0.2, 1.0);
            world.report(NEAR, 40_000, 0);
            world.report(FAR, 9_000, 0);
        }
        assert_eq!(world.allowed(), 9_000.0);
        world.set_members(&[NEAR]);
        assert_eq!(world.allowed(), 40_000.0);
    }

    #[test]
    fn a_new_daemon_counts_from_its_first_report() {
        let mut world = World::new(&[NEAR]);
        for _ in 0..10 {
            world.send(0.2, 1.0);
            world.report(NEAR, 40_000, 0);
        }
        world.set_members(&[NEAR, FAR]);
        assert_eq!(world.allowed(), 40_000.0);
        world.report(FAR, 5_000, 0);
        assert_eq!(world.allowed(), 5_000.0);
    }

    #[test]
    fn slow_start_doubles_in_each_round_trip_unless_unused() {
        let mut world = World::new(&[NEAR]);
        assert_eq!(world.allowed(), INITIAL);
        world.send(0.2, 1.0);
        for round in 1..=6 {
            world.report(NEAR, Report::UNLIMITED, 0);
            let rate = world.allowed() / INITIAL;
            assert!(rate <= f64::from(1 << round), "round {round}: {rate}");
            world.send(0.12, 1.0);
        }
        let reached = world.allowed();
        // Arrivals were sent a round-trip time earlier. Once they limit the growth, doubling takes
        // two round-trip times.
        assert!(reached > 8.0 * INITIAL, "{reached}");
        for _ in 0..20 {
            world.send(0.12, 0.1);
            world.report(NEAR, Report::UNLIMITED, 0);
        }
        assert!(world.allowed() <= 2.1 * reached, "{}", world.allowed());
    }

    #[test]
    fn a_silent_daemon_halves_the_rate_repeatedly() {
        let mut world = World::new(&[NEAR]);
        for _ in 0..10 {
            world.send(0.2, 1.0);
            world.report(NEAR, 40_000, 0);
        }
        world.send(0.5, 1.0);
        assert_eq!(world.allowed(), 20_000.0);
        world.send(5.0, 1.0);
        assert!(world.allowed() < 2_000.0, "{}", world.allowed());
        world.send(2000.0, 1.0);
        assert_eq!(
            world.allowed(),
            1000.0 / 64.0,
            "the rate is not at its minimum"
        );
        // A report only doubles the rate: it does not restore the former rate at once.
        let before = world.allowed();
        world.send(100.0, 1.0);
        world.report(NEAR, 40_000, 0);
        assert_eq!(world.allowed(), 2.0 * before);
    }

    /// The daemon has lost many messages from here, and this is the first one since then. It waits
    /// for t_mbi at most, whatever the daemon reports.
    #[test]
    fn a_long_message_leaves_at_the_lowest_rate_before_any_was_sent() {
        let mut world = World::new(&[NEAR]);
        while world.offer(GROUP, &[NEAR]) {}
        world.report(NEAR, 0, 0);
        assert_eq!(world.allowed(), 1000.0 / 64.0);
    }

    #[test]
    fn a_reported_rate_applies_at_once_up_to_twice_the_limit_of_a_round_trip_ago() {
        let mut world = World::new(&[NEAR]);
        world.send(0.2, 1.0);
        world.report(NEAR, 10_000, 0);
        assert_eq!(world.allowed(), 10_000.0);
        world.send(0.2, 1.0);
        world.report(NEAR, 11_000, 0);
        // A loss event causes an early report.
        world.now += Duration::from_millis(10);
        world.report(NEAR, 12_000, 0);
        assert_eq!(world.allowed(), 12_000.0);
        world.report(NEAR, 30_000, 0);
        assert_eq!(world.allowed(), 20_000.0);
    }

    #[test]
    fn a_daemon_that_never_reports_halves_the_rate_after_two_seconds() {
        let mut world = World::new(&[NEAR]);
        world.send(1.9, 1.0);
        assert_eq!(world.allowed(), INITIAL);
        world.send(0.3, 1.0);
        assert_eq!(world.allowed(), INITIAL / 2.0);
    }

    #[test]
    fn an_idle_sender_returns_to_the_initial_rate_without_a_timer() {
        let mut world = World::new(&[NEAR]);
        for _ in 0..10 {
            world.send(0.2, 1.0);
            world.report(NEAR, 40_000, 0);
        }
        for _ in 0..1000 {
            world.now += Duration::from_millis(100);
            world.handle_timeout();
        }
        assert_eq!(world.allowed(), INITIAL);
        assert_eq!(world.sending.poll_timeout(), None);
    }

    #[test]
    fn damping_reduces_the_rate_while_the_round_trip_time_is_above_its_average() {
        let mut world = World::new(&[NEAR]);
        world.config.damping_history = Some(0.9);
        world.send_one();
        // The same message is acknowledged after 0.1 s, and then after 0.2 s.
        for factor in [1.0, 0.9 / 2f64.sqrt() + 0.1] {
            world.now += Duration::from_millis(100);
            world.handle_report(NEAR, &report(10_000, 0, 1));
            let ratio = world.allowed() / 10_000.0;
            assert!((ratio - factor).abs() < 1e-9, "{ratio}, not {factor}");
        }
    }

    #[test]
    fn repaired_copies_count_towards_the_rate_if_configured() {
        let report = report(10_000, 65536u32.div_euclid(4) as u16, 0);
        let mut config = TfrcConfig::default();
        assert_eq!(pair::acceptable(&report, &config), Some(7_500.0));
        config.count_repairs = false;
        assert_eq!(pair::acceptable(&report, &config), Some(10_000.0));
    }

    #[test]
    fn reports_of_daemons_without_members_are_ignored() {
        let mut world = World::new(&[NEAR]);
        world.report(FAR, 1, 0);
        assert_eq!(world.allowed(), INITIAL);
    }

    /// A new group adds nothing to the rate of a pair. Its client then offers more than the demand
    /// of a new client. It gets what the other client, whose demand is the initial rate, leaves,
    /// before demands are updated.
    #[test]
    fn a_new_group_of_a_pair_gets_its_share_at_once() {
        let mut world = World::new(&[NEAR]);
        for _ in 0..10 {
            world.send(0.2, 1.0);
            world.report(NEAR, 40_000, 0);
        }
        assert_eq!(world.allowed(), 40_000.0);
        world.add(GROUP, &[NEAR]);
        world.add(OTHER, &[NEAR]);
        assert_eq!(world.sending.allowed(OTHER), Some(20_000.0));
        assert_eq!(world.allowed(), 20_000.0);
        while world.offer(OTHER, &[NEAR]) {}
        world.offer(OTHER, &[NEAR]);
        let others = world.sending.allowed(OTHER).unwrap();
        assert!((others - (40_000.0 - INITIAL)).abs() < 1e-6, "{others}");
    }

    /// The group that also goes to a slower daemon leaves the rest of the pair to the other one.
    #[test]
    fn a_group_gets_what_another_group_of_its_pair_cannot_use() {
        let mut world = World::new(&[NEAR, FAR]);
        world.add(OTHER, &[NEAR]);
        for _ in 0..10 {
            world.send(0.2, 1.0);
            world.report(NEAR, 40_000, 0);
            world.report(FAR, 9_000, 0);
        }
        let allowed = world.allowed();
        assert!((allowed - 9_000.0).abs() < 1e-6, "{allowed}");
        let others = world.sending.allowed(OTHER).unwrap();
        assert!((others - 31_000.0).abs() < 1e-6, "{others}");
        assert_eq!(world.sending.state_size(), 4);
        world.set_members(&[NEAR]);
        assert_eq!(world.sending.state_size(), 3, "the pair of FAR remains");
    }
}
