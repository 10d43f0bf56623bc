//! Token buckets of Internet providers, as Linux's `tbf` and PowerBoost: a burst passes at a peak
//! rate, and what follows at a sustained rate.

use core::time::Duration;

use crate::time::Time;
use crate::units::Rate;

/// A token bucket. It is full at the beginning, and fills again at the sustained rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The rate at which the bucket fills; above 0.
    pub sustained: Rate,
    /// The size of the bucket in bytes. A longer packet leaves when the bucket is full.
    pub burst_bytes: u64,
    /// The rate of the transmitter. With `None` a burst takes no time.
    pub peak: Option<Rate>,
}

/// A level in units of a bit * 10^-9: the sustained rate fills it by its bits per second in each
/// nanosecond.
const UNITS_PER_BYTE: i128 = 8_000_000_000;

/// A bucket and its level.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    config: TokenBucket,
    /// Below 0 after a packet that is longer than the bucket.
    level: i128,
    /// The time at which the level was true.
    at: Time,
}

impl Bucket {
    /// Returns a full bucket.
    pub(super) fn new(config: TokenBucket, now: Time) -> Bucket {
        Bucket {
            config,
            level: units(config.burst_bytes),
            at: now,
        }
    }

    fn rate(&self) -> i128 {
        i128::from(self.config.sustained.bits_per_s().max(1))
    }

    fn fill(&mut self, now: Time) {
        let added = i128::from((now - self.at).as_nanos() as u64) * self.rate();
        self.level = (self.level + added).min(units(self.config.burst_bytes));
        self.at = self.at.max(now);
    }

    /// Sends a packet for which the transmitter is free at `begins`. Returns when it has been sent.
    pub(super) fn carry(&mut self, begins: Time, bytes: u32) -> Time {
        self.fill(begins);
        let cost = units(bytes.into());
        let missing = cost.min(units(self.config.burst_bytes)) - self.level;
        if missing > 0 {
            let wait = (missing + self.rate() - 1) / self.rate();
            self.fill(begins + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)));
        }
        self.level -= cost;
        let peak = self.config.peak.map(|peak| i128::from(peak.bits_per_s()));
        let takes = peak.map_or(0, |peak| cost / peak.max(1));
        self.at.max(begins) + Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX))
    }
}

fn units(bytes: u64) -> i128 {
    i128::from(bytes) * UNITS_PER_BYTE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(burst_bytes: u64, peak: Option<u64>) -> Bucket {
        let config = TokenBucket {
            sustained: Rate::from_bits_per_s(8_000),
            burst_bytes,
            peak: peak.map(Rate::from_bits_per_s),
        };
        Bucket::new(config, Time::ZERO)
    }

    fn ms(value: u64) -> Time {
        Time::ZERO + Duration::from_millis(value)
    }

    #[test]
    fn a_burst_passes_at_the_peak_and_the_rest_at_the_sustained_rate() {
        // A packet takes 100 ms of tokens, and 10 ms of the peak rate.
        let mut bucket = bucket(300, Some(80_000));
        let mut free = Time::ZERO;
        let sent: Vec<Time> = (0..6)
            .map(|_| {
                free = bucket.carry(free, 100);
                free
            })
            .collect();
        // In the 20 ms of the first two, a fifth of the fourth packet has come in.
        assert_eq!(sent, [10, 20, 30, 110, 210, 310].map(ms));
    }

    #[test]
    fn a_pause_fills_the_bucket_to_its_size_and_no_further() {
        let mut bucket = bucket(200, None);
        assert_eq!(
            [0; 3].map(|_| bucket.carry(ms(0), 100)),
            [ms(0), ms(0), ms(100)]
        );
        assert_eq!(
            [0; 3].map(|_| bucket.carry(ms(5000), 100)),
            [ms(5000), ms(5000), ms(5100)]
        );
    }

    #[test]
    fn a_packet_longer_than_the_bucket_is_paid_afterwards() {
        let mut bucket = bucket(100, None);
        assert_eq!(bucket.carry(ms(0), 300), ms(0));
        // 200 bytes are owed, and the next packet needs 100.
        assert_eq!(bucket.carry(ms(0), 100), ms(300));
    }
}
