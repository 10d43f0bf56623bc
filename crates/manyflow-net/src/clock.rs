//! The only clock. It counts protocol time from the moment at which a driver starts.
//!
//! It follows the runtime's time, so that tests can pause it.

use std::time::Instant;

use manyflow_core::Time;

/// Converts the machine's monotonic clock into protocol time and back.
#[derive(Copy, Clone, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock, whose [`Time::ZERO`] is now.
    pub fn start() -> Clock {
        Clock {
            origin: tokio::time::Instant::now().into_std(),
        }
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.time_of(tokio::time::Instant::now().into_std())
    }

    /// Returns the protocol time of `instant`; [`Time::ZERO`] if that is before the start.
    pub fn time_of(&self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// Returns the instant of a protocol time.
    pub fn instant_of(&self, time: Time) -> Instant {
        self.origin + (time - Time::ZERO)
    }

    /// Waits until `time`, with the runtime's resolution of a millisecond. Waits forever if it is
    /// `None`.
    pub async fn sleep_until(&self, time: Option<Time>) {
        match time {
            Some(time) => tokio::time::sleep_until(self.instant_of(time).into()).await,
            None => std::future::pending().await,
        }
    }
}
