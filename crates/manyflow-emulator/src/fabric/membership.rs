//! The groups that the programs of a host have joined, as its IGMP reports say (RFC 3376 section
//! 6.4).
//!
//! A device loses no reports, and the kernel reports the end of a socket, so the host is not asked:
//! its joins last until it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use manyflow_amt::membership::{GroupRecord, RecordType, Report};

/// The maximum number of groups of one host, and of sources in one group.
const GROUPS_MAX: usize = 4096;

/// The sources whose packets to a group a host receives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    /// These sources only.
    Include(BTreeSet<Ipv4Addr>),
    /// All sources except these.
    Exclude(BTreeSet<Ipv4Addr>),
}

impl Default for Filter {
    fn default() -> Filter {
        Filter::Include(BTreeSet::new())
    }
}

/// The memberships of one host.
#[derive(Debug, Default)]
pub(super) struct Membership(BTreeMap<Ipv4Addr, Filter>);

/// A source and group that a host has joined or left.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) source: Ipv4Addr,
    pub(super) group: Ipv4Addr,
    pub(super) is_join: bool,
}

impl Membership {
    /// Handles an IP packet with an IGMP message. `sources` are all addresses that can send.
    /// Returns the changes; none if the message is not a valid report.
    pub(super) fn handle_igmp(&mut self, packet: &[u8], sources: &[Ipv4Addr]) -> Vec<Change> {
        let Ok(report) = Report::decode(packet) else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        for record in &report.records {
            self.handle_record(record, sources, &mut changes);
        }
        changes
    }

    fn handle_record(
        &mut self,
        record: &GroupRecord,
        sources: &[Ipv4Addr],
        changes: &mut Vec<Change>,
    ) {
        let IpAddr::V4(group) = record.group else {
            return;
        };
        let is_full = self.0.len() >= GROUPS_MAX && !self.0.contains_key(&group);
        let is_local = group.octets()[..3] == [224, 0, 0];
        if !group.is_multicast() || is_local || is_full {
            return;
        }
        let before = self.0.remove(&group).unwrap_or_default();
        let after = before.clone().apply(record);
        for &source in sources {
            let [was, is] = [&before, &after].map(|filter| filter.accepts(source));
            if was != is {
                changes.push(Change {
                    source,
                    group,
                    is_join: is,
                });
            }
        }
        if after != Filter::default() {
            self.0.insert(group, after);
        }
    }
}

impl Filter {
    fn accepts(&self, source: Ipv4Addr) -> bool {
        match self {
            Filter::Include(sources) => sources.contains(&source),
            Filter::Exclude(sources) => !sources.contains(&source),
        }
    }

    /// Returns the filter after a group record (RFC 3376 section 6.4).
    fn apply(self, record: &GroupRecord) -> Filter {
        let listed: BTreeSet<Ipv4Addr> = record
            .sources
            .iter()
            .take(GROUPS_MAX)
            .filter_map(|source| match source {
                IpAddr::V4(source) => Some(*source),
                IpAddr::V6(_) => None,
            })
            .collect();
        match (record.kind, self) {
            (RecordType::IsInclude | RecordType::ToInclude, _) => Filter::Include(listed),
            (RecordType::IsExclude | RecordType::ToExclude, _) => Filter::Exclude(listed),
            (RecordType::Allow, Filter::Include(known)) => Filter::Include(&known | &listed),
            (RecordType::Allow, Filter::Exclude(known)) => Filter::Exclude(&known - &listed),
            (RecordType::Block, Filter::Include(known)) => Filter::Include(&known - &listed),
            (RecordType::Block, Filter::Exclude(known)) => Filter::Exclude(&known | &listed),
        }
    }
}

#[cfg(test)]
mod tests {
    use manyflow_amt::Family;

    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 1, 1);

    fn report(
        membership: &mut Membership,
        kind: RecordType,
        group: Ipv4Addr,
        sources: &[Ipv4Addr],
    ) -> Vec<(Ipv4Addr, bool)> {
        let mut packet = Vec::new();
        Report {
            family: Family::V4,
            records: vec![GroupRecord {
                kind,
                group: group.into(),
                sources: sources.iter().copied().map(IpAddr::V4).collect(),
            }],
        }
        .encode(&mut packet);
        let changes = membership.handle_igmp(&packet, &[A, B]);
        assert!(changes.iter().all(|change| change.group == group));
        let changes = changes.iter();
        changes
            .map(|change| (change.source, change.is_join))
            .collect()
    }

    #[test]
    fn source_specific_joins_and_leaves_change_their_source_only() {
        let mut known = Membership::default();
        assert_eq!(
            report(&mut known, RecordType::Allow, GROUP, &[B]),
            [(B, true)]
        );
        assert_eq!(report(&mut known, RecordType::IsInclude, GROUP, &[B]), []);
        assert_eq!(
            report(&mut known, RecordType::Block, GROUP, &[B]),
            [(B, false)]
        );
        assert!(known.0.is_empty());
    }

    #[test]
    fn a_join_of_any_source_covers_all_that_it_does_not_exclude() {
        let mut known = Membership::default();
        let both = [(A, true), (B, true)];
        assert_eq!(report(&mut known, RecordType::ToExclude, GROUP, &[]), both);
        assert_eq!(
            report(&mut known, RecordType::Block, GROUP, &[A]),
            [(A, false)]
        );
        assert_eq!(
            report(&mut known, RecordType::ToInclude, GROUP, &[]),
            [(B, false)]
        );
        assert!(known.0.is_empty());
    }

    #[test]
    fn local_groups_and_invalid_messages_are_ignored() {
        let mut known = Membership::default();
        let mdns = Ipv4Addr::new(224, 0, 0, 251);
        assert_eq!(report(&mut known, RecordType::ToExclude, mdns, &[]), []);
        assert_eq!(known.handle_igmp(&[0x46; 30], &[A]), []);
        assert!(known.0.is_empty());
    }
}
