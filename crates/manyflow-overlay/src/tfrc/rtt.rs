//! The round-trip time to a remote daemon (section 4.1, Fig. 3): `RTT = (T_now - T_out) - Delta`.

use core::time::Duration;
use std::collections::VecDeque;

use crate::message::Report;
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

/// Messages that are remembered: those of a round-trip time, unless they are very many.
const REMEMBERED: usize = 4096;

/// The weight of the past in the average message size.
const SIZE_HISTORY: f64 = 0.9;

/// When the last messages to a group were sent, T_out, and the bytes up to each.
#[derive(Debug, Default)]
pub(super) struct SentLog {
    /// The oldest of them.
    first: OriginSeq,
    messages: VecDeque<Sent>,
    /// Bytes of all messages ever sent.
    total_bytes: u64,
    /// s: the bytes of a message, averaged as a receiver does.
    message_bytes: f64,
}

/// A message that was sent.
#[derive(Copy, Clone, Debug)]
struct Sent {
    at: Time,
    /// Bytes up to this message, itself included.
    total_bytes: u64,
}

/// What a report says of the message that it acknowledges.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Acknowledged {
    /// The round-trip time, without the time for which the acknowledgement was held.
    pub(super) rtt: Duration,
    /// When the message arrived, later by the way back.
    pub(super) arrived: Time,
    /// Bytes up to it.
    pub(super) total_bytes: u64,
}

impl Acknowledged {
    /// The rate at which messages arrived since an earlier one, in bytes per second.
    pub(super) fn rate_since(&self, earlier: &Acknowledged) -> f64 {
        let bytes = self.total_bytes.saturating_sub(earlier.total_bytes);
        let span = self.arrived - earlier.arrived;
        bytes as f64 / span.as_secs_f64().max(1e-6)
    }
}

impl SentLog {
    pub(super) fn on_sent(&mut self, now: Time, sequence: OriginSeq, bytes: u32) {
        let next = self.first.advance(self.messages.len() as u32);
        if sequence != next {
            self.messages.clear();
        }
        if self.messages.len() == REMEMBERED {
            self.messages.pop_front();
            self.first = self.first.advance(1);
        }
        if self.messages.is_empty() {
            self.first = sequence;
        }
        self.total_bytes += u64::from(bytes);
        let bytes = f64::from(bytes);
        if self.message_bytes == 0.0 {
            self.message_bytes = bytes;
        }
        self.message_bytes += (1.0 - SIZE_HISTORY) * (bytes - self.message_bytes);
        self.messages.push_back(Sent {
            at: now,
            total_bytes: self.total_bytes,
        });
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// s, in bytes: an average, so that one short message does not make the slowest rate one at
    /// which a long one takes minutes.
    pub(super) fn message_bytes(&self) -> f64 {
        self.message_bytes
    }

    /// What a report that arrives now tells, if it acknowledges a message that is remembered, and
    /// for which it cannot have been held longer than that was away.
    pub(super) fn acknowledged(&self, now: Time, report: &Report) -> Option<Acknowledged> {
        let place = report.acknowledged.distance_from(self.first);
        let sent = self.messages.get(place as usize)?;
        let held = Duration::from_micros(u64::from(report.held_us));
        let rtt = (now - sent.at).checked_sub(held)?;
        (!rtt.is_zero()).then_some(Acknowledged {
            rtt,
            arrived: sent.at + rtt,
            total_bytes: sent.total_bytes,
        })
    }
}

/// The average after one more sample, the past weighted by `history`.
pub(super) fn averaged(past: Option<Duration>, sample: Duration, history: f64) -> Duration {
    past.map_or(sample, |past| {
        past.mul_f64(history) + sample.mul_f64(1.0 - history)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::GroupId;

    fn report(acknowledged: u32, held_us: u32) -> Report {
        Report {
            group: GroupId(1),
            rate_bytes_per_s: Report::UNLIMITED,
            loss_event_rate: 0,
            repaired: 0,
            acknowledged: OriginSeq(acknowledged),
            held_us,
        }
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn the_time_for_which_an_acknowledgement_was_held_is_not_the_paths() {
        let mut log = SentLog::default();
        for sequence in 1..=10 {
            log.on_sent(at(f64::from(sequence)), OriginSeq(sequence), 100);
        }
        let found = log.acknowledged(at(4.25), &report(4, 50_000)).unwrap();
        assert_eq!(found.rtt, Duration::from_millis(200));
        assert_eq!((found.arrived, found.total_bytes), (at(4.2), 400));
    }

    #[test]
    fn what_was_not_sent_or_is_forgotten_gives_no_sample() {
        let mut log = SentLog::default();
        assert_eq!(log.acknowledged(at(1.0), &report(0, 0)), None);
        for sequence in 1..=5000 {
            log.on_sent(at(1.0), OriginSeq(sequence), 100);
        }
        for acknowledged in [0, 904, 5001, u32::MAX] {
            assert_eq!(log.acknowledged(at(2.0), &report(acknowledged, 0)), None);
        }
        assert!(log.acknowledged(at(2.0), &report(905, 0)).is_some());
        assert_eq!(
            log.acknowledged(at(2.0), &report(5000, 1_000_001)),
            None,
            "held for longer than it was away"
        );
    }

    #[test]
    fn one_short_message_is_not_what_a_message_takes() {
        let mut log = SentLog::default();
        for (sequence, bytes) in (1..).zip([1000, 1000, 100]) {
            log.on_sent(at(1.0), OriginSeq(sequence), bytes);
        }
        assert!((log.message_bytes() - 910.0).abs() < 1e-6);
    }

    #[test]
    fn the_average_follows_at_the_weight_of_the_present() {
        let first = averaged(None, Duration::from_millis(100), 0.75);
        assert_eq!(first, Duration::from_millis(100));
        let next = averaged(Some(first), Duration::from_millis(200), 0.75);
        assert_eq!(next, Duration::from_millis(125));
    }
}
