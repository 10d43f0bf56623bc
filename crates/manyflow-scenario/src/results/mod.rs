//! Results: what a scenario's runs gave, held against what it expects, as CSV, JSON, SVG and one
//! HTML page.
//!
//! | file | what it holds |
//! |---|---|
//! | `evaluate.rs` | runs to cells, cells to expectations with verdicts |
//! | `seeds.rs` | seeds without a value, and a share of the seeds that keeps its bounds |
//! | `summary.rs` | `summary.json` |
//! | `csv.rs` | `measures.csv` and the series of each plot |
//! | `plot/`, `chart.rs`, `axis.rs` | the figures |
//! | `html.rs` | `index.html`, with all of it |
//!
//! The same scenario and seeds give the same bytes: no time of day and no duration stands in them.

mod axis;
mod chart;
mod csv;
mod evaluate;
mod html;
mod plot;
mod seeds;
mod summary;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

pub use evaluate::{CellResult, Checked, Verdict};

use crate::{FailedRun, Job, Outcome, Run, Scenario, ScenarioError};

/// What made the results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The commit of the program, if it is known.
    pub commit: Option<String>,
    /// The compiler that made it, if it is known.
    pub toolchain: Option<String>,
}

/// The results of a scenario.
#[derive(Debug)]
pub struct Results<'a> {
    scenario: &'a Scenario,
    provenance: Provenance,
    title: String,
    source: Option<String>,
    about: Option<String>,
    seeds: Vec<u64>,
    cells: Vec<CellResult>,
    runs: Vec<&'a Run>,
    failures: Vec<&'a FailedRun>,
    expectations: Vec<Checked>,
    figures: Vec<Figure>,
}

/// A figure, drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of its file, without ending.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The picture.
    pub svg: String,
    /// What stands below it on the page: that others were left out.
    pub note: Option<String>,
}

impl<'a> Results<'a> {
    /// Holds the runs of a scenario against its expectations and draws its figures.
    ///
    /// # Errors
    /// None where the outcomes are those of the scenario.
    pub fn new(
        scenario: &'a Scenario,
        jobs: &[Job],
        outcomes: &'a [Outcome],
        provenance: Provenance,
    ) -> Result<Results<'a>, ScenarioError> {
        let runs: Vec<&Run> = outcomes
            .iter()
            .filter_map(|run| run.as_ref().ok())
            .collect();
        let cells = evaluate::cells(scenario, &runs)?;
        let schema = scenario.cell(0)?.schema;
        let mut seeds: Vec<u64> = jobs.iter().map(|job| job.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let mut results = Results {
            scenario,
            provenance,
            seeds,
            failures: outcomes
                .iter()
                .filter_map(|run| run.as_ref().err())
                .collect(),
            expectations: evaluate::expectations(scenario, &cells, jobs)?,
            figures: Vec::new(),
            title: schema.title,
            source: schema.source,
            about: schema.about,
            cells,
            runs,
        };
        results.figures = plot::figures(&results);
        Ok(results)
    }

    /// What the scenario shows.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The cells with their measures.
    pub fn cells(&self) -> &[CellResult] {
        &self.cells
    }

    /// The expectations with their verdicts.
    pub fn expectations(&self) -> &[Checked] {
        &self.expectations
    }

    /// The figures.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// The runs that failed.
    pub fn failures(&self) -> &[&'a FailedRun] {
        &self.failures
    }

    /// Whether all runs succeeded and all expectations are met that can be judged by them.
    pub fn passed(&self) -> bool {
        let met = |checked: &Checked| matches!(checked.verdict, Verdict::Met | Verdict::NotJudged);
        self.failures.is_empty() && self.expectations.iter().all(met)
    }

    /// Writes all files into a folder, which is made where there is none.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
        write("summary.json", &self.summary())?;
        write("measures.csv", &self.measures_csv()?)?;
        for (name, text) in self.series_csv()? {
            write(&format!("{name}.csv"), &text)?;
        }
        for figure in &self.figures {
            write(&format!("{}.svg", figure.name), &figure.svg)?;
        }
        write("index.html", &self.html())
    }
}
