//! The limit on the rate to one gateway.

use std::time::Duration;

use manyflow_core::time::Time;
use manyflow_core::units::Rate;

/// How far the data may run ahead of its rate. A quarter second exceeds any pacing jitter and does
/// little harm.
pub(super) const BURST: Duration = Duration::from_millis(250);

/// A token bucket, kept as the time until which the datagrams sent so far use up the rate.
pub(super) struct Bucket {
    paid_until: Time,
}

impl Bucket {
    pub(super) fn new(now: Time) -> Self {
        Self { paid_until: now }
    }

    /// Takes `bytes` from the bucket; returns false if it has too few. A full bucket lets one
    /// datagram of any size pass.
    pub(super) fn take(&mut self, now: Time, rate: Rate, bytes: usize) -> bool {
        self.take_within(now, rate, BURST, bytes)
    }

    /// Takes `bytes` as [`take`](Self::take) does, but lets datagrams run ahead of the rate by
    /// `burst`.
    pub(super) fn take_within(
        &mut self,
        now: Time,
        rate: Rate,
        burst: Duration,
        bytes: usize,
    ) -> bool {
        if self.paid_until > now + burst {
            return false;
        }
        let cost =
            Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / rate.bits_per_s().max(1));
        self.paid_until = self.paid_until.max(now) + cost;
        true
    }
}
