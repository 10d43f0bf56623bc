//! A scenario as a page has it before it runs.

use manyflow_scenario::schema::{ExpectTable, PlotTable};
use manyflow_scenario::{Expression, Scenario, ScenarioError};
use serde_json::{Value, json};

/// The maximum number of cells that a page lists.
const CELLS_LISTED: usize = 2000;
/// The maximum number of nodes of a network that a page draws.
const NODES_DRAWN: usize = 400;

/// Returns the description of a scenario, with the plots and the network of this cell.
pub(crate) fn describe(scenario: &Scenario, cell: usize) -> Result<Value, ScenarioError> {
    let tables = scenario.cell(cell)?;
    let schema = &tables.schema;
    let is_fast = scenario.source().fast;
    let axes = scenario.axes().iter().map(|axis| &axis.key);
    let labels = (0..scenario.cells().min(CELLS_LISTED)).map(|cell| scenario.labels(cell));
    let expected = schema.expect.iter();
    let expected = expected.map(|expect| expectation(expect, is_fast));
    Ok(json!({
        "id": scenario.id(),
        "title": schema.title,
        "source": schema.source,
        "about": schema.about,
        "cell": cell,
        "cells": labels.collect::<Vec<_>>(),
        "cell_count": scenario.cells(),
        "axes": axes.collect::<Vec<_>>(),
        "first_seed": schema.run.first_seed.get(),
        "seeds": schema.run.seeds.get(),
        "duration_s": schema.run.duration.0,
        "steady_from_s": schema.run.steady_from().0,
        "plots": schema.plots.iter().map(plot).collect::<Vec<_>>(),
        "expectations": expected.collect::<Vec<_>>(),
        "map": scenario.map(cell, NODES_DRAWN)?,
    }))
}

/// Returns an expectation as the file has it: its bounds can be formulas.
fn expectation(expect: &ExpectTable, is_fast: bool) -> Value {
    let own = expect.fast.as_ref().filter(|_| is_fast);
    let (low, high) = match own {
        Some(fast) => (&fast.at_least, &fast.at_most),
        None => (&expect.at_least, &expect.at_most),
    };
    let bound = |word: &str, formula: &Option<Expression>| {
        let formula = formula.as_ref();
        formula.map(|formula| format!("{word} {}", formula.text()))
    };
    let bounds = [bound("at least", low), bound("at most", high)];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    json!({"what": expect.what, "bounds": bounds.join(", "), "paper": expect.paper})
}

fn plot(plot: &PlotTable) -> Value {
    let series = plot.series.iter().map(|series| {
        json!({
            "what": series.what.name(),
            "label": series.label,
            "observable": series.what.label(),
            "unit": series.what.dimension().unit(),
            "scale": series.scale.map_or(1.0, |scale| scale.0),
        })
    });
    json!({
        "name": plot.name,
        "title": plot.title,
        "y_label": plot.y_label,
        "y_unit": plot.y_unit,
        "series": series.collect::<Vec<_>>(),
    })
}
