//! The client's search for the newest manifest of a name.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use manyflow_core::{ConfigError, Time};

use crate::reconnect::Reconnect;
use crate::requests::{Ask, Requests};
use crate::round::Round;
use crate::{Address, Answer, DownloadError, Manifest, MemberName, Outcome, Request, StoreConfig};

/// The number of members that are asked at the same time.
const PARALLEL: u32 = 4;

/// Asks every member for the manifest of a name, and returns the newest one. A member that was away
/// while the name was put again holds an older one, so the first answer is not enough.
///
/// A `Lookup` does no I/O. It is driven like an [`Upload`](crate::Upload).
#[derive(Debug)]
pub struct Lookup {
    config: StoreConfig,
    name: String,
    requests: Requests,
    round: Round,
    queue: VecDeque<Ask>,
    has_repeated: bool,
    /// The newest manifest so far.
    newest: Option<(Bytes, Manifest)>,
    failures: BTreeMap<MemberName, String>,
    found: Option<Result<Found, DownloadError>>,
    is_over: bool,
    reconnect: Reconnect,
}

/// The outcome of a [`Lookup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest manifest; `None` if no member that answered has one.
    pub manifest: Option<Manifest>,
    /// The members that answered.
    pub members: Vec<MemberName>,
    /// The members that could not give their copy, and why.
    pub failures: BTreeMap<MemberName, String>,
    /// The number of ranks that did not answer. Above 0, the manifest may not be the newest one.
    pub unanswered: u32,
}

impl Lookup {
    /// Creates the search for a name.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(config: StoreConfig, name: &str, now: Time) -> Result<Lookup, ConfigError> {
        config.check()?;
        let mut lookup = Lookup {
            requests: Requests::new(&config, now),
            config,
            name: name.to_owned(),
            round: Round::default(),
            queue: VecDeque::new(),
            has_repeated: false,
            newest: None,
            failures: BTreeMap::new(),
            found: None,
            is_over: false,
            reconnect: Reconnect::default(),
        };
        lookup.advance();
        Ok(lookup)
    }

    /// Returns the outcome, once.
    pub fn poll_found(&mut self) -> Option<Result<Found, DownloadError>> {
        self.found.take()
    }

    /// Handles an answer.
    pub fn handle_answer(&mut self, now: Time, answer: &Answer) {
        let Some(ask) =
            Ask::of_id(answer.id).filter(|ask| ask.chunk < u32::from(self.config.rounds))
        else {
            return;
        };
        self.requests.answer(now, ask, self.has_repeated);
        match &answer.outcome {
            Outcome::Chunk(bytes) => self.handle_manifest(bytes),
            Outcome::Failed(reason) => {
                self.failures.insert(answer.member.clone(), reason.clone());
            }
            Outcome::Stored | Outcome::Missing | Outcome::Conflict(_) | Outcome::Reply(_) => {}
        }
        if ask.chunk == u32::from(self.round.number) {
            self.round.answer(ask.rank, &answer.member);
        }
        self.advance();
    }

    /// Keeps a manifest if it is sound, has the right name, and is newer than the others.
    fn handle_manifest(&mut self, bytes: &Bytes) {
        let Some(manifest) = Manifest::decode(bytes)
            .ok()
            .filter(|other| other.name == self.name)
        else {
            return;
        };
        let newest = self.newest.as_ref();
        if newest.is_none_or(|(newest, _)| Manifest::is_newer(bytes, newest)) {
            self.newest = Some((bytes.clone(), manifest));
        }
    }

    /// Returns whether the caller should give the connection up and open another one, once if no
    /// member has the name, and once if no answer comes for half of
    /// [`silence_max`](StoreConfig::silence_max). A switch gives members up for the rest of a
    /// connection, so another one may reach more of them.
    pub fn poll_reconnect(&mut self) -> bool {
        self.reconnect.poll()
    }

    /// Handles the loss of the connection: every request without an answer is sent again over the
    /// next one.
    pub fn handle_reconnect(&mut self) {
        self.reconnect.note_done();
        self.queue.extend(self.requests.take_all());
    }

    /// Handles the timers that are due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.requests.is_silent(now) {
            let after = self.config.silence_max;
            self.end(Err(DownloadError::Silent { after }));
            return;
        }
        if self.requests.is_stuck(now) {
            self.reconnect.want_at_once();
        }
        while let Some(ask) = self.requests.expire(now) {
            self.has_repeated = true;
            self.round.give_up(ask.rank);
        }
        self.advance();
    }

    /// Returns when to call [`handle_timeout`](Lookup::handle_timeout) next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_over {
            None
        } else {
            self.requests.poll_timeout()
        }
    }

    /// Returns the next request to send and the key of its frame.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u32, Request)> {
        if self.is_over {
            return None;
        }
        let ask = self.queue.pop_front()?;
        self.requests.start(now, ask, 1);
        let address = Address::of_name(&self.name);
        let request = Request::Get {
            id: ask.id(),
            address,
        };
        Some((address.key(ask.rank), request))
    }

    /// Asks further ranks. After the last one, ends the search, or begins another round if ranks
    /// have not answered.
    fn advance(&mut self) {
        let chunk = u32::from(self.round.number);
        while self.round.open_ranks() < PARALLEL
            && let Some(rank) = self.round.next_rank(0)
        {
            self.round.ask(rank);
            self.queue.push_back(Ask { chunk, rank });
        }
        if self.round.open_ranks() > 0 || self.is_over {
            return;
        }
        let next = self.round.next();
        let is_new = self.newest.is_none() && next.number == 1;
        if (is_new || self.round.unanswered() > 0) && next.number < self.config.rounds {
            if is_new {
                self.reconnect.want(2);
            }
            self.round = next;
            self.advance();
            return;
        }
        let found = Found {
            manifest: self.newest.take().map(|(_, manifest)| manifest),
            members: self.round.members(),
            failures: std::mem::take(&mut self.failures),
            unanswered: self.round.unanswered(),
        };
        self.end(Ok(found));
    }

    fn end(&mut self, found: Result<Found, DownloadError>) {
        if !self.is_over {
            (self.found, self.is_over) = (Some(found), true);
        }
    }
}

#[cfg(test)]
mod tests;
