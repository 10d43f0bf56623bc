//! The delay below a daemon's own queue: in the buffers of TCP, and in the queues of routers.

use core::time::Duration;

use super::link::DELAY_MAX_S;
use manyflow_core::time::Time;

/// A delay above this multiple of the target does not come from clients at the target's price.
const HIGH: f64 = 2.0;
/// The time for which the price of a link may rise in vain: this, and as many targets.
const IN_VAIN: (Duration, f64) = (Duration::from_secs(2), 10.0);
/// The time after which the delay counts again.
const TRY_AGAIN: Duration = Duration::from_secs(20);

/// The delay below the queue of a link.
///
/// TCP fills the queues of routers on its way, whatever a daemon's own queue is. Such a queue
/// drains soon after the price has risen, unless other connections keep it full. Then a price would
/// leave the link to them. The delay therefore does not count after it has been high for some
/// seconds: TCP takes its share beside the others, and the price is that of the daemon's queue.
#[derive(Debug)]
pub(super) struct Below {
    delay_s: f64,
    /// The lowest delay since the last update; infinite before the first.
    lowest_s: f64,
    /// When the delay was last low or began to count again, or the daemon's queue was not empty.
    low_at: Time,
    /// The time until which the queue is that of others.
    others_until: Option<Time>,
}

impl Below {
    pub(super) fn new(now: Time) -> Below {
        Below {
            delay_s: 0.0,
            lowest_s: f64::INFINITY,
            low_at: now,
            others_until: None,
        }
    }

    /// Handles a measurement of the delay of a link with this target. While the daemon's own queue
    /// has messages, the price has not had its effect yet.
    pub(super) fn set(&mut self, now: Time, delay_s: f64, target_s: f64, has_queue: bool) {
        self.lowest_s = self.lowest_s.min(delay_s);
        let is_over = match self.others_until {
            None => has_queue,
            Some(until) => now >= until,
        };
        if is_over || delay_s <= HIGH * target_s {
            (self.low_at, self.others_until) = (now, None);
        }
        let in_vain_s = IN_VAIN.0.as_secs_f64() + IN_VAIN.1 * target_s;
        if self.others_until.is_none() && (now - self.low_at).as_secs_f64() > in_vain_s {
            self.others_until = Some(now + TRY_AGAIN);
        }
    }

    /// Ends an update of `span_s` in which messages were sent, or not. Returns how much longer
    /// messages wait than before it, in seconds.
    pub(super) fn update(&mut self, span_s: f64, was_used: bool) -> f64 {
        let before_s = self.delay_s;
        if self.lowest_s.is_finite() {
            self.delay_s = self.lowest_s;
        } else if !was_used {
            self.delay_s = (self.delay_s - span_s).max(0.0);
        }
        self.lowest_s = f64::INFINITY;
        self.delay_s - before_s
    }

    /// Returns the delay that counts, in seconds: the lowest of the last update, since bursts that
    /// drain at once are no queue (RFC 8289 section 3.2).
    pub(super) fn delay_s(&self) -> f64 {
        match self.others_until {
            None => self.delay_s.min(DELAY_MAX_S),
            Some(_) => 0.0,
        }
    }
}
