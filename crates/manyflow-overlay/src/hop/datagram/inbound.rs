//! The receiving half of a link of datagrams: tracks the numbers that have arrived and those that
//! are missing, and reports them to the sending end.

use core::time::Duration;
use std::collections::VecDeque;

use super::{
    ACKNOWLEDGE_EVERY, ACKNOWLEDGE_WITHIN, REORDERING, REORDERING_TIME, REPEAT_GROWTH, WINDOW,
    backed_off,
};
use crate::hop::Arrival;
use crate::message::{CopyFlags, Feedback};
use crate::sequence::LinkSeq;
use manyflow_core::estimate::rtt::RttEstimator;
use manyflow_core::time::Time;

/// The receiving half of a link of datagrams.
#[derive(Debug)]
pub(super) struct Inbound<P> {
    /// The beginning of the window: the daemon has taken all datagrams before this one, and the
    /// last feedback reported so.
    acknowledged: LinkSeq,
    /// The number after the highest one that has arrived.
    next: LinkSeq,
    /// Missing ranges before `next`, in ascending order.
    gaps: VecDeque<Gap>,
    /// Arrivals that the daemon has not taken.
    arrivals: VecDeque<(LinkSeq, Arrival<P>)>,
    /// The number of datagrams that the daemon has taken since the last feedback.
    unacknowledged: u32,
    last_feedback_at: Option<Time>,
    /// The time at which the next feedback is due at the latest, apart from NACKs.
    feedback_due: Option<Time>,
}

/// A range of missing datagrams.
#[derive(Copy, Clone, Debug)]
struct Gap {
    first: LinkSeq,
    /// The number after the last missing one.
    end: LinkSeq,
    /// The time at which the next NACK for this range is due.
    nack_due: Time,
    /// The time at which the last NACK for this range was sent.
    nacked_at: Time,
    nacks: u32,
}

impl<P> Inbound<P> {
    pub(super) fn new() -> Inbound<P> {
        Inbound {
            acknowledged: LinkSeq(0),
            next: LinkSeq(0),
            gaps: VecDeque::new(),
            arrivals: VecDeque::new(),
            unacknowledged: 0,
            last_feedback_at: None,
            feedback_due: None,
        }
    }

    /// Reports at once what has arrived over the last connection, and what is missing.
    pub(super) fn handle_connected(&mut self, now: Time) {
        for gap in &mut self.gaps {
            (gap.nack_due, gap.nacks) = (now, 0);
        }
        self.feedback_due = Some(now);
    }

    /// Returns a number's distance from the beginning of the window.
    fn place(&self, number: LinkSeq) -> u32 {
        number.distance_from(self.acknowledged)
    }

    /// Accepts a datagram, if it is new and within the window.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        number: LinkSeq,
        arrival: Arrival<P>,
        rtt: &mut RttEstimator,
    ) {
        let place = self.place(number);
        let known = self.place(self.next);
        let is_new = match place {
            WINDOW.. => false,
            _ if place < known => {
                let repaired = arrival.message.copy.has(CopyFlags::REPAIRED);
                self.fill_gap(now, number, repaired, rtt)
            }
            _ => self.advance(now, number),
        };
        if is_new {
            self.arrivals.push_back((number, arrival));
        } else {
            // The other end does not know that this datagram has arrived: feedback was lost.
            self.feedback_due = Some(now);
        }
        debug_assert!(
            self.place(self.next) <= WINDOW,
            "{number:?} lies beyond the window"
        );
    }

    /// Advances `next` past a number; all numbers that it skips are missing. After [`REORDERING`]
    /// later datagrams, a gap no longer counts as reordering, and its first NACK is due.
    fn advance(&mut self, now: Time, number: LinkSeq) -> bool {
        if number != self.next {
            self.gaps.push_back(Gap {
                first: self.next,
                end: number,
                nack_due: now + REORDERING_TIME,
                nacked_at: now,
                nacks: 0,
            });
        }
        self.next = number.advance(1);
        for gap in self.gaps.iter_mut().rev().take_while(|gap| gap.nacks == 0) {
            if self.next.distance_from(gap.end) >= REORDERING {
                gap.nack_due = gap.nack_due.min(now);
            }
        }
        true
    }

    /// Removes a number from the missing ranges. Returns whether it was missing.
    fn fill_gap(
        &mut self,
        now: Time,
        number: LinkSeq,
        repaired: bool,
        rtt: &mut RttEstimator,
    ) -> bool {
        let (base, place) = (self.acknowledged, self.place(number));
        let index = self
            .gaps
            .partition_point(|gap| gap.end.distance_from(base) <= place);
        let Some(gap) = self.gaps.get_mut(index) else {
            return false;
        };
        if place < gap.first.distance_from(base) {
            return false;
        }
        // An unrepaired datagram was only late, and the round trip after a second NACK is
        // ambiguous.
        if repaired && gap.nacks == 1 {
            rtt.sample((now - gap.nacked_at).as_secs_f64());
        }
        let above = Gap {
            first: number.advance(1),
            ..*gap
        };
        gap.end = number;
        let is_empty = gap.first == gap.end;
        if above.first != above.end {
            self.gaps.insert(index + 1, above);
        }
        if is_empty {
            self.gaps.remove(index);
        }
        true
    }

    /// Returns the oldest arrival, in order of arrival, to the daemon.
    pub(super) fn pop_arrival(&mut self, now: Time) -> Option<Arrival<P>> {
        let (_, arrival) = self.arrivals.pop_front()?;
        self.unacknowledged += 1;
        let soon = match self.last_feedback_at {
            Some(last) if self.unacknowledged < ACKNOWLEDGE_EVERY => last + ACKNOWLEDGE_WITHIN,
            _ => now,
        };
        self.feedback_due = Some(self.feedback_due.map_or(soon, |due| due.min(soon)));
        Some(arrival)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let nacks = self.gaps.iter().map(|gap| gap.nack_due);
        nacks.chain(self.feedback_due).min()
    }

    /// Returns the feedback that is due now, if any. A NACK is repeated after `repeat`, then at
    /// growing intervals.
    pub(super) fn poll_feedback(&mut self, now: Time, repeat: Duration) -> Option<Feedback> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return None;
        }
        let mut missing = [(LinkSeq(0), LinkSeq(0)); 3];
        let due = self.gaps.iter_mut().filter(|gap| gap.nack_due <= now);
        for (range, gap) in missing.iter_mut().zip(due) {
            *range = (gap.first, gap.end);
            gap.nack_due = now + backed_off(repeat, gap.nacks.min(REPEAT_GROWTH));
            gap.nacked_at = now;
            gap.nacks += 1;
        }
        self.acknowledged = self.expected();
        self.unacknowledged = 0;
        self.last_feedback_at = Some(now);
        self.feedback_due = None;
        Some(Feedback {
            expected: self.acknowledged,
            missing,
        })
    }

    /// Returns the first number that is missing or that the daemon has not taken.
    fn expected(&self) -> LinkSeq {
        let missing = self.gaps.front().map(|gap| gap.first);
        let waiting = self.arrivals.iter().map(|(number, _)| *number);
        let places = waiting
            .chain(missing)
            .chain([self.next])
            .map(|number| self.place(number));
        self.acknowledged.advance(places.min().unwrap_or(0))
    }

    /// Continues as if all datagrams before `number` had arrived and been taken.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, number: u32) {
        (self.acknowledged, self.next) = (LinkSeq(number), LinkSeq(number));
    }

    /// Returns the number of waiting arrivals and the number of gaps.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.arrivals.len(), self.gaps.len())
    }
}
