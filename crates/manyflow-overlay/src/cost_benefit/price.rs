//! What a message costs: the prices of the links that it will take, as far as its daemon has heard
//! of them, and the fee.

use std::collections::BTreeMap;

use super::config::CostBenefitConfig;
use crate::controller::Site;
use crate::message::{CostUpdate, DaemonId, GroupId, LinkId};

/// C(x) = S (e^(x/M) - 1) / (e - 1), in dollars, with x messages waiting (section IV-B.1). Zero
/// where none waits, S at the soft limit.
pub fn price(waiting: f64, config: &CostBenefitConfig) -> f64 {
    let utilisation = waiting / config.queue_messages;
    config.savings_dollars * libm::expm1(utilisation) / libm::expm1(1.0)
}

/// Whether a group's messages take a link on their way from this daemon: it is in the tree that is
/// rooted here, and a member is below.
pub(super) fn takes(link: LinkId, group: GroupId, site: &Site) -> bool {
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

/// The queues of other daemons' links as last heard, in sixteenths of a message; those that are
/// empty are left out, so that a daemon keeps nothing of the many links that are idle.
#[derive(Debug, Default)]
pub(super) struct Heard {
    queues: BTreeMap<LinkId, u16>,
}

impl Heard {
    /// Another daemon has told of its links. It cannot tell of others' links.
    pub(super) fn update(&mut self, from: DaemonId, update: &CostUpdate, site: &Site) {
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

    /// The links that have a price, with the messages that wait there.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (LinkId, f64)> {
        let queues = self.queues.iter();
        queues.map(|(link, queue)| (*link, f64::from(*queue) / 16.0))
    }
}
