//! Outcomes as text, by which programs send them to each other.

use std::borrow::Cow;

use manyflow_model::{FailedRun, Outcome, Run};
use serde::{Deserialize, Serialize};

/// A line: the outcome of a run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line<'a> {
    Run(Cow<'a, Run>),
    Failed(Cow<'a, FailedRun>),
}

/// Writes outcomes as text, a line for each. [`outcomes_from_text`] reads the same outcomes back,
/// with all bits of their numbers.
///
/// # Panics
/// Never: all keys are texts.
pub fn outcomes_to_text(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().map(|outcome| {
        let line = match outcome {
            Ok(run) => Line::Run(Cow::Borrowed(run)),
            Err(failed) => Line::Failed(Cow::Borrowed(failed)),
        };
        serde_json::to_string(&line).expect("all keys of maps are texts") + "\n"
    });
    lines.collect()
}

/// Reads the outcomes that [`outcomes_to_text`] has written.
///
/// # Errors
/// Returns the number of the first wrong line, from 1, and the reason.
pub fn outcomes_from_text(text: &str) -> Result<Vec<Outcome>, (usize, serde_json::Error)> {
    let outcomes = (1..).zip(text.lines()).map(|(number, line)| {
        let line = serde_json::from_str(line).map_err(|error| (number, error))?;
        Ok(match line {
            Line::Run(run) => Ok(run.into_owned()),
            Line::Failed(failed) => Err(failed.into_owned()),
        })
    });
    outcomes.collect()
}
