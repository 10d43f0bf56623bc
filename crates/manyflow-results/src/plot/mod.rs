//! Draws results as charts: series over time, and measures over a parameter.

mod over_parameter;
mod over_time;

use super::axis::{Axis, unit_for};
use super::chart::Line;
use super::{CellResult, Figure, Results};
use manyflow_model::tables::{LogAxes, PlotTable};
use manyflow_model::{Dimension, Environment, Expression};

/// The colour of curves that do not belong to a row of points.
const GREY: usize = 6;

/// Returns all figures of a scenario.
pub(super) fn figures(results: &Results<'_>) -> Vec<Figure> {
    let Some(first) = results.cells.first() else {
        return Vec::new();
    };
    let plots = first.cell.plots.iter().enumerate();
    let drawn = plots.flat_map(|(index, plot)| match &plot.x {
        Some(x) => over_parameter::figures(results, plot, x),
        None => over_time::figures(results, plot, index),
    });
    drawn.collect()
}

/// Returns whether a plot shows a cell.
fn chosen(results: &Results<'_>, plot: &PlotTable, cell: &CellResult) -> bool {
    cell.is_chosen(&results.outline.axes, &plot.only, plot.condition.as_ref())
}

/// Returns the vertical axis. Converts the lines to its unit.
fn y_axis(
    plot: &PlotTable,
    lines: &mut [Line],
    dimension: Dimension,
    what: &str,
    environment: &Environment,
) -> Axis {
    let values = || {
        lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.y)
    };
    let largest = values().filter(|y| y.is_finite()).fold(0.0, f64::max);
    let (unit, size) = unit_for(dimension, largest, plot.y_unit.as_deref());
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.y /= size;
        point.error /= size;
    }
    let label = with_unit(plot.y_label.as_deref().unwrap_or(what), &unit);
    let log = matches!(plot.log, LogAxes::Y | LogAxes::Xy);
    let points = lines.iter().flat_map(|line| &line.points);
    let reach = points.flat_map(|point| [point.y - point.error, point.y, point.y + point.error]);
    let mut axis = Axis::fitting(label, log, reach);
    let limit = |given: &Option<Expression>| {
        let value = given.as_ref()?.evaluate(environment).ok()?;
        Some(axis.place(value.value / size))
    };
    let (low, high) = (limit(&plot.y_min), limit(&plot.y_max));
    if low.is_some() || high.is_some() {
        axis.set_range((low.unwrap_or(axis.range.0), high.unwrap_or(axis.range.1)));
    }
    axis
}

fn with_unit(label: &str, unit: &str) -> String {
    match unit {
        "" => label.to_owned(),
        unit if label.split(' ').any(|word| word == unit) => label.to_owned(),
        unit => format!("{label} ({unit})"),
    }
}
