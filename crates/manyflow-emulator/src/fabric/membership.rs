//! The groups that the programs of a host have joined, as its IGMP and MLD reports say (RFC 3376
//! section 6.4, RFC 3810 section 7.4).
//!
//! A device loses no reports, so a leave needs no further question: it ends a membership at once. A
//! membership that no report refreshes ends after the [membership interval](MEMBERSHIP_INTERVAL).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use manyflow_amt::membership::{GroupRecord, RecordType, Report};
use manyflow_core::Time;

use super::queries::MEMBERSHIP_INTERVAL;

/// The maximum number of groups of one host, and of sources in one group.
const GROUPS_MAX: usize = 4096;

/// The sources whose packets to a group a host receives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    /// These sources only, each until its time.
    Include(BTreeMap<IpAddr, Time>),
    /// All sources except these, until a time.
    Exclude(BTreeSet<IpAddr>, Time),
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::Include(BTreeMap::new())
    }
}

/// The memberships of one host.
#[derive(Debug, Default)]
pub(super) struct Membership(BTreeMap<IpAddr, Filter>);

/// A source and group that a host has joined or left.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) source: IpAddr,
    pub(super) group: IpAddr,
    pub(super) is_join: bool,
}

impl Membership {
    /// Handles an IP packet with an IGMP or MLD message. `sources` are all addresses that can send.
    /// Returns the changes; none if the message is not a valid report.
    pub(super) fn handle_report(
        &mut self,
        now: Time,
        packet: &[u8],
        sources: &[IpAddr],
    ) -> Vec<Change> {
        let Ok(report) = Report::decode(packet) else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        for record in &report.records {
            let group = record.group;
            let is_full = self.0.len() >= GROUPS_MAX && !self.0.contains_key(&group);
            if !is_forwarded(group) || is_full {
                continue;
            }
            let before = self.0.remove(&group).unwrap_or_default();
            let after = before.clone().apply(record, now + MEMBERSHIP_INTERVAL);
            changes.extend(differences(group, &before, &after, sources));
            if after != Filter::default() {
                self.0.insert(group, after);
            }
        }
        changes
    }

    /// Ends the memberships whose time has come. Returns the changes.
    pub(super) fn expire(&mut self, now: Time, sources: &[IpAddr]) -> Vec<Change> {
        let mut changes = Vec::new();
        self.0.retain(|&group, filter| {
            if filter.expires_at().is_none_or(|at| at > now) {
                return true;
            }
            let before = filter.clone();
            filter.expire(now);
            changes.extend(differences(group, &before, filter, sources));
            *filter != Filter::default()
        });
        changes
    }

    /// Returns the time at which the first membership ends unless a report comes; `None` if there
    /// is no membership.
    pub(super) fn expires_at(&self) -> Option<Time> {
        self.0.values().filter_map(Filter::expires_at).min()
    }
}

/// Returns whether routers forward packets to this group: it is not reserved, and not one of the
/// local network (RFC 5771 section 4, RFC 4291 section 2.7).
fn is_forwarded(group: IpAddr) -> bool {
    let is_local = match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group.octets()[1] & 0x0f <= 2,
    };
    group.is_multicast() && !is_local
}

/// Returns the changes of a group from one filter to another, for all sources of its family.
fn differences(
    group: IpAddr,
    before: &Filter,
    after: &Filter,
    sources: &[IpAddr],
) -> impl Iterator<Item = Change> {
    let sources = sources.iter().copied();
    let of_family = sources.filter(move |source| source.is_ipv4() == group.is_ipv4());
    of_family.filter_map(move |source| {
        let [was, is] = [before, after].map(|filter| filter.accepts(source));
        (was != is).then_some(Change {
            source,
            group,
            is_join: is,
        })
    })
}

impl Filter {
    fn accepts(&self, source: IpAddr) -> bool {
        match self {
            Filter::Include(sources) => sources.contains_key(&source),
            Filter::Exclude(sources, _) => !sources.contains(&source),
        }
    }

    fn expires_at(&self) -> Option<Time> {
        match self {
            Filter::Include(sources) => sources.values().min().copied(),
            Filter::Exclude(_, until) => Some(*until),
        }
    }

    fn expire(&mut self, now: Time) {
        match self {
            Filter::Include(sources) => sources.retain(|_, until| *until > now),
            Filter::Exclude(_, until) if *until <= now => *self = Filter::default(),
            Filter::Exclude(..) => {}
        }
    }

    /// Returns the filter after a group record (RFC 3376 section 6.4), which refreshes it to
    /// `until`.
    fn apply(self, record: &GroupRecord, until: Time) -> Filter {
        let listed: BTreeSet<IpAddr> = record.sources.iter().take(GROUPS_MAX).copied().collect();
        let refreshed = listed.iter().map(|source| (*source, until));
        match (record.kind, self) {
            // A long list comes in several records, and each refreshes the sources that it has.
            (RecordType::IsInclude | RecordType::Allow, Filter::Include(mut known)) => {
                known.extend(refreshed);
                known = known.into_iter().take(GROUPS_MAX).collect();
                Filter::Include(known)
            }
            (RecordType::IsInclude | RecordType::ToInclude, _) => {
                Filter::Include(refreshed.collect())
            }
            (RecordType::IsExclude | RecordType::ToExclude, _) => Filter::Exclude(listed, until),
            (RecordType::Allow, Filter::Exclude(known, _)) => {
                Filter::Exclude(&known - &listed, until)
            }
            (RecordType::Block, Filter::Include(mut known)) => {
                known.retain(|source, _| !listed.contains(source));
                Filter::Include(known)
            }
            (RecordType::Block, Filter::Exclude(known, _)) => {
                Filter::Exclude(&known | &listed, until)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use manyflow_amt::Family;

    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1));
    const A_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
    const B_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    const GROUP_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8000, 1));

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn report_at(
        membership: &mut Membership,
        now: Time,
        kind: RecordType,
        group: IpAddr,
        sources: &[IpAddr],
    ) -> Vec<(IpAddr, bool)> {
        let mut packet = Vec::new();
        Report {
            family: Family::of(group),
            records: vec![GroupRecord {
                kind,
                group,
                sources: sources.to_vec(),
            }],
        }
        .encode(&mut packet);
        let changes = membership.handle_report(now, &packet, &[A, B, A_V6, B_V6]);
        assert!(changes.iter().all(|change| change.group == group));
        joins(&changes)
    }

    fn report(
        membership: &mut Membership,
        kind: RecordType,
        group: IpAddr,
        sources: &[IpAddr],
    ) -> Vec<(IpAddr, bool)> {
        report_at(membership, at(0), kind, group, sources)
    }

    fn joins(changes: &[Change]) -> Vec<(IpAddr, bool)> {
        let changes = changes.iter();
        changes
            .map(|change| (change.source, change.is_join))
            .collect()
    }

    #[test]
    fn source_specific_joins_and_leaves_change_their_source_only() {
        for (group, source) in [(GROUP, B), (GROUP_V6, B_V6)] {
            let mut known = Membership::default();
            let mut change = |kind| report(&mut known, kind, group, &[source]);
            assert_eq!(change(RecordType::Allow), [(source, true)]);
            assert_eq!(change(RecordType::IsInclude), []);
            assert_eq!(change(RecordType::Block), [(source, false)]);
            assert!(known.0.is_empty());
        }
    }

    #[test]
    fn a_join_of_any_source_covers_all_that_it_does_not_exclude() {
        for (group, [a, b]) in [(GROUP, [A, B]), (GROUP_V6, [A_V6, B_V6])] {
            let mut known = Membership::default();
            let both = [(a, true), (b, true)];
            assert_eq!(report(&mut known, RecordType::ToExclude, group, &[]), both);
            assert_eq!(report(&mut known, RecordType::IsExclude, group, &[]), []);
            assert_eq!(
                report(&mut known, RecordType::Block, group, &[a]),
                [(a, false)]
            );
            assert_eq!(
                report(&mut known, RecordType::ToInclude, group, &[]),
                [(b, false)]
            );
            assert!(known.0.is_empty());
        }
    }

    #[test]
    fn sources_in_several_records_of_an_answer_all_remain_joined() {
        let mut known = Membership::default();
        report(&mut known, RecordType::Allow, GROUP, &[A, B]);
        for source in [A, B] {
            assert_eq!(
                report(&mut known, RecordType::IsInclude, GROUP, &[source]),
                []
            );
        }
        assert_eq!(known.expire(at(259), &[A, B]), []);
    }

    #[test]
    fn a_membership_without_a_report_ends_after_its_interval() {
        let mut known = Membership::default();
        report_at(&mut known, at(0), RecordType::Allow, GROUP, &[A, B]);
        report_at(&mut known, at(1), RecordType::ToExclude, GROUP_V6, &[]);
        report_at(&mut known, at(9), RecordType::IsInclude, GROUP, &[B]);
        let all = [A, B, A_V6, B_V6];
        assert_eq!(known.expires_at(), Some(at(260)));
        assert_eq!(known.expire(at(259), &all), []);
        assert_eq!(joins(&known.expire(at(260), &all)), [(A, false)]);
        let both = [(A_V6, false), (B_V6, false)];
        assert_eq!(joins(&known.expire(at(261), &all)), both);
        assert_eq!(known.expires_at(), Some(at(269)));
        assert_eq!(joins(&known.expire(at(269), &all)), [(B, false)]);
        assert_eq!(known.expires_at(), None);
    }

    #[test]
    fn local_groups_and_invalid_messages_are_ignored() {
        let mut known = Membership::default();
        for local in ["224.0.0.251", "ff02::1:ff00:1", "ff01::1"] {
            let group = local.parse().unwrap();
            assert_eq!(report(&mut known, RecordType::ToExclude, group, &[]), []);
        }
        assert_eq!(known.handle_report(at(0), &[0x46; 30], &[A]), []);
        assert!(known.0.is_empty());
    }
}
