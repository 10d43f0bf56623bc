//! The cost of a message: the prices of all links on its paths, as far as its daemon knows them,
//! and the fee.

use core::time::Duration;
use std::collections::BTreeMap;

use super::config::CostBenefitConfig;
use crate::controller::Site;
use crate::message::{CostUpdate, DaemonId, GroupId, GroupSet, LinkId};
use manyflow_core::time::Time;

/// The lifetime of a report, in maximum times between updates. A congested link is reported far
/// more often.
const LIFETIME_UPDATES: u32 = 4;

/// C(x) = S (e^(x/M) - 1) / (e - 1): the price in dollars of a link for which `waiting` messages
/// wait (section IV-B.1). It is zero for an empty queue and S at the soft limit M.
pub fn price(waiting: f64, config: &CostBenefitConfig) -> f64 {
    let utilisation = waiting / config.queue_messages;
    config.savings_dollars * libm::expm1(utilisation) / libm::expm1(1.0)
}

/// Returns whether messages to these groups use a link on a path from this daemon: the link is in
/// the tree rooted here, and a member of one of them is below it.
pub(super) fn uses_link(link: LinkId, groups: &GroupSet, site: &Site) -> bool {
    let Some(tree) = site.topology.tree(site.here) else {
        return false;
    };
    let is_below = |group: &GroupId| {
        let mut members = site.groups.daemons(*group);
        members.any(|member| tree.is_below(link.to, member))
    };
    tree.parent(link.to) == Some(link.from) && groups.as_slice().iter().any(is_below)
}

/// The queues of other daemons' links as last reported, in sixteenths of a message. Empty queues
/// are left out, so that idle links take no memory.
#[derive(Debug)]
pub(super) struct RemoteQueues {
    queues: BTreeMap<LinkId, Reported>,
    /// The time for which a report counts. The last report of a link can get lost while the
    /// topology changes; its price must not remain forever.
    lifetime: Duration,
}

/// A queue as last reported.
#[derive(Copy, Clone, Debug)]
struct Reported {
    queue: u16,
    at: Time,
}

impl RemoteQueues {
    pub(super) fn new(config: &CostBenefitConfig) -> RemoteQueues {
        RemoteQueues {
            queues: BTreeMap::new(),
            lifetime: LIFETIME_UPDATES * config.update_max,
        }
    }

    /// Applies another daemon's update. Ignores links that do not exist.
    pub(super) fn handle_update(
        &mut self,
        now: Time,
        from: DaemonId,
        update: &CostUpdate,
        site: &Site,
    ) {
        for state in update.links.iter().flatten() {
            let Some(link) = site.topology.link(from, state.to) else {
                continue;
            };
            if from == site.here {
                continue;
            }
            if state.queue == 0 {
                self.queues.remove(&link);
            } else {
                let (queue, at) = (state.queue, now);
                self.queues.insert(link, Reported { queue, at });
            }
        }
    }

    /// Forgets links that no longer exist.
    pub(super) fn handle_topology(&mut self, site: &Site) {
        self.queues
            .retain(|link, _| site.topology.link(link.from, link.to).is_some());
    }

    /// Returns the links that have a price, with the number of messages that wait for each.
    pub(super) fn waiting(&self, now: Time) -> impl Iterator<Item = (LinkId, f64)> {
        let queues = self.queues.iter();
        let valid = queues.filter(move |(_, reported)| now - reported.at <= self.lifetime);
        valid.map(|(link, reported)| (*link, f64::from(reported.queue) / 16.0))
    }
}
