//! The one clock: protocol time is counted from the moment at which a world starts.

use std::time::Instant;

use manyflow_core::Time;

/// Turns the machine's monotonic clock into protocol time and back.
#[derive(Copy, Clone, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose [`Time::ZERO`] is now.
    pub fn start() -> Clock {
        Clock {
            origin: Instant::now(),
        }
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// The protocol time of `instant`; [`Time::ZERO`] where it lies before the start.
    pub fn time_of(&self, instant: Instant) -> Time {
        Time::ZERO + instant.saturating_duration_since(self.origin)
    }

    /// Waits until `time`, to the millisecond of the runtime's timer; for ever where it is `None`.
    pub async fn sleep_until(&self, time: Option<Time>) {
        match time {
            Some(time) => {
                tokio::time::sleep_until((self.origin + (time - Time::ZERO)).into()).await
            }
            None => std::future::pending().await,
        }
    }
}
