//! Repairs of messages that were lost because the topology changed: welcomes, answers, messages
//! that are sent again, and acknowledgements.

use super::Daemon;
use crate::layers::Cut;
use crate::message::{
    Acknowledge, Answer, Body, DaemonId, Data, GroupId, Message, Resent, Welcome,
};
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

impl<P: Cut + Default + PartialEq> Daemon<P> {
    /// Prepares the first message of this daemon to a group: announces it to all daemons with
    /// members.
    pub(super) fn begin_sending(&mut self, now: Time, group: GroupId) {
        if self.membership.has_sent(group) {
            return;
        }
        let next = self.membership.next_number(group);
        let site = self.membership.site();
        let daemons = site.groups.daemons(group);
        let remote: Vec<_> = daemons.filter(|daemon| *daemon != site.here).collect();
        for daemon in remote {
            if self.database.is_fixed() {
                self.send_welcome(now, group, daemon, next);
            } else if let Some(since) = self.membership.site().groups.member_since(group, daemon) {
                self.retention.join(now, group, daemon, since, next);
            }
        }
        self.send_welcomes(now);
    }

    pub(super) fn send_welcome(
        &mut self,
        now: Time,
        group: GroupId,
        to: DaemonId,
        start: OriginSeq,
    ) {
        if let Some(welcome) = self.membership.welcome(group, to, start) {
            self.forward(now, welcome, &P::default());
        }
    }

    /// Sends all welcomes that are due.
    pub(super) fn send_welcomes(&mut self, now: Time) {
        while let Some((group, to, start)) = self.retention.pop_welcome() {
            self.send_welcome(now, group, to, start);
        }
    }

    /// Answers a welcome with the number of the message that is expected next.
    pub(super) fn answer_welcome(&mut self, now: Time, origin: DaemonId, welcome: &Welcome) {
        if self.database.is_fixed() {
            return;
        }
        let Some(expected) = self.delivery.expected(welcome.group, origin) else {
            return;
        };
        let answer = Answer {
            to: origin,
            version: self.membership.site().topology.version(),
            group: welcome.group,
            change: welcome.change,
            expected,
            next: welcome.next,
        };
        let message = self.membership.message(Body::Answer(answer));
        self.forward(now, message, &P::default());
    }

    /// Handles the answer to a welcome, if it is for this daemon.
    pub(super) fn handle_answer(&mut self, now: Time, from: DaemonId, answer: &Answer) {
        if answer.to == self.membership.site().here {
            let has_room = self.retention.answer(from, answer);
            self.send_resent(now);
            if has_room {
                self.let_enter(now, |_| true);
            }
        }
    }

    /// Handles an acknowledgement, if it is for this daemon.
    pub(super) fn handle_acknowledge(
        &mut self,
        now: Time,
        from: DaemonId,
        acknowledge: &Acknowledge,
    ) {
        if acknowledge.to != self.membership.site().here {
            return;
        }
        let mut has_room = false;
        for (group, expected) in acknowledge.flows() {
            has_room |= self.retention.acknowledge(group, from, expected);
        }
        if has_room {
            self.let_enter(now, |_| true);
        }
    }

    /// Sends missing messages again while no queue is half full.
    pub(super) fn send_resent(&mut self, now: Time) {
        while !self.links.are_half_full()
            && let Some((to, data, copy, payload)) = self.retention.pop_resent()
        {
            let version = self.membership.site().topology.version();
            let data = Data { version, ..data };
            let message = self.membership.message(Body::Resent(Resent { to, data }));
            self.forward(now, Message { copy, ..message }, &payload);
        }
    }

    /// Notes that messages have arrived in order: their number and their bytes. Their origin is
    /// sent an acknowledgement.
    pub(super) fn add_receipt(
        &mut self,
        now: Time,
        origin: DaemonId,
        group: GroupId,
        arrived: (u32, u32),
    ) {
        if !self.database.is_fixed() && arrived.0 > 0 {
            let is_first = !self.delivery.set_owes_receipt(group, origin, true);
            self.receipts.add(now, origin, group, is_first, arrived);
        }
    }

    /// Sends the acknowledgements that are due.
    pub(super) fn send_receipts(&mut self, now: Time) {
        let mut groups = core::mem::take(&mut self.groups_to_acknowledge);
        while let Some(origin) = self.receipts.pop_due(&mut groups) {
            for some in groups.chunks(Acknowledge::FLOWS) {
                if let Some(message) = self.receipt(origin, some) {
                    self.forward(now, message, &P::default());
                }
            }
            groups.clear();
        }
        self.groups_to_acknowledge = groups;
    }

    /// Returns an acknowledgement of an origin's messages to up to two groups; `None` if none of
    /// them has a flow.
    fn receipt(&mut self, origin: DaemonId, groups: &[GroupId]) -> Option<Message> {
        let mut flows = [(GroupId(0), 0); Acknowledge::FLOWS];
        let mut count = 0;
        for &group in groups {
            self.delivery.set_owes_receipt(group, origin, false);
            let expected = self.delivery.expected(group, origin);
            // The number 0 stands for an unused entry. The next message is acknowledged again.
            if let Some(low) = expected.map(|expected| expected.number() as u32)
                && low != 0
            {
                flows[count] = (group, low);
                count += 1;
            }
        }
        let acknowledge = Acknowledge {
            to: origin,
            version: self.membership.site().topology.version(),
            flows,
        };
        (count > 0).then(|| self.membership.message(Body::Acknowledge(acknowledge)))
    }
}
