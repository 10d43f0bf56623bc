//! The minimum of the longest round-trip time of a session: the propagation delay without queues,
//! in which the paper counts intervals (d of its Table II).

use core::time::Duration;

use manyflow_core::time::Time;

/// The time after which a minimum is forgotten, unless it was measured again.
const MEMORY: Duration = Duration::from_secs(20);

/// The minimum over the last [`MEMORY`] to twice that time.
#[derive(Copy, Clone, Debug)]
pub(super) struct BaseRtt {
    /// The minima of the present and the previous span of [`MEMORY`].
    present: Duration,
    previous: Duration,
    since: Time,
}

impl BaseRtt {
    pub(super) fn new(now: Time, rtt: Duration) -> BaseRtt {
        BaseRtt {
            present: rtt,
            previous: rtt,
            since: now,
        }
    }

    /// Adds the longest round-trip time of a round.
    pub(super) fn add(&mut self, now: Time, rtt: Duration) {
        if now - self.since >= MEMORY {
            (self.previous, self.present, self.since) = (self.present, rtt, now);
        }
        self.present = self.present.min(rtt);
    }

    pub(super) fn get(&self) -> Duration {
        self.present.min(self.previous)
    }
}
