//! The feedback of one round: what has come of each group, and from whom (section III-A4).

use core::time::Duration;

use crate::{Feedback, GROUPS_MAX};
use manyflow_core::time::Time;

/// Rounds that a child may miss before it is forgotten, and that an answer may be late.
const PATIENCE_ROUNDS: u16 = 4;

/// What reports of one group add up to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) reports: u32,
    pub(super) congested: u32,
    pub(super) minimum: u32,
    pub(super) maximum: u32,
    pub(super) population: u32,
}

impl Summary {
    const NONE: Summary = Summary {
        reports: 0,
        congested: 0,
        minimum: u32::MAX,
        maximum: 0,
        population: 0,
    };

    fn add(&mut self, feedback: &Feedback) {
        self.reports = self.reports.saturating_add(feedback.reports);
        self.congested = self
            .congested
            .saturating_add(feedback.congested.min(feedback.reports));
        self.minimum = self.minimum.min(feedback.minimum);
        self.maximum = self.maximum.max(feedback.maximum);
        self.population = self.population.saturating_add(feedback.population);
    }
}

/// Who has reported lately.
#[derive(Copy, Clone, Debug)]
struct Child {
    source: u32,
    /// The last request whose answer is complete.
    answered: u16,
    /// The last request that it answered at all.
    heard: u16,
    /// The longest round-trip time to the receivers below it.
    rtt: Duration,
}

/// The reports of the present round, and those who send them.
#[derive(Debug)]
pub(super) struct Round {
    request: u16,
    /// When this request and those before it passed here, the newest first; `None` where only
    /// answers have come.
    opened: [Option<Time>; PATIENCE_ROUNDS as usize],
    summaries: [Summary; GROUPS_MAX as usize],
    children: Vec<Child>,
}

impl Round {
    pub(super) fn new() -> Round {
        Round {
            request: 0,
            opened: [None; PATIENCE_ROUNDS as usize],
            summaries: [Summary::NONE; GROUPS_MAX as usize],
            children: Vec::new(),
        }
    }

    /// The request that is being answered; 0 before the first.
    pub(super) fn request(&self) -> u16 {
        self.request
    }

    /// Whether `request` is newer than the present one, modulo 2^16.
    pub(super) fn is_newer(&self, request: u16) -> bool {
        request != 0 && (self.request == 0 || (request.wrapping_sub(self.request) as i16) > 0)
    }

    /// Begins the round of `request`, which passed here at `opened`; forgets children that have
    /// been silent for long.
    pub(super) fn begin(&mut self, request: u16, opened: Option<Time>) {
        let ahead = request.wrapping_sub(self.request).min(PATIENCE_ROUNDS);
        self.opened.rotate_right(ahead.into());
        self.opened[..usize::from(ahead)].fill(None);
        self.opened[0] = opened;
        self.request = request;
        self.summaries = [Summary::NONE; GROUPS_MAX as usize];
        self.children
            .retain(|child| request.wrapping_sub(child.heard) <= PATIENCE_ROUNDS);
    }

    /// Adds a report that came at `now`. A late one, about an earlier request, stands for this
    /// round's where that has not come: what a receiver behind a long queue has to say is never on
    /// time.
    pub(super) fn add(&mut self, now: Time, feedback: &Feedback) {
        let age = self.request.wrapping_sub(feedback.request);
        if age >= PATIENCE_ROUNDS {
            return;
        }
        let rtt = self.measure(now, age, feedback);
        let present = self.request;
        let child = self.child(feedback.source);
        child.heard = present;
        child.rtt = rtt.unwrap_or(child.rtt);
        if child.answered == present {
            return;
        }
        if !feedback.more {
            child.answered = present;
        }
        if let Some(summary) = self.summaries.get_mut(usize::from(feedback.group)) {
            summary.add(feedback);
        }
    }

    fn child(&mut self, source: u32) -> &mut Child {
        let known = self
            .children
            .iter()
            .position(|child| child.source == source);
        let place = known.unwrap_or_else(|| {
            let (answered, heard, rtt) = (0, self.request, Duration::ZERO);
            self.children.push(Child {
                source,
                answered,
                heard,
                rtt,
            });
            self.children.len() - 1
        });
        &mut self.children[place]
    }

    /// From the request's passing here to the answer, less the time for which the child held it,
    /// and what the child has below.
    fn measure(&self, now: Time, age: u16, feedback: &Feedback) -> Option<Duration> {
        let span = now - self.opened[usize::from(age)]?;
        let held = Duration::from_micros(feedback.hold_us.into());
        let below = Duration::from_micros(feedback.rtt_us.into());
        Some(span.saturating_sub(held) + below)
    }

    /// The request leaves here now, if it has not done so before.
    pub(super) fn open(&mut self, now: Time) {
        self.opened[0].get_or_insert(now);
    }

    /// Whether anybody has reported in this round.
    pub(super) fn has_reports(&self) -> bool {
        self.summaries().next().is_some()
    }

    /// Whether nobody is known who will report.
    pub(super) fn is_childless(&self) -> bool {
        self.children.is_empty()
    }

    /// Whether all known children have answered.
    pub(super) fn is_complete(&self) -> bool {
        self.children
            .iter()
            .all(|child| child.answered == self.request)
    }

    /// The longest round-trip time to a receiver below, as far as it is known.
    pub(super) fn longest_rtt(&self) -> Duration {
        let rtts = self.children.iter().map(|child| child.rtt);
        rtts.max().unwrap_or(Duration::ZERO)
    }

    /// When the request passed here.
    pub(super) fn opened(&self) -> Option<Time> {
        self.opened[0]
    }

    /// The groups that were reported on, with what the reports add up to.
    pub(super) fn summaries(&self) -> impl Iterator<Item = (u8, &Summary)> {
        let groups = (0..GROUPS_MAX).zip(&self.summaries);
        groups.filter(|(_, summary)| summary.reports > 0)
    }

    /// Forgets everything, as a router that starts anew.
    pub(super) fn reset(&mut self) {
        *self = Round::new();
    }
}
