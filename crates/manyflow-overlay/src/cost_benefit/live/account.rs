//! The earnings of clients, and the allowance of links without a price.

use core::time::Duration;

use super::{BURST_BYTES, UPDATE, wait_of};
use manyflow_core::time::Time;

/// The time for which a client may save. It does not need more: between two of its messages it
/// waits at most for a purchase.
const SAVINGS: Duration = Duration::from_millis(20);
/// The number of messages that a client may always save, so that one that sends little does not
/// wait behind those that send all they can.
const SAVINGS_MESSAGES: f64 = 4.0;
/// The time in which an allowance that nobody needs falls by half.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// The minimum share of a daemon in the burst of all.
const BURST_BYTES_MIN: f64 = 2048.0;
/// The maximum allowance in bytes per second.
const ALLOWANCE_MAX: f64 = 1e12;

/// A client's budget, in messages that it has earned.
#[derive(Debug)]
pub(super) struct Account {
    priority: f64,
    /// The messages that the client has earned and not sent.
    earned: f64,
    /// The time up to which it was paid, and its rate in messages per second then.
    paid: Time,
    rate: f64,
}

impl Account {
    /// Returns an account that may send its first messages at once.
    pub(super) fn new(now: Time, priority: f64) -> Account {
        Account {
            priority,
            earned: 1.0,
            paid: now,
            rate: 0.0,
        }
    }

    /// Returns the rate in messages per second that the client may buy at `cost` dollars, which is
    /// positive, if one more message is worth 1 at any rate.
    pub(super) fn rate_at(&self, cost: f64) -> f64 {
        self.priority / (cost * cost)
    }

    /// Buys a message at a price at which the client may send `rate` messages per second. Returns
    /// how long the client has to wait if it cannot pay, and `None` if it has paid.
    pub(super) fn buy(&mut self, now: Time, rate: f64) -> Option<Duration> {
        self.earn(now, rate);
        if self.earned >= 1.0 {
            self.earned -= 1.0;
            return None;
        }
        Some(wait_of((1.0 - self.earned) / rate))
    }

    /// Buys a layered message with this purse. Returns how long the client has to wait until it has
    /// earned the purse, and `None` if it has.
    pub(super) fn buy_purse(&mut self, now: Time, purse: Duration) -> Option<Duration> {
        let rate = self.priority / purse.as_secs_f64();
        self.buy(now, rate)
    }

    /// Pays a client whose rate is now `rate`. Prices have changed since it was last paid; the
    /// geometric mean of its rates then and now counts.
    fn earn(&mut self, now: Time, rate: f64) {
        let span_s = (now - self.paid).as_secs_f64();
        let mean = match self.rate > 0.0 {
            true => libm::sqrt(self.rate * rate),
            false => rate,
        };
        let most = SAVINGS_MESSAGES.max(rate * SAVINGS.as_secs_f64());
        self.earned = (self.earned + mean * span_s).min(most);
        (self.paid, self.rate) = (now, rate);
    }
}

/// The allowance of all clients of a daemon for links without a price.
#[derive(Debug)]
pub(super) struct Allowance {
    /// The bytes that may be sent at once, and the minimum for each update afterwards.
    burst: f64,
    /// Bytes per second.
    rate: f64,
    /// Bytes that may be sent at once.
    bytes: f64,
    filled: Time,
    /// The end of the present period, and whether the allowance has limited clients in it.
    period_end: Time,
    was_short: bool,
    /// Whether this daemon's links had no queue in it.
    has_room: bool,
    /// Bytes sent at a price in the present period.
    priced: f64,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            burst: f64::from(BURST_BYTES),
            rate: 0.0,
            bytes: f64::from(BURST_BYTES),
            filled: Time::ZERO,
            period_end: Time::ZERO,
            was_short: false,
            has_room: true,
            priced: 0.0,
        }
    }
}

impl Allowance {
    /// Handles a change of the number of daemons, which share the burst.
    pub(super) fn share_among(&mut self, daemons: usize) {
        self.burst = (f64::from(BURST_BYTES) / daemons.max(1) as f64).max(BURST_BYTES_MIN);
        self.bytes = self.bytes.min(self.burst);
    }

    /// Takes a message of `bytes`. Returns how long the client has to wait, behind `waiting`
    /// others, if the allowance is used up, and `None` if the message may enter. `has_room` says
    /// whether this daemon's links have no queue.
    pub(super) fn take(
        &mut self,
        now: Time,
        bytes: u32,
        waiting: usize,
        has_room: bool,
    ) -> Option<Duration> {
        self.fill(now);
        self.has_room &= has_room;
        let bytes = f64::from(bytes);
        // A message that is longer than the whole allowance must not wait forever.
        if self.bytes >= bytes.min(self.burst) {
            self.bytes -= bytes;
            return None;
        }
        self.was_short = true;
        let missing = bytes - self.bytes + bytes * waiting as f64;
        Some(wait_of(missing / self.rate.max(1.0)))
    }

    /// Notes that a message was sent at a price.
    pub(super) fn note_priced(&mut self, now: Time, bytes: u32) {
        self.fill(now);
        self.priced += f64::from(bytes);
    }

    fn fill(&mut self, now: Time) {
        let span_s = (now - self.filled).as_secs_f64();
        let most = (self.rate * UPDATE.as_secs_f64()).max(self.burst);
        self.bytes = (self.bytes + self.rate * span_s).min(most);
        self.filled = now;
        if now >= self.period_end {
            self.adapt(now);
        }
    }

    /// Begins a new period, with the rate that the last one calls for.
    fn adapt(&mut self, now: Time) {
        let span_s = ((now - self.period_end) + UPDATE).as_secs_f64();
        let growth = match (self.was_short, self.has_room) {
            (true, true) => 2.0,
            (true, false) => 1.0,
            (false, _) => libm::exp2(-span_s / HALF_LIFE.as_secs_f64()),
        };
        self.rate = match self.priced > 0.0 {
            true => 2.0 * self.priced / span_s,
            false => self.rate * growth,
        };
        let least = self.burst / UPDATE.as_secs_f64();
        self.rate = self.rate.clamp(least, ALLOWANCE_MAX);
        (self.priced, self.was_short, self.has_room) = (0.0, false, true);
        self.period_end = now + UPDATE;
    }
}
