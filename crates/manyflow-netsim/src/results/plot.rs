//! From the results to charts: series over time, and measures over a parameter.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{Axis, unit_for};
use super::chart::{Chart, Line, LineStyle, Point};
use super::evaluate::CellResult;
use super::{Figure, Results};
use crate::scenario::schema::{LogAxes, PlotTable};
use crate::scenario::{Dimension, Environment, Expression, Run, Series, mean, spread};

/// Points of a line; a longer one is drawn by the extremes of its pieces.
const POINTS_MAX: usize = 1500;

/// Series of the same kind that are named one by one.
const NAMED_MAX: usize = 8;

/// Figures over time that are drawn of a plot, one a cell: more than can be looked at are a mistake in `where`.
const FIGURES_MAX: usize = 12;

/// The color of curves that belong to no row of points.
const GREY: usize = 6;

/// All figures of a scenario.
pub(super) fn figures(results: &Results<'_>) -> Vec<Figure> {
    let Some(first) = results.cells.first() else {
        return Vec::new();
    };
    let plots = first.cell.schema.plots.iter().enumerate();
    let drawn = plots.flat_map(|(index, plot)| match &plot.x {
        Some(x) => over_parameter(results, plot, x),
        None => over_time(results, plot, index),
    });
    drawn.collect()
}

/// A figure for each cell.
fn over_time(results: &Results<'_>, plot: &PlotTable, index: usize) -> Vec<Figure> {
    let cells = results
        .cells
        .iter()
        .filter(|cell| cell.meets(plot.condition.as_ref()));
    let cells: Vec<&CellResult> = cells.take(FIGURES_MAX).collect();
    let figure = |cell: &&CellResult| {
        let runs = results
            .runs
            .iter()
            .filter(|run| run.cell == cell.cell.index);
        let runs: Vec<&Run> = runs.copied().collect();
        let shown = runs
            .iter()
            .flat_map(|run| run.series.get(index).into_iter().flatten().flatten());
        let lines = time_lines(&runs, plot, index);
        let dimension = shown
            .map(|series| series.what.dimension())
            .next()
            .unwrap_or_default();
        let end = plot.to.unwrap_or(cell.cell.schema.run.duration).0;
        let chart = time_chart(plot, cell, lines, dimension, end);
        let several = cells.len() > 1;
        let place = cell.describe(results.scenario);
        Figure {
            name: match several {
                true => format!("{}-{}", plot.name, cell.cell.index),
                false => plot.name.clone(),
            },
            title: match several {
                true => format!("{}: {place}", plot.title),
                false => plot.title.clone(),
            },
            svg: chart_titled(chart, several.then_some(place)),
        }
    };
    cells.iter().map(figure).collect()
}

fn chart_titled(mut chart: Chart, place: Option<String>) -> String {
    if let Some(place) = place {
        chart.title = format!("{} ({place})", chart.title);
    }
    chart.draw()
}

/// The recorded series of the runs, each with its own color and label.
fn time_lines(runs: &[&Run], plot: &PlotTable, index: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let shown = runs
        .iter()
        .filter(|run| run.series.get(index).is_some_and(|own| !own.is_empty()));
    let several = shown.clone().count() > 1;
    for run in shown {
        for (table, recorded) in plot.series.iter().zip(&run.series[index]) {
            let scale = table.scale.map_or(1.0, |scale| scale.0);
            for (place, series) in recorded.iter().enumerate() {
                let mut label = label(table.label.as_deref(), series, place, recorded.len());
                if several && !label.is_empty() {
                    label.push_str(&format!(", seed {}", run.seed));
                }
                lines.push(Line {
                    label,
                    color: lines.len(),
                    style: LineStyle::Solid,
                    points: time_points(series, scale, plot),
                });
            }
        }
    }
    lines
}

/// What the legend calls one of several series of the same kind; where they are many, the first speaks for all.
fn label(given: Option<&str>, series: &Series, place: usize, count: usize) -> String {
    let name = given.unwrap_or(series.what.label());
    match (place, series.channel) {
        (0, _) if count > NAMED_MAX => format!("{name}, {count} of them"),
        _ if count > NAMED_MAX => String::new(),
        (_, Some(channel)) => format!("{} {channel}", given.unwrap_or("channel")),
        (_, None) if given.is_none() || count > 1 => format!("{name}, {}", series.of),
        (_, None) => name.to_owned(),
    }
}

/// A value over an interval is drawn in its middle.
fn time_points(series: &Series, scale: f64, plot: &PlotTable) -> Vec<Point> {
    let shift = series.bin_s.unwrap_or(0.0) / 2.0;
    let to = plot.to.map_or(f64::INFINITY, |to| to.0);
    let points = series.points.iter().map(|(time, value)| Point {
        x: time - shift,
        y: value * scale,
        error: 0.0,
    });
    let points: Vec<Point> = points
        .filter(|point| point.x >= plot.from.0 && point.x <= to)
        .collect();
    thinned(points)
}

/// The lowest and the highest point of each piece, so that no peak is lost.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let piece = points.len().div_ceil(POINTS_MAX / 2);
    let extremes = points.chunks(piece).flat_map(|chunk| {
        let place = |better: fn(f64, f64) -> bool| {
            let best = |best: usize, (i, p): (usize, &Point)| {
                if better(p.y, chunk[best].y) { i } else { best }
            };
            chunk.iter().enumerate().fold(0, best)
        };
        let (low, high) = (place(|a, b| a < b), place(|a, b| a > b));
        [chunk[low.min(high)], chunk[low.max(high)]]
    });
    extremes.collect()
}

fn time_chart(
    plot: &PlotTable,
    cell: &CellResult,
    mut lines: Vec<Line>,
    dimension: Dimension,
    end: f64,
) -> Chart {
    for curve in &plot.curves {
        let value = curve.value.evaluate(&cell.environment);
        let y = value.map_or(f64::NAN, |value| value.value);
        let ends = [plot.from.0, end];
        lines.push(Line {
            label: curve.label.clone(),
            color: GREY,
            style: LineStyle::Dashed,
            points: ends.map(|x| Point { x, y, error: 0.0 }).to_vec(),
        });
    }
    let what = plot.series.first().map(|series| series.what.label());
    let y = y_axis(
        plot,
        &mut lines,
        dimension,
        what.unwrap_or_default(),
        &cell.environment,
    );
    let log = matches!(plot.log, LogAxes::X | LogAxes::Xy);
    let mut x = Axis::fitting("time (s)".to_owned(), log, [plot.from.0, end].into_iter());
    if !log {
        x.set_range((plot.from.0, end));
    }
    let title = plot.title.clone();
    Chart { title, x, y, lines }
}

/// The vertical axis, with the lines brought to its unit.
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
        unit => format!("{label} ({unit})"),
    }
}

/// A figure for each combination of the values of `each`; in it a row of points for each of those of the other axes.
fn over_parameter(results: &Results<'_>, plot: &PlotTable, x: &str) -> Vec<Figure> {
    let keys: Vec<&str> = results
        .scenario
        .axes()
        .iter()
        .map(|axis| axis.key.as_str())
        .collect();
    let chosen = results
        .cells
        .iter()
        .filter(|cell| cell.meets(plot.condition.as_ref()));
    let labels = |cell: &CellResult, wanted: &dyn Fn(&str) -> bool| -> String {
        let named = keys
            .iter()
            .zip(&cell.cell.labels)
            .filter(|(key, _)| wanted(key));
        let named: Vec<String> = named
            .map(|(key, label)| format!("{key} = {label}"))
            .collect();
        named.join(", ")
    };
    let in_each = |key: &str| plot.each.0.iter().any(|each| each == key);
    // Panels, and the rows in each of them, in the order of their first cells.
    let mut panels: BTreeMap<usize, (String, Rows<'_>)> = BTreeMap::new();
    for cell in chosen {
        let panel = labels(cell, &in_each);
        let row = labels(cell, &|key| key != x && !in_each(key));
        let found = panels.iter().find(|(_, (name, _))| *name == panel);
        let number = found.map_or(panels.len(), |(number, _)| *number);
        let (_, rows) = panels.entry(number).or_insert_with(|| (panel, Rows::new()));
        match rows.iter_mut().find(|(name, _)| *name == row) {
            Some((_, cells)) => cells.push(cell),
            None => rows.push((row, vec![cell])),
        }
    }
    let several = panels.len() > 1;
    let column = keys.iter().position(|key| *key == x).unwrap_or(0);
    let figure = |(number, (name, rows)): (usize, (String, Rows<'_>))| Figure {
        name: match several {
            true => format!("{}-{number}", plot.name),
            false => plot.name.clone(),
        },
        title: plot.title.clone(),
        svg: chart_titled(
            parameter_chart(plot, x, column, &rows),
            several.then_some(name),
        ),
    };
    panels.into_iter().map(figure).collect()
}

type Rows<'a> = Vec<(String, Vec<&'a CellResult>)>;

fn parameter_chart(plot: &PlotTable, x: &str, column: usize, rows: &Rows<'_>) -> Chart {
    let all = rows.iter().flat_map(|(_, cells)| cells);
    let values = all.clone().map(|cell| x_value(cell, x, column));
    let log = matches!(plot.log, LogAxes::X | LogAxes::Xy);
    let label = plot.x_label.as_deref().unwrap_or(x);
    let (axis, names, size) = match values.collect::<Option<Vec<_>>>() {
        Some(values) => {
            let largest = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
            let dimension = values.first().map(|(_, dimension)| *dimension);
            let unit = unit_for(
                dimension.unwrap_or_default(),
                largest,
                plot.x_unit.as_deref(),
            );
            let scaled = values.iter().map(|(value, _)| value / unit.1);
            let axis = Axis::fitting(with_unit(label, &unit.0), log, scaled);
            (axis, Vec::new(), unit.1)
        }
        None => {
            let mut names: Vec<String> = all.map(|cell| cell.cell.labels[column].clone()).collect();
            let mut seen = BTreeSet::new();
            names.retain(|name| seen.insert(name.clone()));
            (Axis::named(label.to_owned(), names.clone()), names, 1.0)
        }
    };
    let place = |cell: &CellResult| match x_value(cell, x, column) {
        Some((value, _)) if names.is_empty() => value / size,
        _ => {
            let label = &cell.cell.labels[column];
            names.iter().position(|name| name == label).unwrap_or(0) as f64
        }
    };
    let mut lines = point_lines(plot, rows, &place);
    let curves = curve_lines(plot, rows, &place);
    if names.is_empty() && curves.iter().all(|curve| curve.color == GREY) {
        lines
            .iter_mut()
            .for_each(|line| line.style = LineStyle::JoinedPoints);
    }
    lines.extend(curves);
    let first = rows.first().and_then(|(_, cells)| cells.first());
    let environment = first.map(|cell| &cell.environment);
    let dimension = environment.and_then(|environment| plot_dimension(plot, environment));
    let empty = Environment::new();
    let what = plot.points.first().map_or("", String::as_str);
    let environment = environment.unwrap_or(&empty);
    let y = y_axis(
        plot,
        &mut lines,
        dimension.unwrap_or_default(),
        what,
        environment,
    );
    Chart {
        title: plot.title.clone(),
        x: axis,
        y,
        lines,
    }
}

/// The value of the axis in a cell, where it is a quantity.
fn x_value(cell: &CellResult, x: &str, column: usize) -> Option<(f64, Dimension)> {
    if let Some(samples) = cell.cell.parameters.get(x) {
        return Some((samples.values[0], samples.dimension));
    }
    let formula = Expression::parse(&cell.cell.labels[column]).ok()?;
    let quantity = formula.evaluate(&cell.cell.parameters).ok()?;
    Some((quantity.value, quantity.dimension))
}

fn plot_dimension(plot: &PlotTable, environment: &Environment) -> Option<Dimension> {
    let point = plot.points.first().and_then(|point| environment.get(point));
    let curve = || plot.curves.first()?.value.dimension(environment).ok();
    point.map(|samples| samples.dimension).or_else(curve)
}

/// Mean and standard deviation over the seeds, for each measure and row.
fn point_lines(plot: &PlotTable, rows: &Rows<'_>, place: &dyn Fn(&CellResult) -> f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for measure in &plot.points {
        for (name, cells) in rows {
            let points = cells.iter().map(|cell| {
                let values = &cell.environment[measure].values;
                let values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
                Point {
                    x: place(cell),
                    y: mean(&values),
                    error: spread(&values),
                }
            });
            let label = match (plot.points.len(), name.as_str()) {
                (_, "") => measure.clone(),
                (1, name) => name.to_owned(),
                (_, name) => format!("{measure}, {name}"),
            };
            lines.push(Line {
                label,
                color: lines.len(),
                style: LineStyle::Points,
                points: points.collect(),
            });
        }
    }
    lines
}

/// Formulas as dashed lines: grey where they are the same for all rows, otherwise of the color of each row's points.
fn curve_lines(plot: &PlotTable, rows: &Rows<'_>, place: &dyn Fn(&CellResult) -> f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for curve in &plot.curves {
        let points = |cells: &[&CellResult]| -> Vec<Point> {
            let value = |cell: &CellResult| curve.value.evaluate(&cell.environment);
            let points = cells.iter().map(|cell| Point {
                x: place(cell),
                y: value(cell).map_or(f64::NAN, |value| value.value),
                error: 0.0,
            });
            points.collect()
        };
        let mut own: Vec<Vec<Point>> = rows.iter().map(|(_, cells)| points(cells)).collect();
        own.dedup();
        let common = own.len() == 1;
        for (number, points) in own.into_iter().enumerate() {
            let label = if number == 0 {
                curve.label.clone()
            } else {
                String::new()
            };
            lines.push(Line {
                label,
                color: if common { GREY } else { number },
                style: LineStyle::Dashed,
                points,
            });
        }
    }
    lines
}
