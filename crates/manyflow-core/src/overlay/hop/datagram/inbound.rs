//! What has arrived, what is missing, and what the other end is told of it.

use core::time::Duration;
use std::collections::VecDeque;

use super::{
    ACKNOWLEDGE_EVERY, ACKNOWLEDGE_WITHIN, REORDERING, REORDERING_TIME, REPEAT_GROWTH, WINDOW,
    backed_off,
};
use crate::estimate::rtt::RttEstimator;
use crate::overlay::hop::Arrival;
use crate::overlay::message::Feedback;
use crate::time::Time;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Inbound<P> {
    /// All below were taken, as the other end was told: the beginning of the window.
    acknowledged: u32,
    /// The number after the highest that has arrived.
    next: u32,
    /// What is missing below `next`, in order.
    gaps: VecDeque<Gap>,
    /// What has arrived and was not taken.
    waiting: VecDeque<(u32, Arrival<P>)>,
    /// Datagrams that were taken since the last feedback.
    untold: u32,
    /// When the last feedback went, and when the next one goes at the latest.
    told_at: Option<Time>,
    tell_at: Option<Time>,
}

/// Numbers that are missing.
#[derive(Copy, Clone, Debug)]
struct Gap {
    first: u32,
    /// The number after the last.
    end: u32,
    /// When they are asked for, again or for the first time.
    ask_at: Time,
    /// When they were asked for.
    asked_at: Time,
    /// How often.
    asked: u32,
}

impl<P> Inbound<P> {
    pub(super) fn new() -> Inbound<P> {
        Inbound {
            acknowledged: 0,
            next: 0,
            gaps: VecDeque::new(),
            waiting: VecDeque::new(),
            untold: 0,
            told_at: None,
            tell_at: None,
        }
    }

    /// A number's distance from the window's beginning.
    fn place(&self, number: u32) -> u32 {
        number.wrapping_sub(self.acknowledged)
    }

    /// Takes a datagram, if it is new and inside the window.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        number: u32,
        arrival: Arrival<P>,
        rtt: &mut RttEstimator,
    ) {
        let place = self.place(number);
        let known = self.place(self.next);
        let is_new = match place {
            WINDOW.. => false,
            _ if place < known => self.fill(now, number, arrival.message.repaired, rtt),
            _ => self.advance(now, number),
        };
        if is_new {
            self.waiting.push_back((number, arrival));
        } else {
            // The other end does not know that it has arrived: the feedback was lost.
            self.tell_at = Some(now);
        }
    }

    /// A number above all others: what lies between is missing, and what is missing for longer is no matter of order any more.
    fn advance(&mut self, now: Time, number: u32) -> bool {
        if number != self.next {
            self.gaps.push_back(Gap {
                first: self.next,
                end: number,
                ask_at: now + REORDERING_TIME,
                asked_at: now,
                asked: 0,
            });
        }
        self.next = number.wrapping_add(1);
        for gap in self.gaps.iter_mut().rev().take_while(|gap| gap.asked == 0) {
            if self.next.wrapping_sub(gap.end) >= REORDERING {
                gap.ask_at = gap.ask_at.min(now);
            }
        }
        true
    }

    /// A number below others: whether it was missing.
    fn fill(&mut self, now: Time, number: u32, repaired: bool, rtt: &mut RttEstimator) -> bool {
        let (base, place) = (self.acknowledged, self.place(number));
        let index = self
            .gaps
            .partition_point(|gap| gap.end.wrapping_sub(base) <= place);
        let Some(gap) = self.gaps.get_mut(index) else {
            return false;
        };
        if place < gap.first.wrapping_sub(base) {
            return false;
        }
        // Otherwise it was only late.
        if repaired && gap.asked == 1 {
            rtt.sample((now - gap.asked_at).as_secs_f64());
        }
        let above = Gap {
            first: number.wrapping_add(1),
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

    /// Hands up what came first.
    pub(super) fn take(&mut self, now: Time) -> Option<Arrival<P>> {
        let (_, arrival) = self.waiting.pop_front()?;
        self.untold += 1;
        let soon = match self.told_at {
            Some(told_at) if self.untold < ACKNOWLEDGE_EVERY => told_at + ACKNOWLEDGE_WITHIN,
            _ => now,
        };
        self.tell_at = Some(self.tell_at.map_or(soon, |tell_at| tell_at.min(soon)));
        Some(arrival)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let asks = self.gaps.iter().map(|gap| gap.ask_at);
        asks.chain(self.tell_at).min()
    }

    /// What the other end is to hear now, if anything; a gap is asked for again after `repeat`, and then more rarely.
    pub(super) fn feedback(&mut self, now: Time, repeat: Duration) -> Option<Feedback> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return None;
        }
        let mut missing = [(0, 0); 3];
        let due = self.gaps.iter_mut().filter(|gap| gap.ask_at <= now);
        for (range, gap) in missing.iter_mut().zip(due) {
            *range = (gap.first, gap.end);
            gap.ask_at = now + backed_off(repeat, gap.asked.min(REPEAT_GROWTH));
            gap.asked_at = now;
            gap.asked += 1;
        }
        self.acknowledged = self.expected();
        self.untold = 0;
        self.told_at = Some(now);
        self.tell_at = None;
        Some(Feedback {
            expected: self.acknowledged,
            missing,
        })
    }

    /// All below were taken.
    fn expected(&self) -> u32 {
        let missing = self.gaps.front().map(|gap| gap.first);
        let waiting = self.waiting.iter().map(|(number, _)| *number);
        let places = waiting
            .chain(missing)
            .chain([self.next])
            .map(|number| self.place(number));
        self.acknowledged.wrapping_add(places.min().unwrap_or(0))
    }

    /// As if all below had arrived already.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, number: u32) {
        (self.acknowledged, self.next) = (number, number);
    }

    /// Datagrams that are held, and gaps that are noted.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.waiting.len(), self.gaps.len())
    }
}
