//! A connection of a gateway, and the requests in progress on it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::super::wire::{
    Failure, FailureKind, FromMember, MemberEvent, Open, PLACES, Pulse, Request, RequestId,
    ToMember,
};
use super::answer;
use super::control::Control;
use super::counters::add_one;
use super::flow::Flow;
use super::{Shared, stream};
use crate::anypoint::{Connection, ConnectionError, Prefix};

/// The time between two looks at the requests that are due for a sign of life.
const ALIVE_TICK: Duration = Duration::from_millis(100);

/// A connection of a gateway.
pub(super) struct Peer {
    connection: Connection,
    pub(super) shared: Arc<Shared>,
    requests: Mutex<HashMap<RequestId, Running>>,
    pub(super) control: Control,
}

/// The terms that requests and streams have in common.
struct Terms {
    id: RequestId,
    to: u64,
    alive_ms: u32,
}

/// A request or stream in progress.
struct Running {
    flow: Arc<Flow>,
    task: AbortHandle,
    alive_interval: Duration,
    /// When the last sign of life was sent.
    signed: Instant,
}

/// Serves a connection until it ends.
pub(super) async fn serve_connection(connection: Connection, shared: Arc<Shared>) {
    let (control, queue) = Control::new();
    let peer = Arc::new(Peer {
        connection,
        shared,
        requests: Mutex::default(),
        control,
    });
    let _ending = Ending(Arc::clone(&peer));
    let ended = tokio::select! {
        ended = receive(&peer) => ended,
        ended = send_control(&peer, queue) => ended,
        () = peer.control.overrun() => {
            tracing::warn!(
                "a gateway at {} asks and does not read the answers: its connection is ended",
                peer.connection.remote_address()
            );
            return;
        }
        ended = send_signs(&peer) => ended,
    };
    match ended {
        // The gateway has closed its direction: it wants nothing more.
        Ok(()) => drop(peer.connection.close().await),
        Err(error) => tracing::debug!("a connection of a gateway ended: {error}"),
    }
}

/// Ends all requests of a connection when the connection is no longer served.
struct Ending(Arc<Peer>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0
            .lock()
            .values()
            .for_each(|request| request.task.abort());
    }
}

async fn receive(peer: &Arc<Peer>) -> Result<(), ConnectionError> {
    while let Some(message) = peer.connection.recv_frame().await? {
        match ToMember::decode(&message.payload) {
            Ok(message) => peer.handle_message(message),
            Err(error) => {
                add_one(&peer.shared.counters.malformed);
                tracing::warn!("a message is not one of a gateway: {error}");
            }
        }
    }
    Ok(())
}

/// Sends the small messages of tasks that cannot wait.
async fn send_control(
    peer: &Peer,
    mut queue: mpsc::Receiver<MemberEvent>,
) -> Result<(), ConnectionError> {
    while let Some(event) = queue.recv().await {
        peer.send(event).await?;
    }
    Ok(())
}

/// Sends signs of life.
async fn send_signs(peer: &Peer) -> Result<(), ConnectionError> {
    let mut interval = tokio::time::interval(ALIVE_TICK);
    loop {
        interval.tick().await;
        loop {
            let due = peer.take_due();
            if due.is_empty() {
                break;
            }
            peer.send(MemberEvent::Alive(due)).await?;
        }
    }
}

impl Peer {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Running>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to the gateway.
    pub(super) async fn send(&self, event: MemberEvent) -> Result<(), ConnectionError> {
        let id = event.id();
        let member = self.shared.number;
        let message: Bytes = FromMember { member, event }.encode();
        self.connection.send_frame(id.key(), message).await
    }

    /// Returns requests of one gateway whose sign of life is due. Several gateways may share the
    /// connection, and a message reaches one of them.
    fn take_due(&self) -> Vec<RequestId> {
        let mut due: Vec<RequestId> = Vec::new();
        for (id, request) in self.lock().iter_mut() {
            let prefix = Prefix::of_id(due.first().unwrap_or(id).0);
            let fits = Prefix::of_id(id.0) == prefix && due.len() < PLACES;
            if fits && request.signed.elapsed() >= request.alive_interval {
                request.signed = Instant::now();
                due.push(*id);
            }
        }
        due
    }

    fn handle_message(self: &Arc<Peer>, message: ToMember) {
        let id = message.id();
        let known = self
            .lock()
            .get(&id)
            .map(|request| Arc::clone(&request.flow));
        match (message, known) {
            (ToMember::Request(request), _) => self.handle_request(*request),
            (ToMember::Open(open), _) => self.handle_open(*open),
            (ToMember::Probe(id), _) => self.control.push(MemberEvent::Pulse(id, self.pulse())),
            (ToMember::Part(_, part), Some(flow)) => flow.handle_part(part),
            (ToMember::Credit(_, until), Some(flow)) => flow.handle_credit(until),
            (ToMember::Cancel(_), Some(_)) => self.cancel(id),
            // A response that has ended needs no credit, and a request that has ended no end.
            (ToMember::Cancel(_), None) => {}
            (ToMember::Part(..) | ToMember::Credit(..), None) => {
                add_one(&self.shared.counters.unknown);
                let reason = "the member does not know the request: it has restarted, or the \
                              switch divided the request among members (use --policy affinity)";
                self.fail(id, FailureKind::Unknown, reason);
            }
        }
    }

    fn pulse(&self) -> Pulse {
        Pulse {
            is_serving: self.shared.health.is_serving(),
            is_draining: *self.shared.draining.borrow(),
        }
    }

    fn handle_request(self: &Arc<Peer>, request: Request) {
        let terms = Terms {
            id: request.id,
            to: request.to,
            alive_ms: request.alive_ms,
        };
        let received = request.body.len() as u64;
        let flow = Flow::new(request.window, received, request.is_last);
        self.begin(terms, flow, |guard, flow| answer::run(guard, flow, request));
    }

    fn handle_open(self: &Arc<Peer>, open: Open) {
        let terms = Terms {
            id: open.id,
            to: open.to,
            alive_ms: open.alive_ms,
        };
        let flow = Flow::new(open.window, 0, false);
        self.begin(terms, flow, |guard, flow| stream::run(guard, flow, open));
    }

    /// Begins the task of a request or stream, unless it has to be refused.
    fn begin<T: Future<Output = ()> + Send + 'static>(
        self: &Arc<Peer>,
        terms: Terms,
        flow: Flow,
        task: impl FnOnce(Guard, Arc<Flow>) -> T,
    ) {
        let counters = &self.shared.counters;
        add_one(&counters.requests);
        let Terms { id, to, alive_ms } = terms;
        if let Some((kind, reason)) = self.refusal(to) {
            add_one(&counters.refused);
            return self.fail(id, kind, reason);
        }
        let mut requests = self.lock();
        let Entry::Vacant(vacant) = requests.entry(id) else {
            add_one(&counters.malformed);
            return;
        };
        let flow = Arc::new(flow);
        let guard = Guard::new(Arc::clone(self), id);
        let task = tokio::spawn(task(guard, Arc::clone(&flow)));
        vacant.insert(Running {
            flow,
            task: task.abort_handle(),
            alive_interval: Duration::from_millis(alive_ms.into()),
            signed: Instant::now(),
        });
    }

    /// Returns why the member takes no request for `to` now.
    fn refusal(&self, to: u64) -> Option<(FailureKind, &'static str)> {
        let in_progress = self.shared.counters.in_progress.load(Ordering::Relaxed);
        if to != 0 && to != self.shared.number {
            let reason = "the request is for another member, which may have got it before it \
                          failed, or the switch gives requests to any member (use --policy affinity)";
            return Some((FailureKind::Elsewhere, reason));
        }
        if in_progress >= self.shared.options.requests_max as u64 {
            let reason = "the member has too many requests in progress";
            return Some((FailureKind::Refused, reason));
        }
        let is_draining = *self.shared.draining.borrow();
        is_draining.then_some((FailureKind::Refused, "the member is shutting down"))
    }

    fn remove(&self, id: RequestId) -> Option<Running> {
        let running = self.lock().remove(&id)?;
        running.flow.abandon();
        Some(running)
    }

    fn cancel(&self, id: RequestId) {
        if let Some(running) = self.remove(id) {
            running.task.abort();
        }
    }

    fn fail(&self, id: RequestId, kind: FailureKind, reason: &str) {
        let failed = MemberEvent::Failed(id, Failure::new(kind, reason));
        self.control.push(failed);
    }
}

/// Removes a request from those in progress when its task ends or is aborted.
pub(super) struct Guard {
    pub(super) peer: Arc<Peer>,
    pub(super) id: RequestId,
    /// Whether the task has counted its outcome.
    pub(super) is_counted: bool,
}

impl Guard {
    fn new(peer: Arc<Peer>, id: RequestId) -> Guard {
        add_one(&peer.shared.counters.in_progress);
        Guard {
            peer,
            id,
            is_counted: false,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let counters = &self.peer.shared.counters;
        if !self.is_counted {
            add_one(&counters.cancelled);
        }
        counters.in_progress.fetch_sub(1, Ordering::Relaxed);
        self.peer.remove(self.id);
    }
}
