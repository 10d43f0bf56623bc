//! The values that a page shows after its runs, and the files of their results.

use std::io;
use std::time::Duration;

use manyflow_results::{CellResult, Checked, Figure, Provenance, Results};
use manyflow_scenario::{Job, Outcome, Progress, Run, Samples, Scenario, ScenarioError};
use serde_json::{Value, json};

use crate::Work;

/// The maximum number of cells in a page's table of measures.
const CELLS_SHOWN: usize = 2000;
/// The maximum number of failed runs that a page names.
const FAILURES_SHOWN: usize = 20;

/// Compares the outcomes of runs with the scenario's expectations.
///
/// # Errors
/// Returns no error after the scenario has been parsed.
pub fn results<'a>(
    scenario: &Scenario,
    work: &Work,
    outcomes: &'a [Outcome],
    provenance: Provenance,
) -> Result<Results<'a>, ScenarioError> {
    let outline = scenario.outline()?;
    Ok(Results::new(outline, work.jobs(), outcomes, provenance))
}

/// How far the runs of a sweep are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepProgress {
    simulated: Duration,
    /// The simulated time of all runs.
    total: Duration,
    ended: usize,
    runs: usize,
}

impl SweepProgress {
    /// Returns the progress before the first run.
    pub fn new(scenario: &Scenario, jobs: &[Job]) -> SweepProgress {
        let duration = |job: &Job| {
            let cell = scenario.cell(job.cell);
            cell.map_or(Duration::ZERO, |tables| {
                tables.schema.run.duration.duration()
            })
        };
        SweepProgress {
            simulated: Duration::ZERO,
            total: jobs.iter().map(duration).sum(),
            ended: 0,
            runs: jobs.len(),
        }
    }

    /// Takes news of the runs.
    pub fn hear(&mut self, news: &Progress<'_>) {
        match news {
            Progress::Simulated(passed) => self.simulated += *passed,
            Progress::Ended(..) => self.ended += 1,
            Progress::Threads(_) => {}
        }
    }

    /// Returns what the page shows: the simulated share of all time, and the runs that have ended.
    pub fn report(&self) -> Value {
        let share = self.simulated.as_secs_f64() / self.total.as_secs_f64();
        json!({"share": share.min(1.0), "ended": self.ended, "runs": self.runs})
    }
}

/// Returns what a page shows after a single run: measures and expectations.
pub fn conclusion_of_one(results: &Results<'_>, job: Job, run: &Run) -> Value {
    let cell = &results.cells()[job.cell];
    let measures = cell.cell.measure.iter().map(|measure| {
        let value = &cell.environment[&measure.name];
        json!({
            "name": measure.name,
            "value": value.values.first(),
            "unit": value.dimension.unit(),
            "shown": value.shown(),
        })
    });
    json!({
        "measures": measures.collect::<Vec<_>>(),
        "expectations": expectations(results),
        "ends": level_ends(run),
        "transmissions": run.transmissions,
        "receivers": run.receivers,
    })
}

/// Returns what a page shows after a sweep: the expectations, the measures of each cell with their
/// confidence, the figures, and the runs that failed.
pub fn conclusion_of_all(results: &Results<'_>) -> Value {
    let cells = results.cells();
    let measures = cells
        .first()
        .map_or(&[][..], |first| &first.cell.measure[..]);
    let names = measures.iter().map(|measure| measure.name.as_str());
    let names: Vec<&str> = names.collect();
    let row = |cell: &CellResult| {
        let shown = |name: &&str| cell.shown(name, Samples::shown_with_confidence);
        let values: Vec<String> = names.iter().map(shown).collect();
        json!({"labels": cell.cell.labels, "seeds": cell.seeds.len(), "values": values})
    };
    let figure =
        |figure: &Figure| json!({"name": figure.name, "title": figure.title, "note": figure.note});
    let failures = results.failures().iter().take(FAILURES_SHOWN);
    let failures =
        failures.map(|failed| json!({"message": failed.message, "replay": failed.replay}));
    json!({
        "expectations": expectations(results),
        "measures": names,
        "rows": cells.iter().take(CELLS_SHOWN).map(row).collect::<Vec<_>>(),
        "cells_left_out": cells.len().saturating_sub(CELLS_SHOWN),
        "figures": results.figures().iter().map(figure).collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
        "failed_runs": results.failures().len(),
    })
}

/// Returns all expectations, with the paper's values and the verdicts.
fn expectations(results: &Results<'_>) -> Vec<Value> {
    let shown = |checked: &Checked| {
        json!({
            "what": checked.what,
            "shown": checked.shown(),
            "bounds": checked.bounds(),
            "verdict": checked.verdict.word(),
            "note": checked.note,
            "paper": checked.paper,
        })
    };
    results.expectations().iter().map(shown).collect()
}

/// Returns the times at which levels end: plot, line, subject, channel and times of each series
/// that has some.
fn level_ends(run: &Run) -> Vec<Value> {
    let lines = run.series.iter().enumerate().flat_map(|(plot, lines)| {
        let lines = lines.iter().enumerate();
        lines.flat_map(move |(line, all)| all.iter().map(move |series| (plot, line, series)))
    });
    let ending = lines.filter(|(_, _, series)| !series.ends_s.is_empty());
    let ending = ending
        .map(|(plot, line, series)| json!([plot, line, series.of, series.channel, series.ends_s]));
    ending.collect()
}

/// A file of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// The type of the file, such as `text/csv; charset=utf-8`.
    pub media_type: &'static str,
    /// The contents.
    pub text: String,
}

/// Returns a file: `measures.csv`, `report.html`, or `NAME.csv` or `NAME.svg` of a plot; `None` if
/// the results have no such file.
///
/// # Errors
/// If the file cannot be written.
pub fn download(results: &Results<'_>, what: &str) -> io::Result<Option<Download>> {
    let file = |media_type, text| Ok(Some(Download { media_type, text }));
    match what {
        "measures.csv" => return file(CSV, results.measures_csv()?),
        "report.html" => return file("text/html; charset=utf-8", results.html()),
        _ => {}
    }
    if let Some(plot) = what.strip_suffix(".csv") {
        let mut tables = results.series_csv()?.into_iter();
        let table = tables.find(|(name, _)| name == plot);
        return table.map_or(Ok(None), |(_, text)| file(CSV, text));
    }
    let plot = what.strip_suffix(".svg");
    let figures = results.figures();
    // A figure of a sweep is asked for by its own name, and one of a run by that of its plot.
    let named = figures.iter().find(|figure| plot == Some(&figure.name));
    let is_wanted = |figure: &&Figure| plot.is_some_and(|plot| figure.is_of(plot));
    let figure = named.or_else(|| figures.iter().find(is_wanted));
    figure.map_or(Ok(None), |figure| file("image/svg+xml", figure.svg.clone()))
}

const CSV: &str = "text/csv; charset=utf-8";
