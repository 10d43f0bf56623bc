//! `manyflow sim --shard` and `manyflow results merge`: a scenario in parts, for batch queues.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use manyflow_results::shard::{CellStore, Shard, ShardError, merge};
use manyflow_scenario::{Job, Outcome, Progress, Scenario};
use serde_json::json;

use crate::cli::{MergeArgs, RunArgs, threads};
use crate::progress::RunsProgress;
use crate::runs;
use manyflow_terminal::Display;

/// Runs the cells of one shard that are not there yet, and writes each as soon as it is complete.
pub(crate) fn run(
    scenario: &Scenario,
    shard: Shard,
    args: &RunArgs,
    display: &Display,
) -> Result<()> {
    let mut jobs = scenario.jobs()?;
    jobs.retain(|job| shard.has(job.cell));
    let folder = args.out.join(scenario.id());
    let store = CellStore::create(
        &folder,
        &scenario.source(),
        &scenario.fingerprint(),
        runs::provenance(),
    )?;
    let mut cells = by_cell(&jobs);
    let all = cells.len();
    let mut known = Vec::new();
    for (cell, jobs) in &cells {
        if store.has(jobs)? {
            known.push(*cell);
        }
    }
    cells.retain(|cell, _| !known.contains(cell));
    jobs.retain(|job| cells.contains_key(&job.cell));
    let failed = simulate(scenario, &jobs, cells, &store, args, display)?;
    let id = scenario.id();
    display.print_line(&format!(
        "{id}: shard {shard}: {all} cells, {} of them there before, {failed} failed runs\n  -> {}",
        known.len(),
        store.folder().display()
    ))?;
    display.print_json(&json!({
        "event": "done",
        "id": id,
        "shard": shard.to_string(),
        "cells": all,
        "known_cells": known.len(),
        "failed_runs": failed,
        "folder": store.folder().display().to_string(),
    }))?;
    match failed {
        0 => Ok(()),
        _ => bail!("{id}: {failed} runs failed; see above"),
    }
}

fn by_cell(jobs: &[Job]) -> BTreeMap<usize, Vec<Job>> {
    let mut cells: BTreeMap<usize, Vec<Job>> = BTreeMap::new();
    for job in jobs {
        cells.entry(job.cell).or_default().push(*job);
    }
    cells
}

/// Makes all runs of `cells`. Returns the number of runs that failed.
fn simulate(
    scenario: &Scenario,
    jobs: &[Job],
    cells: BTreeMap<usize, Vec<Job>>,
    store: &CellStore,
    args: &RunArgs,
    display: &Display,
) -> Result<usize> {
    let mut progress = RunsProgress::new(display, scenario, jobs)?;
    let mut pending = Pending {
        store,
        cells,
        outcomes: BTreeMap::new(),
        failed: 0,
        error: None,
    };
    // The outcomes are on disk when `run` returns them.
    drop(scenario.run(jobs, threads(args.threads), &mut |news| {
        progress.hear(&news);
        if let Progress::Ended(outcome, _) = news {
            pending.add(outcome);
        }
    }));
    progress.finish();
    match pending.error {
        None => Ok(pending.failed),
        Some(error) => Err(error.into()),
    }
}

/// Cells that are not complete.
struct Pending<'a> {
    store: &'a CellStore,
    cells: BTreeMap<usize, Vec<Job>>,
    /// The outcomes of each cell by seed.
    outcomes: BTreeMap<usize, BTreeMap<u64, Outcome>>,
    failed: usize,
    /// The first error in writing a cell.
    error: Option<ShardError>,
}

impl Pending<'_> {
    /// Adds an outcome, and writes its cell if the outcome is the last one.
    fn add(&mut self, outcome: &Outcome) {
        let (cell, seed) = match outcome {
            Ok(run) => (run.cell, run.seed),
            Err(failed) => (failed.cell, failed.seed),
        };
        self.failed += usize::from(outcome.is_err());
        let outcomes = self.outcomes.entry(cell).or_default();
        outcomes.insert(seed, outcome.clone());
        let jobs = &self.cells[&cell];
        if outcomes.len() < jobs.len() {
            return;
        }
        let outcomes = self.outcomes.remove(&cell).unwrap_or_default();
        let outcomes: Vec<Outcome> = outcomes.into_values().collect();
        if let Err(error) = self.store.write(jobs, &outcomes) {
            tracing::error!("cell {cell} is not stored: {error}");
            self.error.get_or_insert(error);
        }
    }
}

/// Writes the results of all scenarios in folders of cells.
pub(crate) fn merge_results(args: &MergeArgs, display: &Display) -> Result<()> {
    let mut conclusions = Vec::new();
    let read = |source| {
        let scenario = Scenario::from_source(source)?;
        Ok((scenario.outline()?, scenario.jobs()?))
    };
    for merged in merge(&args.folders, &read)? {
        let (jobs, outcomes) = (&merged.jobs, &merged.outcomes);
        conclusions.push(runs::conclude_by(
            merged.outline,
            jobs,
            outcomes,
            merged.provenance,
            &args.out,
            display,
        )?);
    }
    runs::demand(&conclusions)
}
