//! The delay of packets behind the sender's schedule, which shows whether a queue grows.
//!
//! The schedule gives each packet's position, the time in slots at which the sender sends it
//! (`schedule.rs`). The time of arrival less the position is the packet's one-way delay, plus a
//! constant, because the clocks differ. A queue delays all packets. A sender or receiver that waits
//! for its processor delays some, but not the packets after that. So the least delay of many
//! packets follows the queue and not the processors.

use core::time::Duration;

use crate::Session;
use manyflow_core::time::Time;

/// Maximum change of the least delay without a queue, in seconds. Senders act once per millisecond.
pub(super) const DELAY_NOISE_S: f64 = 0.001;

/// The least delays of a session's packets, in seconds, all with the same unknown constant.
#[derive(Debug)]
pub(super) struct Delays {
    /// The duration over which the least delay is taken, in nanoseconds.
    period_ns: u64,
    period_since: Time,
    /// The least delay in this period; infinite without packets.
    present_s: f64,
    /// The least delay in the last period that had packets.
    last_s: f64,
    /// The least delay of all packets.
    least_ever_s: f64,
    /// The least delay at the last two joins; `None` before them.
    at_join_s: Option<f64>,
    at_join_before_s: Option<f64>,
    /// Time slots that have begun, because positions count from the current one.
    slots: u32,
}

impl Delays {
    /// Makes an estimator that looks at half an epoch at a time.
    pub(super) fn new(epoch: Duration, now: Time) -> Delays {
        Delays {
            period_ns: (epoch / 2).as_nanos() as u64,
            period_since: now,
            present_s: f64::INFINITY,
            last_s: f64::INFINITY,
            least_ever_s: f64::INFINITY,
            at_join_s: None,
            at_join_before_s: None,
            slots: 0,
        }
    }

    /// Registers a packet that is in order on its channel. Returns the time at which the sender's
    /// schedule has it, in seconds.
    pub(super) fn on_packet(&mut self, now: Time, position: f64, session: &Session) -> f64 {
        if now >= self.period_since + Duration::from_nanos(self.period_ns) {
            if self.present_s.is_finite() {
                self.last_s = self.present_s;
            }
            (self.period_since, self.present_s) = (now, f64::INFINITY);
        }
        let sent_s = (f64::from(self.slots) + position) * session.time_slot_s();
        let delay_s = (now - Time::ZERO).as_secs_f64() - sent_s;
        self.present_s = self.present_s.min(delay_s);
        self.least_ever_s = self.least_ever_s.min(delay_s);
        sent_s
    }

    /// Counts positions from the next slot on.
    pub(super) fn begin_next_slot(&mut self) {
        self.slots += 1;
    }

    /// Remembers the delay before a join.
    pub(super) fn on_join(&mut self) {
        self.at_join_before_s = self.at_join_s.take();
        self.at_join_s = Some(self.least_s()).filter(|least_s| least_s.is_finite());
    }

    /// Returns by how much the delay has risen since the last join, in seconds; 0 if that is not
    /// known.
    pub(super) fn rise_s(&self) -> f64 {
        let before_s = self.at_join_s.unwrap_or(f64::INFINITY);
        (self.least_s() - before_s).max(0.0)
    }

    /// Returns by how much the delay had risen from the last join but one to the last join, in
    /// seconds; 0 if that is not known.
    pub(super) fn rise_between_joins_s(&self) -> f64 {
        match (self.at_join_before_s, self.at_join_s) {
            (Some(before_s), Some(after_s)) => (after_s - before_s).max(0.0),
            _ => 0.0,
        }
    }

    /// Returns by how much the delay is above the least of all packets, in seconds; 0 without
    /// packets.
    pub(super) fn above_least_s(&self) -> f64 {
        match self.least_s().is_finite() {
            true => self.least_s() - self.least_ever_s,
            false => 0.0,
        }
    }

    fn least_s(&self) -> f64 {
        match self.present_s.is_finite() {
            true => self.present_s,
            false => self.last_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionConfig;
    use manyflow_core::units::Rate;

    const EPOCH: Duration = Duration::from_millis(50);

    /// Registers a packet each millisecond from `from_ms` on, delayed by `delay_ms` of its time.
    fn run(delays: &mut Delays, from_ms: u64, delay_ms: impl Fn(u64) -> f64) {
        let session = SessionConfig::lan(Rate::from_bits_per_s(10_000_000));
        let session = Session::new(session).unwrap();
        for ms in from_ms..from_ms + 50 {
            let at =
                Time::ZERO + Duration::from_micros((1000.0 * (ms as f64 + delay_ms(ms))) as u64);
            delays.on_packet(at, ms as f64 / 1000.0 / session.time_slot_s(), &session);
        }
    }

    #[test]
    fn a_queue_that_grows_after_a_join_shows() {
        let mut delays = Delays::new(EPOCH, Time::ZERO);
        run(&mut delays, 0, |_| 5.0);
        delays.on_join();
        run(&mut delays, 50, |_| 5.0);
        assert!(delays.rise_s() < 1e-6);
        run(&mut delays, 100, |ms| 5.0 + (ms - 100) as f64 / 5.0);
        assert!(
            (0.004..0.011).contains(&delays.rise_s()),
            "{}",
            delays.rise_s()
        );
        delays.on_join();
        assert!(delays.rise_between_joins_s() > 0.004);
    }

    #[test]
    fn a_pause_of_the_sender_does_not_show() {
        let mut delays = Delays::new(EPOCH, Time::ZERO);
        run(&mut delays, 0, |_| 5.0);
        delays.on_join();
        // The sender is held up for 20 ms, and then sends all that is due at once.
        run(&mut delays, 50, |ms| match ms {
            70..90 => 5.0 + (90 - ms) as f64,
            _ => 5.0,
        });
        assert!(delays.rise_s() < 1e-6, "{}", delays.rise_s());
        delays.on_join();
        assert!(delays.rise_between_joins_s() < 1e-6);
    }
}
