//! The feedback of one round: the summary of each group, and the children that have reported
//! (section III-A4).

use core::time::Duration;

use crate::{Feedback, GROUPS_MAX};
use manyflow_core::time::Time;

/// The number of rounds that a child may miss before it is forgotten, and the number of rounds
/// after which an answer is too late.
const PATIENCE_ROUNDS: u16 = 4;

/// The number of rounds after which a report says nothing about the present ones: ten seconds, the
/// longest round-trip time, in rounds of the shortest.
pub(crate) const LATE_ROUNDS: u16 = 5000;

/// The sum of the reports about one group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) reports: u32,
    pub(super) congested: u32,
    pub(super) minimum: u32,
    pub(super) maximum: u32,
    pub(super) population: u32,
    /// The longest known round-trip time to a receiver that has reported.
    pub(super) rtt: Duration,
}

impl Summary {
    const NONE: Summary = Summary {
        reports: 0,
        congested: 0,
        minimum: u32::MAX,
        maximum: 0,
        population: 0,
        rtt: Duration::ZERO,
    };

    fn add(&mut self, feedback: &Feedback, rtt: Duration) {
        self.rtt = self.rtt.max(rtt);
        self.reports = self.reports.saturating_add(feedback.reports);
        self.congested = self
            .congested
            .saturating_add(feedback.congested.min(feedback.reports));
        self.minimum = self.minimum.min(feedback.minimum);
        self.maximum = self.maximum.max(feedback.maximum);
        self.population = self.population.saturating_add(feedback.population);
    }
}

/// A receiver or aggregator below, which has reported lately.
#[derive(Copy, Clone, Debug)]
struct Child {
    source: u32,
    /// The last request whose answer is complete.
    answered: u16,
    /// The present request when the last answer of any kind arrived.
    heard: u16,
    /// The request of the last answer, and the longest round-trip time that the child states in its
    /// answers to it.
    measured: u16,
    below: Duration,
    /// The longest round-trip time to the receivers below the child.
    rtt: Duration,
}

/// The reports of the present round, and the children that send them.
#[derive(Debug)]
pub(super) struct Round {
    request: u16,
    /// When this request and the ones before it passed here, newest first, in any of the groups up
    /// to each; `None` for a request of which only answers were seen.
    opened: [[Option<Time>; GROUPS_MAX as usize]; PATIENCE_ROUNDS as usize],
    summaries: [Summary; GROUPS_MAX as usize],
    children: Vec<Child>,
    /// The number of children that must answer before the round can be complete.
    pub(super) awaited: usize,
}

impl Round {
    pub(super) fn new() -> Round {
        Round {
            request: 0,
            opened: [[None; GROUPS_MAX as usize]; PATIENCE_ROUNDS as usize],
            summaries: [Summary::NONE; GROUPS_MAX as usize],
            children: Vec::new(),
            awaited: 0,
        }
    }

    /// Returns the present request; 0 before the first.
    pub(super) fn request(&self) -> u16 {
        self.request
    }

    /// Returns whether `request` is newer than the present one, modulo 2^16.
    pub(super) fn is_newer(&self, request: u16) -> bool {
        request != 0 && (self.request == 0 || (request.wrapping_sub(self.request) as i16) > 0)
    }

    /// Begins the round of `request`, which passed here at `opened`. Forgets children that have
    /// been silent for too long.
    pub(super) fn begin(&mut self, request: u16, opened: Option<Time>) {
        let ahead = request.wrapping_sub(self.request).min(PATIENCE_ROUNDS);
        self.opened.rotate_right(ahead.into());
        self.opened[..usize::from(ahead)].fill([None; GROUPS_MAX as usize]);
        self.opened[0] = [opened; GROUPS_MAX as usize];
        self.request = request;
        self.summaries = [Summary::NONE; GROUPS_MAX as usize];
        self.children
            .retain(|child| request.wrapping_sub(child.heard) <= PATIENCE_ROUNDS);
    }

    /// Adds a report that arrived at `now`. A late report, which answers an earlier request, counts
    /// for this round until the child answers the present request: the reports of a receiver behind
    /// a long queue are always late. A report that is too late to count still shows how long the
    /// rounds have to be: a receiver with a longer round-trip time has joined. A report of no
    /// receivers says that the child has left, so that it is no longer awaited.
    pub(super) fn add(&mut self, now: Time, feedback: &Feedback) {
        if feedback.population == 0 {
            self.children
                .retain(|child| child.source != feedback.source);
            return;
        }
        let age = self.request.wrapping_sub(feedback.request);
        if age >= PATIENCE_ROUNDS {
            self.add_too_late(now, age, feedback);
            return;
        }
        let span = self.measure(now, age, feedback);
        let below = Duration::from_micros(feedback.rtt_us.into());
        let present = self.request;
        let child = self.child(feedback.source);
        child.heard = present;
        // An aggregator states a round-trip time for each group.
        let is_first =
            core::mem::replace(&mut child.measured, feedback.request) != feedback.request;
        child.below = if is_first {
            below
        } else {
            child.below.max(below)
        };
        let rtt = span.map_or(child.rtt, |span| span + below);
        child.rtt = span.map_or(child.rtt, |span| span + child.below);
        if child.answered == present {
            return;
        }
        if !feedback.more {
            child.answered = present;
        }
        if let Some(summary) = self.summaries.get_mut(usize::from(feedback.group)) {
            summary.add(feedback, rtt);
        }
    }

    /// Handles a report that is too late to count. The round-trip time of its child is longer than
    /// the rounds for which requests are known.
    fn add_too_late(&mut self, now: Time, age: u16, feedback: &Feedback) {
        let oldest = PATIENCE_ROUNDS - 1;
        if age >= LATE_ROUNDS {
            return;
        }
        let Some(span) = self.measure(now, oldest, feedback) else {
            return;
        };
        let present = self.request;
        let child = self.child(feedback.source);
        child.heard = present;
        child.rtt = child.rtt.max(span);
    }

    fn child(&mut self, source: u32) -> &mut Child {
        let known = self
            .children
            .iter()
            .position(|child| child.source == source);
        let place = known.unwrap_or_else(|| {
            self.children.push(Child {
                source,
                answered: 0,
                heard: self.request,
                measured: 0,
                below: Duration::ZERO,
                rtt: Duration::ZERO,
            });
            self.children.len() - 1
        });
        &mut self.children[place]
    }

    /// Returns the round-trip time to a child: the time from the passing of the request to the
    /// answer, without the time for which the child held it.
    fn measure(&self, now: Time, age: u16, feedback: &Feedback) -> Option<Duration> {
        // Aggregators have joined the lowest group only, receivers the groups up to theirs.
        let top = if feedback.is_of_receiver() {
            feedback.group
        } else {
            0
        };
        let opened = self.opened[usize::from(age)].get(usize::from(top))?;
        let span = now - (*opened)?;
        let held = Duration::from_micros(feedback.hold_us.into());
        Some(span.saturating_sub(held))
    }

    /// Records that the request passes here at `now` in a packet of `group`, unless it has done so
    /// before.
    pub(super) fn open(&mut self, now: Time, group: u8) {
        for opened in &mut self.opened[0][usize::from(group)..] {
            opened.get_or_insert(now);
        }
    }

    /// Returns whether the request has passed here in a packet that the receivers of this group
    /// get.
    pub(super) fn is_open(&self, group: u8) -> bool {
        let opened = self.opened[0].get(usize::from(group));
        opened.is_some_and(Option::is_some)
    }

    /// Forgets a receiver that has changed its top group and is no longer awaited here. Returns
    /// whether it was known.
    pub(super) fn forget(&mut self, source: u32) -> bool {
        let before = self.children.len();
        self.children.retain(|child| child.source != source);
        self.children.len() < before
    }

    /// Returns whether any report has arrived in this round.
    pub(super) fn has_reports(&self) -> bool {
        self.summaries().next().is_some()
    }

    /// Returns whether no child is known.
    pub(super) fn is_childless(&self) -> bool {
        self.children.is_empty()
    }

    /// Returns whether all known children have answered, and as many as are awaited.
    pub(super) fn is_complete(&self) -> bool {
        self.children.len() >= self.awaited
            && self
                .children
                .iter()
                .all(|child| child.answered == self.request)
    }

    /// Returns the longest known round-trip time to a receiver below.
    pub(super) fn longest_rtt(&self) -> Duration {
        let rtts = self.children.iter().map(|child| child.rtt);
        rtts.max().unwrap_or(Duration::ZERO)
    }

    /// Returns when the request passed here.
    pub(super) fn opened(&self) -> Option<Time> {
        self.opened[0][0]
    }

    /// Iterates over the groups with reports, and the summaries of these reports.
    pub(super) fn summaries(&self) -> impl Iterator<Item = (u8, &Summary)> {
        let groups = (0..GROUPS_MAX).zip(&self.summaries);
        groups.filter(|(_, summary)| summary.reports > 0)
    }
}
