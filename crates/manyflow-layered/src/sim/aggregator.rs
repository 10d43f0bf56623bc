//! The aggregator of a router: collects the feedback of its subtree and passes on one summary for
//! each group (section III-A4).

use core::time::Duration;
use std::collections::VecDeque;

use super::round::Round;
use crate::Event;
use crate::{Feedback, Message};
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
    round: Round,
    /// The time until which answers of the round are awaited; `None` if they have been passed on.
    deadline: Option<Time>,
    /// Whether it has joined the lowest group. It needs the requests only while receivers below it
    /// answer them.
    is_joined: bool,
    actions: VecDeque<Action<Message>>,
}

impl Aggregator {
    /// Creates an aggregator of `session`, which reports to `parent` with the number `id`.
    pub fn new(session: u32, id: u32, parent: EndpointId) -> Aggregator {
        Aggregator {
            session,
            id,
            parent,
            round: Round::new(),
            deadline: None,
            is_joined: false,
            actions: VecDeque::new(),
        }
    }

    /// Sets the number of children that are known to answer the following requests. A round is not
    /// complete before that many have answered, even if none of them has reported before. Initially
    /// 0: children are known by their reports alone.
    pub fn set_awaited(&mut self, children: usize) {
        self.round.awaited = children;
    }

    fn base(&self) -> Channel {
        Channel {
            session: self.session,
            number: 0,
        }
    }

    /// Handles a new request: passes on the remaining reports of the previous round, and begins a
    /// new one.
    fn on_request(&mut self, now: Time, request: u16, session_rtt: Duration) {
        if !self.round.is_newer(request) {
            return;
        }
        if self.deadline.is_some() {
            self.send_summaries(now);
        }
        self.round.begin(request, Some(now));
        // The wait is twice the longest round-trip time to the receivers below, or of the session
        // until one is measured.
        let rtt = match self.round.longest_rtt() {
            Duration::ZERO => session_rtt,
            known => known,
        };
        self.deadline = Some(now + WAIT_MIN.max(2 * rtt));
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback) {
        self.set_joined(true);
        if self.round.is_newer(feedback.request) {
            // The request was not seen here, so this round has no time from which to measure.
            if self.deadline.is_some() {
                self.send_summaries(now);
            }
            self.round.begin(feedback.request, None);
            self.deadline = Some(now + WAIT_MIN.max(2 * self.round.longest_rtt()));
        }
        self.round.add(now, feedback);
        if feedback.population == 0 && self.round.is_childless() {
            self.deadline = None;
            let source = self.id;
            let feedback = Feedback {
                source,
                ..*feedback
            };
            self.actions.push_back(report(self.parent, feedback));
            self.set_joined(false);
        }
        if self.deadline.is_some() && self.round.is_complete() {
            self.send_summaries(now);
        }
    }

    /// Sends the parent a summary for each group with reports. An aggregator without children
    /// leaves the lowest group, because it needs no requests.
    fn send_summaries(&mut self, now: Time) {
        self.deadline = None;
        if self.round.is_childless() {
            self.set_joined(false);
        }
        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        let hold_us = self.round.opened().map_or(0, |opened| micros(now - opened));
        // The first summary states the longest round-trip time of all, even if its receiver is
        // late. Otherwise the sender would take the session for shorter when a report is missing.
        let longest = self.round.longest_rtt();
        let last = self.round.summaries().count();
        for (place, (group, summary)) in self.round.summaries().enumerate() {
            let feedback = Feedback {
                source: self.id,
                session: self.session,
                group,
                more: place + 1 < last,
                request: self.round.request(),
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
            Message::Data(data) => {
                let session_rtt = Duration::from_micros(data.rtt_us.into());
                self.on_request(now, data.request, session_rtt);
            }
            Message::Feedback(feedback) if feedback.session == self.session => {
                self.on_feedback(now, feedback);
            }
            Message::Feedback(_) | Message::Experiment(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.send_summaries(now);
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
