//! The gateway's connection to the switch, and the requests in progress on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::super::wire::{FailureKind, FromMember, MemberEvent, PLACES, RequestId, ToMember};
use super::GatewayOptions;
use super::counters::Counters;
use super::exchange::{Event, Exchange, Unused};
use super::roster::{Choice, Outcome, Roster};
use super::upload::Rest;
use crate::anypoint::{Connection, Prefix};

/// The time after which the credit of a response in progress is repeated, as a sign that the client
/// still wants it.
const CREDIT_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two looks at the members.
const TEND_TICK: Duration = Duration::from_millis(25);
/// The time that a request waits for the first member to be found, and between two looks.
const FIND_TIMEOUT: Duration = Duration::from_millis(300);
const FIND_TICK: Duration = Duration::from_millis(5);
/// The silence of all members after which another switch is preferred.
const SILENT_AFTER: Duration = Duration::from_millis(400);
const SILENT: &str = "nothing came from the switch for too long";

/// A connection to the switch.
#[derive(Debug)]
pub(super) struct Link {
    connection: Connection,
    table: Mutex<Table>,
    roster: Mutex<Roster>,
    control: mpsc::UnboundedSender<(u32, ToMember)>,
    /// The time without any message, while members owe answers, after which the link ends.
    silence_max: Duration,
    counters: Arc<Counters>,
    started: Instant,
    /// When the last message arrived, in milliseconds after `started`.
    heard_ms: AtomicU64,
    /// Asks [`serve`](Link::serve) to end.
    give_up: Notify,
}

/// The requests in progress by their places.
#[derive(Debug)]
struct Table {
    prefix: Prefix,
    places: Vec<Place>,
    free: Vec<usize>,
    /// The number of places that may be in use.
    max: usize,
    /// Why the connection has ended.
    lost: Option<String>,
}

#[derive(Debug, Default)]
struct Place {
    /// The number of requests that have had this place.
    generation: u64,
    exchange: Option<Arc<Exchange>>,
}

impl Table {
    /// Takes a place, and returns the id of its next request.
    fn take(&mut self) -> Option<RequestId> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < self.max.min(PLACES) => {
                self.places.push(Place::default());
                self.places.len() - 1
            }
            None => return None,
        };
        let generation = &mut self.places[place].generation;
        *generation += 1;
        debug_assert!(place < PLACES);
        let id = *generation * PLACES as u64 + place as u64;
        Some(RequestId(self.prefix.id(id)))
    }

    fn find(&self, id: RequestId) -> Option<&Arc<Exchange>> {
        let exchange = self.places.get(id.place())?.exchange.as_ref()?;
        (exchange.id == id).then_some(exchange)
    }
}

impl Link {
    /// Creates the link, and returns the queue of its small messages for [`serve`](Link::serve).
    pub(super) fn new(
        connection: Connection,
        options: &GatewayOptions,
        counters: Arc<Counters>,
    ) -> (Arc<Link>, mpsc::UnboundedReceiver<(u32, ToMember)>) {
        let (control, queue) = mpsc::unbounded_channel();
        let prefix = connection.prefix();
        let table = Table {
            prefix,
            places: Vec::new(),
            free: Vec::new(),
            max: options.requests_max,
            lost: None,
        };
        let link = Link {
            connection,
            table: Mutex::new(table),
            roster: Mutex::new(Roster::new(Instant::now(), prefix)),
            control,
            silence_max: options.timeout * 4 / 5,
            counters,
            started: Instant::now(),
            heard_ms: AtomicU64::new(0),
            give_up: Notify::new(),
        };
        (Arc::new(link), queue)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the members behind the switch.
    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a way to a member is known, for a short time: without one, the switch chooses.
    pub(super) async fn find_members(&self) {
        let deadline = Instant::now() + FIND_TIMEOUT.min(self.silence_max);
        while !self.has_found_members() && Instant::now() < deadline {
            tokio::time::sleep(FIND_TICK).await;
        }
    }

    /// Returns whether there is nothing to wait for before the first request.
    fn has_found_members(&self) -> bool {
        let now = Instant::now();
        let roster = self.roster();
        roster.is_ready(now) || roster.is_divided(now)
    }

    /// Begins a request to a member, or to any. Returns `None` if too many are in progress.
    pub(super) fn open(
        self: &Arc<Link>,
        to: Option<Choice>,
        window: u32,
        sent: u64,
    ) -> Option<Ticket> {
        self.begin(|id| Exchange::new(id, to, window, sent))
    }

    /// Begins a stream to a member, or to any. Returns `None` if too many are in progress.
    pub(super) fn open_stream(self: &Arc<Link>, to: Option<Choice>, window: u32) -> Option<Ticket> {
        self.begin(|id| Exchange::new(id, to, window, 0).into_stream())
    }

    fn begin(self: &Arc<Link>, exchange: impl FnOnce(RequestId) -> Exchange) -> Option<Ticket> {
        let mut table = self.lock();
        let id = table.take()?;
        let exchange = Arc::new(exchange(id));
        if let Some(reason) = &table.lost {
            exchange.lose(reason);
        }
        table.places[id.place()].exchange = Some(Arc::clone(&exchange));
        drop(table);
        self.roster().begin(exchange.to);
        Some(Ticket {
            link: Arc::clone(self),
            exchange,
            upload: None,
        })
    }

    /// Returns whether the connection has ended.
    pub(super) fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    /// Returns whether the connection is in use, and the switch or its members answer.
    pub(super) fn is_answering(&self) -> bool {
        !self.is_lost() && self.roster().silence(Instant::now()) < SILENT_AFTER
    }

    /// Returns the number of members to which requests go without need.
    pub(super) fn ready_members(&self) -> usize {
        self.roster().ready_members(Instant::now())
    }

    /// Returns the number of requests in progress.
    pub(super) fn in_progress(&self) -> usize {
        let table = self.lock();
        table.places.len() - table.free.len()
    }

    /// Gives the connection up if nothing at all has arrived for `patience`.
    pub(super) fn doubt(&self, patience: Duration) {
        let heard = self.started + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        if heard.elapsed() >= patience {
            self.give_up.notify_one();
        }
    }

    /// Sends small messages and handles those of members, until the connection ends. Returns the
    /// reason.
    pub(super) async fn serve(
        &self,
        mut queue: mpsc::UnboundedReceiver<(u32, ToMember)>,
    ) -> String {
        let send = async {
            while let Some((key, message)) = queue.recv().await {
                let sent = self.send(key, message.encode()).await;
                if let Err(error) = sent {
                    return error;
                }
            }
            "the gateway has ended".to_owned()
        };
        let reason = tokio::select! {
            reason = send => reason,
            reason = self.receive() => reason,
            () = self.repeat_credit() => "the gateway has ended".to_owned(),
            () = self.tend_members() => SILENT.to_owned(),
            () = self.give_up.notified() => SILENT.to_owned(),
        };
        let mut table = self.lock();
        for place in &table.places {
            if let Some(exchange) = &place.exchange {
                exchange.lose(&reason);
            }
        }
        table.lost = Some(reason.clone());
        reason
    }

    /// Closes the connection in order.
    pub(super) async fn close(&self) {
        // The process ends next, so a connection that fails instead makes no difference.
        let _ = self.connection.close().await;
    }

    /// Sends a message to the member of a key.
    pub(super) async fn send(&self, key: u32, message: Bytes) -> Result<(), String> {
        let sent = self.connection.send_frame(key, message).await;
        sent.map_err(|error| error.to_string())
    }

    async fn receive(&self) -> String {
        loop {
            match self.connection.recv_frame().await {
                Ok(Some(message)) => {
                    let heard = self.started.elapsed().as_millis() as u64;
                    self.heard_ms.store(heard, Ordering::Relaxed);
                    self.handle_message(&message.payload);
                }
                Ok(None) => return "the members have closed the connection".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn handle_message(&self, payload: &Bytes) {
        let FromMember { member, event } = match FromMember::decode(payload) {
            Ok(message) => message,
            Err(error) => {
                self.counters.malformed.add_one();
                tracing::warn!("a message is not one of a member: {error}");
                return;
            }
        };
        let now = Instant::now();
        self.roster().note_heard(now, member);
        match &event {
            MemberEvent::Alive(ids) => {
                let table = self.lock();
                let known = ids.iter().filter_map(|id| table.find(*id));
                known.for_each(|exchange| exchange.handle_sign());
                return;
            }
            MemberEvent::Pulse(id, pulse) => {
                self.roster().handle_pulse(now, *id, member, *pulse);
                return self.lose_dead();
            }
            _ => {}
        }
        let exchange = self.lock().find(event.id()).cloned();
        if let (MemberEvent::Failed(_, failure), Some(exchange)) = (&event, &exchange)
            && failure.kind == FailureKind::Elsewhere
        {
            self.roster().note_key(now, exchange.key, member);
        }
        let handled = exchange.map_or(Err(Unused::Foreign), |exchange| {
            exchange.handle_event(member, event)
        });
        match handled {
            Ok(()) => {}
            Err(Unused::Foreign) => self.counters.foreign.add_one(),
            Err(Unused::Malformed) => self.counters.malformed.add_one(),
        }
    }

    /// Probes the members, until none of them has answered for too long.
    async fn tend_members(&self) {
        let mut interval = tokio::time::interval(TEND_TICK);
        loop {
            interval.tick().await;
            let now = Instant::now();
            let due = self.roster().poll_probes(now);
            for probe in due {
                self.push(probe.key, ToMember::Probe(probe.id));
            }
            self.lose_dead();
            if self.roster().silence(now) >= self.silence_max {
                return;
            }
        }
    }

    /// Ends the exchanges with members that have died.
    fn lose_dead(&self) {
        let dead = self.roster().take_dead();
        if dead.is_empty() {
            return;
        }
        let table = self.lock();
        let exchanges = table.places.iter().filter_map(|p| p.exchange.as_ref());
        for exchange in exchanges.filter(|exchange| dead.contains(&exchange.to)) {
            exchange.lose("the member has died");
        }
    }

    /// Repeats the credit of responses in progress: a member gives up a response that nobody wants.
    async fn repeat_credit(&self) {
        let mut interval = tokio::time::interval(CREDIT_INTERVAL);
        loop {
            interval.tick().await;
            let table = self.lock();
            let exchanges = table.places.iter().filter_map(|p| p.exchange.as_ref());
            for exchange in exchanges {
                if let Some(until) = exchange.standing_credit() {
                    self.push(exchange.key, ToMember::Credit(exchange.id, until));
                }
            }
        }
    }

    /// Queues a small message. If the connection has ended, nobody waits for the message.
    fn push(&self, key: u32, message: ToMember) {
        let _ = self.control.send((key, message));
    }
}

/// A request in progress, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    link: Arc<Link>,
    pub(super) exchange: Arc<Exchange>,
    upload: Option<AbortHandle>,
}

impl Ticket {
    pub(super) fn id(&self) -> RequestId {
        self.exchange.id
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Returns the member that the request is for; 0 for any.
    pub(super) fn member(&self) -> u64 {
        self.exchange.to
    }

    /// Notes how the request ended, for the health of its member.
    pub(super) fn note(&self, outcome: Outcome) {
        let member = self.member();
        let ejected = self.link.roster().note(Instant::now(), member, outcome);
        if let Some(time) = ejected {
            self.link.counters.ejected.add_one();
            let seconds = time.as_secs();
            tracing::warn!(
                "the server behind member {member:016x} fails ({outcome:?}): others get its \
                 requests for {seconds} s"
            );
        }
    }

    /// Returns whether the member of the request is silent while others answer.
    pub(super) fn is_suspected(&self) -> bool {
        let suspected = self
            .link
            .roster()
            .is_suspected(Instant::now(), self.member());
        suspected || !self.link.is_answering()
    }

    /// Sends a message about the request.
    pub(super) async fn send(&self, message: Bytes) -> Result<(), String> {
        self.link.send(self.exchange.key, message).await
    }

    /// Sends the rest of the request's body in a task of its own, until the request ends. A body
    /// that is cut ends the response as well.
    pub(super) fn start_upload(&mut self, rest: Rest) {
        let exchange = Arc::clone(&self.exchange);
        let upload = async move {
            if let Err(unread) = rest.await {
                exchange.lose(&unread.to_string());
            }
        };
        self.upload = Some(tokio::spawn(upload).abort_handle());
    }

    /// Grants credit up to `until` bytes of the response's body.
    pub(super) fn grant(&self, until: u64) {
        self.exchange.grant(until);
        self.link
            .push(self.exchange.key, ToMember::Credit(self.id(), until));
    }

    /// Waits for the next message, or until no sign of life has come for `patience`; then returns
    /// `None`.
    pub(super) async fn next_event(&self, patience: Duration) -> Option<Event> {
        let next = std::future::poll_fn(|context| self.exchange.poll_event(context));
        let mut next = std::pin::pin!(next);
        let started = Instant::now();
        loop {
            let since = self.exchange.last_sign().max(started);
            if let Ok(event) = tokio::time::timeout_at(since + patience, &mut next).await {
                return Some(event);
            }
            if self.exchange.last_sign().max(started) == since {
                return None;
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let id = self.id();
        if let Some(upload) = &self.upload {
            upload.abort();
        }
        if !self.exchange.is_complete() {
            self.link.push(self.exchange.key, ToMember::Cancel(id));
        }
        self.link.roster().end(self.exchange.to);
        let mut table = self.link.lock();
        table.places[id.place()].exchange = None;
        table.free.push(id.place());
    }
}
