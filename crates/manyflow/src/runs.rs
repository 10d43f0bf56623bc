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
pub(crate) fn select(jobs: &mut Vec<Job>, cell: Option<usize>, seed: Option<u64>) -> Result<()> {
    jobs.retain(|job| {
        cell.is_none_or(|cell| job.cell == cell) && seed.is_none_or(|seed| job.seed == seed)
    });
    match jobs.is_empty() {
        true => Err(usage(
            "the scenario has no such cell or seed: check --cell and --seed",
        )),
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
