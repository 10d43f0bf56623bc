//! A window for transfers that yield to others, such as repairs. Like LEDBAT (RFC 6817), it takes a
//! longer wait for answers as the sign that others use the members, their disks or the path, and
//! shrinks before they lose anything.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::Time;

/// The time over which the shortest wait is remembered.
const MEMORY: Duration = Duration::from_secs(60);
/// The memory is divided into parts of this length.
const PART: Duration = Duration::from_secs(10);
/// The wait beyond which the window shrinks is twice the shortest one, and this much more.
const SLACK: Duration = Duration::from_millis(20);

/// The bytes that a yielding transfer may have in flight.
#[derive(Debug)]
pub(crate) struct YieldingWindow {
    bytes: u64,
    bytes_max: u64,
    /// The shortest wait per part of the memory, with the time at which the part began.
    shortest: VecDeque<(Time, Duration)>,
    /// Requests that were sent before this time do not shrink the window again.
    shrunk_at: Time,
}

impl YieldingWindow {
    /// Creates a window of at most `bytes_max`, which begins with room for a single request.
    pub(crate) fn new(bytes_max: u64) -> YieldingWindow {
        YieldingWindow {
            bytes: 0,
            bytes_max,
            shortest: VecDeque::new(),
            shrunk_at: Time::ZERO,
        }
    }

    /// Returns the bytes that may be in flight. One request may always be.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes the answer to a request of `bytes` that was sent once.
    pub(crate) fn note_answer(&mut self, now: Time, sent_at: Time, bytes: u32) {
        let wait = now - sent_at;
        let limit = 2 * self.note_wait(now, wait) + SLACK;
        if wait <= limit {
            // A window of answers makes room for two more requests.
            let step = 2 * u64::from(bytes) * u64::from(bytes) / self.bytes.max(bytes.into());
            self.bytes = (self.bytes + step.max(1)).min(self.bytes_max);
        } else if sent_at >= self.shrunk_at {
            self.shrink();
            self.shrunk_at = now;
        }
    }

    /// Notes that a request has timed out.
    pub(crate) fn note_loss(&mut self) {
        self.shrink();
    }

    fn shrink(&mut self) {
        self.bytes /= 2;
    }

    /// Notes a wait, and returns the shortest one in memory.
    fn note_wait(&mut self, now: Time, wait: Duration) -> Duration {
        match self.shortest.back_mut() {
            Some((begun, shortest)) if now < *begun + PART => *shortest = wait.min(*shortest),
            _ => self.shortest.push_back((now, wait)),
        }
        while self
            .shortest
            .front()
            .is_some_and(|(begun, _)| *begun + MEMORY < now)
        {
            self.shortest.pop_front();
        }
        let waits = self.shortest.iter().map(|(_, shortest)| *shortest);
        waits.min().unwrap_or(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u32 = 100_000;

    /// Answers one request at a time, each after `wait`, for `time`.
    fn run(window: &mut YieldingWindow, now: &mut Time, wait: Duration, time: Duration) {
        let end = *now + time;
        while *now < end {
            let sent_at = *now;
            *now += wait;
            window.note_answer(*now, sent_at, CHUNK);
        }
    }

    #[test]
    fn the_window_grows_while_answers_are_fast_and_shrinks_while_others_use_the_path() {
        let mut window = YieldingWindow::new(1_000_000);
        let mut now = Time::ZERO;
        let [fast, slow] = [10, 100].map(Duration::from_millis);
        run(&mut window, &mut now, fast, Duration::from_secs(5));
        assert_eq!(window.bytes(), 1_000_000);
        run(&mut window, &mut now, slow, Duration::from_secs(2));
        assert!(window.bytes() < u64::from(CHUNK), "{window:?}");
        run(&mut window, &mut now, fast, Duration::from_secs(5));
        assert_eq!(window.bytes(), 1_000_000);
    }

    #[test]
    fn requests_that_wait_together_shrink_the_window_once() {
        let mut window = YieldingWindow::new(1_000_000);
        let mut now = Time::ZERO;
        run(
            &mut window,
            &mut now,
            Duration::from_millis(10),
            Duration::from_secs(5),
        );
        let sent_at = now;
        now += Duration::from_millis(500);
        for _ in 0..5 {
            window.note_answer(now, sent_at, CHUNK);
        }
        assert_eq!(window.bytes(), 500_000);
        window.note_loss();
        assert_eq!(window.bytes(), 250_000);
    }

    #[test]
    fn a_path_that_has_become_longer_is_accepted_after_a_minute() {
        let mut window = YieldingWindow::new(1_000_000);
        let mut now = Time::ZERO;
        run(
            &mut window,
            &mut now,
            Duration::from_millis(10),
            Duration::from_secs(5),
        );
        run(
            &mut window,
            &mut now,
            Duration::from_millis(100),
            Duration::from_secs(100),
        );
        assert_eq!(window.bytes(), 1_000_000);
    }
}
