//! The client's side of storing chunks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use manyflow_core::{ConfigError, Time};

use crate::reconnect::Reconnect;
use crate::requests::{Ask, Requests};
use crate::round::Round;
use crate::{
    Address, Answer, Hash, MemberName, Outcome, Query, RANKS, Reply, Request, StoreConfig,
    UploadError,
};

/// Stores chunks: sends each to the members of the first ranks, and to further ranks if a member
/// fails or two ranks belong to the same member, until enough distinct members have it.
///
/// An `Upload` does no I/O. After each call, drain [`poll_transmit`](Upload::poll_transmit) as far
/// as the connection takes frames, then [`poll_event`](Upload::poll_event), then read
/// [`poll_timeout`](Upload::poll_timeout).
#[derive(Debug)]
pub struct Upload {
    config: StoreConfig,
    requests: Requests,
    /// Chunks without enough copies, by place.
    items: BTreeMap<u32, Item>,
    /// The bytes of these chunks.
    item_bytes: u64,
    next_chunk: u32,
    /// Requests that wait for room in the window.
    queue: VecDeque<Ask>,
    /// Chunks that wait for their next round.
    waits: BTreeSet<(Time, u32)>,
    events: VecDeque<UploadEvent>,
    has_failed: bool,
    reconnect: Reconnect,
}

/// An event of an [`Upload`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadEvent {
    /// Enough distinct members have a chunk on disk.
    Stored {
        /// The place of the chunk: the number that [`Upload::add`] returned.
        chunk: u32,
        /// These members, in the order of their ranks.
        members: Vec<MemberName>,
    },
    /// The upload has failed; nothing more is sent. Chunks that were stored remain.
    Failed(UploadError),
    /// A member lacks a chunk that was added without bytes: call [`Upload::supply`].
    Wanted {
        /// The place of the chunk: the number that [`Upload::add_unread`] returned.
        chunk: u32,
    },
}

/// The place of bytes on a member.
#[derive(Copy, Clone, Debug)]
enum Target {
    /// One address.
    One(Address),
    /// The manifest of a name, if the member has this version.
    If(Hash, u64),
    /// The addresses of the manifests in a batch with this digest.
    Names(Hash),
}

impl Target {
    /// Returns the address that decides which members get the bytes.
    fn address(self) -> Address {
        match self {
            Target::One(address) => address,
            Target::If(name, _) => Address::Name(name),
            Target::Names(hash) => Address::Chunk(hash),
        }
    }
}

/// A chunk without enough copies.
#[derive(Debug)]
struct Item {
    target: Target,
    /// `None` for a chunk that no member was found to lack so far.
    bytes: Option<Bytes>,
    /// Whether the bytes were asked for.
    is_wanted: bool,
    /// The ranks whose members lack the bytes, as they have answered, or were not asked.
    lacking: u16,
    /// The distinct members that have stored the chunk, with their ranks.
    copies: Vec<(u8, MemberName)>,
    failures: BTreeMap<MemberName, String>,
    round: Round,
    /// The number of times that each rank's request was sent in this round.
    attempts: [u8; RANKS as usize],
}

impl Upload {
    /// Creates an upload without chunks.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(config: StoreConfig, now: Time) -> Result<Upload, ConfigError> {
        config.check()?;
        Ok(Upload {
            requests: Requests::new(&config, now),
            config,
            items: BTreeMap::new(),
            item_bytes: 0,
            next_chunk: 0,
            queue: VecDeque::new(),
            waits: BTreeSet::new(),
            events: VecDeque::new(),
            has_failed: false,
            reconnect: Reconnect::default(),
        })
    }

    /// Returns whether the next chunk should be added now: those that wait for copies have fewer
    /// bytes than the window.
    pub fn wants_chunk(&self) -> bool {
        !self.has_failed && self.item_bytes < u64::from(self.config.window_bytes)
    }

    /// Returns whether every chunk has been stored, or the upload has failed.
    pub fn is_idle(&self) -> bool {
        self.has_failed || self.items.is_empty()
    }

    /// Adds bytes to store, and returns their place: the number of chunks added before.
    ///
    /// # Panics
    /// Panics after 2^32 chunks.
    pub fn add(&mut self, address: Address, bytes: Bytes) -> u32 {
        self.add_to(Target::One(address), Some(bytes))
    }

    /// Adds a chunk whose bytes the caller reads only if a member lacks them, which
    /// [`UploadEvent::Wanted`] reports. Returns its place, as [`add`](Upload::add) does.
    ///
    /// # Panics
    /// Panics after 2^32 chunks.
    pub fn add_unread(&mut self, hash: Hash) -> u32 {
        self.add_to(Target::One(Address::Chunk(hash)), None)
    }

    /// Gives a chunk up, such as one whose bytes cannot be read.
    pub fn give_up(&mut self, chunk: u32) {
        if let Some(item) = self.items.remove(&chunk) {
            self.item_bytes -= item.length();
            (0..RANKS).for_each(|rank| self.requests.cancel(Ask { chunk, rank }));
            self.waits.retain(|(_, other)| *other != chunk);
        }
    }

    /// Adds a manifest that replaces the one of the version `expected`, or nothing if that is 0.
    /// The member of the lowest rank that answers decides. With several copies, each member
    /// decides, so ask for one copy, and then [`add`](Upload::add) the manifest. Returns its place,
    /// as `add` does.
    ///
    /// # Panics
    /// Panics after 2^32 chunks.
    pub fn add_if(&mut self, name: Hash, expected: u64, bytes: Bytes) -> u32 {
        self.add_to(Target::If(name, expected), Some(bytes))
    }

    /// Supplies the bytes of a chunk that is wanted. Does nothing if it no longer is.
    pub fn supply(&mut self, chunk: u32, bytes: Bytes) {
        let Some(item) = self.items.get_mut(&chunk) else {
            return;
        };
        if item.bytes.is_some() {
            return;
        }
        self.item_bytes += bytes.len() as u64;
        item.bytes = Some(bytes);
        let ranks = (0..RANKS).filter(|rank| item.is_lacking(*rank) && item.round.is_open(*rank));
        self.queue.extend(ranks.map(|rank| Ask { chunk, rank }));
    }

    /// Adds a [`Batch`](crate::Batch) of manifests, which are stored together. Returns its place,
    /// as [`add`](Upload::add) does.
    ///
    /// # Panics
    /// Panics after 2^32 chunks.
    pub fn add_names(&mut self, batch: Bytes) -> u32 {
        self.add_to(Target::Names(Hash::of(&batch)), Some(batch))
    }

    fn add_to(&mut self, target: Target, bytes: Option<Bytes>) -> u32 {
        let chunk = self.next_chunk;
        self.next_chunk = chunk
            .checked_add(1)
            .expect("there are fewer than 2^32 chunks");
        self.item_bytes += bytes.as_ref().map_or(0, Bytes::len) as u64;
        // A manifest that a member has may be older, so it is always sent.
        let is_chunk = matches!(target, Target::One(Address::Chunk(_)));
        let lacking = match is_chunk && (self.config.asks_first || bytes.is_none()) {
            true => 0,
            false => u16::MAX,
        };
        let item = Item {
            target,
            bytes,
            is_wanted: false,
            lacking,
            copies: Vec::new(),
            failures: BTreeMap::new(),
            round: Round::default(),
            attempts: [0; RANKS as usize],
        };
        self.items.insert(chunk, item);
        self.ask_ranks(chunk);
        chunk
    }

    /// Handles an answer. Answers to requests that are no longer of interest are ignored.
    pub fn handle_answer(&mut self, now: Time, answer: &Answer) {
        let Some(ask) = Ask::of_id(answer.id) else {
            return;
        };
        let Some(item) = self.items.get_mut(&ask.chunk) else {
            self.requests.answer(now, ask, true);
            return;
        };
        let was_repeated = item.attempts[usize::from(ask.rank)] != 1;
        self.requests.answer(now, ask, was_repeated);
        if let Outcome::Reply(reply) = &answer.outcome
            && *reply != Reply::Held(vec![true])
        {
            // A repeated answer comes while the bytes are on their way, and says nothing new.
            let chunk = ask.chunk;
            if item.note_lack(ask.rank) {
                match item.bytes {
                    Some(_) => self.queue.push_front(ask),
                    None if item.is_wanted => {}
                    None => {
                        item.is_wanted = true;
                        self.events.push_back(UploadEvent::Wanted { chunk });
                    }
                }
            }
            return;
        }
        item.round.answer(ask.rank, &answer.member);
        match &answer.outcome {
            Outcome::Stored => item.note_copy(ask.rank, &answer.member),
            Outcome::Reply(_) => item.note_copy(ask.rank, &answer.member),
            Outcome::Failed(reason) => {
                item.failures.insert(answer.member.clone(), reason.clone());
            }
            Outcome::Conflict(held) => {
                let held = *held;
                self.fail(UploadError::Conflict { held });
                return;
            }
            Outcome::Chunk(_) | Outcome::Missing => {}
        }
        self.advance(now, ask.chunk);
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
        for ask in self.requests.take_all().into_iter().rev() {
            if let Some(item) = self.items.get_mut(&ask.chunk) {
                item.attempts[usize::from(ask.rank)] = 0;
                self.queue.push_front(ask);
            }
        }
    }

    /// Handles the timers that are due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.requests.is_silent(now) {
            self.fail_silent();
            return;
        }
        if self.requests.is_stuck(now) {
            self.reconnect.want_at_once();
        }
        while let Some(ask) = self.requests.expire(now) {
            self.retry(now, ask);
        }
        while let Some(&(due, chunk)) = self.waits.first()
            && due <= now
        {
            self.waits.pop_first();
            self.ask_ranks(chunk);
        }
    }

    /// Returns when to call [`handle_timeout`](Upload::handle_timeout) next, if at all.
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
        while let Some(&ask) = self.queue.front() {
            let wanted = self.items.get_mut(&ask.chunk);
            let Some(item) = wanted.filter(|item| item.can_send(ask.rank)) else {
                self.queue.pop_front();
                continue;
            };
            let length = match item.is_lacking(ask.rank) {
                true => item.length() as u32,
                false => 1,
            };
            if !self.requests.has_room(length) {
                return None;
            }
            self.queue.pop_front();
            self.requests.start(now, ask, length);
            let attempts = &mut item.attempts[usize::from(ask.rank)];
            *attempts = attempts.saturating_add(1);
            let key = item.target.address().key(ask.rank);
            return Some((key, item.request(ask)));
        }
        None
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<UploadEvent> {
        self.events.pop_front()
    }

    /// Sends a request again that has timed out, or gives its rank up.
    fn retry(&mut self, now: Time, ask: Ask) {
        let attempts_max = self.config.attempts;
        let Some(item) = self.items.get_mut(&ask.chunk) else {
            return;
        };
        if item.attempts[usize::from(ask.rank)] < attempts_max {
            self.queue.push_back(ask);
            return;
        }
        item.round.give_up(ask.rank);
        self.advance(now, ask.chunk);
    }

    /// Goes on with a chunk after an answer, or after a rank was given up.
    fn advance(&mut self, now: Time, chunk: u32) {
        let Some(item) = self.items.get(&chunk) else {
            return;
        };
        if item.copies.len() >= usize::from(self.config.copies) {
            self.complete(chunk);
        } else if !self.ask_ranks(chunk) {
            self.end_round(now, chunk);
        }
    }

    /// Asks as many further ranks as copies are missing. Returns whether answers are pending.
    fn ask_ranks(&mut self, chunk: u32) -> bool {
        let Some(item) = self.items.get_mut(&chunk) else {
            return false;
        };
        let missing = usize::from(self.config.copies).saturating_sub(item.copies.len());
        while (item.round.open_ranks() as usize) < missing
            && let Some(rank) = item.round.next_rank(0)
        {
            item.round.ask(rank);
            self.queue.push_back(Ask { chunk, rank });
        }
        item.round.open_ranks() > 0
    }

    fn complete(&mut self, chunk: u32) {
        let Some(mut item) = self.items.remove(&chunk) else {
            return;
        };
        self.reconnect.note_progress();
        self.item_bytes -= item.length();
        debug_assert!(!self.items.is_empty() || self.item_bytes == 0);
        for rank in 0..RANKS {
            self.requests.cancel(Ask { chunk, rank });
        }
        item.copies.sort_unstable();
        let members = item.copies.into_iter().map(|(_, member)| member).collect();
        self.events
            .push_back(UploadEvent::Stored { chunk, members });
    }

    /// Ends a round in which every member was asked: the next one begins later, because members may
    /// join or come back, or the upload fails.
    fn end_round(&mut self, now: Time, chunk: u32) {
        let Some(item) = self.items.get_mut(&chunk) else {
            return;
        };
        let next = item.round.next();
        if next.number < self.config.rounds {
            self.reconnect.want(next.number);
            let delay = self.config.round_delay * u32::from(next.number);
            self.waits.insert((now + delay, chunk));
            (item.round, item.attempts) = (next, [0; RANKS as usize]);
            return;
        }
        let is_chunk = matches!(item.target, Target::One(Address::Chunk(_)));
        let error = UploadError::TooFewCopies {
            chunk: is_chunk.then_some(chunk),
            stored: item
                .copies
                .iter()
                .map(|(_, member)| member.clone())
                .collect(),
            wanted: self.config.copies,
            failures: item.failures.clone().into_iter().collect(),
            unanswered: item.round.unanswered(),
        };
        self.fail(error);
    }

    fn fail_silent(&mut self) {
        if let Some((&chunk, item)) = self.items.first_key_value() {
            let error = UploadError::Silent {
                after: self.config.silence_max,
                chunk,
                copies: item.copies.len(),
                wanted: self.config.copies,
            };
            self.fail(error);
        }
    }

    fn fail(&mut self, error: UploadError) {
        if !self.has_failed {
            self.has_failed = true;
            self.events.push_back(UploadEvent::Failed(error));
        }
        self.queue.clear();
    }
}

impl Item {
    /// Returns the length of the bytes; 0 if they were not read.
    fn length(&self) -> u64 {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    /// Returns whether the request of a rank is of use, and its bytes are there.
    fn can_send(&self, rank: u8) -> bool {
        self.round.is_open(rank) && (self.bytes.is_some() || !self.is_lacking(rank))
    }

    /// Returns whether the member of a rank gets the bytes, instead of a question for them.
    fn is_lacking(&self, rank: u8) -> bool {
        self.lacking >> rank & 1 == 1
    }

    /// Notes that the member of a rank lacks the bytes. Returns whether they are to be sent now.
    fn note_lack(&mut self, rank: u8) -> bool {
        let is_news = !self.is_lacking(rank) && self.round.is_open(rank);
        if is_news {
            self.lacking |= 1 << rank;
            self.attempts[usize::from(rank)] = 0;
        }
        is_news
    }

    fn request(&self, ask: Ask) -> Request {
        let (id, bytes) = (ask.id(), self.bytes.clone().unwrap_or_default());
        match self.target {
            Target::One(address) if !self.is_lacking(ask.rank) => Request::Query {
                id,
                query: Query::Holds {
                    addresses: vec![address],
                    is_deep: true,
                    refreshes: true,
                },
            },
            Target::One(address) => Request::Put { id, address, bytes },
            Target::If(name, expected) => Request::PutIf {
                id,
                name,
                expected,
                bytes,
            },
            Target::Names(hash) => Request::PutNames { id, hash, bytes },
        }
    }

    fn note_copy(&mut self, rank: u8, member: &MemberName) {
        self.failures.remove(member);
        if self.copies.iter().all(|(_, other)| other != member) {
            self.copies.push((rank, member.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
