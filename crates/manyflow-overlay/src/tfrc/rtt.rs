//! The round-trip time to a remote daemon (section 4.1, Fig. 3): `RTT = (T_now - T_out) - Delta`.

use core::time::Duration;
use std::collections::VecDeque;

use crate::message::Report;
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

/// The maximum number of sent messages in the log: enough for a round-trip time at usual rates.
const REMEMBERED: usize = 4096;

/// The times at which the last messages to a group were sent, T_out.
#[derive(Debug, Default)]
pub(super) struct SentLog {
    /// The oldest message in the log.
    first: OriginSeq,
    times: VecDeque<Time>,
}

/// The measurements that a report gives about the message that it acknowledges.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Acknowledged {
    /// The round-trip time, without the time for which the receiver held the acknowledgement.
    pub(super) rtt: Duration,
    /// The time at which the message arrived, plus the delay of the reverse path.
    pub(super) arrived: Time,
    /// The bytes that had arrived by then, modulo 2^32.
    pub(super) received_bytes: u32,
}

impl Acknowledged {
    /// Returns the rate of arrivals since an earlier acknowledgement, in bytes per second.
    pub(super) fn rate_since(&self, earlier: &Acknowledged) -> f64 {
        // The later report may have been overtaken by the earlier one.
        let bytes = self.received_bytes.wrapping_sub(earlier.received_bytes) as i32;
        let span = self.arrived - earlier.arrived;
        f64::from(bytes.max(0)) / span.as_secs_f64().max(1e-6)
    }
}

impl SentLog {
    pub(super) fn on_sent(&mut self, now: Time, sequence: OriginSeq) {
        let next = self.first.advance(self.times.len() as u64);
        if sequence != next {
            self.times.clear();
        }
        if self.times.len() == REMEMBERED {
            self.times.pop_front();
            self.first = self.first.advance(1);
        }
        if self.times.is_empty() {
            self.first = sequence;
        }
        self.times.push_back(now);
        debug_assert!(
            self.times.len() <= REMEMBERED,
            "{} messages are in the log",
            self.times.len()
        );
    }

    /// Returns the measurements of a report that arrives at `now`. Returns `None` if the
    /// acknowledged message is not in the log, or if it was sent less than the reported holding
    /// time ago.
    pub(super) fn acknowledged(&self, now: Time, report: &Report) -> Option<Acknowledged> {
        let place = report.acknowledged.distance_from(self.first);
        let sent = *self.times.get(usize::try_from(place).ok()?)?;
        let held = Duration::from_micros(u64::from(report.held_us));
        let rtt = (now - sent).checked_sub(held)?;
        (!rtt.is_zero()).then_some(Acknowledged {
            rtt,
            arrived: sent + rtt,
            received_bytes: report.received_bytes,
        })
    }
}

/// Returns the average after one more sample. `history` is the weight of the past.
pub(super) fn averaged(past: Option<Duration>, sample: Duration, history: f64) -> Duration {
    past.map_or(sample, |past| {
        past.mul_f64(history) + sample.mul_f64(1.0 - history)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::GroupId;

    fn report(acknowledged: u64, held_us: u32) -> Report {
        Report {
            group: GroupId(1),
            rate_bytes_per_s: Report::UNLIMITED,
            repaired: 0,
            acknowledged: OriginSeq::new(acknowledged),
            received_bytes: 400,
            held_us,
        }
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn the_holding_time_of_an_acknowledgement_is_not_part_of_the_rtt() {
        let mut log = SentLog::default();
        for sequence in 1..=10 {
            log.on_sent(at(sequence as f64), OriginSeq::new(sequence));
        }
        let found = log.acknowledged(at(4.25), &report(4, 50_000)).unwrap();
        assert_eq!(found.rtt, Duration::from_millis(200));
        assert_eq!((found.arrived, found.received_bytes), (at(4.2), 400));
    }

    #[test]
    fn unknown_or_forgotten_messages_give_no_sample() {
        let mut log = SentLog::default();
        assert_eq!(log.acknowledged(at(1.0), &report(0, 0)), None);
        for sequence in 1..=5000 {
            log.on_sent(at(1.0), OriginSeq::new(sequence));
        }
        for acknowledged in [0, 904, 5001, OriginSeq::MAX.number()] {
            assert_eq!(log.acknowledged(at(2.0), &report(acknowledged, 0)), None);
        }
        assert!(log.acknowledged(at(2.0), &report(905, 0)).is_some());
        assert_eq!(
            log.acknowledged(at(2.0), &report(5000, 1_000_001)),
            None,
            "held for longer than the round trip"
        );
    }

    #[test]
    fn averaged_weights_the_past_by_its_history() {
        let first = averaged(None, Duration::from_millis(100), 0.75);
        assert_eq!(first, Duration::from_millis(100));
        let next = averaged(Some(first), Duration::from_millis(200), 0.75);
        assert_eq!(next, Duration::from_millis(125));
    }
}
