//! Ordered groups: the [`Orderer`] of this daemon, and the clients that take part.
//!
//! All daemons with such clients are members of one group of the overlay, which carries their
//! streams. A client's messages enter under flow control, by a client of the overlay of its own.
//! Records of the orderer itself enter at once. While the daemons are on their way to another view,
//! the group is held: no message enters, except for the rest of one of which parts have entered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_order::{Event, OrderConfig, Orderer, Outgoing, Peer, RequestError, is_last_part};
use manyflow_overlay::{ClientFrame, ClientId, DaemonId, Data, GroupId};

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

/// A client of this daemon in ordered groups.
#[derive(Debug)]
struct User {
    owner: UserOwner,
    /// The client of the overlay by which its messages enter.
    client: ClientId,
    /// Parts of messages that have not entered.
    pending: VecDeque<Bytes>,
    /// Whether the daemon has a part that has not entered.
    is_sending: bool,
    /// Whether that part is the last of its message.
    is_last: bool,
    /// Whether some parts of a message have entered, and others not.
    is_amid: bool,
}

/// The ordered groups of this daemon.
#[derive(Debug)]
pub(super) struct Order {
    orderer: Orderer,
    /// The client of the overlay that stands for the orderer.
    client: ClientId,
    group: GroupId,
    /// The versions of members and topology for which the orderer knows its peers.
    seen: Option<(u64, u64)>,
    users: BTreeMap<UserId, User>,
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
        let user = order.orderer.connect(now, name);
        if let Ok(user) = user {
            let client = self.daemon.connect(now, priority);
            self.owners.insert(client, Owner::User(user));
            let connected = User {
                owner,
                client,
                pending: VecDeque::new(),
                is_sending: false,
                is_last: true,
                is_amid: false,
            };
            order.users.insert(user, connected);
        }
        self.order = Some(order);
        self.pump();
        user
    }

    /// Makes this daemon a member of the group that carries the streams.
    fn begin_order(&mut self, now: Time) -> Box<Order> {
        let config = OrderConfig {
            record_bytes: self.fragment_bytes,
            ..OrderConfig::default()
        };
        let incarnation = self.daemon.incarnation();
        let orderer = Orderer::new(config, self.hello.id, incarnation);
        let client = self.daemon.connect(now, 100);
        self.owners.insert(client, Owner::Orderer);
        let name = GroupName {
            pattern: Bytes::from_static(STREAMS),
            queue: None,
        };
        self.join(client, &name);
        Box::new(Order {
            orderer: orderer.expect("the parameters are in their ranges"),
            client,
            group: name.number(),
            seen: None,
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
        // Others must not wait for the rest of a message.
        order.finish(now, &mut self.daemon, user);
        order.orderer.disconnect(now, user);
        order.slow.remove(&user);
        if let Some(gone) = order.users.remove(&user) {
            self.owners.remove(&gone.client);
            let frame = ClientFrame::Disconnect;
            self.daemon
                .handle_client(now, gone.client, &frame, Bytes::new());
        }
        self.pump();
    }

    /// Lets a user join a group.
    ///
    /// # Errors
    /// Returns an error if the name is not one.
    pub(crate) fn join_ordered(&mut self, user: UserId, group: &str) -> Result<(), RequestError> {
        self.ask_orderer(user, |orderer, now| orderer.join(now, user, group))
    }

    /// Lets a user leave a group.
    ///
    /// # Errors
    /// Returns an error if the name is not one.
    pub(crate) fn leave_ordered(&mut self, user: UserId, group: &str) -> Result<(), RequestError> {
        self.ask_orderer(user, |orderer, now| orderer.leave(now, user, group))
    }

    fn ask_orderer(
        &mut self,
        user: UserId,
        ask: impl FnOnce(&mut Orderer, Time) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let now = self.clock.now();
        let order = self.order.as_mut();
        let order = order.ok_or(RequestError::NotConnected(user))?;
        ask(&mut order.orderer, now)?;
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
        let record = order.orderer.message(user, message)?;
        if let Some(sender) = order.users.get_mut(&user) {
            let parts = order.orderer.parts(user, &record);
            sender.pending.extend(parts);
            sender.send_next(now, &mut self.daemon, order.group);
        }
        Ok(())
    }

    /// Handles a part of a user's message that has entered.
    pub(super) fn handle_user_ready(&mut self, user: UserId) {
        let now = self.clock.now();
        let Some(order) = &mut self.order else {
            return;
        };
        let Some(sender) = order.users.get_mut(&user) else {
            return;
        };
        if !sender.is_sending {
            return;
        }
        sender.is_sending = false;
        sender.is_amid = !sender.is_last;
        sender.send_next(now, &mut self.daemon, order.group);
        if !sender.is_sending {
            match sender.owner {
                UserOwner::Nats(key) => self.continue_session(key),
                UserOwner::Spread(key) => self.continue_spread(key),
            }
        }
    }

    /// Handles a record of a daemon's stream.
    pub(super) fn handle_ordered(&mut self, origin: DaemonId, data: &Data, payload: Bytes) {
        let now = self.clock.now();
        if let Some(order) = &mut self.order {
            self.taken.push((order.client, 1));
            let sequence = data.sequence.number();
            order.orderer.handle_message(now, origin, sequence, payload);
        }
    }

    /// Returns when [`handle_order_timeout`](DaemonCore::handle_order_timeout) is wanted.
    pub(super) fn order_timeout(&self) -> Option<Time> {
        let order = self.order.as_ref()?;
        let slow = order.slow.values().min();
        let evict = slow.map(|since| *since + EVICT_AFTER);
        let times = [order.orderer.poll_timeout(), evict];
        times.into_iter().flatten().min()
    }

    pub(super) fn handle_order_timeout(&mut self, now: Time) {
        if let Some(order) = &mut self.order {
            order.orderer.handle_timeout(now);
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
        let mut any = order.update_peers(now, &self.daemon, self.hello.id);
        while let Some(event) = order.orderer.poll_event() {
            any = true;
            let owner = order.users.get(&event.to()).map(|user| user.owner);
            match owner {
                Some(UserOwner::Nats(key)) => self.show_ordered(key, &event),
                Some(UserOwner::Spread(key)) => self.show_to_spread(key, &event),
                None => continue,
            }
            if owner.is_some_and(|owner| self.unread_bytes(owner) > owner.slow_bytes()) {
                order.slow.entry(event.to()).or_insert(now);
            }
        }
        any |= order.transmit(now, &mut self.daemon);
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
            let owner = users.get(user).map(|user| user.owner);
            owner.is_some_and(|owner| self.unread_bytes(owner) > owner.slow_bytes() / 2)
        });
        let must_pause = !order.slow.is_empty();
        if order.is_paused != must_pause {
            order.is_paused = must_pause;
            self.daemon.pause_senders(now, order.group, must_pause);
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
            let owner = order.users.get(&user).map(|user| user.owner);
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

impl Order {
    /// Tells the orderer which daemons take part and can be reached, if that has changed.
    fn update_peers(
        &mut self,
        now: Time,
        daemon: &manyflow_overlay::Daemon<Bytes>,
        here: DaemonId,
    ) -> bool {
        let versions = (daemon.members_version(), daemon.topology_version());
        if self.seen.replace(versions) == Some(versions) {
            return false;
        }
        let members = daemon.members(self.group).map(|(daemon, _)| daemon);
        let reached = members.filter(|at| *at == here || daemon.topology().contains(*at));
        let peers = reached.filter_map(|at| {
            let incarnation = daemon.incarnation_of(at)?;
            Some(Peer {
                daemon: at,
                incarnation,
            })
        });
        let peers: Vec<Peer> = peers.collect();
        if peers.iter().any(|peer| peer.daemon == here) {
            self.orderer.handle_peers(now, &peers);
        }
        true
    }

    /// Sends the records of the orderer. Returns whether there were any.
    fn transmit(&mut self, now: Time, daemon: &mut manyflow_overlay::Daemon<Bytes>) -> bool {
        let mut any = false;
        if !self.orderer.is_open() {
            daemon.set_held(now, self.group, true);
            let amid = self.users.iter().filter(|(_, user)| user.is_amid);
            let amid: Vec<UserId> = amid.map(|(id, _)| *id).collect();
            for user in amid {
                self.finish(now, daemon, user);
                any = true;
            }
        }
        while daemon.has_room()
            && let Some(record) = self.orderer.poll_transmit()
        {
            daemon.send_at_once(now, self.client, self.group, record);
            any = true;
        }
        let must_wait = !self.orderer.is_open() || self.orderer.has_to_transmit();
        any | daemon.set_held(now, self.group, must_wait)
    }

    /// Sends the rest of a message at once of which some parts have entered.
    fn finish(&mut self, now: Time, daemon: &mut manyflow_overlay::Daemon<Bytes>, user: UserId) {
        let Some(user) = self.users.get_mut(&user) else {
            return;
        };
        if !user.is_amid {
            return;
        }
        while user.is_amid {
            let waiting = user.is_sending.then(|| daemon.take_waiting(user.client));
            user.is_sending = false;
            let Some(part) = waiting.flatten().or_else(|| user.pending.pop_front()) else {
                return;
            };
            user.is_amid = !is_last_part(&part);
            daemon.send_at_once(now, self.client, self.group, part);
        }
        user.send_next(now, daemon, self.group);
    }
}

impl User {
    /// Hands the next part to the daemon, if the last has entered.
    fn send_next(
        &mut self,
        now: Time,
        daemon: &mut manyflow_overlay::Daemon<Bytes>,
        group: GroupId,
    ) {
        if self.is_sending {
            return;
        }
        let Some(part) = self.pending.pop_front() else {
            return;
        };
        self.is_sending = true;
        self.is_last = is_last_part(&part);
        let frame = ClientFrame::Send {
            groups: group.into(),
            sent_us: (now - Time::ZERO).as_micros() as u32,
        };
        daemon.handle_client(now, self.client, &frame, part);
    }
}
