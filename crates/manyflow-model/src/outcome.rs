//! The runs of a scenario, and what they give.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::observables::Observable;

/// A run that is to be made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The index of the cell.
    pub cell: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The index of the run among the runs of its cell.
    pub place: u32,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The index of the cell.
    pub cell: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The number of each measure of the scenario. NaN for formulas, and if nothing was observed.
    #[serde(with = "crate::exact::numbers")]
    pub measures: Vec<f64>,
    /// The series of each line of each plot over time. Empty in runs that no plot shows.
    pub series: Vec<Vec<Vec<Series>>>,
    /// The number of packets that all links delivered, which measures the work of the run.
    pub transmissions: u64,
    /// The number of receivers of all sessions.
    pub receivers: u64,
}

/// A run that failed. Other runs are not affected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("cell {cell}, seed {seed}: {message}; to repeat it: {replay}")]
pub struct FailedRun {
    /// The index of the cell.
    pub cell: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The reason of the failure.
    pub message: String,
    /// The command that repeats the run.
    pub replay: String,
}

/// The results or the failure of one run.
pub type Outcome = Result<Run, FailedRun>;

/// The values of one observable of one receiver or link over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The observable.
    pub what: Observable,
    /// The name of the subject, such as `webrc/R` (session and node) or `A-B` (link).
    pub of: String,
    /// The number of the multicast channel, for rates of channels, or of the group, for rates of
    /// groups.
    pub channel: Option<u16>,
    /// The length of the intervals in seconds, or `None` for values at the times of events.
    #[serde(with = "crate::exact::optional")]
    pub bin_s: Option<f64>,
    /// Times in seconds with values in the observable's unit. The time of an interval is its end.
    #[serde(with = "crate::exact::points")]
    pub points: Vec<(f64, f64)>,
    /// The times in seconds, in order, at which a level ends because its receiver left or its
    /// connection ended. The level has no value until the next point.
    #[serde(with = "crate::exact::numbers")]
    pub ends_s: Vec<f64>,
    /// The weight of each point in means; empty if all weights are equal.
    #[serde(with = "crate::exact::numbers")]
    pub weights: Vec<f64>,
}

impl Series {
    /// Returns whether each value holds until the next one.
    pub fn is_level(&self) -> bool {
        self.bin_s.is_none() && self.what.is_level()
    }
}

/// Turns a panic into an error, so that a bug in one run does not end the others.
///
/// # Errors
/// Returns the error of `run`, or the message of its panic.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!(
            "the simulator panicked: {}",
            text.unwrap_or_default()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let none: Vec<u32> = Vec::new();
        let outcome = guarded(|| Ok(none[3]));
        let message = outcome.unwrap_err();
        assert!(
            message.contains("the len is 0 but the index is 3"),
            "{message}"
        );
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }
}
