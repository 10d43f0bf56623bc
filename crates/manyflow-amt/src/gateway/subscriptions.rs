//! A gateway's subscriptions, and the changes that the relay may not know yet (RFC 3376, section
//! 5.1).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::membership::{GroupRecord, RecordType};
use crate::{Flow, Subscription};

/// Subscriptions, and the changes to report.
///
/// A change is reported several times, against loss. Each report contains the state at the time of
/// the report, so the latest state wins. That is how RFC 3376 merges pending reports.
#[derive(Default)]
pub(super) struct Subscriptions {
    joined: BTreeSet<Subscription>,
    /// Recently changed subscriptions, each with the number of reports that still have to name it.
    changed: BTreeMap<Subscription, u8>,
}

impl Subscriptions {
    /// Adds a subscription, to be reported `reports` times. Returns false if it already exists.
    pub(super) fn join(&mut self, subscription: Subscription, reports: u8) -> bool {
        let new = self.joined.insert(subscription);
        if new {
            self.changed.insert(subscription, reports);
        }
        new
    }

    /// Removes a subscription, to be reported `reports` times. Returns false if it does not exist.
    pub(super) fn leave(&mut self, subscription: Subscription, reports: u8) -> bool {
        let gone = self.joined.remove(&subscription);
        if gone {
            self.changed.insert(subscription, reports);
        }
        gone
    }

    pub(super) fn leave_all(&mut self, reports: u8) {
        for subscription in std::mem::take(&mut self.joined) {
            self.changed.insert(subscription, reports);
        }
    }

    /// Drops the leaves that are still to be reported: no relay knows the joins.
    pub(super) fn forget_leaves(&mut self) {
        self.changed
            .retain(|subscription, _| self.joined.contains(subscription));
    }

    pub(super) fn len(&self) -> usize {
        self.joined.len()
    }

    /// Whether a flow's packets are wanted, or were wanted a moment ago, so that some may be on
    /// their way.
    pub(super) fn cover(&self, flow: Flow) -> bool {
        let of_source = Subscription::from(flow);
        let of_any = Subscription {
            source: None,
            ..of_source
        };
        [of_source, of_any]
            .iter()
            .any(|wanted| self.joined.contains(wanted) || self.changed.contains_key(wanted))
    }

    /// Returns the subscriptions with outstanding reports.
    pub(super) fn changed(&self) -> Vec<Subscription> {
        self.changed.keys().copied().collect()
    }

    /// Counts one more report of these changes.
    pub(super) fn reported(&mut self, subscriptions: &[Subscription]) {
        for subscription in subscriptions {
            if let Some(left) = self.changed.get_mut(subscription) {
                *left = left.saturating_sub(1);
            }
        }
        self.changed.retain(|_, left| *left > 0);
    }

    /// Counts a report of all subscriptions, which is to be repeated `repeats` times.
    pub(super) fn reported_state(&mut self, repeats: u8) {
        for &subscription in &self.joined {
            self.changed.insert(subscription, repeats);
        }
        self.changed.retain(|_, left| *left > 0);
    }

    /// Returns the State-Change Record of a subscription; `None` if the group is received from any
    /// source, before and after the change.
    pub(super) fn change_record(&self, subscription: Subscription) -> Option<GroupRecord> {
        let group = subscription.group;
        let from_any = self.joined.contains(&Subscription {
            source: None,
            group,
        });
        let (kind, sources) = match subscription.source {
            Some(_) if from_any => return None,
            Some(source) if self.joined.contains(&subscription) => {
                (RecordType::Allow, vec![source])
            }
            Some(source) => (RecordType::Block, vec![source]),
            None if from_any => (RecordType::ToExclude, Vec::new()),
            None => (RecordType::ToInclude, self.sources(group)),
        };
        Some(GroupRecord {
            kind,
            group,
            sources,
        })
    }

    /// Returns the Current-State Records of all groups.
    pub(super) fn state_records(&self) -> Vec<GroupRecord> {
        let groups: BTreeSet<_> = self
            .joined
            .iter()
            .map(|subscription| subscription.group)
            .collect();
        groups
            .into_iter()
            .map(|group| self.state_record(group))
            .collect()
    }

    fn state_record(&self, group: IpAddr) -> GroupRecord {
        if self.joined.contains(&Subscription {
            source: None,
            group,
        }) {
            GroupRecord {
                kind: RecordType::IsExclude,
                group,
                sources: Vec::new(),
            }
        } else {
            GroupRecord {
                kind: RecordType::IsInclude,
                group,
                sources: self.sources(group),
            }
        }
    }

    fn sources(&self, group: IpAddr) -> Vec<IpAddr> {
        let of_group = self.joined.range(
            Subscription {
                group,
                source: None,
            }..,
        );
        of_group
            .take_while(|joined| joined.group == group)
            .filter_map(|joined| joined.source)
            .collect()
    }
}
