//! What an application does: a model for scenarios.

use core::time::Duration;

use super::config::ConfigError;
use manyflow_core::time::Time;

/// What an application does.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// When it has frames to send, as many as the connection takes; in order, apart from each other.
    pub sends: Vec<Span>,
    /// It closes its direction after so many frames; `None` never does.
    pub frames: Option<u32>,
    /// The length of its frames, 1 byte to the connection's longest.
    pub frame_bytes: u32,
    /// Frames per second that it sends at most; `None` is as fast as the connection takes them.
    pub frames_per_s: Option<f64>,
    /// The keys of its frames are drawn from 0 to this, excluded; 0 numbers them 0, 1, 2 and so on.
    pub keys: u32,
    /// How long it works on a frame that it has read, before it reads the next.
    pub service: Service,
}

/// From when until when.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start.
    pub from: Time,
    /// The end, excluded.
    pub to: Time,
}

/// How long an application works on a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always as long.
    Constant(Duration),
    /// `high` in the second half of each period, `low` in the first.
    Square {
        /// In the first half.
        low: Duration,
        /// In the second half.
        high: Duration,
        /// Both halves.
        period: Duration,
    },
}

impl Default for Application {
    /// Sends nothing and reads at once.
    fn default() -> Application {
        Application {
            sends: Vec::new(),
            frames: None,
            frame_bytes: 1024,
            frames_per_s: None,
            keys: 0,
            service: Service::Constant(Duration::ZERO),
        }
    }
}

impl Application {
    pub(super) fn check(&self, frame_bytes_max: u32) -> Result<(), ConfigError> {
        let in_order = self.sends.is_sorted_by(|one, next| one.to <= next.from);
        let rates = 1e-6..=1e9;
        ConfigError::first_of([
            (
                "an application's frames",
                "1 byte to the connection's longest frame",
                (1..=frame_bytes_max).contains(&self.frame_bytes),
            ),
            (
                "the times to send",
                "in order and apart, each with its start before its end",
                in_order && self.sends.iter().all(|span| span.from < span.to),
            ),
            (
                "the frames per second",
                "a millionth to 10^9",
                self.frames_per_s.is_none_or(|rate| rates.contains(&rate)),
            ),
            (
                "the period of the service time",
                "more than 0",
                !matches!(self.service, Service::Square { period, .. } if period.is_zero()),
            ),
        ])
    }
}

impl Service {
    /// For a frame that is read at `now`.
    pub(super) fn time(&self, now: Time) -> Duration {
        match *self {
            Service::Constant(time) => time,
            Service::Square { low, high, period } => {
                let period = period.as_nanos();
                let is_second_half = 2 * (u128::from(now.as_nanos()) % period) >= period;
                if is_second_half { high } else { low }
            }
        }
    }
}
