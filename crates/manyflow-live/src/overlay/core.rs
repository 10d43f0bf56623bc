//! The daemon with all its connections. Every task of the daemon's thread calls it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyflow_core::{Ecn, Time};
use manyflow_overlay::hop::KernelHop;
use manyflow_overlay::{
    ClientFrame, ClientId, Daemon, DaemonId, Data, Event, Frame, GroupId, Interest, LinkSeq,
    Transmit, Verdict, WireError,
};
use slab::Slab;
use tokio::sync::Notify;

use super::access::Permissions;
use super::config::ControllerConfig;
use super::fragment::{self, Partial};
use super::hello::{Hello, Resume};
use super::nats::interest::{GroupName, InterestTable};
use super::nats::parse::Published;
use super::nats::session::{Session, Subscription};
use super::outgoing::Outgoing;
use super::status::{Counters, DaemonStatus, GroupStatus, LinkStatus};
use crate::net::clock::Clock;

/// The number of bytes waiting for a client's socket from which on the client counts as reading
/// slowly: the daemon learns that a message was read only when its bytes have left.
const CLIENT_BYTES: usize = 256 * 1024;
/// The number of groups in a status.
const GROUPS_SHOWN: usize = 100;
/// The beginning of the subjects of groups whose only member is a daemon. Clients cannot publish or
/// subscribe below `$MF`.
const NAMES: &[u8] = b"$MF.daemon.";

/// The key of a session among those of a daemon.
pub(super) type SessionKey = usize;

/// A client of the overlay that this daemon's driver has connected.
#[derive(Copy, Clone, Debug)]
enum Owner {
    Session(SessionKey),
    Queue(usize),
}

/// The members of a queue group at this daemon.
#[derive(Debug)]
struct QueueGroup {
    client: ClientId,
    name: GroupName,
    members: VecDeque<(SessionKey, Bytes)>,
    partial: VecDeque<Partial>,
}

/// A neighbour of the daemon.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) name: String,
    incarnation: u32,
    /// The number of the present connection, or of the last.
    connection: u64,
    out: Option<Rc<Outgoing>>,
    /// Notified when the link may be read again.
    readable: Rc<Notify>,
    /// When the connection broke.
    pub(super) broken_at: Option<Time>,
}

/// The daemon and its connections.
pub(super) struct Core {
    pub(super) clock: Clock,
    pub(super) hello: Hello,
    pub(super) daemon: Daemon<Bytes>,
    neighbours: BTreeMap<DaemonId, Neighbour>,
    connections: u64,
    sessions: Slab<Session>,
    owners: HashMap<ClientId, Owner>,
    queues: Slab<QueueGroup>,
    queue_keys: HashMap<GroupName, usize>,
    interest: InterestTable,
    /// The names of all groups with members.
    pub(super) groups: BTreeMap<GroupId, GroupName>,
    /// Messages that clients have read, which the daemon has not been told.
    taken: Vec<(ClientId, u32)>,
    /// Sessions whose last message to a subscription has been delivered.
    ended: Vec<(SessionKey, Bytes)>,
    /// When the timer task calls [`handle_timeout`](Core::handle_timeout).
    armed: Option<Time>,
    pub(super) timer: Rc<Notify>,
    turn: usize,
    pub(super) counters: Counters,
}

impl Core {
    pub(super) fn new(daemon: Daemon<Bytes>, hello: Hello, clock: Clock) -> Core {
        let mut core = Core {
            clock,
            hello,
            daemon,
            neighbours: BTreeMap::new(),
            connections: 0,
            sessions: Slab::new(),
            owners: HashMap::new(),
            queues: Slab::new(),
            queue_keys: HashMap::new(),
            interest: InterestTable::default(),
            groups: BTreeMap::new(),
            taken: Vec::new(),
            ended: Vec::new(),
            armed: None,
            timer: Rc::default(),
            turn: 0,
            counters: Counters::default(),
        };
        core.announce_name();
        core
    }

    /// Announces the daemon's name: other daemons know its number only. It becomes the only member
    /// of a group.
    fn announce_name(&mut self) {
        let client = self.daemon.connect(self.clock.now(), 100);
        let pattern = [NAMES, self.hello.name.as_bytes()].concat();
        let name = GroupName {
            pattern: Bytes::from(pattern),
            queue: None,
        };
        self.join(client, &name);
        self.pump();
    }

    /// Returns when [`handle_timeout`](Core::handle_timeout) is wanted.
    pub(super) fn armed(&self) -> Option<Time> {
        self.armed
    }

    pub(super) fn handle_timeout(&mut self) {
        self.armed = None;
        self.daemon.handle_timeout(self.clock.now());
        self.pump();
    }

    /// Hands everything that the daemon has done to its connections.
    fn pump(&mut self) {
        loop {
            while let Some(transmit) = self.daemon.poll_transmit() {
                self.transmit(transmit);
            }
            if !self.report_taken() && !self.end_subscriptions() {
                break;
            }
        }
        while let Some(interest) = self.daemon.poll_interest() {
            self.handle_interest(&interest);
        }
        while let Some(event) = self.daemon.poll_event() {
            self.count(&event);
        }
        for (id, neighbour) in &self.neighbours {
            if !self.daemon.hop(*id).is_some_and(|hop| hop.is_full()) {
                neighbour.readable.notify_waiters();
            }
        }
        self.arm_timer();
    }

    /// Handles a group that has gained its first member or lost its last.
    fn handle_interest(&mut self, interest: &Interest<Bytes>) {
        let Some(name) = GroupName::decode(&interest.name) else {
            return tracing::warn!("a daemon announced a group with an invalid name");
        };
        if interest.has_members {
            self.interest.add(&name);
            self.groups.insert(interest.group, name);
        } else {
            self.interest.remove(&name);
            self.groups.remove(&interest.group);
        }
    }

    /// Reports the messages that clients have read. Returns whether there were any.
    fn report_taken(&mut self) -> bool {
        let now = self.clock.now();
        let mut any = false;
        while let Some((client, messages)) = self.taken.pop() {
            let frame = ClientFrame::Took { messages };
            self.daemon.handle_client(now, client, &frame, Bytes::new());
            any = true;
        }
        any
    }

    fn end_subscriptions(&mut self) -> bool {
        let ended = core::mem::take(&mut self.ended);
        for (session, sid) in &ended {
            self.unsubscribe(*session, sid);
        }
        !ended.is_empty()
    }

    fn arm_timer(&mut self) {
        let wanted = self.daemon.poll_timeout();
        let is_earlier = match (wanted, self.armed) {
            (Some(wanted), Some(armed)) => wanted < armed,
            (wanted, None) => wanted.is_some(),
            (None, _) => false,
        };
        if is_earlier {
            self.armed = wanted;
            self.timer.notify_one();
        }
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::SlowMember { verdict, .. } => match verdict {
                Verdict::Dropped => self.counters.dropped += 1,
                Verdict::Blocked => self.counters.blocked += 1,
                Verdict::Evicted => self.counters.evicted += 1,
                Verdict::Resumed => {}
            },
            _ => {}
        }
    }

    fn transmit(&mut self, transmit: Transmit<Bytes>) {
        match transmit {
            Transmit::Daemon(to, frame, payload) => self.transmit_frame(to, &frame, payload),
            Transmit::Client(client, frame, payload) => {
                self.transmit_to_client(client, frame, payload);
            }
        }
    }

    fn transmit_frame(&mut self, to: DaemonId, frame: &Frame, payload: Bytes) {
        if matches!(frame, Frame::Direct(_)) {
            return;
        }
        let neighbour = self.neighbours.get(&to);
        let Some(out) = neighbour.and_then(|neighbour| neighbour.out.as_ref()) else {
            return;
        };
        let encoded = frame.encode_framed(payload.len() as u32);
        let encoded = encoded.expect("messages are divided into fragments below the limit");
        out.push(encoded.as_bytes(), payload);
    }

    fn transmit_to_client(&mut self, client: ClientId, frame: ClientFrame, payload: Bytes) {
        let Some(owner) = self.owners.get(&client).copied() else {
            return;
        };
        match (frame, owner) {
            (ClientFrame::Deliver { origin, data }, Owner::Session(key)) => {
                self.deliver(key, origin, &data, payload);
            }
            (ClientFrame::Deliver { origin, data }, Owner::Queue(key)) => {
                self.deliver_to_queue(key, origin, &data, payload);
            }
            (ClientFrame::Ready, Owner::Session(key)) => {
                self.sessions[key].is_sending = false;
                self.send_next(key);
            }
            (ClientFrame::Evicted(group), Owner::Session(key)) => self.evict(key, group),
            _ => {}
        }
    }
}

/// Clients.
impl Core {
    /// Connects a client. Its bytes go to `out`.
    pub(super) fn connect(&mut self, out: Rc<Outgoing>, permissions: &Permissions) -> SessionKey {
        let client = self.daemon.connect(self.clock.now(), permissions.priority);
        let key = self.sessions.insert(Session::new(out, client));
        self.owners.insert(client, Owner::Session(key));
        self.counters.connections += 1;
        self.pump();
        key
    }

    /// Disconnects a client.
    pub(super) fn disconnect(&mut self, key: SessionKey) {
        for sid in self.sessions[key].sids() {
            self.unsubscribe(key, &sid);
        }
        let session = self.sessions.remove(key);
        self.owners.remove(&session.client);
        self.report_unread(session.unread);
        let (now, frame) = (self.clock.now(), ClientFrame::Disconnect);
        self.daemon
            .handle_client(now, session.client, &frame, Bytes::new());
        self.pump();
    }

    pub(super) fn session(&mut self, key: SessionKey) -> &mut Session {
        &mut self.sessions[key]
    }

    /// Adds a subscription.
    pub(super) fn subscribe(
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
        let [pattern, sid] = [pattern, sid].map(|bytes| Bytes::copy_from_slice(&bytes));
        let queue = queue.map(|queue| Bytes::copy_from_slice(&queue));
        let name = GroupName {
            pattern: pattern.clone(),
            queue: queue.clone().map(|queue| (queue, self.hello.id)),
        };
        let group = name.number();
        let subscription = Subscription {
            pattern,
            queue,
            group,
            max: None,
            delivered: 0,
        };
        let must_join = self.sessions[key].subscribe(sid.clone(), subscription);
        if name.queue.is_some() {
            self.join_queue(name, key, sid);
        } else if must_join {
            let client = self.sessions[key].client;
            self.join(client, &name);
        }
        self.pump();
    }

    fn join(&mut self, client: ClientId, name: &GroupName) {
        let (now, frame) = (self.clock.now(), ClientFrame::Join(name.number()));
        self.daemon
            .handle_client(now, client, &frame, name.encode());
    }

    fn leave(&mut self, client: ClientId, group: GroupId) {
        let (now, frame) = (self.clock.now(), ClientFrame::Leave(group));
        self.daemon.handle_client(now, client, &frame, Bytes::new());
    }

    fn join_queue(&mut self, name: GroupName, session: SessionKey, sid: Bytes) {
        let key = match self.queue_keys.get(&name) {
            Some(key) => *key,
            None => self.open_queue(name),
        };
        self.queues[key].members.push_back((session, sid));
    }

    /// Connects a client of the overlay that stands for this daemon's members of a queue group.
    fn open_queue(&mut self, name: GroupName) -> usize {
        let permissions = Permissions::default();
        let client = self.daemon.connect(self.clock.now(), permissions.priority);
        let key = self.queues.insert(QueueGroup {
            client,
            name: name.clone(),
            members: VecDeque::new(),
            partial: VecDeque::new(),
        });
        self.owners.insert(client, Owner::Queue(key));
        self.join(client, &name);
        self.queue_keys.insert(name, key);
        key
    }

    fn leave_queue(&mut self, name: &GroupName, session: SessionKey, sid: &[u8]) {
        let Some(key) = self.queue_keys.get(name).copied() else {
            return;
        };
        let members = &mut self.queues[key].members;
        members.retain(|(other, id)| (*other, &id[..]) != (session, sid));
        if members.is_empty() {
            let queue = self.queues.remove(key);
            self.queue_keys.remove(&queue.name);
            self.owners.remove(&queue.client);
            let (now, frame) = (self.clock.now(), ClientFrame::Disconnect);
            self.daemon
                .handle_client(now, queue.client, &frame, Bytes::new());
        }
    }

    /// Removes a subscription.
    pub(super) fn unsubscribe(&mut self, key: SessionKey, sid: &[u8]) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some((subscription, must_leave)) = session.unsubscribe(sid) else {
            return;
        };
        let client = session.client;
        if let Some(queue) = subscription.queue {
            let name = GroupName {
                pattern: subscription.pattern,
                queue: Some((queue, self.hello.id)),
            };
            self.leave_queue(&name, key, sid);
        } else if must_leave {
            self.leave(client, subscription.group);
        }
    }

    /// Ends a subscription now, or after a number of messages.
    pub(super) fn limit(&mut self, key: SessionKey, sid: &[u8], max: Option<u64>) {
        if self.sessions[key].limit(sid, max) {
            self.unsubscribe(key, sid);
            self.pump();
        }
    }

    /// Removes the subscriptions of a client that reads too slowly for its group.
    fn evict(&mut self, key: SessionKey, group: GroupId) {
        let session = &mut self.sessions[key];
        for sid in session.sids_of(group) {
            session.unsubscribe(&sid);
        }
        session.report("Slow Consumer: removed from the group");
    }

    /// Publishes a message to all groups that match its subject. Messages to no group vanish.
    pub(super) fn publish(&mut self, key: SessionKey, message: &Published) {
        self.counters.published += 1;
        self.counters.published_bytes += message.raw().len() as u64;
        let targets = self.interest.targets(message.subject());
        if targets.is_empty() {
            return self.sessions[key].report_no_responders(message);
        }
        for group in &targets.groups {
            self.offer(key, *group, message.raw());
        }
        for groups in &targets.queues {
            self.turn = self.turn.wrapping_add(1);
            let group = groups[self.turn % groups.len()];
            self.offer(key, group, message.raw());
        }
        self.pump();
    }

    fn offer(&mut self, key: SessionKey, group: GroupId, raw: &Bytes) {
        let parts = fragment::divide(raw).map(|part| (group, part));
        self.sessions[key].pending.extend(parts);
        self.send_next(key);
    }

    /// Hands a client's next message to the daemon, if the last has entered.
    fn send_next(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        if session.is_sending {
            return;
        }
        let Some((group, payload)) = session.pending.pop_front() else {
            return session.ready.notify_one();
        };
        session.is_sending = true;
        let (now, client) = (self.clock.now(), session.client);
        let frame = ClientFrame::Send {
            group,
            sent_us: (now - Time::ZERO).as_micros() as u32,
        };
        self.daemon.handle_client(now, client, &frame, payload);
    }

    /// Handles the moment at which all bytes for a client have been written.
    pub(super) fn handle_client_drained(&mut self, key: SessionKey) {
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

    fn deliver(&mut self, key: SessionKey, origin: DaemonId, data: &Data, payload: Bytes) {
        let session = &mut self.sessions[key];
        let is_own = origin == self.hello.id && data.sender == session.client;
        if !is_own || session.options.echo {
            let source = (origin, data.sender, data.group);
            if let Some(message) = fragment::assemble(&mut session.partial, source, payload) {
                self.counters.delivered += 1;
                let ended = session.deliver(data.group, &message);
                self.ended.extend(ended.into_iter().map(|sid| (key, sid)));
            }
        }
        let client = session.client;
        self.take(key, client);
    }

    fn deliver_to_queue(&mut self, key: usize, origin: DaemonId, data: &Data, payload: Bytes) {
        let queue = &mut self.queues[key];
        let sessions = &self.sessions;
        let has_room = |member: &(SessionKey, Bytes)| sessions[member.0].out.bytes() < CLIENT_BYTES;
        let place = queue.members.iter().position(has_room).unwrap_or(0);
        queue.members.rotate_left(place);
        let (client, (session, sid)) = (queue.client, queue.members[0].clone());
        let source = (origin, data.sender, data.group);
        if let Some(message) = fragment::assemble(&mut queue.partial, source, payload) {
            queue.members.rotate_left(1);
            self.counters.delivered += 1;
            if self.sessions[session].deliver_to(&sid, &message) {
                self.ended.push((session, sid));
            }
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

/// Links to neighbours.
impl Core {
    /// Returns what this daemon has of its link to another.
    pub(super) fn resume(&self, neighbour: DaemonId) -> Resume {
        let known = self.neighbours.get(&neighbour);
        let hop = self.daemon.hop(neighbour);
        match (known, hop) {
            (Some(known), Some(hop)) => Resume {
                incarnation: known.incarnation,
                received: hop.received(),
            },
            _ => Resume {
                incarnation: 0,
                received: LinkSeq(0),
            },
        }
    }

    pub(super) fn is_connected_to(&self, neighbour: DaemonId) -> bool {
        let known = self.neighbours.get(&neighbour);
        known.is_some_and(|known| known.out.is_some())
    }

    /// Continues or begins a link on a new connection, which replaces an older one. `own` is what
    /// this daemon sent. Returns the number of the connection.
    pub(super) fn attach(
        &mut self,
        hello: &Hello,
        (own, other): (Resume, Resume),
        weight: u32,
        out: Rc<Outgoing>,
    ) -> u64 {
        let (now, id) = (self.clock.now(), hello.id);
        let continues = own.incarnation == hello.incarnation
            && other.incarnation == self.hello.incarnation
            && self.daemon.hop(id).is_some();
        self.connections += 1;
        let known = self.neighbours.entry(id).or_insert_with(|| Neighbour {
            name: hello.name.clone(),
            incarnation: hello.incarnation,
            connection: 0,
            out: None,
            readable: Rc::default(),
            broken_at: None,
        });
        if let Some(old) = known.out.replace(out) {
            old.close();
            self.daemon.handle_disconnected(now, id);
        }
        known.incarnation = hello.incarnation;
        known.connection = self.connections;
        known.broken_at = None;
        known.readable.notify_waiters();
        if !continues {
            self.daemon
                .add_link(now, id, weight, Box::new(KernelHop::new()));
        }
        let received = if continues {
            other.received
        } else {
            LinkSeq(0)
        };
        self.daemon.handle_connected(now, id, received);
        self.pump();
        self.connections
    }

    /// Handles the end of a connection. Returns whether it was the present one of its link.
    pub(super) fn detach(&mut self, neighbour: DaemonId, connection: u64) -> bool {
        let now = self.clock.now();
        let Some(known) = self.neighbours.get_mut(&neighbour) else {
            return false;
        };
        if known.connection != connection || known.out.is_none() {
            return false;
        }
        known.out = None;
        known.broken_at = Some(now);
        self.daemon.handle_disconnected(now, neighbour);
        self.pump();
        true
    }

    /// Removes a link that has had no connection for as long as `hold`.
    pub(super) fn remove_broken_links(&mut self, hold: Duration) {
        let now = self.clock.now();
        let is_over = |known: &Neighbour| known.broken_at.is_some_and(|at| now - at >= hold);
        let over = self.neighbours.iter().filter(|(_, known)| is_over(known));
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.neighbours.remove(&id);
            self.daemon.remove_link(now, id);
            self.pump();
        }
    }

    /// Returns what to wait for before the link is read again; `None` if it may be read now.
    pub(super) fn link_pause(&self, neighbour: DaemonId) -> Option<Rc<Notify>> {
        let is_full = self.daemon.hop(neighbour).is_some_and(|hop| hop.is_full());
        let known = self.neighbours.get(&neighbour).filter(|_| is_full)?;
        Some(Rc::clone(&known.readable))
    }

    /// Handles the frames at the beginning of the bytes read from a link. Stops where the daemon
    /// takes no more, or where a frame is incomplete.
    ///
    /// # Errors
    /// Returns an error if the bytes are not frames.
    pub(super) fn handle_link_bytes(
        &mut self,
        neighbour: DaemonId,
        bytes: &mut BytesMut,
    ) -> Result<(), WireError> {
        let now = self.clock.now();
        let result = loop {
            if self.daemon.hop(neighbour).is_none_or(|hop| hop.is_full()) {
                break Ok(());
            }
            let (frame, payload) = match Frame::decode_framed(bytes) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let payload = bytes.split_to(payload.end).freeze().slice(payload);
            let ecn = Ecn::NotCapable;
            self.daemon
                .handle_frame(now, neighbour, &frame, ecn, payload);
        };
        self.pump();
        result
    }

    /// Handles the moment at which all bytes for a neighbour have been written.
    pub(super) fn handle_link_drained(&mut self, neighbour: DaemonId, connection: u64) {
        let known = self.neighbours.get(&neighbour);
        if known.is_none_or(|known| known.connection != connection) {
            return;
        }
        self.daemon.handle_writable(self.clock.now(), neighbour);
        self.pump();
    }
}

/// The status.
impl Core {
    /// Returns the names of all daemons that can be reached. A daemon that has not announced its
    /// name has its number instead.
    fn daemon_names(&self) -> BTreeMap<DaemonId, String> {
        let mut names: BTreeMap<_, _> = self
            .daemon
            .topology()
            .daemons()
            .iter()
            .copied()
            .map(|id| (id, format!("#{}", id.0)))
            .collect();
        for (group, name) in &self.groups {
            let Some(name) = name.pattern.strip_prefix(NAMES) else {
                continue;
            };
            for (id, _) in self.daemon.members(*group) {
                names.insert(id, String::from_utf8_lossy(name).into_owned());
            }
        }
        names.insert(self.hello.id, self.hello.name.clone());
        names
    }

    /// Returns the present status.
    pub(super) fn status(&self, controller: &ControllerConfig) -> DaemonStatus {
        let names = self.daemon_names();
        let links = self.neighbours.iter().map(|(id, known)| {
            let queue_messages = self.daemon.queue_messages(*id).unwrap_or_default();
            LinkStatus {
                name: known.name.clone(),
                is_up: known.out.is_some(),
                queue_messages,
                price_dollars: controller.price(queue_messages),
                outgoing_bytes: known.out.as_ref().map_or(0, |out| out.bytes()),
            }
        });
        let own = self
            .groups
            .iter()
            .filter(|(_, name)| !name.pattern.starts_with(NAMES));
        let first_groups = own.clone().take(GROUPS_SHOWN).map(|(group, name)| {
            let members = self.daemon.members(*group);
            let named = |(id, count)| {
                let name = names.get(&id).cloned();
                (name.unwrap_or_else(|| format!("#{}", id.0)), count)
            };
            GroupStatus {
                pattern: String::from_utf8_lossy(&name.pattern).into_owned(),
                queue: name
                    .queue
                    .as_ref()
                    .map(|(queue, _)| String::from_utf8_lossy(queue).into_owned()),
                members: members.map(named).collect(),
            }
        });
        DaemonStatus {
            name: self.hello.name.clone(),
            overlay: self.hello.overlay.clone(),
            uptime_s: (self.clock.now() - Time::ZERO).as_secs_f64(),
            controller: controller.name(),
            topology_version: self.daemon.topology_version(),
            links: links.collect(),
            clients: self.sessions.len(),
            groups: own.clone().count(),
            first_groups: first_groups.collect(),
            counters: self.counters.clone(),
            daemons: names.into_values().collect(),
        }
    }
}

/// The end of the daemon.
impl Core {
    /// Closes all connections, after their last bytes.
    pub(super) fn close(&mut self) {
        self.outgoing().for_each(|out| out.close());
    }

    /// Returns whether all bytes have been written.
    pub(super) fn is_drained(&self) -> bool {
        self.outgoing().all(|out| out.bytes() == 0)
    }

    fn outgoing(&self) -> impl Iterator<Item = &Rc<Outgoing>> {
        let links = self
            .neighbours
            .values()
            .filter_map(|known| known.out.as_ref());
        links.chain(self.sessions.iter().map(|(_, session)| &session.out))
    }
}
