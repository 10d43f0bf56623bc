//! Changes of groups: coordinates the daemon's parts when clients join, leave, or read too slowly.

use super::Daemon;
use crate::config::Verdict;
use crate::message::{
    Body, ClientFrame, ClientId, DaemonId, GroupId, Membership, Message, Pause, Welcome,
};
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;
use manyflow_core::time::Time;

impl<P: Payload + Default> Daemon<P> {
    pub(super) fn join(&mut self, now: Time, client: ClientId, group: GroupId) {
        if self.delivery.join(group, client) {
            self.announce_membership(now, client, group, true);
        }
    }

    pub(super) fn leave(&mut self, now: Time, client: ClientId, group: GroupId) {
        if self.delivery.leave(group, client) {
            self.resume_senders(now, group, client);
            self.announce_membership(now, client, group, false);
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

    fn announce_membership(&mut self, now: Time, client: ClientId, group: GroupId, joined: bool) {
        self.announce(now, |change| {
            Body::Membership(Membership {
                group,
                client,
                joined,
                change,
            })
        });
    }

    /// Announces that a group's senders must wait for a member at this daemon (`paused`), or need
    /// no longer wait.
    pub(super) fn announce_pause(&mut self, now: Time, group: GroupId, paused: bool) {
        self.announce(now, |change| {
            Body::Pause(Pause {
                group,
                paused,
                change,
            })
        });
    }

    /// Floods a change of this daemon and applies it here.
    fn announce(&mut self, now: Time, body: impl FnOnce(ChangeSeq) -> Body) {
        let message = self.membership.announce(body);
        self.forward(now, message, &P::default());
        self.apply_change(now, &message);
    }

    /// Applies the changes of another daemon, up to the first gap.
    pub(super) fn handle_change(&mut self, now: Time, change: ChangeSeq, message: Message) {
        self.membership.insert_change(change, message);
        while let Some(message) = self.membership.pop_change(message.origin) {
            self.apply_change(now, &message);
        }
    }

    fn apply_change(&mut self, now: Time, message: &Message) {
        match &message.body {
            Body::Membership(change) => self.apply_membership(now, message.origin, change),
            Body::Pause(pause) => {
                if self.membership.apply_pause(message.origin, pause) {
                    self.let_enter(now, |group| group == pause.group);
                }
            }
            Body::Data(_) | Body::Welcome(_) | Body::Control(_) => {
                debug_assert!(false, "{message:?} changes no group");
            }
        }
    }

    fn apply_membership(&mut self, now: Time, at: DaemonId, change: &Membership) {
        let group = change.group;
        let applied = self.membership.apply_membership(at, change);
        if let Some(welcome) = applied.welcome {
            self.forward(now, welcome, &P::default());
        }
        if applied.lost_last_here {
            self.delivery.forget_flows(group);
        }
        let site = self.membership.site();
        self.controller.on_membership(now, group, site);
        let members = site.groups.members(group);
        self.delivery.show_view(group, members, &mut self.outbox);
    }

    /// Handles a welcome: starts to deliver an origin's messages to a group, from the announced
    /// message on.
    pub(super) fn handle_welcome(&mut self, now: Time, origin: DaemonId, welcome: &Welcome) {
        if self.membership.accepts_welcome(welcome) {
            self.delivery
                .start_flow(welcome.group, origin, welcome.start);
            self.deliver_in_order(now, origin, welcome.group);
        }
    }

    /// Handles a client's report that it has read messages: hands it more, and resumes the senders
    /// that waited for it.
    pub(super) fn handle_took(&mut self, now: Time, client: ClientId, messages: u32) {
        let groups = self
            .delivery
            .handle_took(client, messages, &mut self.outbox);
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
