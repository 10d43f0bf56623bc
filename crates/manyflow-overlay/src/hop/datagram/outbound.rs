//! The sending half of a link of datagrams: keeps each datagram until it is acknowledged, and
//! retransmits those that the receiving end reports missing.

use core::time::Duration;
use std::collections::VecDeque;

use super::{ACKNOWLEDGE_WITHIN, REPEAT_MINIMUM, WINDOW, backed_off};
use crate::message::{CopyFlags, Feedback, Frame, Message};
use crate::sequence::LinkSeq;
use manyflow_core::estimate::rtt::RttEstimator;
use manyflow_core::time::{Time, seconds};

/// The sending half of a link of datagrams. A *place* is a datagram's distance from the first
/// unacknowledged one.
#[derive(Debug)]
pub(super) struct Outbound<P> {
    /// The first unacknowledged datagram.
    first: LinkSeq,
    /// The datagrams from `first` on: first those that have been sent, then those that have not.
    kept: VecDeque<Kept<P>>,
    /// The number of kept datagrams that have been sent.
    sent: u32,
    /// The numbers of datagrams to retransmit.
    repairs: VecDeque<LinkSeq>,
    /// The time at which to retransmit the last datagram if no feedback arrives. No later datagram
    /// would reveal its loss.
    probe_at: Option<Time>,
    /// The number of probes since the last acknowledgement.
    probes: u32,
    retransmissions: u64,
}

/// A datagram that may have to be retransmitted.
#[derive(Debug)]
struct Kept<P> {
    message: Message,
    payload: P,
    sent_at: Time,
    /// The time at which this datagram was last retransmitted.
    repaired_at: Option<Time>,
    /// Whether this datagram is among `repairs`.
    is_wanted: bool,
}

impl<P> Outbound<P> {
    pub(super) fn new() -> Outbound<P> {
        Outbound {
            first: LinkSeq(0),
            kept: VecDeque::new(),
            sent: 0,
            repairs: VecDeque::new(),
            probe_at: None,
            probes: 0,
            retransmissions: 0,
        }
    }

    /// Returns the number of datagrams that were sent again.
    pub(super) fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    /// Probes at once: datagrams of the last connection may be lost.
    pub(super) fn handle_connected(&mut self, now: Time) {
        self.probes = 0;
        self.probe_at = (self.sent > 0).then_some(now);
    }

    /// Returns the number of unacknowledged datagrams, those not yet sent included.
    pub(super) fn len(&self) -> u32 {
        self.kept.len() as u32
    }

    /// Continues as if all datagrams before `number` had been acknowledged.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, number: u32) {
        self.first = LinkSeq(number);
    }

    pub(super) fn push(&mut self, message: Message, payload: P) {
        self.kept.push_back(Kept {
            message,
            payload,
            sent_at: Time::ZERO,
            repaired_at: None,
            is_wanted: false,
        });
    }

    /// Drops datagrams that have arrived and queues missing ones for retransmission. Ignores
    /// numbers outside the range that was sent: such feedback is old or wrong.
    pub(super) fn handle_feedback(
        &mut self,
        now: Time,
        feedback: &Feedback,
        rtt: &mut RttEstimator,
    ) {
        let arrived = feedback.expected.distance_from(self.first);
        if arrived > self.sent {
            return;
        }
        self.acknowledge(now, arrived, rtt);
        let unrepeatable = seconds(rtt.average_s()).max(REPEAT_MINIMUM);
        for (from, to) in feedback.missing {
            let from = from.distance_from(self.first);
            let to = to.distance_from(self.first).min(self.sent);
            (from..to).for_each(|place| self.request_repair(now, place, unrepeatable));
        }
        // This feedback has named the ranges that the other end knows to be missing.
        self.probe_at = (self.sent > 0).then(|| now + self.probe_interval(rtt));
    }

    fn acknowledge(&mut self, now: Time, arrived: u32, rtt: &mut RttEstimator) {
        let Some(newest) = arrived.checked_sub(1) else {
            return;
        };
        self.probes = 0;
        let newest = &self.kept[newest as usize];
        let (sent_at, mut is_unambiguous) = (newest.sent_at, newest.repaired_at.is_none());
        for kept in self.kept.drain(..arrived as usize) {
            // The acknowledgement may have waited for a repair that was sent after this datagram.
            is_unambiguous &= kept
                .repaired_at
                .is_none_or(|repaired_at| repaired_at < sent_at);
        }
        if is_unambiguous {
            rtt.sample((now - sent_at).as_secs_f64());
        }
        self.first = self.first.advance(arrived);
        self.sent -= arrived;
        debug_assert!(self.sent <= self.len(), "sent datagrams are kept");
    }

    /// Queues a missing datagram for retransmission, unless a copy was sent less than
    /// `unrepeatable` ago and may still arrive.
    fn request_repair(&mut self, now: Time, place: u32, unrepeatable: Duration) {
        let kept = &mut self.kept[place as usize];
        let on_its_way = kept
            .repaired_at
            .is_some_and(|repaired_at| now - repaired_at < unrepeatable);
        if !kept.is_wanted && !on_its_way {
            kept.is_wanted = true;
            self.repairs.push_back(self.first.advance(place));
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
        debug_assert!(self.sent > 0, "only a sent datagram is probed");
        self.probes += 1;
        self.probe_at = Some(now + self.probe_interval(rtt));
        self.request_repair(now, self.sent - 1, Duration::ZERO);
    }
}

impl<P: Clone> Outbound<P> {
    /// Returns the next datagram to send: repairs first, then new ones.
    pub(super) fn poll_transmit(&mut self, now: Time, rtt: &RttEstimator) -> Option<(Frame, P)> {
        while let Some(number) = self.repairs.pop_front() {
            let place = number.distance_from(self.first);
            // The datagram may have been acknowledged since.
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
        kept.is_wanted = false;
        kept.repaired_at = Some(now);
        self.retransmissions += 1;
        // All later copies keep the flag as well.
        kept.message.copy = kept.message.copy.with(CopyFlags::REPAIRED);
        self.datagram(place)
    }

    fn datagram(&self, place: u32) -> (Frame, P) {
        let kept = &self.kept[place as usize];
        let frame = Frame::Datagram {
            number: self.first.advance(place),
            message: kept.message,
        };
        (frame, kept.payload.clone())
    }
}
