//! How much of a group's rate the sender's driver uses. A rate that is not used says nothing about
//! the path, so it must not grow without end: RFC 7661 has the same rule for TCP's congestion
//! window.

use manyflow_core::time::Time;

/// The smallest share to which a window counts as used. The arrivals of fewer packets measure
/// nothing.
const SHARE_MIN: f64 = 0.05;

/// The use of a group's cumulative rate.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Used {
    /// The share of the rate that was used in the time about which receivers report, above 0 to 1.
    pub(super) share: f64,
    /// The rate that was used lately, in bytes per second; infinite if all is used.
    pub(super) rate: f64,
}

impl Used {
    /// The use by sources that always have data.
    pub(super) const ALL: Used = Used {
        share: 1.0,
        rate: f64::INFINITY,
    };
}

/// The bytes that a group and those below it have sent from one request for reports to the next,
/// which is the time that the reports describe.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// The time of the last request, the bytes that had been sent, and the rate.
    last: Option<(Time, u64, f64)>,
    share: f64,
    /// The rates that were used in the last two windows: some have a packet less than others.
    rates: [f64; 2],
}

impl Usage {
    /// Handles a new request: `sent` bytes have been sent so far, and the cumulative rate is
    /// `rate`, in bytes per second.
    pub(super) fn on_request(&mut self, now: Time, sent: u64, rate: f64) {
        let last = self.last.replace((now, sent, rate));
        let Some((since, before, rate_before)) = last.filter(|(since, ..)| *since < now) else {
            return;
        };
        let used = (sent - before) as f64 / (now - since).as_secs_f64();
        // The rate may have changed in between.
        self.share = (used / rate.min(rate_before)).clamp(SHARE_MIN, 1.0);
        self.rates = [self.rates[1], used];
    }

    /// Returns the use in the last windows; all, before the first window has ended.
    pub(super) fn used(&self) -> Used {
        match self.share > 0.0 {
            true => Used {
                share: self.share,
                rate: self.rates[0].max(self.rates[1]),
            },
            false => Used::ALL,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_window_has_the_share_of_the_lower_of_its_rates() {
        let mut usage = Usage::default();
        usage.on_request(at(0), 0, 1000.0);
        assert_eq!(usage.used(), Used::ALL);
        usage.on_request(at(500), 250, 2000.0);
        let used = usage.used();
        assert_eq!((used.share, used.rate), (0.5, 500.0));
        usage.on_request(at(1000), 2250, 2000.0);
        assert_eq!(usage.used().share, 1.0, "more than the rate");
        usage.on_request(at(1500), 2250, 2000.0);
        let used = usage.used();
        assert_eq!((used.share, used.rate), (SHARE_MIN, 4000.0));
        usage.on_request(at(2000), 2250, 2000.0);
        assert_eq!(usage.used().rate, 0.0);
    }
}
