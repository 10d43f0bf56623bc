//! What is on its way: kept until it is acknowledged, repaired where the other end asks for it.

use core::time::Duration;
use std::collections::VecDeque;

use super::{ACKNOWLEDGE_WITHIN, REPEAT_MINIMUM, WINDOW, backed_off};
use crate::estimate::rtt::RttEstimator;
use crate::overlay::message::{Feedback, Frame, Message};
use crate::time::{Time, seconds};

/// The sending half.
#[derive(Debug)]
pub(super) struct Outbound<P> {
    /// The first unacknowledged number.
    first: u32,
    /// The datagrams from there on.
    kept: VecDeque<Kept<P>>,
    /// How many of them were sent.
    sent: u32,
    /// Numbers to be sent again.
    repairs: VecDeque<u32>,
    /// When the last one is sent again, if nothing is heard of it: no later datagram shows that it is missing.
    probe_at: Option<Time>,
    /// How often that was done in vain.
    probes: u32,
}

#[derive(Debug)]
struct Kept<P> {
    message: Message,
    payload: P,
    sent_at: Time,
    /// When it was sent again, the last time.
    repaired_at: Option<Time>,
    /// It is among the repairs.
    wanted: bool,
}

impl<P> Outbound<P> {
    pub(super) fn new() -> Outbound<P> {
        Outbound {
            first: 0,
            kept: VecDeque::new(),
            sent: 0,
            repairs: VecDeque::new(),
            probe_at: None,
            probes: 0,
        }
    }

    /// Datagrams that are not acknowledged.
    pub(super) fn len(&self) -> u32 {
        self.kept.len() as u32
    }

    /// As if all below had been sent already.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, number: u32) {
        self.first = number;
    }

    pub(super) fn push(&mut self, message: Message, payload: P) {
        self.kept.push_back(Kept {
            message,
            payload,
            sent_at: Time::ZERO,
            repaired_at: None,
            wanted: false,
        });
    }

    /// Frees what has arrived and notes what is missing. What is outside of what was sent is old, or wrong.
    pub(super) fn take_feedback(&mut self, now: Time, feedback: &Feedback, rtt: &mut RttEstimator) {
        let arrived = feedback.expected.wrapping_sub(self.first);
        if arrived > self.sent {
            return;
        }
        self.acknowledge(now, arrived, rtt);
        let unrepeatable = seconds(rtt.average_s()).max(REPEAT_MINIMUM);
        for (from, to) in feedback.missing {
            let from = from.wrapping_sub(self.first);
            let to = to.wrapping_sub(self.first).min(self.sent);
            (from..to).for_each(|place| self.want(now, place, unrepeatable));
        }
        // Who speaks asks for what it misses, as far as it knows.
        self.probe_at = (self.sent > 0).then(|| now + self.probe_interval(rtt));
    }

    fn acknowledge(&mut self, now: Time, arrived: u32, rtt: &mut RttEstimator) {
        let Some(newest) = arrived.checked_sub(1) else {
            return;
        };
        self.probes = 0;
        let newest = &self.kept[newest as usize];
        let (sent_at, mut once) = (newest.sent_at, newest.repaired_at.is_none());
        for kept in self.kept.drain(..arrived as usize) {
            // Otherwise the acknowledgement may have waited for this one.
            once &= kept
                .repaired_at
                .is_none_or(|repaired_at| repaired_at < sent_at);
        }
        if once {
            rtt.sample((now - sent_at).as_secs_f64());
        }
        self.first = self.first.wrapping_add(arrived);
        self.sent -= arrived;
    }

    /// A datagram is missing. One that was sent again less than a round-trip time ago may still arrive.
    fn want(&mut self, now: Time, place: u32, unrepeatable: Duration) {
        let kept = &mut self.kept[place as usize];
        let on_its_way = kept
            .repaired_at
            .is_some_and(|repaired_at| now - repaired_at < unrepeatable);
        if !kept.wanted && !on_its_way {
            kept.wanted = true;
            self.repairs.push_back(self.first.wrapping_add(place));
        }
    }

    fn probe_interval(&self, rtt: &RttEstimator) -> Duration {
        backed_off(rtt.timeout() + ACKNOWLEDGE_WITHIN, self.probes)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.probe_at
    }

    pub(super) fn handle_timeout(&mut self, now: Time, rtt: &RttEstimator) {
        if self.probe_at.is_none_or(|probe_at| now < probe_at) {
            return;
        }
        self.probes += 1;
        self.probe_at = Some(now + self.probe_interval(rtt));
        self.want(now, self.sent - 1, Duration::ZERO);
    }
}

impl<P: Clone> Outbound<P> {
    /// The next datagram: what is missed at the other end, and then what is new.
    pub(super) fn poll_transmit(&mut self, now: Time, rtt: &RttEstimator) -> Option<(Frame, P)> {
        while let Some(number) = self.repairs.pop_front() {
            let place = number.wrapping_sub(self.first);
            // It may have been acknowledged since.
            if place < self.sent {
                return Some(self.repair(now, place));
            }
        }
        let place = self.sent;
        if place >= self.len().min(WINDOW) {
            return None;
        }
        self.sent += 1;
        self.kept[place as usize].sent_at = now;
        if self.probe_at.is_none() {
            self.probe_at = Some(now + self.probe_interval(rtt));
        }
        Some(self.datagram(place))
    }

    fn repair(&mut self, now: Time, place: u32) -> (Frame, P) {
        let kept = &mut self.kept[place as usize];
        kept.wanted = false;
        kept.repaired_at = Some(now);
        // It stays flagged however often it goes.
        kept.message.repaired = true;
        self.datagram(place)
    }

    fn datagram(&self, place: u32) -> (Frame, P) {
        let kept = &self.kept[place as usize];
        let frame = Frame::Datagram {
            number: self.first.wrapping_add(place),
            message: kept.message,
        };
        (frame, kept.payload.clone())
    }
}
