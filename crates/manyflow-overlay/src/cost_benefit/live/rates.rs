//! The rate of a link: the messages that leave it while something waits.

use core::time::Duration;

/// The times over which the rate is averaged: for the delay of a queue, and for the link's
/// capacity. A transport that pauses for some hundred milliseconds, to repair a loss or to measure
/// the path, does not make the link slower.
const AVERAGES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// A link that sends less than this share of its capacity, while messages wait, has paused.
const PAUSED: f64 = 0.5;

/// The averages of a link's rate.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Rates {
    /// For each average, messages that left and seconds, both exponentially weighted: their ratio
    /// is the rate, however short the time that it is known for.
    weighted: [(f64, f64); 2],
}

impl Rates {
    /// Adds a time of `span_s` in which `departed` messages left.
    pub(super) fn add(&mut self, span_s: f64, departed: f64) {
        for ((messages, seconds), average) in self.weighted.iter_mut().zip(AVERAGES) {
            let fade = libm::exp(-span_s / average.as_secs_f64());
            *messages = *messages * fade + departed;
            *seconds = *seconds * fade + span_s;
        }
    }

    /// Returns the present rate in messages per second; `None` if nothing has left.
    pub(super) fn present(&self) -> Option<f64> {
        let (messages, seconds) = self.weighted[0];
        (messages > 0.0).then(|| messages / seconds)
    }

    /// Returns what the link carries when it does not pause, in messages per second.
    pub(super) fn capacity(&self) -> Option<f64> {
        let (messages, seconds) = self.weighted[1];
        Some(self.present()?.max(messages / seconds))
    }

    /// Returns whether a link that sent `departed` messages in `span_s`, and had more, has paused.
    pub(super) fn is_pause(&self, span_s: f64, departed: f64) -> bool {
        let capacity = self.capacity().unwrap_or(0.0);
        departed < PAUSED * capacity * span_s
    }
}
