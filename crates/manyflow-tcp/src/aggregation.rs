//! The measurements that both versions of BBR share: how acknowledgements are bunched, and whether
//! the pipe is full.

use manyflow_core::time::Time;

use super::control::Delivery;
use super::filter::WindowedMaximum;

/// BBR.extra_acked: the segments that are acknowledged beyond what the bandwidth explains, because
/// links and hosts send acknowledgements in bunches (draft-ietf-ccwg-bbr section 5.5.9).
#[derive(Debug)]
pub(super) struct ExtraAcked {
    began: Time,
    /// The segments acknowledged since then.
    segments: f64,
    maximum: WindowedMaximum,
}

impl ExtraAcked {
    /// Creates an estimate of the maximum over `rounds`.
    pub(super) fn new(rounds: u32) -> ExtraAcked {
        ExtraAcked {
            began: Time::ZERO,
            segments: 0.0,
            maximum: WindowedMaximum::new(rounds),
        }
    }

    /// Returns the estimate in segments.
    pub(super) fn segments(&self) -> f64 {
        self.maximum.maximum()
    }

    /// Changes the number of rounds that are remembered.
    pub(super) fn remember(&mut self, rounds: u32) {
        self.maximum.set_length(rounds);
    }

    /// Begins an interval: nothing is in flight.
    pub(super) fn restart(&mut self, now: Time) {
        self.began = now;
        self.segments = 0.0;
    }

    /// Handles a delivery in round `round`, when `segments_per_s` are expected and the window is
    /// `window` segments.
    pub(super) fn update(
        &mut self,
        now: Time,
        delivery: &Delivery,
        segments_per_s: f64,
        window: f64,
        round: u32,
    ) {
        let mut expected = segments_per_s * (now - self.began).as_secs_f64();
        if self.segments <= expected {
            self.restart(now);
            expected = 0.0;
        }
        self.segments += f64::from(delivery.segments);
        let extra = (self.segments - expected).min(window);
        self.maximum.add(round, extra);
    }
}

/// The growth by which the bandwidth still counts as growing.
const GROWTH: f64 = 1.25;
/// The number of rounds without growth after which the pipe is full.
const ROUNDS: u32 = 3;

/// Estimates whether the pipe is full: the bandwidth has stopped growing (section 5.3.1.2).
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    /// BBR.full_bw: the baseline in segments per second.
    segments_per_s: f64,
    /// BBR.full_bw_count
    rounds: u32,
}

impl FullPipe {
    /// Begins an estimate with a baseline.
    pub(super) fn from_baseline(segments_per_s: f64) -> FullPipe {
        FullPipe {
            segments_per_s,
            rounds: 0,
        }
    }

    /// Handles the bandwidth at the beginning of a round. Returns whether the pipe is full.
    pub(super) fn update(&mut self, segments_per_s: f64) -> bool {
        if segments_per_s >= self.segments_per_s * GROWTH {
            *self = FullPipe::from_baseline(segments_per_s);
            return false;
        }
        self.rounds += 1;
        self.rounds >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipe_is_full_after_three_rounds_without_a_growth_of_a_quarter() {
        let mut pipe = FullPipe::default();
        let full = [100.0, 126.0, 150.0, 155.0, 130.0, 100.0].map(|rate| pipe.update(rate));
        assert_eq!(full, [false, false, false, false, true, true]);
        let mut pipe = FullPipe::default();
        let full = [100.0, 110.0, 120.0, 200.0, 220.0, 240.0, 249.0].map(|rate| pipe.update(rate));
        assert_eq!(full, [false, false, false, false, false, false, true]);
    }
}
