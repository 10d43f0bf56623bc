//! Questions to every member of the service.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use manyflow_core::{ConfigError, Time};

use crate::reconnect::Reconnect;
use crate::requests::{Ask, Requests};
use crate::round::Round;
use crate::{
    Address, Answer, DownloadError, Hash, MemberName, Outcome, Query, Reply, Request, StoreConfig,
};

/// The number of members that are asked one question at the same time.
const PARALLEL_MEMBERS: u32 = 4;
/// The number of questions that are asked at the same time.
const PARALLEL_QUERIES: usize = 8;

/// Asks every member the same questions, and collects their answers.
///
/// A `Survey` does no I/O. It is driven like an [`Upload`](crate::Upload);
/// [`poll_surveyed`](Survey::poll_surveyed) returns the answers to each question.
#[derive(Debug)]
pub struct Survey {
    config: StoreConfig,
    requests: Requests,
    /// Questions that were begun, by number.
    items: BTreeMap<u32, Item>,
    /// Questions that were not begun.
    waiting: VecDeque<(u32, Query)>,
    next: u32,
    queue: VecDeque<Ask>,
    /// The number of members that answered the last question that all answered.
    members: Option<usize>,
    surveyed: VecDeque<Surveyed>,
    failure: Option<DownloadError>,
    has_failed: bool,
    reconnect: Reconnect,
}

/// The answers of all members to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// The number of the question: what [`Survey::add`] returned.
    pub query: u32,
    /// The answers.
    pub replies: BTreeMap<MemberName, Reply>,
    /// The members that could not answer, and why.
    pub failures: BTreeMap<MemberName, String>,
    /// Whether every member that the connection reaches has answered. With more members than
    /// [`RANKS`](crate::RANKS), nobody knows.
    pub is_complete: bool,
}

#[derive(Debug)]
struct Item {
    query: Query,
    round: Round,
    replies: BTreeMap<MemberName, Reply>,
    failures: BTreeMap<MemberName, String>,
    was_repeated: bool,
}

impl Item {
    /// Notes the answer of a member. Ranks beyond the number of members ask one of them twice, and
    /// it removes bytes only once.
    fn note_reply(&mut self, member: &MemberName, reply: &Reply) {
        match (self.replies.get_mut(member), reply) {
            (
                Some(Reply::Removed { count, bytes }),
                Reply::Removed {
                    count: more,
                    bytes: more_bytes,
                },
            ) => {
                *count += more;
                *bytes += more_bytes;
            }
            _ => {
                self.replies.insert(member.clone(), reply.clone());
            }
        }
    }

    fn members(&self) -> BTreeSet<&MemberName> {
        self.replies.keys().chain(self.failures.keys()).collect()
    }
}

impl Survey {
    /// Creates a survey without questions.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(config: StoreConfig, now: Time) -> Result<Survey, ConfigError> {
        config.check()?;
        Ok(Survey {
            requests: Requests::new(&config, now),
            config,
            items: BTreeMap::new(),
            waiting: VecDeque::new(),
            next: 0,
            queue: VecDeque::new(),
            members: None,
            surveyed: VecDeque::new(),
            failure: None,
            has_failed: false,
            reconnect: Reconnect::default(),
        })
    }

    /// Adds a question, and returns its number.
    ///
    /// # Panics
    /// Panics after 2^32 questions.
    pub fn add(&mut self, query: Query) -> u32 {
        let number = self.next;
        self.next = number
            .checked_add(1)
            .expect("there are fewer than 2^32 questions");
        self.waiting.push_back((number, query));
        self.begin_queries();
        number
    }

    /// Returns whether every question has been answered, and every answer was read.
    pub fn is_idle(&self) -> bool {
        self.has_failed
            || self.items.is_empty() && self.waiting.is_empty() && self.surveyed.is_empty()
    }

    /// Returns the number of questions that were not answered.
    pub fn pending(&self) -> usize {
        self.items.len() + self.waiting.len()
    }

    /// Returns the answers to a question.
    pub fn poll_surveyed(&mut self) -> Option<Surveyed> {
        self.surveyed.pop_front()
    }

    /// Returns the reason for which the survey has failed, once.
    pub fn poll_failure(&mut self) -> Option<DownloadError> {
        self.failure.take()
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
        self.requests.answer(now, ask, item.was_repeated);
        item.round.answer(ask.rank, &answer.member);
        match &answer.outcome {
            Outcome::Reply(reply) => {
                item.failures.remove(&answer.member);
                item.note_reply(&answer.member, reply);
            }
            Outcome::Failed(reason) => {
                item.failures.insert(answer.member.clone(), reason.clone());
            }
            _ => {
                let reason = "it does not understand the question; update it".to_owned();
                item.failures.insert(answer.member.clone(), reason);
            }
        }
        self.advance(ask.chunk);
    }

    /// Returns whether the caller should give the connection up and open another one, once for each
    /// time that members seem to be missing, or that no answer comes for half of
    /// [`silence_max`](StoreConfig::silence_max).
    pub fn poll_reconnect(&mut self) -> bool {
        self.reconnect.poll()
    }

    /// Handles the loss of the connection: every request without an answer is sent again over the
    /// next one.
    pub fn handle_reconnect(&mut self) {
        self.reconnect.note_done();
        self.members = None;
        self.queue.extend(self.requests.take_all());
    }

    /// Handles the timers that are due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.requests.is_silent(now) && !self.has_failed {
            let after = self.config.silence_max;
            (self.failure, self.has_failed) = (Some(DownloadError::Silent { after }), true);
            return;
        }
        if self.requests.is_stuck(now) {
            self.reconnect.want_at_once();
        }
        while let Some(ask) = self.requests.expire(now) {
            if let Some(item) = self.items.get_mut(&ask.chunk) {
                item.was_repeated = true;
                item.round.give_up(ask.rank);
                self.advance(ask.chunk);
            }
        }
    }

    /// Returns when to call [`handle_timeout`](Survey::handle_timeout) next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.has_failed {
            true => None,
            false => self.requests.poll_timeout(),
        }
    }

    /// Returns the next request to send and the key of its frame.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u32, Request)> {
        while !self.has_failed
            && let Some(ask) = self.queue.pop_front()
        {
            let Some(item) = self.items.get(&ask.chunk) else {
                continue;
            };
            if !item.round.is_open(ask.rank) {
                continue;
            }
            self.requests.start(now, ask, 1);
            let request = Request::Query {
                id: ask.id(),
                query: item.query.clone(),
            };
            return Some((key(ask), request));
        }
        None
    }

    fn begin_queries(&mut self) {
        while self.items.len() < PARALLEL_QUERIES
            && let Some((number, query)) = self.waiting.pop_front()
        {
            let item = Item {
                query,
                round: Round::default(),
                replies: BTreeMap::new(),
                failures: BTreeMap::new(),
                was_repeated: false,
            };
            self.items.insert(number, item);
            self.advance(number);
        }
    }

    /// Asks further ranks. After the last one, reports the answers, or begins another round if
    /// ranks have not answered.
    fn advance(&mut self, number: u32) {
        let Some(item) = self.items.get_mut(&number) else {
            return;
        };
        while item.round.open_ranks() < PARALLEL_MEMBERS
            && let Some(rank) = item.round.next_rank(0)
        {
            // Beyond the known number of members, ranks repeat.
            let is_beyond = self
                .members
                .is_some_and(|members| usize::from(rank) >= members);
            if is_beyond
                && (item.round.open_ranks() > 0 || Some(item.members().len()) == self.members)
            {
                break;
            }
            item.round.ask(rank);
            self.queue.push_back(Ask {
                chunk: number,
                rank,
            });
        }
        if item.round.open_ranks() > 0 {
            return;
        }
        let has_all = item.round.is_full_circle() || Some(item.members().len()) == self.members;
        // A rank without an answer is that of another member.
        let is_complete = has_all && item.round.unanswered() == 0;
        let next = item.round.next();
        if !is_complete && item.round.unanswered() > 0 && next.number < self.config.rounds {
            self.reconnect.want(next.number);
            item.round = next;
            self.advance(number);
            return;
        }
        self.end(number, is_complete);
    }

    fn end(&mut self, number: u32, is_complete: bool) {
        let Some(item) = self.items.remove(&number) else {
            return;
        };
        self.reconnect.note_progress();
        self.members = is_complete.then(|| item.members().len());
        debug_assert!(self.members != Some(0), "a member has answered");
        self.surveyed.push_back(Surveyed {
            query: number,
            replies: item.replies,
            failures: item.failures,
            is_complete,
        });
        self.begin_queries();
    }
}

/// Returns the key of a request. Questions go to the members in different orders.
fn key(ask: Ask) -> u32 {
    Address::Chunk(Hash::of(&ask.chunk.to_be_bytes())).key(ask.rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Service, name};
    use crate::{RANKS, Usage};

    /// Runs a survey until it is idle, without the answers of `deaf`.
    fn run(survey: &mut Survey, service: &mut Service, deaf: Option<usize>) -> Vec<Surveyed> {
        let mut now = Time::ZERO;
        let mut surveyed = Vec::new();
        loop {
            while let Some((key, request)) = survey.poll_transmit(now) {
                let answer = service.handle(key, &request);
                if deaf.is_none_or(|deaf| answer.member != name(deaf)) {
                    survey.handle_answer(now, &answer);
                }
            }
            surveyed.extend(std::iter::from_fn(|| survey.poll_surveyed()));
            if survey.is_idle() {
                return surveyed;
            }
            now = survey.poll_timeout().expect("the survey waits");
            survey.handle_timeout(now);
        }
    }

    fn new() -> Survey {
        Survey::new(StoreConfig::default(), Time::ZERO).unwrap()
    }

    #[test]
    fn every_member_answers_every_question() {
        for members in [1, 2, 5, 15] {
            let mut service = Service::new(members);
            let mut survey = new();
            let numbers: Vec<_> = (0..20).map(|_| survey.add(Query::Usage)).collect();
            let surveyed = run(&mut survey, &mut service, None);
            assert_eq!(surveyed.len(), 20);
            for answers in &surveyed {
                assert!(answers.is_complete && numbers.contains(&answers.query));
                assert_eq!(answers.replies.len(), members);
                let usage = Reply::Usage(Usage::default());
                assert!(answers.replies.values().all(|reply| *reply == usage));
            }
        }
    }

    #[test]
    fn bytes_that_were_removed_are_counted_although_a_member_is_asked_twice() {
        let mut service = Service::new(3);
        let (manifest, _) = service.store(10, 100, 2);
        let items = manifest.chunks.iter().map(|c| (Address::Chunk(c.hash), 0));
        let mut survey = new();
        survey.add(Query::Remove {
            age_s: 0,
            member: None,
            items: items.collect(),
        });
        let surveyed = run(&mut survey, &mut service, None);
        let removed = surveyed[0].replies.values().map(|reply| match reply {
            Reply::Removed { count, .. } => *count,
            other => panic!("{other:?}"),
        });
        assert_eq!(removed.sum::<u32>(), 20);
    }

    #[test]
    fn a_member_that_does_not_answer_makes_the_survey_incomplete() {
        let mut service = Service::new(4);
        let mut survey = new();
        survey.add(Query::Usage);
        let surveyed = run(&mut survey, &mut service, Some(2));
        assert!(!surveyed[0].is_complete);
        assert_eq!(surveyed[0].replies.len(), 3);
        // Another connection does not have the member.
        service.members[2] = None;
        survey.handle_reconnect();
        survey.add(Query::Usage);
        assert!(run(&mut survey, &mut service, None)[0].is_complete);
    }

    #[test]
    fn nobody_knows_whether_more_members_than_ranks_have_answered() {
        let mut service = Service::new(usize::from(RANKS) + 1);
        let mut survey = new();
        survey.add(Query::Usage);
        assert!(!run(&mut survey, &mut service, None)[0].is_complete);
    }

    #[test]
    fn a_service_without_answers_fails_the_survey() {
        let mut survey = new();
        survey.add(Query::Usage);
        let mut now = Time::ZERO;
        while !survey.is_idle() {
            while survey.poll_transmit(now).is_some() {}
            now = survey.poll_timeout().expect("the survey waits");
            survey.handle_timeout(now);
        }
        let silent = survey.poll_failure();
        assert!(
            matches!(silent, Some(DownloadError::Silent { .. })),
            "{silent:?}"
        );
    }
}
