//! Runs as rows of a table, which is what the files of sweeps hold: one row for each run.
//!
//! | column | type | contents |
//! |---|---|---|
//! | `cell` | uint32 | the number of the cell |
//! | each axis of the sweep | text | its value, as written in the scenario |
//! | `seed` | uint64 | the seed |
//! | each measure | float64 | its value in the unit of the field's metadata; null without a value |
//! | `verdict: WHAT` | text | the cell's verdict on an expectation; null if it is of other cells |
//! | `run.place` | uint32 | the index of the run among the runs of its cell |
//! | `run.transmissions`, `run.receivers` | uint64 | the work of the run; null if it failed |
//! | `run.failure`, `run.replay` | text | the reason of a failure, and the command that repeats it |
//! | `run.series` | list | the series of plots over time, each with its points |
//!
//! The first columns are for people, and those of `run` make the table complete:
//! [`Columns::decode`] returns the same outcomes, with all bits of their numbers.

mod decode;
mod encode;
mod series;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use manyflow_model::tables::{Across, PlotTable};
use manyflow_model::{Job, Outcome, Outline, OutlineAxis};

use crate::CellResult;

/// The column of each property of a run, besides cell and seed.
const PLACE: &str = "run.place";
const TRANSMISSIONS: &str = "run.transmissions";
const RECEIVERS: &str = "run.receivers";
const FAILURE: &str = "run.failure";
const REPLAY: &str = "run.replay";
const SERIES: &str = "run.series";

/// The columns of the rows of one scenario.
#[derive(Debug)]
pub struct Columns {
    schema: SchemaRef,
    axes: Vec<OutlineAxis>,
    fast: bool,
    measures: Vec<Measure>,
    /// The column and the index of each expectation that every cell has to meet.
    verdicts: Vec<(String, usize)>,
    plots: Vec<PlotTable>,
}

/// The column of a measure.
#[derive(Debug)]
struct Measure {
    column: String,
    name: String,
    /// Whether the value is computed from other measures, so that a run does not hold it.
    is_formula: bool,
}

/// A run with its outcome.
pub type Row = (Job, Outcome);

impl Columns {
    /// Creates the columns for all cells of a scenario, of which `outline` has at least the first.
    ///
    /// # Panics
    /// Panics if the outline has no cell.
    pub fn new(outline: &Outline) -> Columns {
        let first = CellResult::new(outline.cells[0].clone(), []);
        let mut fields = vec![Field::new("cell", DataType::UInt32, false)];
        let mut taken = BTreeSet::from(["cell".to_owned(), "seed".to_owned()]);
        for axis in &outline.axes {
            let name = unique(&axis.key, &mut taken);
            fields.push(Field::new(name, DataType::Utf8, false));
        }
        fields.push(Field::new("seed", DataType::UInt64, false));
        let measures = first.cell.measure.iter().map(|measure| Measure {
            column: unique(&measure.name, &mut taken),
            name: measure.name.clone(),
            is_formula: measure.value.is_some(),
        });
        let measures: Vec<Measure> = measures.collect();
        fields.extend(measures.iter().map(|measure| {
            let unit = first.environment[&measure.name].dimension.unit();
            let field = Field::new(&measure.column, DataType::Float64, true);
            field.with_metadata([("unit".to_owned(), unit)])
        }));
        let every = first.cell.expect.iter().enumerate();
        let every = every.filter(|(_, expect)| expect.across == Across::Every);
        let verdicts: Vec<(String, usize)> = every
            .map(|(index, expect)| {
                let name = format!("verdict: {}", expect.what);
                (unique(&name, &mut taken), index)
            })
            .collect();
        let text = |(name, _): &(String, usize)| Field::new(name, DataType::Utf8, true);
        fields.extend(verdicts.iter().map(text));
        fields.extend([
            Field::new(PLACE, DataType::UInt32, false),
            Field::new(TRANSMISSIONS, DataType::UInt64, true),
            Field::new(RECEIVERS, DataType::UInt64, true),
            Field::new(FAILURE, DataType::Utf8, true),
            Field::new(REPLAY, DataType::Utf8, true),
            Field::new(SERIES, series::data_type(), false),
        ]);
        Columns {
            schema: Arc::new(Schema::new(fields)),
            axes: outline.axes.clone(),
            fast: outline.source.fast,
            measures,
            verdicts,
            plots: first.cell.plots.clone(),
        }
    }

    /// Returns the names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the names of the columns for people: axes, measures and verdicts of each run.
    pub fn shown(&self) -> impl Iterator<Item = &str> {
        let fields = self.schema.fields().iter();
        let names = fields.map(|field| field.name().as_str());
        names.take_while(|name| *name != PLACE)
    }

    /// Returns the plots of the scenario.
    pub fn plots(&self) -> &[PlotTable] {
        &self.plots
    }
}

/// Returns the name, with a number if another column has it.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let others = (2..).map(|number| format!("{name} ({number})"));
    let mut names = std::iter::once(name.to_owned()).chain(others);
    let free = names.find(|name| !taken.contains(name));
    let free = free.expect("there are more numbers than columns");
    taken.insert(free.clone());
    free
}
