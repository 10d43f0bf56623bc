//! Lines of the log about things that can happen at any rate.

use std::time::Duration;

use manyflow_core::Time;

/// The time between two lines of the log about the same thing.
pub const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Says something in the log once in a while, and counts in between.
#[derive(Debug, Default)]
pub struct Seldom {
    logged: Option<Time>,
    count: u64,
}

impl Seldom {
    /// Counts an event. Returns the number of events since the last line of the log, if it is time
    /// for another line.
    pub fn count(&mut self, now: Time) -> Option<u64> {
        self.count += 1;
        self.take(now)
    }

    /// Returns the number of events that no line of the log has counted, if there are any and it is
    /// time for a line.
    pub fn take(&mut self, now: Time) -> Option<u64> {
        let is_recent = self.logged.is_some_and(|at| now - at < LOG_INTERVAL);
        if is_recent || self.count == 0 {
            return None;
        }
        self.logged = Some(now);
        Some(core::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_counts_the_events_since_the_last_line() {
        let mut seldom = Seldom::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        assert_eq!(seldom.take(at(0)), None);
        let counts: Vec<_> = (0..130).filter_map(|s| seldom.count(at(s))).collect();
        assert_eq!(counts, [1, 60, 60]);
        assert_eq!(seldom.take(at(179)), None);
        assert_eq!(seldom.take(at(180)), Some(9));
        assert_eq!(seldom.take(at(240)), None);
    }
}
