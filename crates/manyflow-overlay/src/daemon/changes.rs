//! Changes of groups: coordinates the daemon's parts when clients join, leave, or read too slowly,
//! and when other daemons' members change.

use super::Daemon;
use super::database::{Announcement, DaemonState};
use crate::Event;
use crate::config::Verdict;
use crate::layers::Cut;
use crate::message::{
    Body, Change, ClientFrame, ClientId, DaemonId, GroupId, Item, NAME_BYTES_MAX, Summary, Welcome,
};
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;
use manyflow_core::time::Time;

impl<P: Cut + Default + PartialEq> Daemon<P> {
    /// Lets a client join a group. Ignores a name that is too long.
    pub(super) fn join(&mut self, now: Time, client: ClientId, group: GroupId, name: P) {
        if name.length() <= NAME_BYTES_MAX && self.delivery.join(group, client) {
            self.announce_members(now, group, name);
        }
    }

    /// Sets the number of members for which a member of a group stands: 1 if this is never called.
    /// Other daemons learn of the sum. The member itself gets each message once. Does nothing for
    /// clients that are not members of the group.
    pub fn set_represented(&mut self, now: Time, client: ClientId, group: GroupId, members: u32) {
        if self.delivery.set_represented(group, client, members.max(1)) {
            self.announce_members(now, group, P::default());
            self.do_pending_work(now);
        }
    }

    pub(super) fn leave(&mut self, now: Time, client: ClientId, group: GroupId) {
        if self.delivery.leave(group, client) {
            self.resume_senders(now, group, client);
            self.announce_members(now, group, P::default());
        }
    }

    pub(super) fn disconnect(&mut self, now: Time, client: ClientId) {
        // This comes first: `leave` below resumes senders, and the waiting message of this client
        // must not enter then.
        self.entry.disconnect(client);
        self.delivery.disconnect(client);
        self.controller.remove_client(now, client);
        for group in self.delivery.groups_of(client) {
            self.leave(now, client, group);
        }
    }

    /// Announces the number of a group's members at this daemon. The daemon keeps the name that its
    /// first member gave the group.
    fn announce_members(&mut self, now: Time, group: GroupId, name: P) {
        let known = self.database.own_name(group);
        let is_other = known.as_ref().is_some_and(|known| *known != name);
        if is_other && name != P::default() {
            let by = self.membership.site().here;
            self.outbox.push_event(Event::NameClash { group, by });
        }
        let item = Item::Members {
            group,
            members: self.delivery.count(group),
            since: self.database.own_since(group),
        };
        self.announce(now, item, known.unwrap_or(name));
    }

    /// Lets the senders of a group at all daemons wait, or no longer wait, for something at this
    /// daemon that the overlay does not know of. Call it for changes only.
    pub fn pause_senders(&mut self, now: Time, group: GroupId, must_wait: bool) {
        self.announce_pause(now, group, must_wait);
        self.do_pending_work(now);
    }

    /// Announces that a group's senders must wait for a member at this daemon (`paused`), or need
    /// no longer wait.
    pub(super) fn announce_pause(&mut self, now: Time, group: GroupId, paused: bool) {
        self.announce(now, Item::Paused { group, paused }, P::default());
    }

    /// Floods a change of this daemon and applies it here.
    pub(super) fn announce(&mut self, now: Time, item: Item, name: P) {
        let Some(change) = self.database.change(now, item, name.clone()) else {
            return;
        };
        if self.database.is_fixed() {
            let message = self.membership.message(Body::Change(change));
            self.forward(now, message, &payload_of(item, &name));
        } else if !self.database.is_signed() {
            self.flood_change(change, &name);
        } else if self.database.must_seal() {
            self.seal_now(now);
        }
        let here = self.membership.site().here;
        self.apply_item(now, here, item, &name);
    }

    fn flood_change(&mut self, change: Change, name: &P) {
        let message = self.membership.message(Body::Change(change));
        self.flood(message, &payload_of(change.item, name), None);
    }

    /// Signs and floods the changes of this daemon, if there are any and it is time.
    pub(super) fn seal_changes(&mut self, now: Time) {
        if let Some(announcement) = self.database.seal(now) {
            self.flood_sealed(announcement);
        }
    }

    /// Signs and floods the changes of this daemon, if there are any.
    pub(super) fn seal_now(&mut self, now: Time) {
        if let Some(announcement) = self.database.seal_now(now) {
            self.flood_sealed(announcement);
        }
    }

    fn flood_sealed(&mut self, announcement: Announcement<P>) {
        for (change, name) in &announcement.changes {
            self.flood_change(*change, name);
        }
        let message = self.membership.message(Body::Seal(announcement.summary));
        self.flood(message, &announcement.seal, None);
    }

    /// Applies the changes of another daemon, up to the first gap. In a living overlay, floods them
    /// to all neighbours, except each to the one that has sent it.
    pub(super) fn apply_changes(&mut self, now: Time, origin: DaemonId) {
        while let Some(popped) = self.database.pop_change(now, origin) {
            let (change, name) = (popped.change, popped.name);
            let from = self.links.find_neighbour(popped.from);
            if !self.database.is_fixed() {
                self.flood_about(origin, Body::Change(change), &name, from);
            }
            if let Some(seal) = popped.seal {
                let summary = Summary {
                    incarnation: change.incarnation,
                    change: change.change,
                };
                self.flood_about(origin, Body::Seal(summary), &seal, from);
            }
            if !popped.counts && (popped.is_over_share || change.item.has_name()) {
                self.handle_surplus(from.filter(|_| popped.is_over_share), origin);
            }
            if popped.counts && self.database.shown(origin).is_some() {
                self.apply_item(now, origin, change.item, &name);
            }
        }
    }

    /// Applies an item of a daemon whose members count.
    fn apply_item(&mut self, now: Time, at: DaemonId, item: Item, name: &P) {
        match item {
            Item::Members {
                group,
                members,
                since,
            } => self.set_members(now, at, group, members, since, name),
            Item::Paused { group, paused } => self.set_paused(now, at, group, paused),
            Item::Link { .. } | Item::Alive | Item::Count { .. } | Item::Proof => {}
        }
    }

    fn set_paused(&mut self, now: Time, at: DaemonId, group: GroupId, paused: bool) {
        if self.membership.set_paused(at, group, paused) {
            self.let_enter(now, |waiting| waiting == group);
        }
    }

    fn set_members(
        &mut self,
        now: Time,
        at: DaemonId,
        group: GroupId,
        count: u32,
        since: ChangeSeq,
        name: &P,
    ) {
        let before = self.membership.site().groups.member_since(group, at);
        if self.membership.set_members(at, group, count, since, name) {
            self.outbox.push_event(Event::NameClash { group, by: at });
        }
        let present = (count > 0).then_some(since);
        if before != present {
            self.change_audience(now, at, group, present);
        }
        let site = self.membership.site();
        self.controller.on_membership(now, group, site);
        let members = site.groups.members(group);
        self.delivery.show_view(group, members, &mut self.outbox);
    }

    /// Handles a daemon that gains its first member of a group, by the change `since`, or loses its
    /// last one.
    fn change_audience(
        &mut self,
        now: Time,
        at: DaemonId,
        group: GroupId,
        since: Option<ChangeSeq>,
    ) {
        if at == self.membership.site().here {
            if since.is_none() {
                self.delivery.forget_flows(group);
            }
            return;
        }
        if self.database.is_fixed() {
            if since.is_some() && self.membership.has_sent(group) {
                let start = self.membership.next_number(group);
                self.send_welcome(now, group, at, start);
            }
            return;
        }
        let has_room = self.retention.leave(group, at);
        if let Some(since) = since
            && self.membership.has_sent(group)
        {
            let next = self.membership.next_number(group);
            self.retention.join(now, group, at, since, next);
            self.send_welcomes(now);
        }
        if has_room {
            self.let_enter(now, |_| true);
        }
    }

    /// Applies the state of a daemon whose members count from now on.
    pub(super) fn show(&mut self, now: Time, daemon: DaemonId) {
        let Some(state) = self.database.shown(daemon).cloned() else {
            return;
        };
        for (group, members) in state.members {
            let (count, since) = (members.count, members.since);
            self.set_members(now, daemon, group, count, since, &members.name);
        }
        for group in state.paused {
            self.set_paused(now, daemon, group, true);
        }
    }

    /// Removes what is not part of a daemon's present state, of a state that counted.
    pub(super) fn hide(&mut self, now: Time, daemon: DaemonId, before: &DaemonState<P>) {
        let present = self.database.shown(daemon).cloned().unwrap_or_default();
        for group in before.paused.difference(&present.paused) {
            self.set_paused(now, daemon, *group, false);
        }
        for (group, members) in &before.members {
            if !present.members.contains_key(group) {
                let name = &members.name;
                self.set_members(now, daemon, *group, 0, members.since, name);
            }
        }
    }

    /// Handles a welcome: starts to deliver an origin's messages to a group, from the announced
    /// message on. In a living overlay, answers it.
    pub(super) fn handle_welcome(&mut self, now: Time, origin: DaemonId, welcome: &Welcome) {
        if self.membership.accepts_welcome(welcome) {
            self.delivery
                .start_flow(welcome.group, origin, welcome.start);
            self.deliver_in_order(now, origin, welcome.group);
            self.answer_welcome(now, origin, welcome);
        }
    }

    /// Handles a client's report that it has read messages: hands it more, and resumes the senders
    /// that waited for it.
    pub(super) fn handle_took(&mut self, now: Time, client: ClientId, messages: u32) {
        let groups = self
            .delivery
            .handle_took(now, client, messages, &mut self.outbox);
        for group in groups {
            self.resume_senders(now, group, client);
        }
    }

    /// Resumes a group's senders, if they waited for this client and no longer wait for any other
    /// here.
    fn resume_senders(&mut self, now: Time, group: GroupId, client: ClientId) {
        if !self.delivery.is_slow(group, client) {
            return;
        }
        if self.delivery.resume_senders(group, client) {
            self.announce_pause(now, group, false);
        }
        self.outbox.report_slow(client, group, Verdict::Resumed);
    }

    pub(super) fn evict_overdue_members(&mut self, now: Time) {
        while let Some((group, client)) = self.delivery.pop_overdue(now) {
            self.outbox.report_slow(client, group, Verdict::Evicted);
            self.outbox
                .notify_client(client, ClientFrame::Evicted(group));
            self.leave(now, client, group);
        }
    }
}

/// Returns the payload of a change: the name of a group, if the item has one.
fn payload_of<P: Payload + Default>(item: Item, name: &P) -> P {
    match item.has_name() {
        true => name.clone(),
        false => P::default(),
    }
}
