//! `manyflow emulate --agree`: the measures of the same runs, simulated and emulated.

use anyhow::Result;
use manyflow_results::{CellResult, Provenance, Results};
use manyflow_scenario::{Job, Outcome, Quantity, Scenario};
use serde_json::json;

use manyflow_terminal::display::{Display, OutputError};

/// The measures of a cell in both worlds, each the mean of the runs that succeeded.
struct Row {
    name: String,
    simulated: Quantity,
    emulated: Quantity,
}

impl Row {
    /// Returns the relative difference of the emulated value; `None` if a value is missing or the
    /// simulated one is 0.
    fn difference(&self) -> Option<f64> {
        let difference = self.emulated.value / self.simulated.value - 1.0;
        difference.is_finite().then_some(difference)
    }
}

/// Prints a table for each cell: its measures simulated, emulated, and their difference.
///
/// # Errors
/// Returns an error if the table cannot be printed.
pub(super) fn print(
    scenario: &Scenario,
    jobs: &[Job],
    simulated: &[Outcome],
    emulated: &[Outcome],
    display: &Display,
) -> Result<()> {
    let outline = scenario.outline()?;
    let results = |outcomes| Results::new(outline.clone(), jobs, outcomes, Provenance::default());
    let (simulated, emulated) = (results(simulated), results(emulated));
    let has_run = |cell: &&CellResult| !cell.seeds.is_empty();
    for cell in emulated.cells().iter().filter(has_run) {
        let number = cell.cell.index;
        let mut known = simulated.cells().iter();
        let Some(same) = known.find(|known| known.cell.index == number) else {
            continue;
        };
        let labels = cell.cell.labels.join(", ");
        display.print_line(&format!("{}, cell {number}: {labels}", scenario.id()))?;
        display.print_line(&line("", "simulated", "emulated", "difference"))?;
        for row in rows(same, cell) {
            print_row(&row, number, display)?;
        }
        display.print_line("")?;
    }
    Ok(())
}

fn rows(simulated: &CellResult, emulated: &CellResult) -> Vec<Row> {
    let value = |result: &CellResult, name: &str| {
        let samples = &result.environment[name];
        let sum: f64 = samples.values.iter().sum();
        Quantity {
            value: sum / samples.values.len() as f64,
            dimension: samples.dimension,
        }
    };
    let measures = emulated.cell.measure.iter();
    let row = |name: &String| Row {
        name: name.clone(),
        simulated: value(simulated, name),
        emulated: value(emulated, name),
    };
    measures.map(|measure| row(&measure.name)).collect()
}

fn print_row(row: &Row, cell: usize, display: &Display) -> Result<(), OutputError> {
    let shown = |value: Quantity| match value.value.is_nan() {
        true => "no value".to_owned(),
        false => value.to_string(),
    };
    let difference = row.difference();
    let percent = difference.map(|share| format!("{:+.1} %", share * 100.0));
    let [simulated, emulated] = [row.simulated, row.emulated].map(shown);
    let percent = percent.unwrap_or_default();
    display.print_line(&line(&row.name, &simulated, &emulated, &percent))?;
    let finite = |value: Quantity| value.value.is_finite().then_some(value.value);
    display.print_json(&json!({
        "event": "agreement",
        "cell": cell,
        "measure": row.name,
        "simulated": finite(row.simulated),
        "emulated": finite(row.emulated),
        "difference": difference,
    }))
}

fn line(name: &str, simulated: &str, emulated: &str, difference: &str) -> String {
    let text = format!("  {name:<24} {simulated:>16} {emulated:>16} {difference:>12}");
    text.trim_end().to_owned()
}
