//! A topology that changes: links come up and go down, daemons appear, restart and disappear.

use super::Daemon;
use super::database::{Heard, Received};
use super::links::NeighbourIndex;
use crate::Event;
use crate::event::Misconduct;
use crate::hop::Hop;
use crate::layers::Cut;
use crate::message::{Body, Change, DaemonId, Item, Message, Part, Summary};
use crate::sequence::ChangeSeq;
use crate::topology::Topology;
use manyflow_core::time::Time;

impl<P: Cut + Default + PartialEq> Daemon<P> {
    /// Adds a link to a neighbour, when it has come up: messages can be exchanged over its `hop`,
    /// which has sent none yet. A link that is up already is removed first. `weight`, at least 1,
    /// is the length that the link adds to a path; if the two ends differ, the higher one counts.
    ///
    /// Does nothing in a fixed overlay, for a link to this daemon, and if there are too many
    /// neighbours.
    pub fn add_link(&mut self, now: Time, to: DaemonId, weight: u32, hop: Box<dyn Hop<P>>) {
        self.remove_link(now, to);
        let has_room = self.links.len() < self.neighbours_max;
        if self.database.is_fixed() || to == self.membership.site().here || !has_room {
            return;
        }
        let index = self.links.add(to, hop);
        let summaries: Vec<_> = self.database.summaries().collect();
        for (origin, summary) in summaries {
            self.tell(index, origin, Body::Summary(summary), &P::default());
        }
        let since = self.database.next_change();
        let weight = weight.max(1);
        self.announce(now, Item::Link { to, weight, since }, P::default());
        self.do_pending_work(now);
    }

    /// Removes the link to a neighbour, when it is down for good. Messages that wait for it or are
    /// on it are lost, and repaired. Does nothing in a fixed overlay, and if there is no such link.
    pub fn remove_link(&mut self, now: Time, to: DaemonId) {
        if self.database.is_fixed() {
            return;
        }
        let Some((link, is_relieved)) = self.links.remove(to) else {
            return;
        };
        self.controller.on_queue(now, link, 0);
        let since = self.database.next_change();
        let weight = 0;
        self.announce(now, Item::Link { to, weight, since }, P::default());
        for (neighbour, origin) in self.database.forget_neighbour(now, to) {
            if let Some(index) = self.links.find_neighbour(neighbour) {
                self.tell(index, origin, Body::Request, &P::default());
            }
        }
        self.update_topology(now);
        if is_relieved {
            self.continue_sending(now);
        }
        self.do_pending_work(now);
    }

    /// Returns whether another daemon can have this incarnation now: it is not more than
    /// [`incarnation_ahead_max`](crate::OverlayConfig::incarnation_ahead_max) ahead.
    pub fn is_credible(&self, now: Time, incarnation: u32) -> bool {
        self.database.is_credible(now, incarnation)
    }

    /// Handles a message about a daemon's state, in a living overlay.
    pub(super) fn handle_state(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        message: &Message,
        name: P,
    ) {
        let origin = message.origin;
        let is_own = origin == self.membership.site().here;
        match &{ message.body } {
            Body::Change(change) if is_own => self.handle_own_change(now, from, change, &name),
            Body::Change(change) => self.handle_change(now, from, origin, change, name),
            Body::Part(part) if !is_own || self.database.is_signed() => {
                self.handle_part(now, from, origin, part, name);
            }
            Body::Seal(summary) => self.handle_seal(now, from, origin, summary, &name),
            Body::Summary(summary) => self.handle_summary(now, from, origin, summary),
            Body::Request => self.handle_request(from, origin),
            _ => {}
        }
    }

    /// Sends a message about a daemon to a neighbour.
    fn tell(&mut self, index: NeighbourIndex, origin: DaemonId, body: Body, payload: &P) {
        let message = Message {
            origin,
            copy: Default::default(),
            body,
        };
        self.links.enqueue(index, message, payload, None);
    }

    /// Sends a message to all neighbours, except the one that it came from.
    pub(super) fn flood(&mut self, message: Message, payload: &P, from: Option<NeighbourIndex>) {
        self.links.enqueue_for_all(from, message, payload);
    }

    /// Sends a message about a daemon to all neighbours, except the one that it came from.
    pub(super) fn flood_about(
        &mut self,
        origin: DaemonId,
        body: Body,
        payload: &P,
        from: Option<NeighbourIndex>,
    ) {
        let mut message = self.membership.message(body);
        message.origin = origin;
        self.flood(message, payload, from);
    }

    /// Handles a change of another daemon's state.
    pub(super) fn handle_change(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        origin: DaemonId,
        change: &Change,
        name: P,
    ) {
        let neighbour = self.links.id(from);
        let heard = self.database.insert(now, neighbour, origin, change, name);
        self.handle_heard(from, origin, heard);
        self.apply_changes(now, origin);
    }

    /// Handles a change of this daemon's state that a neighbour sends: one that comes back, or one
    /// that another daemon forged.
    pub(super) fn handle_own_change(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        change: &Change,
        name: &P,
    ) {
        let neighbour = self.links.id(from);
        let heard = self
            .database
            .handle_own_change(now, neighbour, change, name);
        self.handle_heard(from, self.membership.site().here, heard);
        self.outbid(now);
    }

    fn handle_heard(&mut self, from: NeighbourIndex, origin: DaemonId, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Ask => self.tell(from, origin, Body::Request, &P::default()),
            Heard::Tell => {
                if let Some((summary, seal)) = self.database.proof_of_incarnation(origin) {
                    self.tell(from, origin, Body::Seal(summary), &seal);
                } else if let Some(summary) = self.database.summary(origin) {
                    self.tell(from, origin, Body::Summary(summary), &P::default());
                }
            }
            Heard::Outdated => {}
            Heard::Forged(misconduct) => self.condemn(from, origin, misconduct),
        }
    }

    /// Notes that a neighbour has announced a state that no daemon can have. Its link is removed
    /// when its messages have been handled.
    fn condemn(&mut self, from: NeighbourIndex, origin: DaemonId, misconduct: Misconduct) {
        let neighbour = self.links.id(from);
        if !self.condemned.iter().any(|(other, ..)| *other == neighbour) {
            self.condemned.push((neighbour, origin, misconduct));
        }
    }

    /// Removes the links to neighbours that have announced states that no daemon can have. The
    /// driver ends their connections.
    pub(super) fn remove_condemned_links(&mut self, now: Time) {
        while let Some((neighbour, origin, misconduct)) = self.condemned.pop() {
            self.outbox.push_event(Event::Misconduct {
                neighbour,
                origin,
                misconduct,
            });
            self.remove_link(now, neighbour);
        }
    }

    /// Handles a group of another daemon that does not count. A neighbour that has more groups than
    /// one daemon may have loses its link; a daemon that obeys the protocol refuses its clients
    /// before.
    pub(super) fn handle_surplus(&mut self, from: Option<NeighbourIndex>, origin: DaemonId) {
        match from.filter(|from| self.links.id(*from) == origin) {
            Some(from) => self.condemn(from, origin, Misconduct::Groups),
            None => self.outbox.push_event(Event::NoRoom { origin }),
        }
    }

    pub(super) fn handle_summary(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        origin: DaemonId,
        summary: &Summary,
    ) {
        let neighbour = self.links.id(from);
        let heard = self
            .database
            .handle_summary(now, neighbour, origin, summary);
        if heard == Heard::Outdated {
            self.pass_on(from, origin, Body::Summary(*summary), &P::default());
        }
        self.handle_heard(from, origin, heard);
        if summary.change == ChangeSeq(0)
            && let Some(question) = self.database.withdraw_offer(neighbour, origin)
        {
            self.tell(from, origin, Body::Summary(question), &P::default());
            self.ask_next(now, origin);
        }
        self.outbid(now);
    }

    /// Passes a summary or a seal on towards the daemon that it is about.
    fn pass_on(&mut self, from: NeighbourIndex, origin: DaemonId, body: Body, payload: &P) {
        let site = self.membership.site();
        let tree = site.topology.tree(site.here);
        let next = tree.and_then(|tree| tree.child_towards(site.here, origin));
        let next = next.and_then(|next| self.links.find_neighbour(next));
        if let Some(next) = next.filter(|next| *next != from) {
            self.tell(next, origin, body, payload);
        }
    }

    /// Handles a seal of a daemon's changes, or of its incarnation.
    pub(super) fn handle_seal(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        origin: DaemonId,
        summary: &Summary,
        seal: &P,
    ) {
        let neighbour = self.links.id(from);
        let heard = self
            .database
            .handle_seal(now, neighbour, origin, summary, seal);
        if heard == Heard::Outdated {
            self.pass_on(from, origin, Body::Seal(*summary), seal);
        }
        self.handle_heard(from, origin, heard);
        self.apply_changes(now, origin);
        self.outbid(now);
    }

    pub(super) fn handle_request(&mut self, from: NeighbourIndex, origin: DaemonId) {
        match self.database.summary(origin) {
            // The state was dropped after it had been offered.
            Some(summary) if summary.change == ChangeSeq(0) => {
                self.tell(from, origin, Body::Summary(summary), &P::default());
            }
            Some(_) => self.links.request_state(from, origin),
            None => {}
        }
    }

    /// Sends a neighbour the whole state of the next daemon that it has asked for. Returns whether
    /// there was any.
    pub(super) fn send_state(&mut self, now: Time, neighbour: NeighbourIndex) -> bool {
        let Some(origin) = self.links.pop_request(neighbour) else {
            return false;
        };
        // A signature covers the whole state, and no change that others do not have.
        if origin == self.membership.site().here {
            self.seal_now(now);
        }
        let parts = self.database.parts(origin);
        if parts.is_empty() {
            self.handle_request(neighbour, origin);
            return true;
        }
        let messages = parts.into_iter().map(|(part, name)| {
            let message = Message {
                origin,
                copy: Default::default(),
                body: Body::Part(part),
            };
            (message, name)
        });
        self.links.enqueue_state(neighbour, messages);
        true
    }

    /// Removes a link whose neighbour does not take its control messages. The driver ends its
    /// connection.
    pub(super) fn remove_overflowed_link(&mut self, now: Time) {
        if let Some(neighbour) = self.links.pop_overflowed() {
            self.outbox.push_event(Event::Overflow { neighbour });
            self.remove_link(now, neighbour);
        }
    }

    pub(super) fn handle_part(
        &mut self,
        now: Time,
        from: NeighbourIndex,
        origin: DaemonId,
        part: &Part,
        name: P,
    ) {
        let neighbour = self.links.id(from);
        let received = self
            .database
            .handle_part(now, neighbour, origin, part, name);
        let Some(received) = received else {
            return;
        };
        if let Received::Refused(heard) = received {
            self.handle_heard(from, origin, heard);
        }
        if let Received::New {
            before,
            is_restarted,
            is_over_share,
        } = received
        {
            if is_over_share {
                self.handle_surplus(Some(from), origin);
            }
            if is_restarted {
                self.forget_origin(now, origin);
            }
            if let Some(before) = before {
                self.hide(now, origin, &before);
            }
            self.update_topology(now);
            self.show(now, origin);
            if let Some(summary) = self.database.summary(origin) {
                self.flood_about(origin, Body::Summary(summary), &P::default(), Some(from));
            }
            self.apply_changes(now, origin);
        }
        self.outbid(now);
        self.ask_next(now, origin);
    }

    /// Asks the next neighbour that has a newer state of a daemon, if there is any.
    fn ask_next(&mut self, now: Time, origin: DaemonId) {
        if let Some(next) = self.database.next_to_ask(now, origin)
            && let Some(index) = self.links.find_neighbour(next)
        {
            self.tell(index, origin, Body::Request, &P::default());
        }
    }

    /// Forgets the messages of a daemon that no longer exists, or begins again: its new messages
    /// have the same numbers.
    fn forget_origin(&mut self, now: Time, origin: DaemonId) {
        self.delivery.forget_origin(origin);
        self.receipts.forget(origin);
        self.controller
            .on_departure(now, origin, self.membership.site());
    }

    /// Begins a new incarnation if another daemon knows a later one, and announces it.
    pub(super) fn outbid(&mut self, now: Time) {
        let Some(incarnation) = self.database.outbid(now) else {
            return;
        };
        self.outbox.push_event(Event::Outbid { incarnation });
        self.retention.restart(now);
        self.announce_incarnation();
        self.update_topology(now);
        self.send_welcomes(now);
        self.let_enter(now, |_| true);
    }

    /// Follows the links that are up.
    pub(super) fn update_topology(&mut self, now: Time) {
        let Some(topology) = self.database.topology() else {
            return;
        };
        self.ask_for_missing(now, &topology);
        if !self.membership.set_topology(topology) {
            return;
        }
        let site = self.membership.site();
        self.outbox.push_event(Event::Topology {
            version: site.topology.version(),
            daemons: site.topology.len() as u32,
        });
        self.controller.on_topology(now, site);
        self.retention.handle_topology(now);
        for (daemon, was_lost) in self.database.show_reachable(now, &site.topology) {
            if was_lost {
                self.outbox.push_event(Event::Gap { origin: daemon });
            }
            self.show(now, daemon);
        }
        self.retention.set_away(self.database.away());
        self.send_welcomes(now);
        // Senders no longer wait for daemons that cannot be reached.
        self.let_enter(now, |_| true);
    }

    /// Asks all neighbours for the states of daemons that are linked to the topology, and whose
    /// states were dropped when they were unreachable: the neighbours may have them still.
    fn ask_for_missing(&mut self, now: Time, topology: &Topology) {
        for daemon in self.database.take_missing(now, topology) {
            if let Some(summary) = self.database.summary(daemon) {
                self.flood_about(daemon, Body::Summary(summary), &P::default(), None);
            }
        }
    }

    /// Announces this daemon's incarnation to all neighbours.
    fn announce_incarnation(&mut self) {
        let here = self.membership.site().here;
        if let Some(summary) = self.database.summary(here) {
            let message = self.membership.message(Body::Summary(summary));
            self.flood(message, &P::default(), None);
        }
    }

    /// Handles the timers that only a living overlay has.
    pub(super) fn handle_living_timeout(&mut self, now: Time) {
        if self.database.is_fixed() {
            return;
        }
        self.retention.handle_timeout(now);
        self.send_welcomes(now);
        self.receipts.handle_timeout(now);
        while let Some((daemon, before)) = self.database.pop_unreachable(now) {
            self.hide(now, daemon, &before);
            self.retention.set_away(self.database.away());
        }
        if self.retention.is_turn(now) {
            self.let_enter(now, |_| true);
        }
        if let Some(dropped) = self.database.refresh(now) {
            for daemon in dropped {
                self.forget_origin(now, daemon);
            }
            self.announce(now, Item::Alive, P::default());
        }
        while let Some((neighbour, origin)) = self.database.pop_unanswered(now) {
            if let Some(index) = self.links.find_neighbour(neighbour) {
                self.tell(index, origin, Body::Request, &P::default());
            }
        }
        self.outbid(now);
        if self.database.must_repeat_incarnation(now) {
            self.announce_incarnation();
        }
    }

    /// Returns when [`handle_living_timeout`](Daemon::handle_living_timeout) is wanted next.
    pub(super) fn poll_living_timeout(&self) -> Option<Time> {
        if self.database.is_fixed() {
            return None;
        }
        let times = [
            self.database.poll_timeout(),
            self.retention.poll_timeout(),
            self.receipts.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns whether a message follows a topology that this daemon knows, and is one of the
    /// present incarnation of its origin, sent to or through the present incarnation of this
    /// daemon.
    #[inline]
    pub(super) fn is_present(&self, origin: DaemonId, version: u16) -> bool {
        let site = self.membership.site();
        if version == site.topology.version() {
            return site.topology.contains(origin);
        }
        let is_present = |topology: &Topology, daemon| {
            let incarnation = topology.incarnation(daemon);
            incarnation.is_some() && incarnation == self.database.incarnation(daemon)
        };
        let topology = site.topology_of(version);
        topology
            .is_some_and(|topology| is_present(topology, origin) && is_present(topology, site.here))
    }
}
