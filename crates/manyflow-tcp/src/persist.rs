//! The persist timer: a sender whose peer has no room probes the window again and again, as the
//! acknowledgement that opens it may have been lost (RFC 9293 section 3.8.6.1).

use core::time::Duration;

use manyflow_core::time::Time;

/// The maximum interval between probes: that of the retransmission time-out (RFC 6298 section 2.5).
const MAXIMUM: Duration = Duration::from_secs(60);

/// The timer, which exists while the window is closed and nothing is in flight.
#[derive(Debug)]
pub(super) struct Persist {
    /// The time at which the next probe is due.
    at: Time,
    /// The interval from that probe to the next.
    interval: Duration,
    probed: bool,
}

impl Persist {
    /// Starts the timer, as the window is closed. The first probe waits for a retransmission
    /// time-out.
    pub(super) fn new(now: Time, timeout: Duration) -> Persist {
        Persist {
            at: now + timeout,
            interval: timeout,
            probed: false,
        }
    }

    /// The time at which the next probe is due.
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// Returns whether a probe was sent, so that its acknowledgement may come.
    pub(super) fn has_probed(&self) -> bool {
        self.probed
    }

    /// Notes that a probe is sent. The next one waits twice as long.
    pub(super) fn probe(&mut self, now: Time) {
        self.interval = (self.interval * 2).min(MAXIMUM);
        self.at = now + self.interval;
        self.probed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_ever_further_apart_up_to_a_minute() {
        let mut persist = Persist::new(Time::ZERO, Duration::from_secs(1));
        let mut waits = Vec::new();
        let mut last = Time::ZERO;
        for _ in 0..8 {
            let due = persist.at();
            waits.push((due - last).as_secs());
            persist.probe(due);
            last = due;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
