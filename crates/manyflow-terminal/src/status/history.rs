//! The last 10 minutes of the numbers that a page draws.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use super::{Reading, Series, Unit};

/// The time between two samples.
pub(super) const STEP: Duration = Duration::from_secs(2);
/// The number of samples that are kept: 10 minutes of them.
const SAMPLES_MAX: usize = 300;
/// The maximum number of series; further ones are not drawn. Their names may come from peers.
const SERIES_MAX: usize = 24;

/// The samples of all series, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    lines: Vec<Line>,
    /// The time of the last sample.
    last: Option<Duration>,
}

/// The samples of a series.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    name: String,
    unit: Unit,
    /// `None` where the series had no value. Single precision is enough for a picture.
    values: VecDeque<Option<f32>>,
    /// The last reading, if it was a total.
    #[serde(skip)]
    total: Option<u64>,
    /// Whether the series was there at the last sample.
    #[serde(skip)]
    is_read: bool,
}

impl History {
    /// Adds a sample of each series, read at `now`. A series that is missing has no value, and is
    /// forgotten when all its values are older than 10 minutes.
    pub(super) fn sample(&mut self, now: Duration, series: Vec<Series>) {
        let seconds = self.last.map(|last| now.saturating_sub(last).as_secs_f64());
        self.last = Some(now);
        let length = self.lines.iter().map(|line| line.values.len()).max();
        let length = length.unwrap_or_default();
        for line in &mut self.lines {
            line.values.push_back(None);
            line.is_read = false;
        }
        for read in series {
            if let Some(line) = self.line(&read, length) {
                line.is_read = true;
                let value = line.value(read.reading, seconds);
                *line.values.back_mut().expect("a place was pushed") = value;
            }
        }
        for line in &mut self.lines {
            if line.values.len() > SAMPLES_MAX {
                line.values.pop_front();
            }
            // The growth while a series is away belongs to no sample.
            line.total = line.total.filter(|_| line.is_read);
        }
        self.lines
            .retain(|line| line.is_read || line.values.iter().any(Option::is_some));
        debug_assert!(self.lines.len() <= SERIES_MAX);
    }

    /// Returns the line of this series, with a place for the new value behind `length` others;
    /// `None` if there are too many.
    fn line(&mut self, read: &Series, length: usize) -> Option<&mut Line> {
        let place = self.lines.iter().position(|line| line.name == read.name);
        let place = match place {
            Some(place) => place,
            None if self.lines.len() == SERIES_MAX => return None,
            None => {
                self.lines.push(Line {
                    name: read.name.clone(),
                    unit: read.unit,
                    values: std::iter::repeat_n(None, length + 1).collect(),
                    total: None,
                    is_read: false,
                });
                self.lines.len() - 1
            }
        };
        Some(&mut self.lines[place])
    }

    /// Returns the samples of all series.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl Line {
    /// Returns the value of a sample that is `seconds` after the last.
    fn value(&mut self, reading: Reading, seconds: Option<f64>) -> Option<f32> {
        let value = match reading {
            Reading::Now(value) => Some(value),
            Reading::Total(total) => {
                let before = self.total.replace(total);
                let seconds = seconds.filter(|seconds| *seconds > 0.0);
                // A session that begins again counts from 0.
                let growth = total.saturating_sub(before?) as f64;
                let bits = if self.unit == Unit::BitsPerS {
                    8.0
                } else {
                    1.0
                };
                seconds.map(|seconds| growth * bits / seconds)
            }
        };
        value
            .filter(|value| value.is_finite())
            .map(|value| value as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn values(history: &History, name: &str) -> Vec<Option<f32>> {
        let mut lines = history.lines.iter();
        let line = lines.find(|line| line.name == name).unwrap();
        line.values.iter().copied().collect()
    }

    #[test]
    fn a_total_of_bytes_is_drawn_as_its_growth_in_bits_per_second() {
        let mut history = History::default();
        for (at, total) in [(0, 1000), (2, 2000), (4, 500)] {
            let read = Series::growth("sent", Unit::BitsPerS, total);
            history.sample(seconds(at), vec![read]);
        }
        assert_eq!(values(&history, "sent"), [None, Some(4000.0), Some(0.0)]);
    }

    #[test]
    fn series_that_come_later_or_leave_have_no_values_in_between() {
        let mut history = History::default();
        let read = |name: &str| Series::now(name, Unit::Count, 1.0);
        history.sample(seconds(0), vec![read("a")]);
        history.sample(seconds(2), vec![read("a"), read("b")]);
        history.sample(seconds(4), vec![read("b")]);
        assert_eq!(values(&history, "a"), [Some(1.0), Some(1.0), None]);
        assert_eq!(values(&history, "b"), [None, Some(1.0), Some(1.0)]);
    }

    #[test]
    fn ten_minutes_of_samples_and_a_limited_number_of_series_are_kept() {
        let mut history = History::default();
        for step in 0..2 * SAMPLES_MAX as u64 {
            let named = |of| Series::now(format!("{of}"), Unit::Count, step as f64);
            let ended = (step < 2).then(|| Series::growth("ended", Unit::Count, step));
            let all = ended.into_iter().chain((0..100).map(named));
            history.sample(seconds(2 * step), all.collect());
        }
        assert_eq!(history.lines.len(), SERIES_MAX);
        assert!(history.lines.iter().all(|line| line.name != "ended"));
        assert_eq!(values(&history, "0").len(), SAMPLES_MAX);
        assert_eq!(values(&history, "0").last(), Some(&Some(599.0)));
    }
}
