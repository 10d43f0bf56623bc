//! An application that follows a plan: it sends at given times, and works for some time on each
//! frame that it reads.

use core::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use manyflow_core::interval::Interval;
use manyflow_core::{Contents, Rate, Time};

use super::Application;
use manyflow_anypoint::{ConfigError, Frame};

/// The plan of a [`Worker`]. Its frames have a length, but no contents.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The spans of time in which it sends as many frames as the connection takes. Spans must be in
    /// order and must not overlap.
    pub sends: Vec<Span>,
    /// The number of frames after which the worker closes its direction; `None` never closes it.
    pub frames: Option<u32>,
    /// The length of each frame in bytes, 1 to the longest of the connection.
    pub frame_bytes: u32,
    /// The maximum number of frames per second, a millionth to 10^9; `None` sends as fast as the
    /// connection takes them.
    pub frames_per_s: Option<f64>,
    /// The number of keys: each frame's key is drawn from `0..keys`. With 0, keys count the frames
    /// from `first_key`.
    pub keys: u32,
    /// The key of the first frame, if `keys` is 0.
    pub first_key: u32,
    /// The time that the worker spends on a frame that it has read, before it reads the next.
    pub service: Service,
}

/// A span of time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start.
    pub from: Time,
    /// The end, excluded.
    pub to: Time,
}

/// The time that an application spends on a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// The same time for each frame.
    Constant(Duration),
    /// `low` in the first half of each period, `high` in the second.
    Square {
        /// The time for a frame that is read in the first half.
        low: Duration,
        /// The time for a frame that is read in the second half.
        high: Duration,
        /// The length of both halves together, above 0.
        period: Duration,
    },
}

impl Default for Workload {
    /// Returns a workload that sends nothing and reads at once.
    fn default() -> Workload {
        Workload {
            sends: Vec::new(),
            frames: None,
            frame_bytes: 1024,
            frames_per_s: None,
            keys: 0,
            first_key: 0,
            service: Service::Constant(Duration::ZERO),
        }
    }
}

impl Workload {
    fn check(&self, frame_bytes_max: u32) -> Result<(), ConfigError> {
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
    /// Returns the time for a frame that is read at `now`.
    fn time(&self, now: Time) -> Duration {
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

/// The time at which a paced application has its next frame ready.
#[derive(Debug)]
struct Pace {
    interval: Interval,
    due: Time,
}

impl Pace {
    /// Creates a pace. [`Interval`] takes bits and their rate; a frame counts as 10^9 bits, so that
    /// the rate has nine digits after the point.
    fn new(frames_per_s: f64) -> Pace {
        let rate = Rate::from_bits_per_s((frames_per_s * 1e9 + 0.5) as u64);
        Pace {
            interval: Interval::new(1_000_000_000 / 8, rate),
            due: Time::ZERO,
        }
    }

    /// Notes a frame that is sent at `now`. A frame that waited for room delays those after it.
    fn advance(&mut self, now: Time) {
        self.due = self.due.max(now) + self.interval.advance();
    }
}

/// An application with a [`Workload`].
#[derive(Debug)]
pub struct Worker {
    workload: Workload,
    /// The index in [`Workload::sends`] of the current or the next span.
    span: usize,
    pace: Option<Pace>,
    random: Pcg64Mcg,
    taken: u32,
}

impl Worker {
    /// Creates an application above a connection whose longest frame has `frame_bytes_max` bytes.
    /// `seed` determines the keys.
    ///
    /// # Errors
    /// If a value of the workload is outside its range.
    pub fn new(workload: Workload, frame_bytes_max: u32, seed: u64) -> Result<Worker, ConfigError> {
        workload.check(frame_bytes_max)?;
        Ok(Worker {
            span: 0,
            pace: workload.frames_per_s.map(Pace::new),
            random: Pcg64Mcg::seed_from_u64(seed),
            taken: 0,
            workload,
        })
    }
}

impl Application for Worker {
    fn next_frame_at(&self) -> Option<Time> {
        if self.has_sent_all() {
            return None;
        }
        let due = self.pace.as_ref().map_or(Time::ZERO, |pace| pace.due);
        let spans = self.workload.sends.get(self.span..)?;
        let span = spans.iter().find(|span| span.to > due)?;
        Some(due.max(span.from))
    }

    fn next_frame_bytes(&self) -> u32 {
        self.workload.frame_bytes
    }

    /// Takes a frame, unless the span has ended while the frame waited for room.
    fn take_frame(&mut self, now: Time) -> Option<Frame<Contents>> {
        let spans = &self.workload.sends;
        while spans.get(self.span).is_some_and(|span| span.to <= now) {
            self.span += 1;
        }
        if spans.get(self.span).is_none_or(|span| now < span.from) {
            return None;
        }
        let key = match self.workload.keys {
            0 => self.workload.first_key.wrapping_add(self.taken),
            keys => self.random.random_range(0..keys),
        };
        self.taken += 1;
        if let Some(pace) = &mut self.pace {
            pace.advance(now);
        }
        let payload = Contents::from(self.workload.frame_bytes);
        Some(Frame { key, payload })
    }

    fn has_sent_all(&self) -> bool {
        self.workload.frames.is_some_and(|n| self.taken >= n)
    }

    fn read_frame(&mut self, now: Time, _frame: Frame<Contents>) -> Duration {
        self.workload.service.time(now)
    }

    fn stop_sending(&mut self) {
        self.workload.frames = Some(self.taken);
    }
}
