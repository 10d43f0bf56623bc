//! Chooses the neighbours that a message goes to next. They follow from the tree of the message's
//! origin and from the group's members alone; no state is kept for senders or flows.

use std::collections::VecDeque;

use super::{Links, NeighbourIndex};
use crate::controller::Site;
use crate::message::{Body, DaemonId, GroupId, Message};
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
    pub(super) fn new(neighbours: usize) -> Route {
        Route {
            last_routed: vec![0; neighbours],
            ..Route::default()
        }
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
    /// Finds the next hops of a message. [`pop_next_hop`](Links::pop_next_hop) returns them.
    pub(in super::super) fn route(&mut self, site: &Site, message: &Message) {
        debug_assert!(
            self.route.next_hops.is_empty(),
            "the last message's next hops were not drained"
        );
        match message.body {
            Body::Data(data) => self.route_to_group(site, message.origin, data.group),
            Body::Welcome(welcome) => self.route_to_daemon(site, message.origin, welcome.to),
            Body::Membership(_) | Body::Pause(_) | Body::Control(_) => {
                self.route_to_all(site, message.origin);
            }
        }
    }

    /// Returns the next hop of the message that was routed last, one at a time.
    pub(in super::super) fn pop_next_hop(&mut self) -> Option<NeighbourIndex> {
        self.route.next_hops.pop_front()
    }

    fn route_to_group(&mut self, site: &Site, origin: DaemonId, group: GroupId) {
        self.route.routed += 1;
        let tree = site.topology.tree(origin);
        for daemon in site.groups.daemons(group) {
            let child = tree.child_towards(site.here, daemon);
            if let Some(next) = child.and_then(|child| self.find_neighbour(child)) {
                self.route.add_once(next);
            }
        }
    }

    fn route_to_daemon(&mut self, site: &Site, origin: DaemonId, daemon: DaemonId) {
        if usize::from(daemon.0) >= site.topology.len() {
            return;
        }
        let tree = site.topology.tree(origin);
        let child = tree.child_towards(site.here, daemon);
        let next = child.and_then(|child| self.find_neighbour(child));
        self.route.next_hops.extend(next);
    }

    /// Floods a message to all neighbours below this daemon in the origin's tree.
    fn route_to_all(&mut self, site: &Site, origin: DaemonId) {
        for child in site.topology.tree(origin).children(site.here) {
            let next = self.find_neighbour(child);
            self.route.next_hops.extend(next);
        }
    }
}
