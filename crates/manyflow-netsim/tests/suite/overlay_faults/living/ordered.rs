//! Ordered groups at a site: an orderer attached to its daemon, and clients that come and go, join
//! and leave groups, and send with all services.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use manyflow_core::{Contents, Time};
use manyflow_order::check::{End, Sent, Trace, TraceEvent};
use manyflow_order::{Attachment, ClientId as UserId, Delivery, OrderConfig, Outgoing, Service};
use manyflow_overlay::{ClientFrame, ClientId, Daemon, DaemonId, GroupId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::plan::FAULTS_END;

/// The group that carries the streams of daemons.
const STREAMS: GroupId = GroupId(0x00de_0000);
/// The longest time between two actions of a client.
const PAUSE_MS: u64 = 1_500;

/// The traces of all clients at all sites that have gone, and the number of messages so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces(Arc<Mutex<(Vec<Trace>, u64)>>);

impl Traces {
    fn end(&self, user: User, end: End) {
        let trace = Trace {
            member: user.name,
            events: user.events,
            end,
        };
        self.0.lock().unwrap().0.push(trace);
    }

    fn number_message(&self) -> u64 {
        let all = &mut self.0.lock().unwrap();
        all.1 += 1;
        all.1
    }

    /// Returns the traces.
    pub(crate) fn take(&self) -> Vec<Trace> {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }
}

/// A client in ordered groups.
#[derive(Debug)]
struct User {
    id: UserId,
    name: Arc<str>,
    groups: Vec<Arc<str>>,
    events: Vec<TraceEvent>,
    acts_at: Option<Time>,
    /// Messages that have not entered.
    waiting: u32,
}

/// The ordered groups of a site.
pub(crate) struct Ordered {
    here: DaemonId,
    random: Pcg64Mcg,
    attachment: Option<Attachment>,
    users: Vec<User>,
    senders: BTreeMap<ClientId, UserId>,
    connected: u32,
    traces: Traces,
}

impl Ordered {
    pub(crate) fn new(here: DaemonId, seed: u64, traces: Traces) -> Ordered {
        Ordered {
            here,
            random: Pcg64Mcg::seed_from_u64(seed),
            attachment: None,
            users: Vec::new(),
            senders: BTreeMap::new(),
            connected: 0,
            traces,
        }
    }

    /// Returns the orderer's attachment, while the daemon lives.
    pub(crate) fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// Returns whether no message waits for its entry.
    pub(crate) fn is_quiet(&self) -> bool {
        self.users.iter().all(|user| user.waiting == 0)
    }

    /// Handles the start of the daemon.
    pub(crate) fn on_start(&mut self, now: Time, daemon: &mut Daemon<Contents>) {
        let client = daemon.connect(now, 100);
        let join = ClientFrame::Join(STREAMS);
        daemon.handle_client(now, client, &join, Contents::from(&b"streams"[..]));
        let config = OrderConfig {
            record_bytes: [256, 48 << 10][self.random.random_range(0..2)],
            ..OrderConfig::default()
        };
        let attached = Attachment::new(config, daemon, self.here, client, STREAMS);
        self.attachment = Some(attached.unwrap());
        for _ in 0..self.random.random_range(1..=3) {
            self.connect(now, daemon);
        }
    }

    /// Handles the crash of the daemon.
    pub(crate) fn on_crash(&mut self) {
        self.attachment = None;
        self.senders.clear();
        for user in self.users.drain(..) {
            self.traces.end(user, End::Gone);
        }
    }

    /// Ends the traces of those that remain.
    pub(crate) fn end(&mut self) {
        for user in self.users.drain(..) {
            self.traces.end(user, End::Quiet);
        }
    }

    fn next_action(&mut self, now: Time) -> Option<Time> {
        let next = now + Duration::from_millis(self.random.random_range(1..PAUSE_MS));
        (next < FAULTS_END).then_some(next)
    }

    fn connect(&mut self, now: Time, daemon: &mut Daemon<Contents>) {
        let Some(attachment) = &mut self.attachment else {
            return;
        };
        self.connected += 1;
        let name: Arc<str> = format!("#{}#{}", self.connected, self.here.0).into();
        let (id, client) = attachment.connect(now, daemon, &name, 100).unwrap();
        self.senders.insert(client, id);
        let acts_at = self.next_action(now);
        self.users.push(User {
            id,
            name,
            groups: Vec::new(),
            events: Vec::new(),
            acts_at,
            waiting: 0,
        });
    }

    /// Handles a frame for one of the clients of the overlay that stand for these clients.
    pub(crate) fn handle_frame(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        to: ClientId,
        frame: &ClientFrame,
        payload: &Contents,
    ) -> bool {
        let Some(attachment) = &mut self.attachment else {
            return false;
        };
        match (*frame, self.senders.get(&to)) {
            (ClientFrame::Deliver { origin, data, .. }, None) if to == attachment.client() => {
                attachment.handle_message(now, origin, &data, payload.clone());
                let took = ClientFrame::Took { messages: 1 };
                daemon.handle_client(now, to, &took, Contents::default());
                true
            }
            (ClientFrame::Ready, Some(user)) => {
                if attachment.handle_ready(now, daemon, *user)
                    && let Some(user) = self.users.iter_mut().find(|known| known.id == *user)
                {
                    user.waiting = 0;
                }
                true
            }
            (_, known) => known.is_some() || to == attachment.client(),
        }
    }

    /// Lets clients act and the orderer work. Returns whether there was anything to do.
    pub(crate) fn work(&mut self, now: Time, daemon: &mut Daemon<Contents>) -> bool {
        let mut any = false;
        while let Some(at) = self.users.iter().position(|user| {
            let acts_at = user.acts_at;
            acts_at.is_some_and(|at| at <= now)
        }) {
            any = true;
            self.act(now, daemon, at);
        }
        let Some(attachment) = &mut self.attachment else {
            return any;
        };
        if attachment.poll_timeout().is_some_and(|due| due <= now) {
            attachment.handle_timeout(now);
        }
        any |= attachment.update_peers(now, daemon);
        while let Some(event) = attachment.poll_event() {
            any = true;
            let mut users = self.users.iter_mut();
            if let Some(user) = users.find(|user| user.id == event.to()) {
                user.events.push(TraceEvent::seen(event, number_of));
            }
        }
        any | attachment.transmit(now, daemon)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let acts = self.users.iter().filter_map(|user| user.acts_at).min();
        let attachment = self.attachment.as_ref();
        let order = attachment.and_then(Attachment::poll_timeout);
        [acts, order].into_iter().flatten().min()
    }

    fn act(&mut self, now: Time, daemon: &mut Daemon<Contents>, at: usize) {
        self.users[at].acts_at = self.next_action(now);
        let Some(attachment) = &mut self.attachment else {
            return;
        };
        let group: Arc<str> = ["a", "b", "c"][self.random.random_range(0..3)].into();
        let user = &mut self.users[at];
        match self.random.random_range(0..100) {
            0..15 => {
                if !user.groups.contains(&group) {
                    user.groups.push(Arc::clone(&group));
                }
                attachment.join(now, user.id, &group).unwrap();
            }
            15..19 => {
                user.groups.retain(|known| *known != group);
                attachment.leave(now, user.id, &group).unwrap();
            }
            19..22 => {
                let user = self.users.remove(at);
                let client = attachment.disconnect(now, daemon, user.id).unwrap();
                self.senders.remove(&client);
                self.traces.end(user, End::Gone);
                self.connect(now, daemon);
            }
            _ => self.send(now, daemon, at, group),
        }
    }

    fn send(&mut self, now: Time, daemon: &mut Daemon<Contents>, at: usize, group: Arc<str>) {
        let (user, Some(attachment)) = (&mut self.users[at], &mut self.attachment) else {
            return;
        };
        let service = Service::ALL[self.random.random_range(0..Service::ALL.len())];
        let message = self.traces.number_message();
        let mut payload = message.to_be_bytes().to_vec();
        if self.random.random_bool(0.1) {
            payload.resize(self.random.random_range(8..900), 0);
        }
        let outgoing = Outgoing {
            service,
            groups: &[&group],
            kind: 0,
            self_discard: self.random.random_bool(0.1),
            payload: &payload,
        };
        user.events.push(TraceEvent::Sent(Sent {
            message,
            service,
            groups: vec![Arc::clone(&group)],
            self_discard: outgoing.self_discard,
        }));
        user.waiting += 1;
        attachment.send(now, daemon, user.id, &outgoing).unwrap();
    }
}

/// Returns the number that the sender of a message has put into it.
fn number_of(delivery: &Delivery) -> u64 {
    u64::from_be_bytes(delivery.payload[..8].try_into().unwrap())
}
