//! The feedback of one round: what has come of each group, and from whom (section III-A4).

use core::time::Duration;

use crate::layered::{Feedback, GROUPS_MAX};
use crate::time::Time;

/// Rounds that a child may miss before it is forgotten.
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
    /// When the request passed here; `None` where only answers have come.
    opened: Option<Time>,
    summaries: [Summary; GROUPS_MAX as usize],
    children: Vec<Child>,
}

impl Round {
    pub(super) fn new() -> Round {
        Round {
            request: 0,
            opened: None,
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

    /// Begins the round of `request`, which passed here at `opened`; forgets children that have been silent for long.
    pub(super) fn begin(&mut self, request: u16, opened: Option<Time>) {
        self.request = request;
        self.opened = opened;
        self.summaries = [Summary::NONE; GROUPS_MAX as usize];
        self.children
            .retain(|child| request.wrapping_sub(child.heard) <= PATIENCE_ROUNDS);
    }

    /// Adds a report that came at `now`; one about another round is not counted, but shows that its source is there.
    pub(super) fn add(&mut self, now: Time, feedback: &Feedback) {
        let rtt = self.measure(now, feedback);
        let source = feedback.source;
        let place = match self
            .children
            .iter()
            .position(|child| child.source == source)
        {
            Some(place) => place,
            None => {
                let heard = feedback.request;
                self.children.push(Child {
                    source,
                    answered: 0,
                    heard,
                    rtt: Duration::ZERO,
                });
                self.children.len() - 1
            }
        };
        let child = &mut self.children[place];
        if feedback.request != self.request || child.answered == self.request {
            return;
        }
        child.heard = self.request;
        child.rtt = rtt.unwrap_or(child.rtt);
        if !feedback.more {
            child.answered = self.request;
        }
        if let Some(summary) = self.summaries.get_mut(usize::from(feedback.group)) {
            summary.add(feedback);
        }
    }

    /// From the request's passing here to the answer, less the time for which the child held it, and what the child has below.
    fn measure(&self, now: Time, feedback: &Feedback) -> Option<Duration> {
        let span = now - self.opened.filter(|_| feedback.request == self.request)?;
        let held = Duration::from_micros(feedback.hold_us.into());
        let below = Duration::from_micros(feedback.rtt_us.into());
        Some(span.saturating_sub(held) + below)
    }

    /// The request leaves here now, if it has not done so before.
    pub(super) fn open(&mut self, now: Time) {
        self.opened.get_or_insert(now);
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
        self.opened
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
