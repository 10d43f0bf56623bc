//! Writes `summary.json`: every expectation with its value, bounds and verdict, every measure, and
//! the program.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Results;
use super::cells::CellResult;
use super::evaluate::Checked;
use manyflow_model::{Quantity, Samples, mean, spread};

#[derive(Serialize)]
struct Summary<'a> {
    id: &'a str,
    title: &'a str,
    source: &'a Option<String>,
    shortened: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    settings: &'a [String],
    passed: bool,
    scenario_sha256: String,
    program: Program<'a>,
    seeds: &'a [u64],
    expectations: Vec<Expectation<'a>>,
    cells: Vec<CellSummary<'a>>,
    failures: Vec<Failure<'a>>,
}

#[derive(Serialize)]
struct Program<'a> {
    name: &'static str,
    version: &'static str,
    commit: &'a Option<String>,
    toolchain: &'a Option<String>,
}

#[derive(Serialize)]
struct Expectation<'a> {
    what: &'a str,
    value: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    unit: String,
    percent: bool,
    verdict: &'static str,
    note: &'a str,
    paper: &'a Option<String>,
    source: &'a str,
}

#[derive(Serialize)]
struct CellSummary<'a> {
    values: BTreeMap<&'a str, &'a str>,
    seeds: &'a [u64],
    measures: BTreeMap<&'a str, Measure<'a>>,
}

/// A measure in one cell. A missing value is null, because JSON has no NaN.
#[derive(Serialize)]
struct Measure<'a> {
    unit: String,
    mean: f64,
    spread: f64,
    samples: &'a [f64],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seeds_without_value: Vec<u64>,
}

#[derive(Serialize)]
struct Failure<'a> {
    cell: usize,
    seed: u64,
    message: &'a str,
    replay: &'a str,
}

impl Results<'_> {
    /// Returns the text of `summary.json`: expectations, measures and failures.
    ///
    /// # Panics
    /// Never: all keys are texts.
    pub fn summary_json(&self) -> String {
        let failures = self.failures.iter().map(|failure| Failure {
            cell: failure.cell,
            seed: failure.seed,
            message: &failure.message,
            replay: &failure.replay,
        });
        let summary = Summary {
            id: &self.outline.id,
            title: &self.outline.title,
            source: &self.outline.origin,
            shortened: self.outline.source.fast,
            settings: &self.outline.source.settings,
            passed: self.passed(),
            scenario_sha256: self.outline.hash.clone(),
            program: Program {
                name: "manyflow",
                version: env!("CARGO_PKG_VERSION"),
                commit: &self.provenance.commit,
                toolchain: &self.provenance.toolchain,
            },
            seeds: &self.seeds,
            expectations: self.expectations.iter().map(expectation).collect(),
            cells: self
                .cells
                .iter()
                .map(|cell| self.cell_summary(cell))
                .collect(),
            failures: failures.collect(),
        };
        let mut text = serde_json::to_string_pretty(&summary).expect("all keys of maps are texts");
        text.push('\n');
        text
    }

    fn cell_summary<'a>(&'a self, result: &'a CellResult) -> CellSummary<'a> {
        let keys = self.outline.axes.iter().map(|axis| axis.key.as_str());
        let labels = result.cell.labels.iter().map(String::as_str);
        let measures = result.cell.measure.iter();
        let measures = measures.map(|measure| {
            let name = measure.name.as_str();
            let without = result.seeds_without(name);
            (name, summarize(&result.environment[name], without))
        });
        CellSummary {
            values: keys.zip(labels).collect(),
            seeds: &result.seeds,
            measures: measures.collect(),
        }
    }
}

fn summarize(samples: &Samples, seeds_without_value: Vec<u64>) -> Measure<'_> {
    Measure {
        unit: samples.dimension.unit(),
        mean: mean(&samples.values),
        spread: spread(&samples.values),
        samples: &samples.values,
        seeds_without_value,
    }
}

fn expectation(checked: &Checked) -> Expectation<'_> {
    let number = |quantity: Option<Quantity>| quantity.map(|quantity| quantity.value);
    Expectation {
        what: &checked.what,
        value: number(checked.value),
        at_least: number(checked.at_least),
        at_most: number(checked.at_most),
        unit: checked
            .value
            .map_or(String::new(), |value| value.dimension.unit()),
        percent: checked.percent,
        verdict: checked.verdict.word(),
        note: &checked.note,
        paper: &checked.paper,
        source: &checked.source,
    }
}
