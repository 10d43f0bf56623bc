//! HyStart: leaves slow start when a train of acknowledgements lasts for half of the round-trip
//! time, or that rises (Ha and Rhee, "Taming the elephants: New TCP slow start", 2011).
//!
//! Constants, order and units are those of Linux (`net/ipv4/tcp_cubic.c`), whose CUBIC has it by
//! default. The acknowledgements of a window come back as a train at the rate of the bottleneck. If
//! the train is as long as the path takes in one direction, the window has filled the path.

use core::time::Duration;

use manyflow_core::time::Time;

use super::Ack;

/// `hystart_low_window`: segments of cwnd below which nothing is looked for.
const WINDOW_MIN: f64 = 16.0;
/// `hystart_ack_delta_us`: the longest gap within a train.
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// `hystart_ack_delay`: the time for which hosts hold acknowledgements back; Linux uses less above
/// 2 Gbit/s.
const ACK_DELAY_S: f64 = 0.001;
/// `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX` in seconds.
const RISE_S: (f64, f64) = (0.004, 0.016);
/// `HYSTART_MIN_SAMPLES`
const SAMPLES: u32 = 8;

/// The state of one round of slow start, and the shortest round-trip time of all.
#[derive(Debug)]
pub(in super::super) struct Original {
    /// `end_seq`: the round ends when this number is acknowledged; `None` before the first one.
    round_end: Option<u32>,
    round_start: Time,
    /// The last acknowledgement of the train.
    last_ack: Time,
    /// `delay_min` in seconds.
    shortest_rtt_s: f64,
    /// `curr_rtt` in seconds.
    rtt_s: f64,
    samples: u32,
}

impl Default for Original {
    fn default() -> Original {
        Original {
            round_end: None,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            shortest_rtt_s: f64::INFINITY,
            rtt_s: f64::INFINITY,
            samples: 0,
        }
    }
}

impl Original {
    /// Handles an acknowledgement while cwnd has `segments`. Returns whether slow start ends.
    pub(super) fn on_ack(&mut self, ack: &Ack, segments: f64) -> bool {
        if ack.rtt_s <= 0.0 {
            return false;
        }
        self.shortest_rtt_s = self.shortest_rtt_s.min(ack.rtt_s);
        if self.round_end.is_none_or(|end| ack.first > end) {
            self.begin_round(ack);
        }
        segments >= WINDOW_MIN && (self.train_fills_path(ack.now) || self.has_risen(ack.rtt_s))
    }

    fn begin_round(&mut self, ack: &Ack) {
        self.round_end = Some(ack.next);
        self.round_start = ack.now;
        self.last_ack = ack.now;
        self.rtt_s = f64::INFINITY;
        self.samples = 0;
    }

    /// A train that has a gap ends, because `last_ack` no longer moves.
    fn train_fills_path(&mut self, now: Time) -> bool {
        if now - self.last_ack > TRAIN_GAP {
            return false;
        }
        self.last_ack = now;
        let train_s = (now - self.round_start).as_secs_f64();
        train_s > (self.shortest_rtt_s + ACK_DELAY_S) / 2.0
    }

    fn has_risen(&mut self, rtt_s: f64) -> bool {
        self.rtt_s = self.rtt_s.min(rtt_s);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        self.rtt_s > self.shortest_rtt_s + (self.shortest_rtt_s / 8.0).clamp(RISE_S.0, RISE_S.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds of 20 acknowledgements, `gap_ms` apart and with these round-trip times. Returns
    /// the round in which slow start ended.
    fn ends_in(rtts_s: &[f64], gap_ms: u64, segments: f64) -> Option<usize> {
        let (mut hystart, mut first) = (Original::default(), 0);
        let mut now = Time::ZERO;
        for (round, rtt_s) in rtts_s.iter().enumerate() {
            now += Duration::from_millis(100);
            for _ in 0..20 {
                now += Duration::from_millis(gap_ms);
                first += 1;
                let (next, rtt_s) = (first + 20, *rtt_s);
                if hystart.on_ack(
                    &Ack {
                        now,
                        first,
                        next,
                        rtt_s,
                    },
                    segments,
                ) {
                    return Some(round);
                }
            }
        }
        None
    }

    #[test]
    fn a_short_train_and_a_steady_round_trip_leave_slow_start_alone() {
        assert_eq!(ends_in(&[0.1; 8], 1, 20.0), None);
    }

    #[test]
    fn a_train_of_half_the_round_trip_ends_slow_start() {
        assert_eq!(ends_in(&[0.03; 8], 1, 20.0), Some(0));
        // Acknowledgements that are further apart are no train.
        assert_eq!(ends_in(&[0.03; 8], 3, 20.0), None);
    }

    #[test]
    fn a_rise_by_an_eighth_ends_slow_start() {
        assert_eq!(ends_in(&[0.1, 0.1, 0.112, 0.114], 1, 20.0), Some(3));
    }

    #[test]
    fn a_small_window_ends_nothing() {
        assert_eq!(ends_in(&[0.03, 0.06, 0.09], 1, 15.0), None);
    }
}
