//! The daemon with all its connections. Every task of the daemon's thread calls it.

mod addresses;
mod clients;
mod datagrams;
mod links;
mod monitor;
mod order;
mod publishing;
mod queue;
mod slow;
mod spread;
mod status;
mod stop;
mod trust;

pub(super) use links::Connection;
pub(super) use publishing::HeldMessages;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_net::clock::Clock;
use manyflow_net::seldom::Seldom;
use manyflow_overlay::{
    ClientFrame, ClientId, Daemon, DaemonId, Event, Frame, GroupId, Interest, Transmit, Verdict,
};
use slab::Slab;
use tokio::sync::Notify;

use super::datagram::{DatagramLink, Direct};
use super::hello::Hello;
use super::link_traffic::LinkTraffic;
use super::nats::interest::{GroupName, InterestTable};
use super::nats::session::{NatsSession, Traffic};
use super::nats::shares::Shares;
use super::outgoing::Outgoing;
use super::refusals::Refusals;
use super::spread::session::SpreadSession;
use super::status::Counters;
use super::{datagram, fragment};
use addresses::ClientAddresses;
use order::Order;
pub(crate) use order::UserId;
use queue::QueueGroup;
use slow::SlowMembers;
pub(super) use stop::Phase;
use trust::Trust;

/// The number of bytes waiting for a client's socket from which on the client counts as reading
/// slowly: the daemon learns that a message was read only when its bytes have left.
const CLIENT_BYTES: usize = 64 * 1024;
/// The beginning of the subjects of groups whose only member is a daemon. Clients cannot publish or
/// subscribe below `$MF`.
const NAMES: &[u8] = b"$MF.daemon.";
/// The beginning of all subjects of daemons.
const RESERVED: &[u8] = b"$MF.";

/// The key of a session among those of a daemon.
pub(super) type SessionKey = usize;

/// The key of a Spread client among those of a daemon.
pub(super) type SpreadKey = usize;

/// A client of the overlay that this daemon's driver has connected.
#[derive(Copy, Clone, Debug)]
enum Owner {
    Session(SessionKey),
    Queue(usize),
    Orderer,
    User(UserId),
}

/// A neighbour of the daemon.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) name: String,
    /// The address of the present connection, or of the last.
    peer: Option<SocketAddr>,
    incarnation: u32,
    /// The number of the present connection, or of the last.
    connection: u64,
    out: Option<Rc<Outgoing>>,
    /// The link's packets, if it is one of datagrams.
    datagrams: Option<Rc<DatagramLink>>,
    /// Notified when the link may be read again.
    readable: Rc<Notify>,
    /// When the connection broke.
    pub(super) broken_at: Option<Time>,
    /// The time until which a handshake for another connection may take.
    handshake_until: Time,
    pub(super) traffic: LinkTraffic,
}

/// The daemon and its connections.
pub(super) struct DaemonCore {
    pub(super) clock: Clock,
    pub(super) hello: Hello,
    /// The maximum length of a message of the overlay; longer ones are divided.
    fragment_bytes: usize,
    pub(super) daemon: Daemon<Bytes>,
    neighbours: BTreeMap<DaemonId, Neighbour>,
    connections: u64,
    sessions: Slab<NatsSession>,
    spread: Slab<SpreadSession>,
    /// The traffic of clients that have disconnected.
    ended_traffic: Traffic,
    owners: HashMap<ClientId, Owner>,
    queues: Slab<QueueGroup>,
    queue_keys: HashMap<GroupName, usize>,
    interest: InterestTable,
    /// The names of all groups with members.
    pub(super) groups: BTreeMap<GroupId, GroupName>,
    /// Those of `groups` by which daemons announce names and addresses. A status needs them without
    /// a search among all groups.
    daemon_groups: BTreeSet<GroupId>,
    client_addresses: ClientAddresses,
    /// Notified when `client_addresses` changes.
    pub(super) addresses_changed: Rc<Notify>,
    /// The client of the overlay that announces the addresses of this daemon.
    announcer: Option<ClientId>,
    /// Messages that clients have read, which the daemon has not been told.
    taken: Vec<(ClientId, u32)>,
    /// Sessions whose last message to a subscription has been delivered.
    ended: Vec<(SessionKey, Bytes)>,
    /// When the timer task calls [`handle_timeout`](DaemonCore::handle_timeout).
    armed: Option<Time>,
    /// When a link whose connection has broken is removed.
    removal_at: Option<Time>,
    pub(super) timer: Rc<Notify>,
    pub(super) counters: Counters,
    slow_members: SlowMembers,
    /// The memory that the subscriptions of clients take.
    shares: Shares,
    /// The bytes that are held for all clients, while their messages wait.
    held_bytes: usize,
    /// The groups of the message that is being published; empty otherwise.
    chosen: Vec<GroupId>,
    refused_subscriptions: Seldom,
    /// Clients with wrong credentials, by address.
    refused_clients: Refusals,
    refused_origins: Refusals,
    /// Connections from other daemons that were refused, by address.
    refused_daemons: Refusals,
    /// Spread clients that were refused or violated the protocol, by address.
    refused_spread: Refusals,
    trust: Trust,
    phase: Phase,
    /// The ordered groups, from their first client on.
    order: Option<Box<Order>>,
}

impl DaemonCore {
    /// Returns a daemon with connections, of whose clients the subscriptions take at most
    /// `group_bytes_max` bytes.
    pub(super) fn new(
        daemon: Daemon<Bytes>,
        hello: Hello,
        clock: Clock,
        group_bytes_max: usize,
    ) -> DaemonCore {
        let fragment_bytes = match hello.datagrams {
            true => datagram::FRAGMENT_BYTES,
            false => fragment::FRAGMENT_BYTES,
        };
        let interest = InterestTable::new(hello.id);
        let mut core = DaemonCore {
            clock,
            hello,
            fragment_bytes,
            daemon,
            neighbours: BTreeMap::new(),
            connections: 0,
            sessions: Slab::new(),
            spread: Slab::new(),
            ended_traffic: Traffic::default(),
            owners: HashMap::new(),
            queues: Slab::new(),
            queue_keys: HashMap::new(),
            interest,
            groups: BTreeMap::new(),
            daemon_groups: BTreeSet::new(),
            client_addresses: ClientAddresses::default(),
            addresses_changed: Rc::default(),
            announcer: None,
            taken: Vec::new(),
            ended: Vec::new(),
            armed: None,
            removal_at: None,
            timer: Rc::default(),
            counters: Counters::default(),
            slow_members: SlowMembers::default(),
            shares: Shares::new(group_bytes_max),
            held_bytes: 0,
            chosen: Vec::new(),
            refused_subscriptions: Seldom::default(),
            refused_clients: Refusals::default(),
            refused_origins: Refusals::default(),
            refused_daemons: Refusals::default(),
            refused_spread: Refusals::default(),
            trust: Trust::default(),
            phase: Phase::default(),
            order: None,
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

    /// Returns when [`handle_timeout`](DaemonCore::handle_timeout) is wanted.
    pub(super) fn armed(&self) -> Option<Time> {
        self.armed
    }

    pub(super) fn handle_timeout(&mut self) {
        self.armed = None;
        let now = self.clock.now();
        self.daemon.handle_timeout(now);
        self.remove_broken_links(now);
        self.handle_order_timeout(now);
        self.pump();
    }

    /// Hands everything that the daemon has done to its connections.
    fn pump(&mut self) {
        loop {
            while let Some(transmit) = self.daemon.poll_transmit() {
                self.transmit(transmit);
            }
            if !self.report_taken() && !self.end_subscriptions() && !self.serve_order() {
                break;
            }
        }
        // Events first: an eviction can end a group, and the name of the group is logged.
        while let Some(event) = self.daemon.poll_event() {
            self.count(&event);
        }
        while let Some(interest) = self.daemon.poll_interest() {
            self.handle_interest(&interest);
        }
        for (id, neighbour) in &self.neighbours {
            if !self.daemon.hop(*id).is_some_and(|hop| hop.is_full()) {
                neighbour.readable.notify_waiters();
            }
        }
        self.flush_datagrams();
        self.arm_timer();
    }

    /// Handles a group that has gained its first member or lost its last.
    fn handle_interest(&mut self, interest: &Interest<Bytes>) {
        let Some(name) = GroupName::decode(&interest.name) else {
            if interest.has_members {
                self.handle_invalid_name();
            }
            return;
        };
        if interest.has_members {
            self.interest.add(&name);
            if name.pattern.starts_with(RESERVED) {
                self.daemon_groups.insert(interest.group);
            }
            if self.client_addresses.add(interest.group, &name.pattern) {
                self.addresses_changed.notify_one();
            }
            self.groups.insert(interest.group, name);
        } else {
            self.interest.remove(&name);
            self.groups.remove(&interest.group);
            self.daemon_groups.remove(&interest.group);
            if self.client_addresses.remove(interest.group) {
                self.addresses_changed.notify_one();
            }
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
        let times = [
            self.daemon.poll_timeout(),
            self.removal_at,
            self.order_timeout(),
        ];
        let wanted = times.into_iter().flatten().min();
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
            Event::SlowMember {
                client,
                group,
                verdict,
            } => self.handle_slow_member(*client, *group, *verdict),
            Event::Outbid { incarnation } => self.handle_outbid(*incarnation),
            Event::Misconduct {
                neighbour,
                origin,
                misconduct,
            } => self.handle_misconduct(*neighbour, *origin, *misconduct),
            Event::NoRoom { origin } => self.handle_no_room(*origin),
            Event::Gap { origin } => self.handle_gap(*origin),
            Event::NameClash { group, by } => {
                tracing::warn!(
                    group = group.0,
                    daemon = by.0,
                    "two groups have the same number: members of each receive the messages of both \
                     and drop those of the other"
                );
            }
            Event::Overflow { neighbour } => self.handle_overflow(*neighbour),
            _ => {}
        }
    }

    /// Counts an action on a slow member, and logs the first of several.
    fn handle_slow_member(&mut self, client: ClientId, group: GroupId, verdict: Verdict) {
        match verdict {
            Verdict::Dropped => self.counters.dropped += 1,
            Verdict::Blocked => self.counters.blocked += 1,
            Verdict::Evicted => self.counters.evicted += 1,
            Verdict::Resumed => {}
        }
        let now = self.clock.now();
        let name = self.groups.get(&group);
        if self
            .slow_members
            .handle(now, (group, client), name, verdict)
        {
            self.log_slow_member(client, group, verdict);
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
            let route = Direct::new(self.hello.id, to);
            return self.forward_direct(route, frame);
        }
        let Some(neighbour) = self.neighbours.get_mut(&to) else {
            return;
        };
        let Some(out) = &neighbour.out else {
            return;
        };
        let traffic = &mut neighbour.traffic;
        traffic.sent_messages += u64::from(links::is_message(frame));
        if let Some(link) = &neighbour.datagrams {
            let encoded = frame.encode(payload.len() as u32);
            let encoded = encoded.expect("messages are divided into fragments below the limit");
            traffic.sent_bytes += (encoded.as_bytes().len() + payload.len()) as u64;
            return link.push_frame(encoded.as_bytes(), &payload);
        }
        let encoded = frame.encode_framed(payload.len() as u32);
        let encoded = encoded.expect("messages are divided into fragments below the limit");
        traffic.sent_bytes += (encoded.as_bytes().len() + payload.len()) as u64;
        out.push(encoded.as_bytes(), payload);
    }

    fn transmit_to_client(&mut self, client: ClientId, frame: ClientFrame, payload: Bytes) {
        let Some(owner) = self.owners.get(&client).copied() else {
            return;
        };
        match (frame, owner) {
            (
                ClientFrame::Deliver {
                    origin,
                    data,
                    layered,
                },
                Owner::Session(key),
            ) => {
                self.deliver(key, origin, &data, (layered, payload));
            }
            (
                ClientFrame::Deliver {
                    origin,
                    data,
                    layered,
                },
                Owner::Queue(key),
            ) => {
                self.deliver_to_queue(key, origin, &data, (layered, payload));
            }
            (ClientFrame::Deliver { origin, data, .. }, Owner::Orderer) => {
                self.handle_ordered(origin, &data, payload);
            }
            (ClientFrame::Ready, Owner::User(user)) => self.handle_user_ready(user),
            (ClientFrame::Ready, Owner::Session(key)) => {
                self.sessions[key].is_sending = false;
                self.send_next(key);
            }
            (ClientFrame::Evicted(group), Owner::Session(key)) => self.evict(key, group),
            (ClientFrame::Evicted(_), Owner::Queue(key)) => self.evict_workers(key),
            // A client that stands for a queue group sends nothing, so nothing of it is ready.
            _ => {}
        }
    }
}
