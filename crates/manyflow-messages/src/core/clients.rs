//! The clients of the daemon: subscriptions, messages to publish, messages to deliver.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use manyflow_overlay::{ClientFrame, ClientId, DaemonId, Data, GroupId};
use serde_json::json;

use super::spread::log_refused_spread;
use super::status::daemon_name;
use super::{CLIENT_BYTES, DaemonCore, Owner, QueueGroup, SessionKey};
use crate::access::Permissions;
use crate::fragment;
use crate::link::LinkError;
use crate::nats::errors::{Reason, subscription_refused};
use crate::nats::interest::{GroupName, Targets};
use crate::nats::parse::Published;
use crate::nats::session::{NatsSession, Peer, Subscription};
use crate::nats::shares::subscription_bytes;
use crate::nats::turns::{Circle, Place};
use crate::outgoing::Outgoing;

/// The number of characters of a user's name in the log.
const NAME_CHARS_MAX: usize = 100;

fn log_refused_clients(from: IpAddr, count: u64, reason: &str) {
    tracing::warn!(
        "refused the credentials of clients at {from} {count} times, {reason}: give the client the \
         right ones, or keep the address out by the firewall"
    );
}

fn log_refused_origins(from: IpAddr, count: u64, origin: &str) {
    tracing::warn!(
        "refused {count} WebSockets of browsers at {from}, the last of a page of {origin}: to let its \
         pages in, list this origin in `origins`"
    );
}

fn log_refused_daemons(from: IpAddr, count: u64, reason: &str) {
    match count {
        1 => tracing::warn!(peer = %from, reason, "refused a connection of a daemon"),
        _ => tracing::warn!(peer = %from, reason, count, "refused connections of daemons"),
    }
}

impl DaemonCore {
    /// Connects a client. Its bytes go to `out`.
    pub(crate) fn connect(
        &mut self,
        out: Rc<Outgoing>,
        permissions: &Permissions,
        peer: Peer,
    ) -> SessionKey {
        let client = self.daemon.connect(self.clock.now(), permissions.priority);
        let user = Rc::clone(&permissions.user);
        let mut session = NatsSession::new(out, client, peer, user);
        session.priority = permissions.priority;
        session.authorized_user = permissions.name.clone();
        session.since = self.clock.now();
        session.read_at = session.since;
        let key = self.sessions.insert(session);
        self.owners.insert(client, Owner::Session(key));
        self.counters.connections += 1;
        self.pump();
        key
    }

    /// Removes all subscriptions of a client that reads nothing more. Its messages may still wait
    /// to enter, so it leaves its ordered groups when it [disconnects](DaemonCore::disconnect).
    pub(crate) fn leave_all(&mut self, key: SessionKey) {
        self.sessions[key].ordered.remove_all();
        for sid in self.sessions[key].sids() {
            self.unsubscribe(key, &sid);
        }
        let session = &mut self.sessions[key];
        self.slow_members.remove_client(session.client);
        let unread = core::mem::take(&mut session.unread);
        self.report_unread(unread);
        self.pump();
    }

    /// Disconnects a client that has [left all groups](DaemonCore::leave_all).
    pub(crate) fn disconnect(&mut self, key: SessionKey) {
        let session = self.sessions.remove(key);
        debug_assert!(session.sids().is_empty(), "subscriptions were removed");
        self.ended_traffic.add(&session.traffic);
        if let Some((user, _)) = &session.ordered.user {
            self.disconnect_user(*user);
        }
        self.owners.remove(&session.client);
        self.drop_held(&session.held);
        let (now, frame) = (self.clock.now(), ClientFrame::Disconnect);
        self.daemon
            .handle_client(now, session.client, &frame, Bytes::new());
        self.pump();
    }

    /// Notes that the client has sent bytes.
    pub(crate) fn note_read(&mut self, key: SessionKey) {
        self.sessions[key].read_at = self.clock.now();
    }

    pub(crate) fn session(&mut self, key: SessionKey) -> &mut NatsSession {
        &mut self.sessions[key]
    }

    /// Adds a subscription.
    pub(crate) fn subscribe(
        &mut self,
        key: SessionKey,
        pattern: Bytes,
        queue: Option<Bytes>,
        sid: Bytes,
    ) {
        if self.sessions[key].has_subscription(&sid) {
            return;
        }
        // The bytes of a subscription live long. Copies keep no buffer of the socket alive.
        let pattern = Bytes::copy_from_slice(&pattern);
        let queue = queue.map(|queue| Bytes::copy_from_slice(&queue));
        let name = GroupName {
            pattern: pattern.clone(),
            queue: queue.clone().map(|queue| (queue, self.hello.id)),
        };
        let group = name.number();
        let bytes = subscription_bytes(&pattern, queue.as_deref(), &sid);
        let session = &mut self.sessions[key];
        session.group_bytes += bytes;
        self.shares.add(&session.user, bytes);
        let subscription = Subscription {
            pattern,
            queue: queue.map(Box::new),
            group,
            max: None,
            delivered: 0,
        };
        let must_join = self.sessions[key].subscribe(&sid, subscription);
        if name.queue.is_some() {
            self.join_queue(name, key, Bytes::copy_from_slice(&sid));
        } else if must_join {
            let client = self.sessions[key].client;
            self.join(client, &name);
        }
        self.pump();
    }

    pub(super) fn join(&mut self, client: ClientId, name: &GroupName) {
        let (now, frame) = (self.clock.now(), ClientFrame::Join(name.number()));
        self.daemon
            .handle_client(now, client, &frame, name.encode());
    }

    fn leave(&mut self, client: ClientId, group: GroupId) {
        self.slow_members.remove(group, client);
        let (now, frame) = (self.clock.now(), ClientFrame::Leave(group));
        self.daemon.handle_client(now, client, &frame, Bytes::new());
    }

    fn join_queue(&mut self, name: GroupName, session: SessionKey, sid: Bytes) {
        let key = match self.queue_keys.get(&name) {
            Some(key) => *key,
            None => self.open_queue(name),
        };
        self.queues[key].add(session, sid);
        self.announce_workers(key);
    }

    /// Announces the number of members of a queue group, for which a client of the overlay stands.
    fn announce_workers(&mut self, key: usize) {
        let queue = &self.queues[key];
        let (client, group) = (queue.client, queue.name.number());
        let now = self.clock.now();
        self.daemon.set_represented(now, client, group, queue.len());
    }

    /// Connects a client of the overlay that stands for this daemon's members of a queue group.
    fn open_queue(&mut self, name: GroupName) -> usize {
        let permissions = Permissions::default();
        let client = self.daemon.connect(self.clock.now(), permissions.priority);
        let key = self.queues.insert(QueueGroup::new(client, name.clone()));
        self.owners.insert(client, Owner::Queue(key));
        self.join(client, &name);
        self.queue_keys.insert(name, key);
        key
    }

    fn leave_queue(&mut self, name: &GroupName, session: SessionKey, sid: &[u8]) {
        let Some(key) = self.queue_keys.get(name).copied() else {
            return;
        };
        if !self.queues[key].remove(session, sid) {
            self.announce_workers(key);
        } else {
            let queue = self.close_queue(key);
            self.slow_members.remove_client(queue.client);
        }
    }

    /// Disconnects the client of the overlay that stands for a queue group.
    fn close_queue(&mut self, key: usize) -> QueueGroup {
        let queue = self.queues.remove(key);
        self.queue_keys.remove(&queue.name);
        self.owners.remove(&queue.client);
        let (now, frame) = (self.clock.now(), ClientFrame::Disconnect);
        self.daemon
            .handle_client(now, queue.client, &frame, Bytes::new());
        queue
    }

    /// Removes a subscription.
    pub(crate) fn unsubscribe(&mut self, key: SessionKey, sid: &[u8]) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.ordered.has(sid) {
            return self.unsubscribe_ordered(key, sid);
        }
        let Some((subscription, must_leave)) = session.unsubscribe(sid) else {
            return;
        };
        let client = session.client;
        self.give_back(key, &subscription, sid);
        if let Some(queue) = subscription.queue {
            let name = GroupName {
                pattern: subscription.pattern,
                queue: Some((*queue, self.hello.id)),
            };
            self.leave_queue(&name, key, sid);
        } else if must_leave {
            self.leave(client, subscription.group);
        }
    }

    /// Counts a subscription no longer.
    fn give_back(&mut self, key: SessionKey, subscription: &Subscription, sid: &[u8]) {
        let (pattern, queue) = (&subscription.pattern, subscription.queue_name());
        let bytes = subscription_bytes(pattern, queue, sid);
        let session = &mut self.sessions[key];
        session.group_bytes -= bytes;
        self.shares.remove(&session.user, bytes);
    }

    /// Returns whether there is room for a subscription in the shares of its user and connection.
    pub(crate) fn has_room_for(
        &self,
        key: SessionKey,
        pattern: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
    ) -> bool {
        let session = &self.sessions[key];
        let bytes = subscription_bytes(pattern, queue, sid);
        let fits = self.shares.fits(&session.user, session.group_bytes, bytes);
        fits && self.daemon.has_room_for_group()
    }

    /// Handles a client that wants more subscriptions than it may have.
    pub(crate) fn refuse_subscription(&mut self, key: SessionKey) {
        self.counters.refused_subscriptions += 1;
        if let Some(count) = self.refused_subscriptions.count(self.clock.now()) {
            let session = &self.sessions[key];
            let (user, peer) = (&session.user, session.peer);
            let (own, all) = (session.group_bytes, self.shares.of_user(user));
            tracing::warn!(
                "refused {count} subscriptions: the last was of client {} at {}, whose subscriptions \
                 take {own} bytes, and those of {user} {all}, of {} for all: a larger `group-memory` in \
                 the files of all daemons makes room for more",
                peer.number,
                peer.address,
                self.shares.pool(),
            );
        }
    }

    /// Returns whether an address may try credentials: too many of its attempts were wrong
    /// otherwise.
    pub(crate) fn may_guess(&self, from: IpAddr) -> bool {
        self.refused_clients.may_try(self.clock.now(), from)
    }

    /// Handles wrong credentials, or credentials that were not `checked`.
    pub(crate) fn refuse_credentials(&mut self, from: IpAddr, user: Option<&str>, checked: bool) {
        self.counters.refused_credentials += 1;
        let user = user.map_or_else(
            || "without a user name".to_owned(),
            |name| {
                let name: String = name.chars().take(NAME_CHARS_MAX).collect();
                format!("as \"{}\"", name.escape_debug())
            },
        );
        let unchecked = match checked {
            true => "",
            false => ", not checked because too many before it were wrong",
        };
        let reason = format!("the last {user}{unchecked}");
        let now = self.clock.now();
        if let Some((count, reason)) = self.refused_clients.count(now, from, reason, checked) {
            log_refused_clients(from, count, &reason);
        }
    }

    /// Handles a page in a browser that may not connect.
    pub(crate) fn refuse_origin(&mut self, from: IpAddr, origin: &str) {
        let origin: String = origin.chars().take(NAME_CHARS_MAX).collect();
        let (now, origin) = (self.clock.now(), format!("\"{}\"", origin.escape_debug()));
        if let Some((count, origin)) = self.refused_origins.count(now, from, origin, true) {
            log_refused_origins(from, count, &origin);
        }
    }

    /// Logs refusals that are not in the log yet, once in a while.
    pub(crate) fn log_refusals(&mut self) {
        let now = self.clock.now();
        for (from, count, reason) in self.refused_clients.take_due(now) {
            log_refused_clients(from, count, &reason);
        }
        for (from, count, origin) in self.refused_origins.take_due(now) {
            log_refused_origins(from, count, &origin);
        }
        for (from, count, reason) in self.refused_daemons.take_due(now) {
            log_refused_daemons(from, count, &reason);
        }
        for (from, count, reason) in self.refused_spread.take_due(now) {
            log_refused_spread(from, count, &reason);
        }
    }

    /// Logs a connection from another daemon that was refused, or counts it if that is one of many.
    pub(crate) fn refuse_daemon(&mut self, from: IpAddr, reason: &LinkError) {
        let now = self.clock.now();
        if let Some((count, reason)) = self.refused_daemons.count(now, from, reason, true) {
            log_refused_daemons(from, count, &reason);
        }
    }

    /// Ends a subscription now, or after a number of messages.
    pub(crate) fn limit(&mut self, key: SessionKey, sid: &[u8], max: Option<u64>) {
        let session = &mut self.sessions[key];
        let ends = session.ordered.limit(sid, max);
        if ends.unwrap_or_else(|| session.limit(sid, max)) {
            self.unsubscribe(key, sid);
            self.pump();
        }
    }

    /// Removes the subscriptions of a client that reads too slowly for its group.
    pub(super) fn evict(&mut self, key: SessionKey, group: GroupId) {
        for sid in self.sessions[key].sids_of(group) {
            self.end_slow_subscription(key, &sid);
        }
    }

    /// Removes the subscriptions of the workers of a queue group, all of which read too slowly: a
    /// worker that is ready gets the messages of the others.
    pub(super) fn evict_workers(&mut self, key: usize) {
        let queue = self.close_queue(key);
        for (session, sid) in queue.members() {
            self.end_slow_subscription(*session, sid);
        }
    }

    /// Removes a subscription of a client that reads too slowly, and reports that.
    fn end_slow_subscription(&mut self, key: SessionKey, sid: &[u8]) {
        if let Some((subscription, _)) = self.sessions[key].unsubscribe(sid) {
            self.give_back(key, &subscription, sid);
            let (pattern, queue) = (&subscription.pattern, subscription.queue_name());
            let error = subscription_refused(pattern, queue, Reason::SlowConsumer);
            self.sessions[key].report(&error);
        }
    }

    /// Answers a client's request for the members of a group: the version of all memberships, the
    /// daemons with members, and the number of members at each.
    pub(crate) fn answer_members(&mut self, key: SessionKey, pattern: &[u8], request: &Published) {
        let names = self.daemon_names();
        let groups = self
            .groups
            .iter()
            .filter(|(_, name)| name.pattern == pattern);
        let mut members = BTreeMap::new();
        for (id, count) in groups.flat_map(|(group, _)| self.daemon.members(*group)) {
            let known: &mut u32 = members.entry(daemon_name(&names, id)).or_default();
            *known = known.saturating_add(count);
        }
        let version = self.daemon.members_version();
        let answer = json!({"version": version, "members": members}).to_string();
        self.sessions[key].answer(request, "", &answer);
    }

    /// Returns whether a message of a client would reach anybody now.
    pub(super) fn has_responders(&self, key: SessionKey, targets: &Targets) -> bool {
        let is_reachable = |group: &GroupId| {
            let mut members = self.daemon.members(*group);
            members.any(|(daemon, count)| {
                self.daemon.topology().contains(daemon)
                    && count > self.members_without_echo(key, (daemon, *group))
            })
        };
        let mut places = targets.queues.iter().flat_map(Circle::places);
        targets.groups.iter().any(is_reachable)
            || places.any(|at| self.reachable_members(key, *at) > 0)
    }

    /// Chooses the group of a queue group's members that gets the next message of a client: members
    /// at daemons that can be reached, if there are any.
    pub(super) fn choose(&self, key: SessionKey, circle: &Circle) -> Option<GroupId> {
        let reachable = circle.next(|at| self.reachable_members(key, at));
        reachable.or_else(|| circle.next(|at| self.queue_members(key, at)))
    }

    /// Returns the number of a queue group's members at a place, if messages can reach it now.
    fn reachable_members(&self, key: SessionKey, at: Place) -> u32 {
        match self.daemon.topology().contains(at.0) {
            true => self.queue_members(key, at),
            false => 0,
        }
    }

    /// Returns the number of a queue group's members at a place that may get a client's messages.
    fn queue_members(&self, key: SessionKey, (daemon, group): Place) -> u32 {
        let mut members = self.daemon.members(group);
        let found = members.find(|(at, _)| *at == daemon);
        let own = self.members_without_echo(key, (daemon, group));
        found.map_or(0, |(_, count)| count.saturating_sub(own))
    }

    fn members_without_echo(&self, key: SessionKey, (daemon, group): Place) -> u32 {
        match daemon == self.hello.id {
            true => self.sessions[key].members_without_echo(group),
            false => 0,
        }
    }

    /// Handles the moment at which all bytes for a client have been written.
    pub(crate) fn handle_client_drained(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if !session.unread.is_empty() {
            let unread = core::mem::take(&mut session.unread);
            self.report_unread(unread);
            self.pump();
        }
    }

    fn report_unread(&mut self, unread: Vec<(ClientId, u32)>) {
        let connected = unread
            .into_iter()
            .filter(|(client, _)| self.owners.contains_key(client));
        self.taken.extend(connected);
    }

    pub(super) fn deliver(
        &mut self,
        key: SessionKey,
        origin: DaemonId,
        data: &Data,
        payload: (bool, Bytes),
    ) {
        let session = &mut self.sessions[key];
        let mut is_valid = true;
        let is_own = origin == self.hello.id && data.sender == session.client;
        if !is_own || session.options.echo {
            let source = (origin, data.sender, data.group);
            let message = fragment::assemble(&mut session.partial, source, payload);
            is_valid = message.is_ok();
            if let Ok(Some(message)) = message {
                self.counters.delivered += 1;
                let ended = session.deliver(data.group, &message);
                self.ended.extend(ended.into_iter().map(|sid| (key, sid)));
            }
        }
        let client = session.client;
        if !is_valid {
            self.handle_invalid_message(origin);
        }
        self.take(key, client);
    }

    pub(super) fn deliver_to_queue(
        &mut self,
        key: usize,
        origin: DaemonId,
        data: &Data,
        payload: (bool, Bytes),
    ) {
        let queue = &mut self.queues[key];
        let sessions = &self.sessions;
        let client = queue.client;
        let reads = |session: SessionKey| sessions[session].out.bytes() < CLIENT_BYTES;
        let is_for = |session: SessionKey| {
            let session = &sessions[session];
            let is_own = origin == self.hello.id && data.sender == session.client;
            !is_own || session.options.echo
        };
        let Some((session, sid)) = queue.next(is_for, reads) else {
            // All others have left since the sender's daemon chose this queue group.
            return self.taken.push((client, 1));
        };
        let source = (origin, data.sender, data.group);
        let message = fragment::assemble(&mut queue.partial, source, payload);
        let is_valid = message.is_ok();
        if let Ok(Some(message)) = message {
            queue.handed_over((session, sid.clone()));
            self.counters.delivered += 1;
            if self.sessions[session].deliver_to(&sid, &message) {
                self.ended.push((session, sid));
            }
        }
        if !is_valid {
            self.handle_invalid_message(origin);
        }
        self.take(session, client);
    }

    /// Reports that a client has read a message, at once or when the session's bytes are written.
    fn take(&mut self, key: SessionKey, client: ClientId) {
        let session = &mut self.sessions[key];
        let list = match session.out.bytes() < CLIENT_BYTES {
            true => &mut self.taken,
            false => &mut session.unread,
        };
        match list.last_mut() {
            Some((last, messages)) if *last == client => *messages += 1,
            _ => list.push((client, 1)),
        }
    }
}
