//! Ordered groups: the orderer of this daemon, and the clients that take part.
//!
//! The [`Attachment`] joins the orderer and the daemon of the overlay. Here are the connections
//! that clients stand for, and what happens to those that read too slowly.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_order::{Attachment, Event, OrderConfig, Outgoing, RequestError};
use manyflow_overlay::{DaemonId, Data};

use super::{DaemonCore, Owner, SessionKey, SpreadKey};
use crate::nats::errors::{Reason, ordered_refused, subscription_refused};
use crate::nats::interest::GroupName;
use crate::nats::ordered::{Kind, OrderedSubject};
use crate::nats::parse::Published;

/// The name of the group that carries the streams of all daemons.
const STREAMS: &[u8] = b"$MF.order";
/// Bytes that wait for a NATS client's socket from which on the senders of ordered groups wait for
/// it.
const SLOW_BYTES: usize = 1 << 20;
/// The same for a Spread client: its programs often send some hundred messages before they read,
/// and would wait for themselves.
const SLOW_SPREAD_BYTES: usize = 32 << 20;
/// The time for which they wait without a pause before the client is removed from its groups.
const EVICT_AFTER: Duration = Duration::from_secs(10);

/// A client of this daemon in ordered groups.
pub(crate) type UserId = manyflow_order::ClientId;

/// The connection that a user stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserOwner {
    /// A NATS client.
    Nats(SessionKey),
    /// A Spread client.
    Spread(SpreadKey),
}

impl UserOwner {
    /// Returns the bytes that wait for its socket from which on senders wait for it.
    fn slow_bytes(self) -> usize {
        match self {
            UserOwner::Nats(_) => SLOW_BYTES,
            UserOwner::Spread(_) => SLOW_SPREAD_BYTES,
        }
    }
}

/// The ordered groups of this daemon.
#[derive(Debug)]
pub(super) struct Order {
    attachment: Attachment,
    users: BTreeMap<UserId, UserOwner>,
    /// Users that read too slowly, and since when senders have waited for them.
    slow: BTreeMap<UserId, Time>,
    /// Whether senders wait for a user of this daemon.
    is_paused: bool,
}

impl DaemonCore {
    /// Connects a client to ordered groups.
    ///
    /// # Errors
    /// Returns an error if the name is not one, or is taken.
    pub(crate) fn connect_user(
        &mut self,
        owner: UserOwner,
        name: &str,
        priority: u16,
    ) -> Result<UserId, RequestError> {
        let now = self.clock.now();
        let mut order = self.order.take().unwrap_or_else(|| self.begin_order(now));
        let attachment = &mut order.attachment;
        let connected = attachment.connect(now, &mut self.daemon, name, priority);
        if let Ok((user, client)) = connected {
            self.owners.insert(client, Owner::User(user));
            order.users.insert(user, owner);
        }
        self.order = Some(order);
        self.pump();
        connected.map(|(user, _)| user)
    }

    /// Makes this daemon a member of the group that carries the streams.
    fn begin_order(&mut self, now: Time) -> Box<Order> {
        let config = OrderConfig {
            record_bytes: self.fragment_bytes,
            ..OrderConfig::default()
        };
        let client = self.daemon.connect(now, 100);
        self.owners.insert(client, Owner::Orderer);
        let name = GroupName {
            pattern: Bytes::from_static(STREAMS),
            queue: None,
        };
        self.join(client, &name);
        let here = self.hello.id;
        let attachment = Attachment::new(config, &self.daemon, here, client, name.number());
        Box::new(Order {
            attachment: attachment.expect("the parameters are in their ranges"),
            users: BTreeMap::new(),
            slow: BTreeMap::new(),
            is_paused: false,
        })
    }

    /// Disconnects a user, which leaves all of its groups. Messages that have not entered vanish.
    pub(crate) fn disconnect_user(&mut self, user: UserId) {
        let now = self.clock.now();
        let Some(order) = &mut self.order else {
            return;
        };
        order.slow.remove(&user);
        order.users.remove(&user);
        let gone = order.attachment.disconnect(now, &mut self.daemon, user);
        if let Some(client) = gone {
            self.owners.remove(&client);
        }
        self.pump();
    }

    /// Lets a user join a group.
    ///
    /// # Errors
    /// Returns an error if the name is not one.
    pub(crate) fn join_ordered(&mut self, user: UserId, group: &str) -> Result<(), RequestError> {
        self.ask_orderer(user, |order, now| order.join(now, user, group))
    }

    /// Lets a user leave a group.
    ///
    /// # Errors
    /// Returns an error if the name is not one.
    pub(crate) fn leave_ordered(&mut self, user: UserId, group: &str) -> Result<(), RequestError> {
        self.ask_orderer(user, |order, now| order.leave(now, user, group))
    }

    fn ask_orderer(
        &mut self,
        user: UserId,
        ask: impl FnOnce(&mut Attachment, Time) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let now = self.clock.now();
        let order = self.order.as_mut();
        let order = order.ok_or(RequestError::NotConnected(user))?;
        ask(&mut order.attachment, now)?;
        self.pump();
        Ok(())
    }

    /// Sends a message of a user when flow control admits it.
    ///
    /// # Errors
    /// Returns an error if a name is not one, or the message is too long.
    pub(crate) fn send_ordered(
        &mut self,
        user: UserId,
        message: &Outgoing<'_>,
    ) -> Result<(), RequestError> {
        self.queue_ordered(user, message)?;
        self.pump();
        Ok(())
    }

    /// Does the same without the work that follows, for callers that [`pump`](DaemonCore::pump) has
    /// called itself: messages that enter at once would call each other without end.
    fn queue_ordered(&mut self, user: UserId, message: &Outgoing<'_>) -> Result<(), RequestError> {
        let now = self.clock.now();
        let order = self.order.as_mut();
        let order = order.ok_or(RequestError::NotConnected(user))?;
        let attachment = &mut order.attachment;
        attachment.send(now, &mut self.daemon, user, message)
    }

    /// Handles a part of a user's message that has entered.
    pub(super) fn handle_user_ready(&mut self, user: UserId) {
        let now = self.clock.now();
        let Some(order) = &mut self.order else {
            return;
        };
        let attachment = &mut order.attachment;
        if !attachment.handle_ready(now, &mut self.daemon, user) {
            return;
        }
        match order.users.get(&user).copied() {
            Some(UserOwner::Nats(key)) => self.continue_session(key),
            Some(UserOwner::Spread(key)) => self.continue_spread(key),
            None => {}
        }
    }

    /// Handles a record of a daemon's stream.
    pub(super) fn handle_ordered(&mut self, origin: DaemonId, data: &Data, payload: Bytes) {
        let now = self.clock.now();
        if let Some(order) = &mut self.order {
            self.taken.push((order.attachment.client(), 1));
            order.attachment.handle_message(now, origin, data, payload);
        }
    }

    /// Returns when [`handle_order_timeout`](DaemonCore::handle_order_timeout) is wanted.
    pub(super) fn order_timeout(&self) -> Option<Time> {
        let order = self.order.as_ref()?;
        let slow = order.slow.values().min();
        let evict = slow.map(|since| *since + EVICT_AFTER);
        let times = [order.attachment.poll_timeout(), evict];
        times.into_iter().flatten().min()
    }

    pub(super) fn handle_order_timeout(&mut self, now: Time) {
        if let Some(order) = &mut self.order {
            order.attachment.handle_timeout(now);
        }
        self.evict_slow_users(now);
    }

    /// Tells the orderer of its peers, hands its events to clients, and sends its records. Returns
    /// whether there was anything to do.
    pub(super) fn serve_order(&mut self) -> bool {
        let now = self.clock.now();
        let Some(mut order) = self.order.take() else {
            return false;
        };
        let mut any = order.attachment.update_peers(now, &self.daemon);
        while let Some(event) = order.attachment.poll_event() {
            any = true;
            let owner = order.users.get(&event.to()).copied();
            match owner {
                Some(UserOwner::Nats(key)) => self.show_ordered(key, &event),
                Some(UserOwner::Spread(key)) => self.show_to_spread(key, &event),
                None => continue,
            }
            if owner.is_some_and(|owner| self.unread_bytes(owner) > owner.slow_bytes()) {
                order.slow.entry(event.to()).or_insert(now);
            }
        }
        any |= order.attachment.transmit(now, &mut self.daemon);
        self.order = Some(order);
        self.watch_slow_users(now);
        any
    }

    /// Returns the bytes that wait for the socket of a user.
    fn unread_bytes(&self, owner: UserOwner) -> usize {
        match owner {
            UserOwner::Nats(key) => self.sessions.get(key).map_or(0, |s| s.out.bytes()),
            UserOwner::Spread(key) => self.spread.get(key).map_or(0, |s| s.out.bytes()),
        }
    }

    fn show_ordered(&mut self, key: SessionKey, event: &Event) {
        if matches!(event, Event::Delivered(_)) {
            self.counters.delivered += 1;
        }
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let ended = session.show_ordered(event);
        self.ended.extend(ended.into_iter().map(|sid| (key, sid)));
    }

    /// Lets the senders of ordered groups wait while users read too slowly, and no longer.
    fn watch_slow_users(&mut self, now: Time) {
        let Some(mut order) = self.order.take() else {
            return;
        };
        let users = &order.users;
        order.slow.retain(|user, _| {
            let owner = users.get(user).copied();
            owner.is_some_and(|owner| self.unread_bytes(owner) > owner.slow_bytes() / 2)
        });
        let must_pause = !order.slow.is_empty();
        if order.is_paused != must_pause {
            order.is_paused = must_pause;
            let group = order.attachment.group();
            self.daemon.pause_senders(now, group, must_pause);
        }
        self.order = Some(order);
    }

    /// Removes users from their groups for which senders have waited for long.
    fn evict_slow_users(&mut self, now: Time) {
        let Some(order) = &mut self.order else {
            return;
        };
        let overdue = order
            .slow
            .iter()
            .filter(|(_, since)| **since + EVICT_AFTER <= now);
        let overdue: Vec<UserId> = overdue.map(|(user, _)| *user).collect();
        for user in overdue {
            let Some(order) = &mut self.order else {
                return;
            };
            order.slow.remove(&user);
            let owner = order.users.get(&user).copied();
            self.counters.evicted += 1;
            match owner {
                Some(UserOwner::Nats(key)) => self.evict_from_ordered(key),
                Some(UserOwner::Spread(key)) => self.evict_spread(key),
                None => {}
            }
        }
    }
}

/// NATS clients in ordered groups.
impl DaemonCore {
    /// Subscribes a client to the messages or the views of an ordered group.
    pub(crate) fn subscribe_ordered(
        &mut self,
        key: SessionKey,
        subject: &OrderedSubject<'_>,
        sid: Bytes,
    ) {
        let sid = Bytes::copy_from_slice(&sid);
        let session = &mut self.sessions[key];
        if session.has_subscription(&sid) {
            return;
        }
        let must_join = session.ordered.add(sid, subject);
        if must_join {
            let user = self.user_of(key);
            let joined = user.and_then(|user| self.join_ordered(user, subject.group));
            self.report_request(key, joined);
        }
    }

    /// Returns the client in ordered groups that stands for a NATS client.
    fn user_of(&mut self, key: SessionKey) -> Result<UserId, RequestError> {
        let session = &self.sessions[key];
        if let Some((user, _)) = &session.ordered.user {
            return Ok(*user);
        }
        // With the incarnation, because a daemon that restarts counts its clients from the
        // beginning, and members must not take a new client for an earlier one.
        let (incarnation, number) = (self.hello.incarnation, session.peer.number);
        let name = format!("#nats-{incarnation:x}-{number}#{}", self.hello.name);
        let user = self.connect_user(UserOwner::Nats(key), &name, session.priority)?;
        self.sessions[key].ordered.user = Some((user, name));
        Ok(user)
    }

    pub(super) fn unsubscribe_ordered(&mut self, key: SessionKey, sid: &[u8]) {
        let ordered = &mut self.sessions[key].ordered;
        let group = ordered.remove(sid);
        let user = ordered.user.as_ref().map(|(user, _)| *user);
        if let (Some(group), Some(user)) = (group, user) {
            let left = self.leave_ordered(user, &group);
            self.report_request(key, left);
        }
    }

    /// Sends a message of a client to an ordered group.
    pub(super) fn offer_ordered(
        &mut self,
        key: SessionKey,
        subject: &OrderedSubject<'_>,
        message: &Published,
    ) {
        let Kind::Messages(service) = subject.kind else {
            return;
        };
        if message.has_other_headers() || message.reply().is_some() {
            let reason = "a message has neither headers nor a subject for replies";
            return self.sessions[key].report(&ordered_refused(reason));
        }
        let Some(groups) = groups_of(subject, message) else {
            let reason = "all subjects of a message have the same service";
            return self.sessions[key].report(&ordered_refused(reason));
        };
        let payload = message.payload();
        let outgoing = Outgoing {
            service,
            groups: &groups,
            kind: 0,
            self_discard: !self.sessions[key].options.echo,
            payload: &payload[..payload.len() - 2],
        };
        let user = self.user_of(key);
        let sent = user.and_then(|user| {
            self.sessions[key].is_ordering = true;
            self.queue_ordered(user, &outgoing)
        });
        if sent.is_err() {
            self.sessions[key].is_ordering = false;
        }
        self.report_request(key, sent);
    }

    /// Continues with the messages of a client, the last of which has entered an ordered group.
    fn continue_session(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_ordering = false;
            self.send_next(key);
        }
    }

    fn report_request(&mut self, key: SessionKey, result: Result<(), RequestError>) {
        if let Err(error) = result {
            self.sessions[key].report(&ordered_refused(&error.to_string()));
        }
    }

    /// Removes a client from all ordered groups because it reads too slowly.
    fn evict_from_ordered(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        for subject in session.ordered.remove_all() {
            let error = subscription_refused(subject.as_bytes(), None, Reason::SlowConsumer);
            session.report(&error);
        }
        if let Some((user, name)) = session.ordered.user.take() {
            tracing::warn!(
                client = session.peer.number,
                name,
                peer = %session.peer.address,
                "a member of ordered groups reads too slowly: it was removed from them"
            );
            self.disconnect_user(user);
            // Its message that has not entered is gone; those behind it go on.
            self.continue_session(key);
        }
    }
}

/// Returns the groups that the subjects of a message name; `None` if one of the further subjects
/// has another service, or is not of an ordered group.
fn groups_of<'a>(subject: &OrderedSubject<'a>, message: &'a Published) -> Option<Vec<&'a str>> {
    let also = message.also().map(|other| {
        let other = OrderedSubject::parse(other)?;
        (other.kind == subject.kind).then_some(other.group)
    });
    core::iter::once(Some(subject.group)).chain(also).collect()
}
