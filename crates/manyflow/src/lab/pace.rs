//! The speed of a run, which the page can change, and its end.

use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// The speed that the page wants.
#[derive(Copy, Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Speed {
    /// The simulated seconds in a second; by default there is no limit.
    #[serde(default)]
    pub(super) factor: Option<f64>,
    #[serde(default)]
    pub(super) is_paused: bool,
}

/// Holds a run back.
#[derive(Debug, Default)]
pub(super) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    speed: Speed,
    is_stopped: bool,
    /// A moment and the simulated time at it, from which the speed counts.
    anchor: Option<(Instant, f64)>,
}

impl State {
    /// Returns the time to wait until a simulated time is due; `None` while the run is paused.
    fn delay(&mut self, simulated_s: f64, now: Instant) -> Option<Duration> {
        if self.speed.is_paused {
            return None;
        }
        let Some(factor) = self.speed.factor.filter(|factor| *factor > 0.0) else {
            return Some(Duration::ZERO);
        };
        let (began, from_s) = *self.anchor.get_or_insert((now, simulated_s));
        let due_s = (simulated_s - from_s) / factor;
        let due = Duration::try_from_secs_f64(due_s).unwrap_or(Duration::ZERO);
        Some(due.saturating_sub(now - began))
    }
}

impl Pace {
    pub(super) fn set(&self, speed: Speed) {
        let mut state = self.lock();
        (state.speed, state.anchor) = (speed, None);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Returns whether the run would have to wait at this simulated time.
    pub(super) fn would_wait(&self, simulated_s: f64) -> bool {
        let delay = self.lock().delay(simulated_s, Instant::now());
        delay.is_none_or(|delay| !delay.is_zero())
    }

    /// Waits until a simulated time is due. Returns `Break` if the run has to end.
    pub(super) fn wait(&self, simulated_s: f64) -> ControlFlow<()> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return ControlFlow::Break(());
            }
            state = match state.delay(simulated_s, Instant::now()) {
                None => {
                    let woken = self.changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                Some(Duration::ZERO) => return ControlFlow::Continue(()),
                Some(delay) => {
                    let woken = self.changed.wait_timeout(state, delay);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_for_its_speed_and_not_without_one() {
        let mut state = State::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(state.delay(7.0, start), Some(Duration::ZERO));
        state.speed.factor = Some(10.0);
        assert_eq!(state.delay(8.0, start), Some(Duration::ZERO));
        assert_eq!(
            state.delay(13.0, after(100)),
            Some(Duration::from_millis(400))
        );
        assert_eq!(state.delay(13.0, after(600)), Some(Duration::ZERO));
        state.speed.is_paused = true;
        assert_eq!(state.delay(13.0, after(600)), None);
    }

    #[test]
    fn a_run_that_is_paused_can_be_stopped() {
        let pace = Pace::default();
        let is_paused = true;
        pace.set(Speed {
            factor: None,
            is_paused,
        });
        assert!(pace.would_wait(1.0));
        pace.stop();
        assert_eq!(pace.wait(1.0), ControlFlow::Break(()));
    }
}
