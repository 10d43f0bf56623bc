//! How long messages wait between the two ends of a link over TCP.
//!
//! Messages that a hop has handed to its connection wait in buffers that no daemon sees: in the
//! kernel, and in the queues of routers, which TCP fills. The hop therefore asks the other end,
//! each few messages, how long its bytes took: a probe waits where they do. The other end subtracts
//! the shortest time of the last minutes, in which a probe met no queue. The clocks of the two ends
//! may differ, since only differences of one way's times count (as in RFC 6817, LEDBAT).
//!
//! The time of one way counts, not a round trip: a queue on the way back, of which the other
//! daemon's links are the cause, is no delay of this link, and neither is an acknowledgement that
//! TCP sends late. If the other daemon is short of processor time and reads late, that counts.

use core::time::Duration;

use crate::message::Delay;
use manyflow_core::time::Time;

/// A hop that sends asks again after the first time and this number of messages, or after the
/// second time.
const PROBE_AFTER: (Duration, u32, Duration) =
    (Duration::from_millis(10), 8, Duration::from_millis(50));
/// A hop that sends nothing asks again after this time if it keeps its link alive.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// The time after which the shortest time is that of the last and the present such period. A path
/// can become longer, and clocks drift: 50 ppm are 6 ms in two minutes.
const BASE_PERIOD: Duration = Duration::from_secs(60);

/// When a sending hop asks.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Probes {
    last: Time,
    /// The number of messages since the last probe.
    messages: u32,
    is_due: bool,
}

impl Probes {
    /// Handles a message that the hop sends.
    pub(super) fn count(&mut self, now: Time) {
        let (least, enough, most) = PROBE_AFTER;
        self.messages = self.messages.saturating_add(1);
        let since = now - self.last;
        self.is_due |= since >= most || (since >= least && self.messages >= enough);
    }

    /// Lets a probe be due if the last one was sent a second ago.
    pub(super) fn keep_alive(&mut self, now: Time) {
        self.is_due |= now - self.last >= KEEP_ALIVE;
    }

    /// Returns the probe that is due.
    pub(super) fn pop(&mut self, now: Time) -> Option<Delay> {
        if !self.is_due {
            return None;
        }
        *self = Probes {
            last: now,
            ..Probes::default()
        };
        let sent_us = clock_us(now);
        Some(Delay::Asked { sent_us })
    }
}

/// The times of one direction of a connection, at its receiving end.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct OneWay {
    /// The shortest times of the last and the present period, by two clocks that differ; `None`
    /// before the first.
    shortest: Option<[u32; 2]>,
    period_end: Time,
}

impl OneWay {
    /// Handles the arrival of a probe. Returns how much longer than the shortest it took, in
    /// microseconds.
    pub(super) fn waited_us(&mut self, now: Time, sent_us: u32) -> u32 {
        let took = clock_us(now).wrapping_sub(sent_us);
        let [mut last, mut present] = self.shortest.unwrap_or([took; 2]);
        if now >= self.period_end {
            (last, present) = (present, took);
            self.period_end = now + BASE_PERIOD;
        }
        present = shorter(present, took);
        self.shortest = Some([last, present]);
        took.wrapping_sub(shorter(last, present))
    }
}

/// Returns the shorter one of two times by the same two clocks, which differ by any amount.
fn shorter(one: u32, other: u32) -> u32 {
    match one.wrapping_sub(other) as i32 {
        ..0 => one,
        _ => other,
    }
}

/// Returns the time of this end's clock in microseconds, modulo 2^32.
fn clock_us(now: Time) -> u32 {
    (now - Time::ZERO).as_micros() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(seconds)
    }

    /// Returns what the other end reports of a probe that takes `took_ms`, where its clock is
    /// `ahead_s` ahead.
    fn waited_ms(way: &mut OneWay, sent_s: f64, took_ms: f64, ahead_s: f64) -> f64 {
        let sent_us = clock_us(seconds(sent_s));
        let now = seconds(sent_s + took_ms / 1e3 + ahead_s);
        f64::from(way.waited_us(now, sent_us)) / 1e3
    }

    #[test]
    fn a_probe_waited_for_what_it_took_beyond_the_fastest() {
        for ahead_s in [0.0, 0.5, 5000.0, 100_000.0] {
            let mut way = OneWay::default();
            let waited = [30.0, 20.0, 20.0, 65.0, 10.0, 20.0].map(|took_ms| {
                let waited = waited_ms(&mut way, 1.0, took_ms, ahead_s);
                (waited * 10.0).round() / 10.0
            });
            assert_eq!(waited, [0.0, 0.0, 0.0, 45.0, 0.0, 10.0], "{ahead_s} s");
        }
    }

    #[test]
    fn a_path_that_has_become_longer_is_the_path_after_two_periods() {
        let mut way = OneWay::default();
        assert_eq!(waited_ms(&mut way, 0.0, 10.0, 0.0), 0.0);
        let later = [30.0, 59.0, 61.0, 119.0, 122.0, 130.0];
        let waited = later.map(|at| waited_ms(&mut way, at, 60.0, 0.0).round());
        assert_eq!(waited, [50.0, 50.0, 50.0, 50.0, 0.0, 0.0]);
    }
}
