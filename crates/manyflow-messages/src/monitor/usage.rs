//! The processor time of this process.

use std::time::{Duration, Instant};

use manyflow_net::process::processor_time;

/// The shortest time over which the usage of the processor is measured.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// Measures how much of a processor this process uses.
#[derive(Debug)]
pub(super) struct Usage {
    since: Instant,
    taken: Duration,
    percent: f64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            since: Instant::now(),
            taken: processor_time(),
            percent: 0.0,
        }
    }
}

impl Usage {
    /// Returns the share of one processor that the process has used since the last call, in
    /// percent. Calls within a second return the same.
    pub(super) fn percent(&mut self) -> f64 {
        let (now, taken) = (Instant::now(), processor_time());
        let span = now - self.since;
        if span >= SPAN_MIN {
            self.percent = share(taken.saturating_sub(self.taken), span);
            (self.since, self.taken) = (now, taken);
        }
        self.percent
    }
}

/// Returns a share in percent, with one decimal as nats-server's.
fn share(taken: Duration, span: Duration) -> f64 {
    (taken.as_secs_f64() / span.as_secs_f64() * 1e3).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_one_decimal() {
        let taken = Duration::from_millis(1234);
        assert_eq!(share(taken, Duration::from_secs(10)), 12.3);
        assert_eq!(share(Duration::ZERO, Duration::from_secs(1)), 0.0);
    }

    #[test]
    fn a_call_within_a_second_returns_the_same() {
        let mut usage = Usage {
            percent: 7.5,
            ..Usage::default()
        };
        assert_eq!(usage.percent(), 7.5);
    }
}
