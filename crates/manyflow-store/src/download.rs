//! The client's side of reading chunks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use manyflow_core::{ConfigError, Time};

use crate::reconnect::Reconnect;
use crate::requests::{Ask, Requests};
use crate::round::Round;
use crate::{
    Address, Answer, ChunkEntry, DownloadError, Hash, Manifest, MemberName, Outcome, Request,
    STORED_BYTES_MAX, StoreConfig,
};

/// Reads the chunks of a manifest, in any order. Each is asked of the member that has the fewest
/// bytes to answer, among those that hold it, so a faster member gives more.
///
/// A `Download` does no I/O. It is driven like an [`Upload`](crate::Upload);
/// [`poll_chunk`](Download::poll_chunk) returns the chunks.
#[derive(Debug)]
pub struct Download {
    config: StoreConfig,
    manifest: Manifest,
    /// Whether the chunks are of several files, and are returned whole.
    is_whole: bool,
    /// Each chunk's holders when it was put, as indices of `load`, by rank.
    holders: Vec<Vec<u16>>,
    /// The bytes that were asked of each holder and have not come.
    load: Vec<u64>,
    requests: Requests,
    /// Chunks that were asked for and have not come.
    items: BTreeMap<u32, Item>,
    /// Chunks whose requests wait for room in the window.
    queue: VecDeque<u32>,
    /// Chunks that were not asked for yet.
    unasked: VecDeque<u32>,
    waits: BTreeSet<(Time, u32)>,
    received: VecDeque<(u32, Bytes)>,
    counters: DownloadCounters,
    failure: Option<DownloadError>,
    has_failed: bool,
    reconnect: Reconnect,
}

/// A chunk that was asked for and has not come. At most one rank's answer is pending.
#[derive(Debug, Default)]
struct Item {
    round: Round,
    failures: BTreeMap<MemberName, String>,
    /// The rank to ask next, if the chunk is in `Download::queue`.
    queued: Option<u8>,
    /// Whether a request of this chunk has timed out, so that an answer may be to an earlier one.
    was_repeated: bool,
}

/// Counts of a [`Download`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownloadCounters {
    /// The bytes of chunks that came from each member.
    pub bytes: BTreeMap<MemberName, u64>,
    /// Answers of members that did not have a chunk, or could not read it.
    pub missing: u64,
    /// Chunks that did not match their hash, which were asked of another member.
    pub wrong: u64,
    /// Requests that timed out.
    pub timeouts: u64,
}

impl Download {
    /// Creates a download of the chunks of a manifest for which `is_wanted` returns true.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: StoreConfig,
        manifest: Manifest,
        is_wanted: impl Fn(u32) -> bool,
        now: Time,
    ) -> Result<Download, ConfigError> {
        config.check()?;
        let (holders, members) = index_holders(&manifest.chunks);
        let chunks = 0..manifest.chunks.len() as u32;
        Ok(Download {
            requests: Requests::new(&config, now),
            config,
            holders,
            load: vec![0; members],
            items: BTreeMap::new(),
            queue: VecDeque::new(),
            unasked: chunks.filter(|chunk| is_wanted(*chunk)).collect(),
            manifest,
            is_whole: false,
            waits: BTreeSet::new(),
            received: VecDeque::new(),
            counters: DownloadCounters::default(),
            failure: None,
            has_failed: false,
            reconnect: Reconnect::default(),
        })
    }

    /// Creates a download of chunks of any lengths, which may belong to several files. They are
    /// returned whole.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn of_chunks(
        config: StoreConfig,
        chunks: Vec<ChunkEntry>,
        now: Time,
    ) -> Result<Download, ConfigError> {
        // The window counts each as if it had the maximum length.
        let manifest = Manifest {
            size: chunks.len() as u64 * STORED_BYTES_MAX as u64,
            chunks,
            ..Manifest::empty("", STORED_BYTES_MAX as u32)
        };
        let mut download = Download::new(config, manifest, |_| true, now)?;
        download.is_whole = true;
        Ok(download)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> &DownloadCounters {
        &self.counters
    }

    /// Returns whether every chunk has come and was read from this state machine.
    pub fn is_complete(&self) -> bool {
        self.items.is_empty() && self.unasked.is_empty() && self.received.is_empty()
    }

    /// Returns the file's bytes in a chunk that has come and matches its hash, with its place.
    pub fn poll_chunk(&mut self) -> Option<(u32, Bytes)> {
        self.received.pop_front()
    }

    /// Returns the reason for which the download has failed, once.
    pub fn poll_failure(&mut self) -> Option<DownloadError> {
        self.failure.take()
    }

    /// Handles an answer. Answers to requests that are no longer of interest are ignored.
    pub fn handle_answer(&mut self, now: Time, answer: &Answer) {
        let Some(ask) = Ask::of_id(answer.id) else {
            return;
        };
        self.release_load(ask);
        let Some(item) = self.items.get_mut(&ask.chunk) else {
            self.requests.answer(now, ask, true);
            return;
        };
        self.requests.answer(now, ask, item.was_repeated);
        item.round.answer(ask.rank, &answer.member);
        match &answer.outcome {
            Outcome::Chunk(bytes) => self.handle_chunk(ask.chunk, &answer.member, bytes),
            Outcome::Missing | Outcome::Stored | Outcome::Conflict(_) | Outcome::Reply(_) => {
                self.counters.missing += 1;
            }
            Outcome::Failed(reason) => {
                item.failures.insert(answer.member.clone(), reason.clone());
                self.counters.missing += 1;
            }
        }
        self.advance(now, ask.chunk);
    }

    fn handle_chunk(&mut self, chunk: u32, member: &MemberName, bytes: &Bytes) {
        let entry = &self.manifest.chunks[chunk as usize];
        let part = match self.is_whole {
            true => Some(bytes.clone()),
            false => self.manifest.part_of(chunk, bytes),
        };
        let Some(part) = part.filter(|_| Hash::of(bytes) == entry.hash) else {
            self.counters.wrong += 1;
            return;
        };
        *self.counters.bytes.entry(member.clone()).or_default() += bytes.len() as u64;
        self.reconnect.note_progress();
        let item = self.items.remove(&chunk).unwrap_or_default();
        for rank in (0..crate::RANKS).filter(|rank| item.round.is_open(*rank)) {
            self.release_load(Ask { chunk, rank });
            self.requests.cancel(Ask { chunk, rank });
        }
        self.waits.retain(|(_, other)| *other != chunk);
        self.received.push_back((chunk, part));
    }

    /// Returns whether the caller should give the connection up and open another one, once for each
    /// time that members seem to be missing, or that no answer comes for half of
    /// [`silence_max`](StoreConfig::silence_max). A switch gives members up for the rest of a
    /// connection, so another one may reach more of them.
    pub fn poll_reconnect(&mut self) -> bool {
        self.reconnect.poll()
    }

    /// Handles the loss of the connection: every request without an answer is sent again over the
    /// next one.
    pub fn handle_reconnect(&mut self) {
        self.reconnect.note_done();
        for ask in self.requests.take_all() {
            self.load_of(ask, |load, bytes| load.saturating_sub(bytes));
            if let Some(item) = self.items.get_mut(&ask.chunk) {
                (item.queued, item.was_repeated) = (Some(ask.rank), true);
                self.queue.push_back(ask.chunk);
            }
        }
    }

    /// Handles the timers that are due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.requests.is_silent(now) {
            let after = self.config.silence_max;
            self.fail(DownloadError::Silent { after });
            return;
        }
        if self.requests.is_stuck(now) {
            self.reconnect.want_at_once();
        }
        while let Some(ask) = self.requests.expire(now) {
            self.counters.timeouts += 1;
            self.load_of(ask, |load, bytes| load.saturating_sub(bytes));
            if let Some(item) = self.items.get_mut(&ask.chunk) {
                item.was_repeated = true;
                item.round.give_up(ask.rank);
                self.advance(now, ask.chunk);
            }
        }
        while let Some(&(due, chunk)) = self.waits.first()
            && due <= now
        {
            self.waits.pop_first();
            self.advance(now, chunk);
        }
    }

    /// Returns when to call [`handle_timeout`](Download::handle_timeout) next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.has_failed {
            return None;
        }
        let wait = self.waits.first().map(|(due, _)| *due);
        [wait, self.requests.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the next request to send and the key of its frame.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u32, Request)> {
        if self.has_failed {
            return None;
        }
        let is_wanted = |chunk: &u32| self.items.get(chunk).is_some_and(|i| i.queued.is_some());
        while self.queue.front().is_some_and(|chunk| !is_wanted(chunk)) {
            self.queue.pop_front();
        }
        let next = self.queue.front().or(self.unasked.front());
        let (_, bytes) = self.manifest.span(*next?);
        if !self.requests.has_room(bytes) {
            return None;
        }
        if self.queue.is_empty() {
            let chunk = self.unasked.pop_front()?;
            self.items.entry(chunk).or_default();
            self.choose_rank(chunk);
        }
        let chunk = self.queue.pop_front()?;
        let rank = self.items.get_mut(&chunk)?.queued.take()?;
        let ask = Ask { chunk, rank };
        self.requests.start(now, ask, bytes);
        self.load_of(ask, |load, bytes| load + bytes);
        let address = Address::Chunk(self.manifest.chunks[chunk as usize].hash);
        let request = Request::Get {
            id: ask.id(),
            address,
        };
        Some((address.key(rank), request))
    }

    /// Goes on with a chunk after an answer without its bytes, a time-out, or a wait.
    fn advance(&mut self, now: Time, chunk: u32) {
        let is_waiting = self.waits.iter().any(|(_, other)| *other == chunk);
        let Some(item) = self.items.get(&chunk) else {
            return;
        };
        if item.round.open_ranks() == 0 && !is_waiting && !self.choose_rank(chunk) {
            self.end_round(now, chunk);
        }
    }

    /// Chooses the rank to ask next: the one whose holder has the least to answer, then ranks
    /// beyond those of the manifest. Returns false if there is none.
    fn choose_rank(&mut self, chunk: u32) -> bool {
        let Some(item) = self.items.get_mut(&chunk) else {
            return false;
        };
        let holders = &self.holders[chunk as usize];
        let unasked = (0u8..)
            .zip(holders)
            .filter(|(rank, _)| !item.round.has_asked(*rank));
        let least = unasked.min_by_key(|(_, holder)| self.load[usize::from(**holder)]);
        let rank = least.map(|(rank, _)| rank);
        let Some(rank) = rank.or_else(|| item.round.next_rank(holders.len() as u8)) else {
            return false;
        };
        item.round.ask(rank);
        item.queued = Some(rank);
        self.queue.push_back(chunk);
        true
    }

    /// Ends a round in which every member was asked: the next one begins later, because members may
    /// come back, or the download fails.
    fn end_round(&mut self, now: Time, chunk: u32) {
        let Some(item) = self.items.get_mut(&chunk) else {
            return;
        };
        let next = item.round.next();
        if next.number < self.config.rounds {
            self.reconnect.want(next.number);
            let delay = self.config.round_delay * u32::from(next.number);
            self.waits.insert((now + delay, chunk));
            (item.round, item.queued) = (next, None);
            return;
        }
        let entry = &self.manifest.chunks[chunk as usize];
        let error = DownloadError::NoCopy {
            chunk,
            hash: entry.hash,
            asked: item.round.members(),
            failures: core::mem::take(&mut item.failures).into_iter().collect(),
            unanswered: item.round.unanswered(),
            stored: entry.members.clone(),
        };
        self.fail(error);
    }

    fn fail(&mut self, error: DownloadError) {
        if !self.has_failed {
            self.failure = Some(error);
            self.has_failed = true;
        }
    }

    /// Subtracts the bytes of a request in flight from its holder's load.
    fn release_load(&mut self, ask: Ask) {
        if self.requests.is_pending(ask) {
            self.load_of(ask, |load, bytes| load.saturating_sub(bytes));
        }
    }

    /// Changes the load of the holder that a request was for, if its rank has one.
    fn load_of(&mut self, ask: Ask, change: impl Fn(u64, u64) -> u64) {
        let (_, bytes) = self.manifest.span(ask.chunk);
        let holders = self.holders.get(ask.chunk as usize);
        if let Some(holder) = holders.and_then(|holders| holders.get(usize::from(ask.rank))) {
            let load = &mut self.load[usize::from(*holder)];
            *load = change(*load, bytes.into());
        }
    }
}

/// Returns each chunk's members as numbers, and the number of members.
fn index_holders(chunks: &[ChunkEntry]) -> (Vec<Vec<u16>>, usize) {
    let mut numbers = BTreeMap::new();
    let mut number = |member: &MemberName| {
        let next = numbers.len() as u16;
        *numbers.entry(member.clone()).or_insert(next)
    };
    let holders = chunks
        .iter()
        .map(|chunk| chunk.members.iter().map(&mut number).collect());
    let holders = holders.collect();
    (holders, numbers.len())
}

#[cfg(test)]
mod tests;
