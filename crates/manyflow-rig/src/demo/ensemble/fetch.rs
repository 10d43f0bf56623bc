//! The client: asks the servers for chunks, each as fast as it answers.
//!
//! A server that answers is asked for another chunk, so that each always has the same number of
//! requests. From time to time the client asks without choosing a server; the switch gives this
//! request to each in turn, so that the client learns of servers that have joined.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use manyflow_ensembles::anypoint::Connection;
use tokio::time::sleep_until;

use super::server::CHUNK_BYTES;

/// The number of keys that lead to one server: server `n` has those from `n` times this on.
pub(super) const KEYS_OF_MEMBER: u32 = 256;
/// The key of requests that any server may get: it belongs to none.
const ANY: u32 = u32::MAX;
/// Requests on their way to one server.
const REQUESTS: usize = 8;
/// A chunk is asked for again after this time.
const PATIENCE: Duration = Duration::from_millis(2500);
/// The time between two requests that any server may get.
const DISCOVERY: Duration = Duration::from_millis(500);

/// A transfer.
#[derive(Debug)]
pub(super) struct Fetch {
    content: Vec<u8>,
    chunks: Vec<State>,
    /// No chunk below this number is unasked.
    unasked: usize,
    complete: usize,
    servers: BTreeMap<usize, Known>,
    /// The only server to ask, if there is one.
    only: Option<usize>,
    next_discovery: Instant,
}

/// An event of a transfer.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A server has answered.
    Answer(Bytes),
    /// It is time to look for silent and new servers.
    Discovery,
}

/// The state of a chunk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Unasked,
    /// Asked for at this time, from this server if one was chosen.
    Asked(Instant, Option<usize>),
    Complete,
}

/// A server that the client knows.
#[derive(Copy, Clone, Debug, Default)]
struct Known {
    /// Requests that it has not answered.
    requests: usize,
    /// Chunks that came from it first.
    chunks: usize,
}

impl Fetch {
    /// Creates a transfer of a file of `bytes` from servers, of which the first are known.
    pub(super) fn new(bytes: usize, known: usize) -> Fetch {
        Fetch {
            content: vec![0; bytes],
            chunks: vec![State::Unasked; bytes.div_ceil(CHUNK_BYTES)],
            unasked: 0,
            complete: 0,
            servers: (0..known)
                .map(|number| (number, Known::default()))
                .collect(),
            only: None,
            next_discovery: Instant::now() + DISCOVERY,
        }
    }

    /// Creates a transfer from one server.
    pub(super) fn only_from(bytes: usize, server: usize) -> Fetch {
        Fetch {
            only: Some(server),
            servers: BTreeMap::from([(server, Known::default())]),
            ..Fetch::new(bytes, 0)
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete == self.chunks.len()
    }

    /// Returns the share of the chunks that have arrived.
    pub(super) fn progress(&self) -> f64 {
        self.complete as f64 / self.chunks.len() as f64
    }

    /// Returns the number of chunks that came from a server.
    pub(super) fn chunks_of(&self, server: usize) -> usize {
        self.servers.get(&server).map_or(0, |known| known.chunks)
    }

    /// Returns the file. Chunks that have not arrived are zeros.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Sends the first requests.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) async fn begin(&mut self, connection: &Connection) -> Result<()> {
        for server in self.servers.keys().copied().collect::<Vec<_>>() {
            self.fill(connection, server).await?;
        }
        Ok(())
    }

    /// Waits for an answer or a timer. Cancel safe.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) async fn next(&self, connection: &Connection) -> Result<Happening> {
        tokio::select! {
            answer = connection.recv_frame() => {
                let answer = answer?.context("the switch has closed the connection")?;
                Ok(Happening::Answer(answer.payload))
            }
            () = sleep_until(self.next_discovery.into()) => Ok(Happening::Discovery),
        }
    }

    /// Handles it, and sends further requests.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) async fn handle(
        &mut self,
        connection: &Connection,
        happening: Happening,
    ) -> Result<()> {
        match happening {
            Happening::Answer(answer) => match self.take(&answer) {
                Some(server) => self.fill(connection, server).await,
                None => Ok(()),
            },
            Happening::Discovery => {
                self.next_discovery = Instant::now() + DISCOVERY;
                self.ask_again(connection).await
            }
        }
    }

    /// Asks a server for chunks until it has enough requests.
    async fn fill(&mut self, connection: &Connection, server: usize) -> Result<()> {
        while self
            .servers
            .get(&server)
            .is_some_and(|known| known.requests < REQUESTS)
            && let Some(chunk) = self.next_chunk(server)
        {
            self.ask(connection, chunk, Some(server)).await?;
        }
        Ok(())
    }

    /// Returns the next chunk for a server: one that nobody was asked for. At the end, a chunk that
    /// another server was asked for longest ago.
    fn next_chunk(&mut self, server: usize) -> Option<usize> {
        let unasked = &self.chunks[self.unasked..];
        let next = unasked.iter().position(|state| *state == State::Unasked);
        if let Some(place) = next {
            self.unasked += place;
            return Some(self.unasked);
        }
        self.unasked = self.chunks.len();
        let others = self.chunks.iter().enumerate();
        let others = others.filter_map(|(chunk, state)| match state {
            State::Asked(at, other) if *other != Some(server) => Some((*at, chunk)),
            _ => None,
        });
        others.min().map(|(_, chunk)| chunk)
    }

    async fn ask(
        &mut self,
        connection: &Connection,
        chunk: usize,
        server: Option<usize>,
    ) -> Result<()> {
        self.release(chunk);
        self.chunks[chunk] = State::Asked(Instant::now(), server);
        if let Some(known) = server.and_then(|server| self.servers.get_mut(&server)) {
            known.requests += 1;
        }
        let key = server.map_or(ANY, |server| KEYS_OF_MEMBER * server as u32);
        let request = Bytes::copy_from_slice(&(chunk as u32).to_be_bytes());
        connection.send_frame(key, request).await?;
        Ok(())
    }

    /// Counts the server that was asked for this chunk as not asked.
    fn release(&mut self, chunk: usize) {
        if let State::Asked(_, Some(server)) = self.chunks[chunk]
            && let Some(known) = self.servers.get_mut(&server)
        {
            known.requests = known.requests.saturating_sub(1);
        }
    }

    /// Stores the chunk in an answer. Returns the server that has sent it.
    fn take(&mut self, answer: &[u8]) -> Option<usize> {
        let (chunk, rest) = answer.split_first_chunk()?;
        let (server, bytes) = rest.split_first()?;
        let (chunk, server) = (u32::from_be_bytes(*chunk) as usize, usize::from(*server));
        let state = *self.chunks.get(chunk)?;
        let known = self.servers.entry(server).or_default();
        if state != State::Complete {
            let first = chunk * CHUNK_BYTES;
            self.content
                .get_mut(first..first + bytes.len())?
                .copy_from_slice(bytes);
            known.chunks += 1;
            self.complete += 1;
            self.release(chunk);
            self.chunks[chunk] = State::Complete;
        }
        Some(server)
    }

    /// Asks any server for the chunks that did not come in time, and for one more. A server that is
    /// silent is not asked until it answers one of these requests.
    async fn ask_again(&mut self, connection: &Connection) -> Result<()> {
        if let Some(server) = self.only {
            return self.fill(connection, server).await;
        }
        let now = Instant::now();
        for chunk in 0..self.chunks.len() {
            if let State::Asked(at, _) = self.chunks[chunk]
                && now - at > PATIENCE
            {
                self.ask(connection, chunk, None).await?;
            }
        }
        match self.next_chunk(usize::MAX) {
            Some(chunk) => self.ask(connection, chunk, None).await,
            None => Ok(()),
        }
    }
}
