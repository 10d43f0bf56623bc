//! Draws measures over a parameter.

use std::collections::BTreeSet;

use super::{GREY, chosen, with_unit, y_axis};
use crate::axis::{Axis, unit_for};
use crate::chart::{Chart, Line, LineStyle, Point};
use crate::{CellResult, Figure, Results};
use manyflow_model::tables::{LogAxes, PlotTable};
use manyflow_model::{Dimension, Environment, Expression, mean, spread};

/// One figure of a plot.
struct Panel<'a> {
    /// The values of the axes in `each`.
    name: String,
    rows: Vec<Row<'a>>,
}

/// The cells that differ in the parameter only.
struct Row<'a> {
    /// The values of the other axes.
    name: String,
    cells: Vec<&'a CellResult>,
}

/// Returns a figure for each combination of the values of `each`. Each figure has a row of points
/// for each combination of the values of the other axes.
pub(super) fn figures(results: &Results<'_>, plot: &PlotTable, x: &str) -> Vec<Figure> {
    let panels = panels(results, plot, x);
    let several = panels.len() > 1;
    let mut keys = results.outline.axes.iter().map(|axis| &axis.key);
    let column = keys.position(|key| key == x).unwrap_or(0);
    let figure = |(number, panel): (usize, &Panel<'_>)| Figure {
        name: match several {
            true => format!("{}-{number}", plot.name),
            false => plot.name.clone(),
        },
        title: plot.title.clone(),
        svg: Chart {
            subtitle: if several {
                panel.name.clone()
            } else {
                String::new()
            },
            ..chart(plot, x, column, &panel.rows)
        }
        .draw(),
        note: None,
    };
    panels.iter().enumerate().map(figure).collect()
}

/// Returns the figures with their rows, in the order of their first cells.
fn panels<'a>(results: &'a Results<'_>, plot: &PlotTable, x: &str) -> Vec<Panel<'a>> {
    let axes = &results.outline.axes;
    let named = |cell: &CellResult, wanted: &dyn Fn(&str) -> bool| -> String {
        let labelled = axes.iter().map(|axis| &axis.key).zip(&cell.cell.labels);
        let chosen = labelled.filter(|(key, _)| wanted(key));
        let named: Vec<String> = chosen
            .map(|(key, label)| format!("{key} = {label}"))
            .collect();
        named.join(", ")
    };
    let in_each = |key: &str| plot.each.0.iter().any(|each| each == key);
    // An axis that varies together with the parameter, or with an axis in `each`, makes no rows of
    // its own.
    let varies_with = |other: &str, key: &str| results.outline.vary_together(other, key);
    let is_shown =
        |key: &str| varies_with(x, key) || plot.each.0.iter().any(|each| varies_with(each, key));
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for cell in results
        .cells
        .iter()
        .filter(|cell| chosen(results, plot, cell))
    {
        let (panel, row) = (named(cell, &in_each), named(cell, &|key| !is_shown(key)));
        let number = panels
            .iter()
            .position(|known| known.name == panel)
            .unwrap_or(panels.len());
        if number == panels.len() {
            let rows = Vec::new();
            panels.push(Panel { name: panel, rows });
        }
        let rows = &mut panels[number].rows;
        match rows.iter_mut().find(|known| known.name == row) {
            Some(known) => known.cells.push(cell),
            None => rows.push(Row {
                name: row,
                cells: vec![cell],
            }),
        }
    }
    panels
}

fn chart(plot: &PlotTable, x: &str, column: usize, rows: &[Row<'_>]) -> Chart {
    let horizontal = Horizontal::new(plot, x, column, rows);
    let mut lines = point_lines(plot, rows, &horizontal);
    let curves = curve_lines(plot, rows, &horizontal);
    if horizontal.names.is_empty() && curves.iter().all(|curve| curve.color == GREY) {
        lines
            .iter_mut()
            .for_each(|line| line.style = LineStyle::JoinedPoints);
    }
    lines.extend(curves);
    let first = rows.first().and_then(|row| row.cells.first());
    let environment = first.map_or_else(Environment::new, |cell| cell.environment.clone());
    let dimension = dimension(plot, &environment).unwrap_or_default();
    let what = plot.points.first().map_or("", String::as_str);
    Chart {
        title: plot.title.clone(),
        subtitle: String::new(),
        x: horizontal.axis,
        y: y_axis(plot, &mut lines, dimension, what, &environment),
        lines,
    }
}

/// The horizontal axis, and the positions of cells on it.
struct Horizontal {
    axis: Axis,
    /// The parameter.
    key: String,
    /// The index of the parameter among the axes of the sweep.
    column: usize,
    /// The size of the unit in which values are shown.
    size: f64,
    /// The values in the order of their cells, if they are texts. Otherwise empty.
    names: Vec<String>,
}

impl Horizontal {
    fn new(plot: &PlotTable, x: &str, column: usize, rows: &[Row<'_>]) -> Horizontal {
        let cells = || rows.iter().flat_map(|row| &row.cells);
        let values = cells().map(|cell| x_value(cell, x, column));
        let label = plot.x_label.as_deref().unwrap_or(x);
        let mut names = Vec::new();
        let (axis, size) = match values.collect::<Option<Vec<_>>>() {
            Some(values) => {
                let largest = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
                let dimension = values
                    .first()
                    .map(|(_, dimension)| *dimension)
                    .unwrap_or_default();
                let (unit, size) = unit_for(dimension, largest, plot.x_unit.as_deref());
                let log = matches!(plot.log, LogAxes::X | LogAxes::Xy);
                let scaled = values.iter().map(|(value, _)| value / size);
                (Axis::fitting(with_unit(label, &unit), log, scaled), size)
            }
            None => {
                names = cells()
                    .map(|cell| cell.cell.labels[column].clone())
                    .collect();
                let mut seen = BTreeSet::new();
                names.retain(|name| seen.insert(name.clone()));
                (Axis::named(label.to_owned(), names.clone()), 1.0)
            }
        };
        Horizontal {
            axis,
            key: x.to_owned(),
            column,
            size,
            names,
        }
    }

    fn place(&self, cell: &CellResult) -> f64 {
        match x_value(cell, &self.key, self.column) {
            Some((value, _)) if self.names.is_empty() => value / self.size,
            _ => {
                let label = &cell.cell.labels[self.column];
                let place = self.names.iter().position(|name| name == label);
                place.map_or(f64::NAN, |place| place as f64)
            }
        }
    }
}

/// Returns the value of the parameter in a cell, if it is a quantity.
fn x_value(cell: &CellResult, x: &str, column: usize) -> Option<(f64, Dimension)> {
    if let Some(samples) = cell.cell.parameters.get(x) {
        return Some((samples.values[0], samples.dimension));
    }
    let formula = Expression::parse(&cell.cell.labels[column]).ok()?;
    let quantity = formula.evaluate(&cell.cell.parameters).ok()?;
    Some((quantity.value, quantity.dimension))
}

fn dimension(plot: &PlotTable, environment: &Environment) -> Option<Dimension> {
    let point = plot.points.first().and_then(|point| environment.get(point));
    let curve = || plot.curves.first()?.value.dimension(environment).ok();
    point.map(|samples| samples.dimension).or_else(curve)
}

/// Returns the mean and standard deviation over the seeds, for each measure and row.
fn point_lines(plot: &PlotTable, rows: &[Row<'_>], horizontal: &Horizontal) -> Vec<Line> {
    let mut lines = Vec::new();
    for measure in &plot.points {
        for Row { name, cells } in rows {
            let points = cells.iter().map(|cell| {
                let values = &cell.environment[measure].values;
                let values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
                Point {
                    x: horizontal.place(cell),
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

/// Returns the formulas as dashed lines: grey if all rows agree, otherwise in the colour of each
/// row's points.
fn curve_lines(plot: &PlotTable, rows: &[Row<'_>], horizontal: &Horizontal) -> Vec<Line> {
    let mut lines = Vec::new();
    for curve in &plot.curves {
        let points = |cells: &[&CellResult]| -> Vec<Point> {
            let value = |cell: &CellResult| curve.value.evaluate(&cell.environment);
            let points = cells.iter().map(|cell| Point {
                x: horizontal.place(cell),
                y: value(cell).map_or(f64::NAN, |value| value.value),
                error: 0.0,
            });
            points.collect()
        };
        let mut own: Vec<Vec<Point>> = rows.iter().map(|row| points(&row.cells)).collect();
        own.dedup();
        let common = own.len() == 1;
        let mut add = |label: &str, color, points| {
            lines.push(Line {
                label: label.to_owned(),
                color,
                style: LineStyle::Dashed,
                points,
            });
        };
        if !common {
            // The legend names the curves of all rows once, in a colour that no row has.
            add(&curve.label, GREY, Vec::new());
        }
        for (number, points) in own.into_iter().enumerate() {
            match common {
                true => add(&curve.label, GREY, points),
                false => add("", number, points),
            }
        }
    }
    lines
}
