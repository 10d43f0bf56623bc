//! A service in this process: a switch's policy and members, without a network.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use manyflow_anypoint::switch::{Candidate, MemberId, Policy, ReplicaHash};
use manyflow_anypoint::{Data, Length};
use manyflow_core::xcp::Congestion;
use manyflow_store::{Member, Shelf};
use tokio::sync::{mpsc, watch};

use super::{Connect, Frames, serve_member};

/// The frames that wait at one end of a channel.
const QUEUE_FRAMES: usize = 4;

/// A service whose members run in this process. Clients reach it through the policy
/// [`ReplicaHash`], as through a switch.
#[derive(Debug)]
pub struct MemoryService<S> {
    members: Members<S>,
}

/// The members of a service; `None` for one that is gone.
type Members<S> = Arc<Mutex<Vec<Option<Present<S>>>>>;

/// A member that is there.
#[derive(Debug)]
struct Present<S> {
    member: Arc<Member<S>>,
    /// Is dropped when the member is removed.
    life: watch::Sender<()>,
}

impl<S: Shelf + Send + Sync + 'static> MemoryService<S> {
    /// Creates a service with these members.
    pub fn new(members: impl IntoIterator<Item = Member<S>>) -> MemoryService<S> {
        let present = |member| Present {
            member: Arc::new(member),
            life: watch::Sender::new(()),
        };
        let members = members.into_iter().map(|member| Some(present(member)));
        MemoryService {
            members: Arc::new(Mutex::new(members.collect())),
        }
    }

    /// Adds a member, in the place of one that was removed, or behind the others.
    pub fn start(&self, place: usize, member: Member<S>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let count = members.len().max(place + 1);
        members.resize_with(count, || None);
        members[place] = Some(Present {
            member: Arc::new(member),
            life: watch::Sender::new(()),
        });
    }

    /// Removes a member at once. Requests that it has received are not answered.
    pub fn kill(&self, member: usize) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members[member] = None;
    }
}

impl<S: Shelf + Send + Sync + 'static> Connect for MemoryService<S> {
    type Frames = MemoryFrames;

    async fn connect(&self) -> io::Result<MemoryFrames> {
        let (client, requests) = channel();
        tokio::spawn(route(Arc::clone(&self.members), requests));
        Ok(client)
    }
}

/// One end of a channel of frames.
#[derive(Debug)]
pub struct MemoryFrames {
    outgoing: mpsc::Sender<(u32, Bytes)>,
    incoming: tokio::sync::Mutex<mpsc::Receiver<(u32, Bytes)>>,
}

impl Frames for MemoryFrames {
    async fn send(&self, key: u32, frame: Bytes) -> io::Result<()> {
        let sent = self.outgoing.send((key, frame)).await;
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    async fn recv(&self) -> io::Result<(u32, Bytes)> {
        let frame = self.incoming.lock().await.recv().await;
        frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns two ends of a channel: a client's, and a router's.
fn channel() -> (MemoryFrames, MemoryFrames) {
    let (a, b) = (mpsc::channel(QUEUE_FRAMES), mpsc::channel(QUEUE_FRAMES));
    let end = |outgoing, incoming| MemoryFrames {
        outgoing,
        incoming: tokio::sync::Mutex::new(incoming),
    };
    (end(a.0, b.1), end(b.0, a.1))
}

/// Gives each request of a connection to a member, until the client is gone.
async fn route<S>(members: Members<S>, client: MemoryFrames)
where
    S: Shelf + Send + Sync + 'static,
{
    let mut policy = ReplicaHash::default();
    let mut queues: Vec<Option<mpsc::Sender<(u32, Bytes)>>> = Vec::new();
    while let Ok((key, frame)) = client.recv().await {
        let queue = {
            let members = members.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(place) = choose(&members, &mut policy, key) else {
                return;
            };
            queues.resize_with(members.len(), || None);
            let queue = queues[place].take();
            let queue = queue.or_else(|| Some(start_member(members[place].as_ref()?, &client)));
            queues[place] = queue.clone();
            queue
        };
        if let Some(queue) = queue {
            // A member that is removed meanwhile loses the request.
            let _ = queue.send((key, frame)).await;
        }
    }
}

/// Starts a member's answers on a connection, and returns the queue of its requests.
fn start_member<S>(present: &Present<S>, client: &MemoryFrames) -> mpsc::Sender<(u32, Bytes)>
where
    S: Shelf + Send + Sync + 'static,
{
    let (queue, incoming) = mpsc::channel(QUEUE_FRAMES);
    let frames = MemoryFrames {
        outgoing: client.outgoing.clone(),
        incoming: tokio::sync::Mutex::new(incoming),
    };
    let (member, mut life) = (Arc::clone(&present.member), present.life.subscribe());
    tokio::spawn(async move {
        tokio::select! {
            _ = serve_member(&frames, &member) => {}
            _ = life.changed() => {}
        }
    });
    queue
}

/// Returns the place of the member that the policy chooses; `None` if all are gone.
fn choose<S>(members: &[Option<Present<S>>], policy: &mut ReplicaHash, key: u32) -> Option<usize> {
    let present = members
        .iter()
        .zip(0..)
        .filter(|(member, _)| member.is_some());
    let candidates: Vec<_> = present
        .map(|(_, place)| Candidate {
            member: MemberId(place),
            outstanding: 0,
        })
        .collect();
    if candidates.is_empty() {
        return None;
    }
    let frame = Data {
        sequence: 0,
        key,
        congestion: Congestion::default(),
    };
    let place = policy.route(&frame, &Length(1), &candidates);
    Some(usize::from(candidates[place].member.0))
}
