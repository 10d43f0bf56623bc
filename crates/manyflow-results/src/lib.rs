//! The results of a scenario's runs, compared with its expectations, as CSV, JSON, SVG and one HTML
//! page.
//!
//! | file | contents |
//! |---|---|
//! | `evaluate.rs` | the cells with their measures, and the expectations with their verdicts |
//! | `seeds.rs` | seeds without a value, and seeds outside the bounds |
//! | `summary.rs` | `summary.json` |
//! | `tables.rs` | `measures.csv` and the series of each plot |
//! | [`rows`] | runs as rows of a table, which sweeps write as Parquet |
//! | `plot/`, `chart.rs`, `axis.rs` | the figures |
//! | `html.rs` | `index.html`, with all results |
//! | `text.rs` | outcomes as text, for other processes |
//! | `verdicts.rs` | the verdicts of several scenarios: one page, CSV, LaTeX |
//! | [`shard`] | parts of a scenario for batch queues, and their merged results |
//!
//! The same scenario and seeds give the same bytes. The files contain no time of day and no
//! duration.
//!
//! The scenario is given as an [`Outline`], and runs as [`Outcome`]s, so that results are read and
//! drawn without the protocols that made them.
#![forbid(unsafe_code)]

mod axis;
mod cells;
mod chart;
mod evaluate;
mod html;
mod plot;
pub mod rows;
mod seeds;
pub mod shard;
mod summary;
mod tables;
mod text;
mod verdicts;

use std::io;
use std::path::Path;
use std::sync::OnceLock;

pub use cells::CellResult;
pub use evaluate::{Checked, Verdict};
pub use text::{outcomes_from_text, outcomes_to_text};
pub use verdicts::{Conclusion, Verdicts};

use manyflow_model::tables::PlotTable;
use manyflow_model::{FailedRun, Job, Outcome, Outline, Run};

/// The program that made the results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The commit of the program, if known.
    pub commit: Option<String>,
    /// The compiler of the program, if known.
    pub toolchain: Option<String>,
}

/// The results of a scenario.
#[derive(Debug)]
pub struct Results<'a> {
    /// The scenario. Its cells are in `cells`.
    outline: Outline,
    provenance: Provenance,
    seeds: Vec<u64>,
    cells: Vec<CellResult>,
    runs: Vec<&'a Run>,
    failures: Vec<&'a FailedRun>,
    expectations: Vec<Checked>,
    /// The figures, which are drawn when they are first asked for.
    figures: OnceLock<Vec<Figure>>,
}

/// A figure as a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of its file, without extension.
    pub name: String,
    /// The title of the figure.
    pub title: String,
    /// The picture, as SVG.
    pub svg: String,
    /// The note below the picture on the page, if some figures were left out.
    pub note: Option<String>,
}

impl Figure {
    /// Returns whether the figure is the plot of this name, or shows it for one of several cells.
    pub fn is_of(&self, plot: &str) -> bool {
        let rest = self.name.strip_prefix(plot);
        let cell = rest.map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        cell.is_some_and(|cell| cell.bytes().all(|letter| letter.is_ascii_digit()))
    }
}

impl<'a> Results<'a> {
    /// Compares the runs of a scenario with its expectations.
    pub fn new(
        mut outline: Outline,
        jobs: &[Job],
        outcomes: &'a [Outcome],
        provenance: Provenance,
    ) -> Results<'a> {
        let runs: Vec<&Run> = outcomes
            .iter()
            .filter_map(|run| run.as_ref().ok())
            .collect();
        let cells = cells::cells(std::mem::take(&mut outline.cells), &runs);
        let mut seeds: Vec<u64> = jobs.iter().map(|job| job.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        Results {
            provenance,
            seeds,
            failures: outcomes
                .iter()
                .filter_map(|run| run.as_ref().err())
                .collect(),
            expectations: evaluate::expectations(&outline.axes, outline.source.fast, &cells, jobs),
            figures: OnceLock::new(),
            outline,
            cells,
            runs,
        }
    }

    /// Returns the runs of a cell that a plot over time shows: the first ones, as many as the plot
    /// has `seeds`. Others may have series too.
    fn shown_runs(&self, cell: usize, plot: usize, table: &PlotTable) -> Vec<&'a Run> {
        let of_cell = self.runs.iter().filter(|run| run.cell == cell);
        let recorded =
            of_cell.filter(|run| run.series.get(plot).is_some_and(|own| !own.is_empty()));
        recorded.take(table.seeds.get() as usize).copied().collect()
    }

    /// Returns the title of the scenario.
    pub fn title(&self) -> &str {
        &self.outline.title
    }

    /// Returns the cells with their measures.
    pub fn cells(&self) -> &[CellResult] {
        &self.cells
    }

    /// Returns the expectations with their verdicts.
    pub fn expectations(&self) -> &[Checked] {
        &self.expectations
    }

    /// Returns the figures.
    pub fn figures(&self) -> &[Figure] {
        self.figures.get_or_init(|| plot::figures(self))
    }

    /// Returns the runs that failed.
    pub fn failures(&self) -> &[&'a FailedRun] {
        &self.failures
    }

    /// Returns whether all runs succeeded, and all expectations that could be judged are met.
    pub fn passed(&self) -> bool {
        self.conclusion().passed()
    }

    /// Writes all files into a folder. Creates the folder if it does not exist.
    ///
    /// # Errors
    /// Returns the error if a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
        write("summary.json", &self.summary_json())?;
        write("measures.csv", &self.measures_csv()?)?;
        for (name, text) in self.series_csv()? {
            write(&format!("{name}.csv"), &text)?;
        }
        for figure in self.figures() {
            write(&format!("{}.svg", figure.name), &figure.svg)?;
        }
        write("index.html", &self.html())
    }
}
