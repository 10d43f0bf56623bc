//! Accepts that fail, for example because too many files are open.

use std::io;
use std::time::Duration;

use manyflow_core::Time;
use tokio::time::{Instant, sleep};

use crate::seldom::Seldom;

/// The pause after a failed accept: the next one would fail for the same reason.
const PAUSE: Duration = Duration::from_millis(100);

/// The failed accepts of one listener. The log has the first of them, and their number once a
/// minute.
#[derive(Debug)]
pub struct FailedAccepts {
    begun: Instant,
    seldom: Seldom,
}

impl Default for FailedAccepts {
    fn default() -> FailedAccepts {
        FailedAccepts {
            begun: Instant::now(),
            seldom: Seldom::default(),
        }
    }
}

impl FailedAccepts {
    /// Counts a failed accept, and waits for 100 ms.
    pub async fn pause(&mut self, error: &io::Error) {
        if let Some(line) = self.count(error) {
            tracing::warn!("{line}");
        }
        sleep(PAUSE).await;
    }

    /// Returns what to log, if it is time for that.
    fn count(&mut self, error: &io::Error) -> Option<String> {
        let count = self.seldom.count(Time::ZERO + self.begun.elapsed())?;
        let times = match count {
            1 => String::new(),
            _ => format!(", {count} times"),
        };
        Some(format!(
            "cannot accept a connection: {error}{times}; trying again: check the limit of open files"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_log_has_the_first_failed_accept_and_their_number_once_a_minute() {
        let (mut failed, error) = (FailedAccepts::default(), io::Error::other("none left"));
        let first = failed.count(&error).unwrap();
        assert!(first.contains("connection: none left; trying"), "{first}");
        for _ in 0..599 {
            sleep(PAUSE).await;
            assert_eq!(failed.count(&error), None);
        }
        sleep(PAUSE).await;
        let next = failed.count(&error).unwrap();
        assert!(next.contains("600 times"), "{next}");
    }
}
