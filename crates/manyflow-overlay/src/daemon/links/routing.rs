//! Chooses the neighbours that a message goes to next. They follow from the tree of the message's
//! origin and from the group's members alone; no state is kept for senders or flows.

use std::collections::VecDeque;

use super::{Links, NeighbourIndex};
use crate::controller::Site;
use crate::message::{Body, Control, DaemonId, GroupId, Message};
use crate::topology::Tree;
use manyflow_core::Payload;

/// The next hops of the message that is being routed.
#[derive(Debug, Default)]
pub(super) struct Route {
    next_hops: VecDeque<NeighbourIndex>,
    /// The number of messages to groups that have been routed.
    routed: u64,
    /// For each neighbour, the last message to a group that was routed to it. A message goes to a
    /// neighbour only once, even if several daemons with members are behind that neighbour.
    last_routed: Vec<u64>,
}

impl Route {
    /// Adds the place of a neighbour.
    pub(super) fn add_place(&mut self) {
        self.last_routed.push(0);
    }

    /// Adds a neighbour to the next hops of the current message, unless it is one of them already.
    fn add_once(&mut self, neighbour: NeighbourIndex) {
        let last = &mut self.last_routed[neighbour.place()];
        if *last != self.routed {
            *last = self.routed;
            self.next_hops.push_back(neighbour);
        }
    }
}

impl<P: Payload + Default> Links<P> {
    /// Finds the next hops of a message on a tree of its origin.
    /// [`pop_next_hop`](Links::pop_next_hop) returns them. There are none if this daemon does not
    /// know the topology that the message follows.
    pub(in super::super) fn route(&mut self, site: &Site, message: &Message) {
        debug_assert!(
            self.route.next_hops.is_empty(),
            "the last message's next hops were not drained"
        );
        let origin = message.origin;
        match &{ message.body } {
            Body::Data(data) | Body::Shared(data) | Body::Again(data) => {
                self.route_to_group(site, data.version, origin, data.group);
            }
            Body::Resent(resent) => {
                self.route_to_daemon(site, resent.data.version, origin, resent.to);
            }
            Body::Welcome(welcome) => {
                self.route_to_daemon(site, welcome.version, origin, welcome.to);
            }
            Body::Answer(answer) => self.route_to_daemon(site, answer.version, origin, answer.to),
            Body::Acknowledge(acknowledge) => {
                self.route_to_daemon(site, acknowledge.version, origin, acknowledge.to);
            }
            Body::Control(Control::Cost(update)) => {
                self.route_to_all(site, update.version, origin);
            }
            Body::Change(_) => self.route_to_all(site, site.topology.version(), origin),
            // These go to neighbours, or directly to a daemon.
            Body::Part(_) | Body::Summary(_) | Body::Seal(_) | Body::Request | Body::Control(_) => {
            }
        }
    }

    /// Returns the next hop of the message that was routed last, one at a time.
    pub(in super::super) fn pop_next_hop(&mut self) -> Option<NeighbourIndex> {
        self.route.next_hops.pop_front()
    }

    fn route_to_group(&mut self, site: &Site, version: u16, origin: DaemonId, group: GroupId) {
        self.route.routed += 1;
        let Some(tree) = tree(site, version, origin) else {
            return;
        };
        for daemon in site.groups.daemons(group) {
            let child = tree.child_towards(site.here, daemon);
            if let Some(next) = child.and_then(|child| self.find_neighbour(child)) {
                self.route.add_once(next);
            }
        }
    }

    fn route_to_daemon(&mut self, site: &Site, version: u16, origin: DaemonId, daemon: DaemonId) {
        let tree = tree(site, version, origin);
        let child = tree.and_then(|tree| tree.child_towards(site.here, daemon));
        let next = child.and_then(|child| self.find_neighbour(child));
        self.route.next_hops.extend(next);
    }

    /// Floods a message to all neighbours below this daemon in the origin's tree.
    fn route_to_all(&mut self, site: &Site, version: u16, origin: DaemonId) {
        let tree = tree(site, version, origin);
        for child in tree.into_iter().flat_map(|tree| tree.children(site.here)) {
            let next = self.find_neighbour(child);
            self.route.next_hops.extend(next);
        }
    }
}

/// Returns the tree of a daemon in the topology with this version, if both are known.
#[inline]
fn tree(site: &Site, version: u16, root: DaemonId) -> Option<Tree<'_>> {
    site.topology_of(version)?.tree(root)
}
