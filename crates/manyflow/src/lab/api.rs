//! The requests of the page about scenarios and runs.

use std::sync::Arc;

use hyper::StatusCode;
use manyflow_results::Figure;
use manyflow_scenario::schema::PlotTable;
use manyflow_scenario::{Form, Job, Scenario, ScenarioError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Lab;
use super::pace::Speed;
use super::reply::{Reply, attachment, failure, json as reply_json, page};
use super::runs::LabRun;

/// The maximum number of cells that the page lists.
const CELLS_LISTED: usize = 2000;
/// The maximum number of nodes of a network that the page draws.
const NODES_DRAWN: usize = 400;

/// A scenario as the page has it, and the run that it wants.
#[derive(Deserialize)]
pub(super) struct Wanted {
    text: String,
    /// The name of the file in errors.
    file: String,
    #[serde(default)]
    fast: bool,
    #[serde(default)]
    cell: usize,
    #[serde(default)]
    seed: Option<u64>,
    #[serde(default)]
    speed: Speed,
}

/// Reads a scenario. Answers with its description, or with its first error and the line.
pub(super) fn check(wanted: &Wanted) -> Reply {
    match read(wanted).and_then(|(scenario, cell)| describe(&scenario, cell)) {
        Ok(description) => reply_json(StatusCode::OK, &description),
        Err(error) => refuse(&error),
    }
}

/// Starts a run. Answers with its number and the scenario's description.
pub(super) fn start(lab: &Lab, wanted: &Wanted) -> Reply {
    let read = read(wanted).and_then(|(scenario, cell)| {
        let description = describe(&scenario, cell)?;
        let first_seed = scenario.jobs()?.first().map_or(1, |job| job.seed);
        Ok((scenario, cell, first_seed, description))
    });
    let (scenario, cell, first_seed, mut description) = match read {
        Ok(read) => read,
        Err(error) => return refuse(&error),
    };
    let seed = wanted.seed.unwrap_or(first_seed);
    // Plots show the first runs of a cell, so this is one, whatever its seed.
    let job = Job {
        cell,
        seed,
        place: 0,
    };
    match lab.runs.start(scenario, job, wanted.speed) {
        Some(number) => {
            description["run"] = number.into();
            description["seed"] = seed.into();
            reply_json(StatusCode::OK, &description)
        }
        None => failure(
            StatusCode::TOO_MANY_REQUESTS,
            "four runs are in progress: stop one of them, or wait",
        ),
    }
}

/// Answers a request about a run: `events`, `measures.csv`, `NAME.csv` or `NAME.svg` of a plot.
pub(super) fn of_run(run: &Arc<LabRun>, what: &str, first_event: usize) -> Reply {
    if what == "events" {
        return super::reply::events(Arc::clone(&run.log).follow(first_event));
    }
    match export(run, what) {
        Ok(Some(reply)) => reply,
        Ok(None) => failure(
            StatusCode::NOT_FOUND,
            "the run has no such results, or it has not ended",
        ),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

fn export(run: &LabRun, what: &str) -> anyhow::Result<Option<Reply>> {
    let Some(results) = run.results() else {
        return Ok(None);
    };
    let results = results?;
    let name = format!("{}-{what}", run.name());
    let file = |media_type, text: String| {
        Ok(Some(attachment(
            page(StatusCode::OK, media_type, text),
            &name,
        )))
    };
    if what == "measures.csv" {
        return file("text/csv; charset=utf-8", results.measures_csv()?);
    }
    if let Some(plot) = what.strip_suffix(".csv") {
        let mut tables = results.series_csv()?.into_iter();
        let table = tables.find(|(name, _)| name == plot);
        return table.map_or(Ok(None), |(_, text)| file("text/csv; charset=utf-8", text));
    }
    let plot = what.strip_suffix(".svg");
    let is_wanted = |figure: &&Figure| plot.is_some_and(|plot| figure.is_of(plot));
    let figure = results.figures().iter().find(is_wanted);
    figure.map_or(Ok(None), |figure| file("image/svg+xml", figure.svg.clone()))
}

/// Reads a scenario with the plots that the page adds. Returns the cell, too, which is the first
/// one if there is no cell of that number.
fn read(wanted: &Wanted) -> Result<(Scenario, usize), ScenarioError> {
    let parse = |cell| {
        let form = Form {
            fast: wanted.fast,
            cell: Some(cell),
            ..Form::default()
        };
        Scenario::parse_form(&wanted.file, &wanted.text, form)
    };
    let first = parse(0)?;
    let cell = if wanted.cell < first.cells() {
        wanted.cell
    } else {
        0
    };
    let scenario = if cell == 0 { first } else { parse(cell)? };
    Ok((scenario.with_overview(cell)?, cell))
}

/// Answers with an error in a scenario. The request has succeeded: an error while somebody types is
/// no failure, and a browser would list it as one.
fn refuse(error: &ScenarioError) -> Reply {
    let message = error.to_string();
    let place = format!("{}:{}: ", error.file, error.line);
    let message = message.strip_prefix(&place).unwrap_or(&message);
    let problem = json!({"line": error.line, "key": error.key, "message": message});
    reply_json(StatusCode::OK, &json!({ "problem": problem }))
}

fn describe(scenario: &Scenario, cell: usize) -> Result<Value, ScenarioError> {
    let tables = scenario.cell(cell)?;
    let schema = &tables.schema;
    let axes = scenario.axes().iter().map(|axis| &axis.key);
    let labels = (0..scenario.cells().min(CELLS_LISTED)).map(|cell| scenario.labels(cell));
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
        "map": scenario.map(cell, NODES_DRAWN)?,
    }))
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
