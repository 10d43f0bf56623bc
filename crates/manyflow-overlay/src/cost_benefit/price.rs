//! The cost of a message: the prices of all links on its paths, as far as its daemon knows them,
//! and the fee.

use std::collections::BTreeMap;

use super::config::CostBenefitConfig;
use crate::controller::Site;
use crate::message::{CostUpdate, DaemonId, GroupId, LinkId};

/// C(x) = S (e^(x/M) - 1) / (e - 1): the price in dollars of a link for which `waiting` messages
/// wait (section IV-B.1). It is zero for an empty queue and S at the soft limit M.
pub fn price(waiting: f64, config: &CostBenefitConfig) -> f64 {
    let utilisation = waiting / config.queue_messages;
    config.savings_dollars * libm::expm1(utilisation) / libm::expm1(1.0)
}

/// Returns whether a group's messages use a link on a path from this daemon: the link is in the
/// tree rooted here, and a member is below it.
pub(super) fn uses_link(link: LinkId, group: GroupId, site: &Site) -> bool {
    let Some((from, to)) = site.topology.ends(link) else {
        return false;
    };
    let tree = site.topology.tree(site.here);
    tree.parent(to) == Some(from)
        && site
            .groups
            .daemons(group)
            .any(|member| tree.is_below(to, member))
}

/// The queues of other daemons' links as last reported, in sixteenths of a message. Empty queues
/// are left out, so that idle links take no memory.
#[derive(Debug, Default)]
pub(super) struct RemoteQueues {
    queues: BTreeMap<LinkId, u16>,
}

impl RemoteQueues {
    /// Applies another daemon's update. Ignores links that do not begin at that daemon.
    pub(super) fn handle_update(&mut self, from: DaemonId, update: &CostUpdate, site: &Site) {
        for state in update.links.iter().flatten() {
            let begins = site.topology.ends(state.link).map(|(begin, _)| begin);
            if begins != Some(from) || from == site.here {
                continue;
            }
            if state.queue == 0 {
                self.queues.remove(&state.link);
            } else {
                self.queues.insert(state.link, state.queue);
            }
        }
    }

    /// Returns the links that have a price, with the number of messages that wait for each.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (LinkId, f64)> {
        let queues = self.queues.iter();
        queues.map(|(link, queue)| (*link, f64::from(*queue) / 16.0))
    }
}
