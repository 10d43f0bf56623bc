//! `manyflow sim --shard` and `manyflow results merge`: a scenario in parts, for batch queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use manyflow_results::shard::{CellStore, PartWriter, Shard, merge};
use manyflow_scenario::{Job, Outcome, Progress, Scenario};
use serde_json::json;

use crate::cli::{MergeArgs, RunArgs, threads};
use crate::progress::RunsProgress;
use crate::runs;
use manyflow_terminal::Display;

/// The folder of rows in the folder of a scenario's results.
const FOLDER: &str = "cells";
/// The time after which the runs that have ended are written. A process that is killed loses no
/// others.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Runs the cells of one shard that are not there yet, and writes their rows. The shard that finds
/// all cells of the scenario in its folder at its end compacts them.
pub(crate) fn run(
    scenario: &Scenario,
    shard: Shard,
    args: &RunArgs,
    display: &Display,
) -> Result<()> {
    let whole = scenario.jobs()?;
    let mut jobs = whole.clone();
    jobs.retain(|job| shard.has(job.cell));
    let folder = args.out.join(scenario.id()).join(FOLDER);
    let store = Arc::new(CellStore::create(
        &folder,
        &scenario.outline_of([0])?,
        &scenario.fingerprint(),
        runs::provenance(),
    )?);
    for sentence in store.left_out()? {
        tracing::warn!("{sentence}");
    }
    let mut cells = by_cell(&jobs);
    let all = cells.len();
    let known = store.known()?;
    cells.retain(|_, jobs| {
        jobs.iter()
            .any(|job| !known.contains(&(job.cell, job.seed)))
    });
    jobs.retain(|job| cells.contains_key(&job.cell));
    let known_cells = all - cells.len();
    let failed = simulate(scenario, &jobs, cells, &store, args, display)?;
    let known = store.known()?;
    if whole
        .iter()
        .all(|job| known.contains(&(job.cell, job.seed)))
    {
        store.compact()?;
    }
    let id = scenario.id();
    display.print_line(&format!(
        "{id}: shard {shard}: {all} cells, {} of them there before, {failed} failed runs\n  -> {}",
        known_cells,
        store.folder().display()
    ))?;
    display.print_json(&json!({
        "event": "done",
        "id": id,
        "shard": shard.to_string(),
        "cells": all,
        "known_cells": known_cells,
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
    store: &Arc<CellStore>,
    args: &RunArgs,
    display: &Display,
) -> Result<usize> {
    let mut progress = RunsProgress::new(display, scenario, jobs)?;
    let mut pending = Pending {
        scenario,
        writer: PartWriter::new(Arc::clone(store)),
        written: Instant::now(),
        cells,
        outcomes: BTreeMap::new(),
        failed: 0,
        error: None,
    };
    // The outcomes are added to parts as they come.
    drop(scenario.run(jobs, threads(args.threads), &mut |news| {
        progress.hear(&news);
        if let Progress::Ended(outcome, _) = news {
            pending.add(outcome);
        }
    }));
    progress.finish();
    match pending.error {
        None => {
            pending.writer.flush()?;
            Ok(pending.failed)
        }
        Some(error) => Err(error),
    }
}

/// Cells that are not complete.
struct Pending<'a> {
    scenario: &'a Scenario,
    writer: PartWriter,
    /// The time at which the latest part was written.
    written: Instant,
    cells: BTreeMap<usize, Vec<Job>>,
    /// The outcomes of each cell by seed.
    outcomes: BTreeMap<usize, BTreeMap<u64, Outcome>>,
    failed: usize,
    /// The first error in writing rows.
    error: Option<anyhow::Error>,
}

impl Pending<'_> {
    /// Adds an outcome. If it is the last one of its cell, the cell is added to the part.
    fn add(&mut self, outcome: &Outcome) {
        let (cell, seed) = match outcome {
            Ok(run) => (run.cell, run.seed),
            Err(failed) => (failed.cell, failed.seed),
        };
        self.failed += usize::from(outcome.is_err());
        let outcomes = self.outcomes.entry(cell).or_default();
        outcomes.insert(seed, outcome.clone());
        if outcomes.len() < self.cells[&cell].len() {
            return;
        }
        let outcomes = self.outcomes.remove(&cell).unwrap_or_default();
        let outcomes: Vec<Outcome> = outcomes.into_values().collect();
        if let Err(error) = self.store(cell, &outcomes) {
            tracing::error!("cell {cell} is not stored: {error}");
            self.error.get_or_insert(error);
        }
    }

    fn store(&mut self, cell: usize, outcomes: &[Outcome]) -> Result<()> {
        let jobs = &self.cells[&cell];
        let outline = self.scenario.cell(cell)?.outline();
        self.writer.add(outline, jobs, outcomes)?;
        if self.written.elapsed() >= WRITE_EVERY {
            self.writer.flush()?;
            self.written = Instant::now();
        }
        Ok(())
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
