//! Runs of a scenario, for the commands that make them in one process, in parts or in real time:
//! which ones, and what they have shown.

use std::path::Path;

use anyhow::{Context, Result, bail};
use manyflow_results::{Checked, Conclusion, Provenance, Results};
use manyflow_scenario::{Job, Outcome, Outline, Scenario};
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::usage;
use serde_json::json;

use crate::cost::Cost;

/// Keeps the runs that the user has selected.
///
/// # Errors
/// Returns an error with the cells and seeds that there are if no run is left.
pub(crate) fn select(jobs: &mut Vec<Job>, cell: Option<usize>, seed: Option<u64>) -> Result<()> {
    let cells = jobs.iter().map(|job| job.cell).max();
    let seeds = jobs.iter().map(|job| job.seed);
    let (first, last) = (seeds.clone().min(), seeds.max());
    jobs.retain(|job| {
        cell.is_none_or(|cell| job.cell == cell) && seed.is_none_or(|seed| job.seed == seed)
    });
    match jobs.is_empty() {
        true => Err(usage(format!(
            "the scenario has no such run: its cells are 0 to {}, its seeds {} to {}",
            cells.unwrap_or_default(),
            first.unwrap_or_default(),
            last.unwrap_or_default()
        ))),
        false => Ok(()),
    }
}

/// Returns the commit and the compiler of this program.
pub(crate) fn provenance() -> Provenance {
    Provenance {
        commit: option_env!("MANYFLOW_COMMIT").map(str::to_owned),
        toolchain: option_env!("MANYFLOW_TOOLCHAIN").map(str::to_owned),
    }
}

/// Writes the results of runs of this program, as [`conclude_by`] does.
pub(crate) fn conclude(
    scenario: &Scenario,
    jobs: &[Job],
    outcomes: &[Outcome],
    out: &Path,
    display: &Display,
) -> Result<Conclusion> {
    conclude_by(
        scenario.outline()?,
        jobs,
        outcomes,
        provenance(),
        out,
        display,
    )
}

/// Writes the results of runs that the program `provenance` made, and prints and returns the
/// verdicts.
pub(crate) fn conclude_by(
    outline: Outline,
    jobs: &[Job],
    outcomes: &[Outcome],
    provenance: Provenance,
    out: &Path,
    display: &Display,
) -> Result<Conclusion> {
    let id = outline.id.clone();
    let results = Results::new(outline, jobs, outcomes, provenance);
    let folder = out.join(&id);
    results
        .write(&folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;

    display.print_line(&format!("{id}: {}", results.title()))?;
    for checked in results.expectations() {
        print_expectation(display, &id, checked)?;
    }
    let cost = Cost::of(outcomes)?;
    display.print_line(&format!("  {cost}"))?;
    display.print_line(&format!("  -> {}\n", folder.join("index.html").display()))?;
    display.print_json(&json!({
        "event": "done",
        "id": id,
        "receivers": cost.receivers,
        "transmissions": cost.transmissions,
        "cpu_seconds": cost.cpu.as_secs_f64(),
        "memory_bytes": cost.memory.0,
        "passed": results.passed(),
        "failed_runs": results.failures().len(),
        "folder": folder.display().to_string(),
    }))?;
    Ok(results.conclusion())
}

/// Fails, and names the scenarios, if expectations of some are not met.
pub(crate) fn demand(conclusions: &[Conclusion]) -> Result<()> {
    let missed = conclusions.iter().filter(|one| !one.passed());
    let missed: Vec<&str> = missed.map(|one| one.id.as_str()).collect();
    match missed.is_empty() {
        true => Ok(()),
        false => bail!(
            "not all expectations are met: {}; see MISSED above",
            missed.join(", ")
        ),
    }
}

fn print_expectation(display: &Display, id: &str, checked: &Checked) -> Result<(), OutputError> {
    display.print_line(&format!("  {}", checked.line()))?;
    display.print_json(&json!({
        "event": "expectation",
        "id": id,
        "what": checked.what,
        "value": checked.value.as_ref().map(|value| value.value),
        "verdict": checked.verdict.word(),
        "paper": checked.paper,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_there_is_answered_with_those_that_are() {
        let runs = || {
            let seeds = (0..3_u32).map(|place| (place, 5 + u64::from(place)));
            let cells = (0..2).flat_map(move |cell| seeds.clone().map(move |seed| (cell, seed)));
            let jobs = cells.map(|(cell, (place, seed))| Job { cell, seed, place });
            jobs.collect::<Vec<_>>()
        };
        let mut jobs = runs();
        select(&mut jobs, Some(1), Some(7)).unwrap();
        assert_eq!(jobs.len(), 1);
        for (cell, seed) in [(Some(2), None), (None, Some(1)), (Some(0), Some(8))] {
            let error = select(&mut runs(), cell, seed).unwrap_err().to_string();
            assert!(
                error.ends_with("its cells are 0 to 1, its seeds 5 to 7"),
                "{error}"
            );
        }
    }
}
