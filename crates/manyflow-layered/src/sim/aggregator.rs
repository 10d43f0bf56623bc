//! The aggregator of a router: collects the feedback of its subtree and passes on one summary for
//! each group (section III-A4).

use core::time::Duration;
use std::collections::VecDeque;

use super::round::Round;
use crate::Event;
use crate::{Data, Feedback, Message};
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, EndpointId, Packet};

/// The shortest time for which an aggregator waits for answers: its queues and clocks are no more
/// precise.
const WAIT_MIN: Duration = Duration::from_millis(2);

/// An aggregator of one session. Its reports carry its own number as source. They reveal nothing
/// about single receivers except the lowest and highest received rates.
#[derive(Debug)]
pub struct Aggregator {
    session: u32,
    id: u32,
    parent: EndpointId,
    /// The round of the session, or those of its groups.
    parts: Vec<Part>,
    /// Whether requests are for the receivers with one top group.
    is_by_group: bool,
    /// Whether it has joined the lowest group. It needs the requests only while receivers below it
    /// answer them.
    is_joined: bool,
    actions: VecDeque<Action<Message>>,
}

/// The present round of the receivers that share requests.
#[derive(Debug)]
struct Part {
    round: Round,
    /// The time until which answers of the round are awaited; `None` if they have been passed on.
    deadline: Option<Time>,
    /// Whether an early report of the round has been passed on.
    has_early: bool,
}

impl Part {
    fn new() -> Part {
        Part {
            round: Round::new(),
            deadline: None,
            has_early: false,
        }
    }

    /// Begins the round of a request that passed here at `opened`. The answers are awaited for
    /// twice the longest round-trip time to the receivers below; `unknown` is taken for it until
    /// one is measured.
    fn begin(&mut self, now: Time, request: u16, opened: Option<Time>, unknown: Duration) {
        self.round.begin(request, opened);
        self.has_early = false;
        let rtt = match self.round.longest_rtt() {
            Duration::ZERO => unknown,
            known => known,
        };
        self.deadline = Some(now + WAIT_MIN.max(2 * rtt));
    }
}

impl Aggregator {
    /// Creates an aggregator of `session`, which reports to `parent` with the number `id`.
    pub fn new(session: u32, id: u32, parent: EndpointId) -> Aggregator {
        Aggregator {
            session,
            id,
            parent,
            parts: vec![Part::new()],
            is_by_group: false,
            is_joined: false,
            actions: VecDeque::new(),
        }
    }

    /// Sets the number of children that are known to answer the requests that follow like that of
    /// `data`. A round is not complete before that many have answered, even if none of them has
    /// reported before. Initially 0: children are known by their reports alone.
    pub fn set_awaited(&mut self, data: &Data, children: usize) {
        let place = self.place_of(data);
        self.parts[place].round.awaited = children;
    }

    /// Returns the place of the round that a packet of data belongs to. Begins again if the sender
    /// has changed from requests for the session to those for groups, or back.
    fn place_of(&mut self, data: &Data) -> usize {
        if data.is_for_group != self.is_by_group {
            self.is_by_group = data.is_for_group;
            self.parts = vec![Part::new()];
        }
        self.place(data.group)
    }

    /// Returns the place of the round of receivers with this top group.
    fn place(&mut self, group: u8) -> usize {
        let place = if self.is_by_group { group.into() } else { 0 };
        if self.parts.len() <= place {
            self.parts.resize_with(place + 1, Part::new);
        }
        place
    }

    fn base(&self) -> Channel {
        Channel {
            session: self.session,
            number: 0,
        }
    }

    /// Handles a new request: passes on the remaining reports of the previous round, and begins a
    /// new one.
    fn on_request(&mut self, now: Time, data: &Data) {
        let place = self.place_of(data);
        if !self.parts[place].round.is_newer(data.request) {
            return;
        }
        if self.parts[place].deadline.is_some() {
            self.send_summaries(now, place);
        }
        let stated = Duration::from_micros(data.rtt_us.into());
        self.parts[place].begin(now, data.request, Some(now), stated);
    }

    /// Passes on the first early report of a round at once.
    fn on_early(&mut self, feedback: &Feedback) {
        let place = self.place(feedback.group);
        if !core::mem::replace(&mut self.parts[place].has_early, true) {
            let source = self.id;
            let feedback = Feedback {
                source,
                ..*feedback
            };
            self.actions.push_back(report(self.parent, feedback));
        }
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback) {
        self.set_joined(true);
        let place = self.place(feedback.group);
        if self.parts[place].round.is_newer(feedback.request) {
            // The request was not seen here, so this round has no time from which to measure.
            if self.parts[place].deadline.is_some() {
                self.send_summaries(now, place);
            }
            self.parts[place].begin(now, feedback.request, None, Duration::ZERO);
        }
        self.parts[place].round.add(now, feedback);
        if feedback.is_of_receiver() {
            self.forget_elsewhere(now, place, feedback.source);
        }
        if feedback.population == 0 && self.is_childless() {
            self.parts.iter_mut().for_each(|part| part.deadline = None);
            let source = self.id;
            let feedback = Feedback {
                source,
                ..*feedback
            };
            self.actions.push_back(report(self.parent, feedback));
            self.set_joined(false);
        }
        self.send_if_complete(now, place);
    }

    /// Returns whether no child is known.
    fn is_childless(&self) -> bool {
        self.parts.iter().all(|part| part.round.is_childless())
    }

    /// Handles a receiver that reports about another top group than before: it is no longer awaited
    /// in the rounds of the former one.
    fn forget_elsewhere(&mut self, now: Time, place: usize, source: u32) {
        for other in (0..self.parts.len()).filter(|other| *other != place) {
            if self.parts[other].round.forget(source) {
                self.send_if_complete(now, other);
            }
        }
    }

    fn send_if_complete(&mut self, now: Time, place: usize) {
        let Part {
            round, deadline, ..
        } = &self.parts[place];
        if deadline.is_some() && round.is_complete() {
            self.send_summaries(now, place);
        }
    }

    /// Sends the parent a summary for each group with reports. An aggregator without children
    /// leaves the lowest group, because it needs no requests.
    fn send_summaries(&mut self, now: Time, place: usize) {
        self.parts[place].deadline = None;
        if self.is_childless() {
            self.set_joined(false);
        }
        let round = &self.parts[place].round;
        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        let hold_us = round.opened().map_or(0, |opened| micros(now - opened));
        // The first summary states the longest round-trip time of all, even if its receiver is
        // late. Otherwise the sender would take the session for shorter when a report is missing.
        let longest = round.longest_rtt();
        let last = round.summaries().count();
        for (place, (group, summary)) in round.summaries().enumerate() {
            let feedback = Feedback {
                source: self.id,
                session: self.session,
                group,
                more: place + 1 < last,
                request: round.request(),
                reports: summary.reports,
                congested: summary.congested,
                minimum: summary.minimum,
                maximum: summary.maximum,
                population: summary.population,
                hold_us,
                rtt_us: micros(if place == 0 { longest } else { summary.rtt }),
            };
            self.actions.push_back(report(self.parent, feedback));
        }
    }

    fn set_joined(&mut self, joined: bool) {
        if joined != self.is_joined {
            self.is_joined = joined;
            self.actions.push_back(match joined {
                true => Action::Join(self.base()),
                false => Action::Leave(self.base()),
            });
        }
    }
}

/// Returns the sending of a report.
fn report(to: EndpointId, feedback: Feedback) -> Action<Message> {
    let to = Destination::Endpoint(to);
    Action::Send(Packet::new(to, Message::Feedback(feedback), 0))
}

impl Endpoint for Aggregator {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        match &packet.header {
            Message::Data(data) => self.on_request(now, data),
            Message::Feedback(feedback) if feedback.session == self.session => {
                match feedback.is_early() {
                    true => self.on_early(feedback),
                    false => self.on_feedback(now, feedback),
                }
            }
            Message::Feedback(_) | Message::Experiment(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for place in 0..self.parts.len() {
            let deadline = self.parts[place].deadline;
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.send_summaries(now, place);
            }
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let deadlines = self.parts.iter().filter_map(|part| part.deadline);
        deadlines.min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
