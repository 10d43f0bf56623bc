//! Joins, leaves and views, and from where on a member gets everything.
//!
//! A daemon floods each change down its own tree. Paths are the same both ways, so when a sender's daemon hears of a join, all
//! daemons on its way to the new member have: whatever it sends from then on arrives. From where on that is, the sender's
//! daemon says itself, with a [`Welcome`]: when it hears of the join, or when it is about to send to the group for the first time.
//! Nothing is delivered before.

use super::Daemon;
use super::delivery::Client;
use crate::endpoint::Event;
use crate::overlay::message::{
    Body, ClientFrame, ClientId, DaemonId, GroupId, Membership, Message, Pause, Welcome,
};
use crate::overlay::resequencer::Resequencer;
use crate::overlay::sequence::{ChangeSeq, OriginSeq, Sequence};
use crate::payload::Payload;
use crate::time::Time;

impl<P: Payload + Default> Daemon<P> {
    pub(super) fn join(&mut self, now: Time, client: ClientId, group: GroupId) {
        let members = self.members.entry(group).or_default();
        if !members.contains(&client) {
            members.push(client);
            self.announce(now, client, group, true);
        }
    }

    pub(super) fn leave(&mut self, now: Time, client: ClientId, group: GroupId) {
        let Some(members) = self.members.get_mut(&group) else {
            return;
        };
        let Some(place) = members.iter().position(|member| *member == client) else {
            return;
        };
        members.remove(place);
        if members.is_empty() {
            self.members.remove(&group);
        }
        self.forgive(now, group, client);
        self.deadlines
            .retain(|(_, of, who)| (*of, *who) != (group, client));
        self.announce(now, client, group, false);
    }

    pub(super) fn disconnect(&mut self, now: Time, client: ClientId) {
        // First: no message that waits may enter when its client's leaving lets others go on.
        self.clients.remove(&client);
        self.controller.remove_client(now, client);
        let groups: Vec<GroupId> = self.members.keys().copied().collect();
        for group in groups {
            self.leave(now, client, group);
        }
    }

    fn announce(&mut self, now: Time, client: ClientId, group: GroupId, joined: bool) {
        self.changes = self.changes.next();
        let change = Membership {
            group,
            client,
            joined,
            change: self.changes,
        };
        let message = self.message(Body::Membership(change));
        self.forward(now, message, P::default());
        self.apply(now, self.site.here, &change);
    }

    /// Tells all daemons that a group's senders are to wait for a member here, or no longer.
    pub(super) fn announce_pause(&mut self, now: Time, group: GroupId, paused: bool) {
        self.changes = self.changes.next();
        let pause = Pause {
            group,
            paused,
            change: self.changes,
        };
        let message = self.message(Body::Pause(pause));
        self.forward(now, message, P::default());
        self.apply_pause(now, self.site.here, &pause);
    }

    /// A change at another daemon, which may have overtaken an earlier one.
    pub(super) fn on_change(&mut self, now: Time, message: Message, change: ChangeSeq) {
        let origin = message.origin;
        let heard = self
            .heard
            .entry(origin)
            .or_insert_with(|| Resequencer::starting_at(ChangeSeq(1)));
        heard.insert(change, message);
        while let Some(message) = self.heard.get_mut(&origin).and_then(Resequencer::pop) {
            match &message.body {
                Body::Membership(change) => self.apply(now, origin, change),
                Body::Pause(pause) => self.apply_pause(now, origin, pause),
                _ => {}
            }
        }
    }

    fn apply(&mut self, now: Time, at: DaemonId, change: &Membership) {
        let group = change.group;
        if change.joined {
            let is_first = self.site.groups.join(group, at, change.change);
            if is_first && self.sent.contains_key(&group) {
                self.welcome(now, group, at);
            }
        } else if self.site.groups.leave(group, at) {
            self.forget(group, at);
        }
        self.controller.on_membership(now, group, &self.site);
        self.show_view(group);
    }

    /// A daemon has no member of a group any more.
    fn forget(&mut self, group: GroupId, at: DaemonId) {
        if at == self.site.here {
            self.flows.retain(|(of, _), _| *of != group);
        }
        if !self.site.groups.has_members(group) {
            let sent = self.sent.remove(&group).unwrap_or_default();
            self.sent_before = self.sent_before.max(sent);
        }
    }

    /// The number of the next message from here to a group.
    pub(super) fn next_sequence(&self, group: GroupId) -> OriginSeq {
        let sent = self.sent.get(&group).unwrap_or(&self.sent_before);
        sent.next()
    }

    fn apply_pause(&mut self, now: Time, at: DaemonId, pause: &Pause) {
        let waiting_for = self.paused.entry(pause.group).or_default();
        if pause.paused {
            waiting_for.insert(at);
            return;
        }
        waiting_for.remove(&at);
        if waiting_for.is_empty() {
            self.paused.remove(&pause.group);
            self.try_all(now, |group| group == pause.group);
        }
    }

    /// Tells a daemon with members from where on it gets everything that is sent from here.
    fn welcome(&mut self, now: Time, group: GroupId, to: DaemonId) {
        let Some(change) = self.site.groups.member_since(group, to) else {
            return;
        };
        let welcome = Welcome {
            to,
            group,
            change,
            start: self.next_sequence(group),
        };
        let message = self.message(Body::Welcome(welcome));
        self.forward(now, message, P::default());
    }

    /// The first message to a group is about to be sent from here.
    pub(super) fn welcome_all(&mut self, now: Time, group: GroupId) {
        let daemons: Vec<DaemonId> = self.site.groups.daemons(group).collect();
        for daemon in daemons {
            self.welcome(now, group, daemon);
        }
    }

    pub(super) fn on_welcome(&mut self, now: Time, origin: DaemonId, welcome: &Welcome) {
        let here = self.site.here;
        let since = self.site.groups.member_since(welcome.group, here);
        if welcome.to == here && since == Some(welcome.change) {
            let flow = self.flows.entry((welcome.group, origin)).or_default();
            flow.start(welcome.start);
            self.deliver_ready(now, welcome.group, origin);
        }
    }

    /// Shows a group's members how many they are.
    fn show_view(&mut self, group: GroupId) {
        let Some(clients) = self.members.get(&group) else {
            return;
        };
        let members = self.site.groups.members(group);
        self.events.push_back(Event::View { group, members });
        let view = ClientFrame::View { group, members };
        let views = clients.iter().map(|client| Client::output(*client, view));
        self.outputs.extend(views);
    }
}
