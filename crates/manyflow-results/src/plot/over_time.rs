//! Draws series over time, with a figure for each cell.

use super::{GREY, chosen, y_axis};
use crate::axis::Axis;
use crate::chart::{Chart, Line, LineStyle, Point};
use crate::{CellResult, Figure, Results};
use manyflow_model::tables::{LogAxes, PlotTable};
use manyflow_model::{Dimension, Run, Series};

/// The maximum number of points of a line. A longer line is drawn by the extremes of its pieces.
const POINTS_MAX: usize = 1500;

/// The maximum number of series of the same kind that have their own names.
const NAMED_MAX: usize = 8;

/// The maximum number of figures of a plot. The last figure gives the number of all.
const FIGURES_MAX: usize = 12;

/// Returns a figure for each cell that has runs, up to the maximum number.
pub(super) fn figures(results: &Results<'_>, plot: &PlotTable, index: usize) -> Vec<Figure> {
    let cells = results
        .cells
        .iter()
        .filter(|cell| chosen(results, plot, cell));
    let mut cells: Vec<&CellResult> = cells.collect();
    let several = cells.len() > 1;
    let has_runs = |cell: &&CellResult| results.runs.iter().any(|run| run.cell == cell.cell.index);
    cells.retain(has_runs);
    let count = cells.len();
    cells.truncate(FIGURES_MAX);
    let cut = (count > FIGURES_MAX).then(|| format!("{FIGURES_MAX} of {count} cells shown"));
    let figure = |cell: &&CellResult| {
        let runs = results.shown_runs(cell.cell.index, index, plot);
        let series = runs
            .iter()
            .flat_map(|run| run.series[index].iter().flatten());
        let lines = time_lines(&runs, plot, index);
        let dimension = series
            .map(|series| series.what.dimension())
            .next()
            .unwrap_or_default();
        let end = plot.to.unwrap_or(cell.cell.duration).0;
        let place = cell.describe(&results.outline.axes);
        let subtitle = match (&cut, several) {
            (Some(cut), _) => format!("{place} ({cut})"),
            (None, true) => place.clone(),
            (None, false) => String::new(),
        };
        let chart = Chart {
            subtitle,
            ..time_chart(plot, cell, lines, dimension, end)
        };
        Figure {
            name: match several {
                true => format!("{}-{}", plot.name, cell.cell.index),
                false => plot.name.clone(),
            },
            title: match several {
                true => format!("{}: {place}", plot.title),
                false => plot.title.clone(),
            },
            svg: chart.draw(),
            note: None,
        }
    };
    let mut figures: Vec<Figure> = cells.iter().map(figure).collect();
    if let Some(last) = figures.last_mut() {
        let note = |cut| {
            format!(
                "{}: {cut}. {}.csv has all; `only` and `where` choose.",
                plot.title, plot.name
            )
        };
        last.note = cut.map(note);
    }
    figures
}

/// Returns the recorded series of the runs, each with its own colour and label.
fn time_lines(runs: &[&Run], plot: &PlotTable, index: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let several = runs.len() > 1;
    for run in runs {
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

/// Returns the label of one of `count` series of the same kind. If there are many, only the first
/// has a label.
fn label(given: Option<&str>, series: &Series, place: usize, count: usize) -> String {
    let name = given.unwrap_or(series.what.label());
    match (place, series.channel) {
        (0, _) if count > NAMED_MAX => format!("{name}, {count} of them in repeating colours"),
        _ if count > NAMED_MAX => String::new(),
        (_, Some(channel)) => format!("{} {channel}", given.unwrap_or("channel")),
        (_, None) if given.is_none() || count > 1 => format!("{name}, {}", series.of),
        (_, None) => name.to_owned(),
    }
}

/// Returns the points of a series. The value of an interval is drawn in the middle of the interval.
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
    thinned(without_runs(&points))
}

/// Removes the points inside runs of equal values, which do not change the line.
fn without_runs(points: &[Point]) -> Vec<Point> {
    let is_inside = |place: usize| {
        let around = place
            .checked_sub(1)
            .and_then(|from| points.get(from..=place + 1));
        around.is_some_and(|three| three.iter().all(|point| point.y == three[1].y))
    };
    let kept = (0..points.len()).filter(|place| !is_inside(*place));
    kept.map(|place| points[place]).collect()
}

/// Returns the lowest and the highest point of each piece, so that no peak is lost.
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
    Chart {
        title: plot.title.clone(),
        subtitle: String::new(),
        x,
        y,
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_equal_values_are_drawn_by_their_ends() {
        let kept = |values: &[f64]| -> Vec<f64> {
            let point = |(x, y): (usize, &f64)| Point {
                x: x as f64,
                y: *y,
                error: 0.0,
            };
            let points: Vec<Point> = values.iter().enumerate().map(point).collect();
            without_runs(&points).iter().map(|point| point.x).collect()
        };
        assert_eq!(
            kept(&[0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 0.0]),
            [0.0, 3.0, 4.0, 5.0, 6.0]
        );
        let hole = f64::NAN;
        assert_eq!(kept(&[1.0, hole, hole, hole, 1.0]).len(), 5);
        assert!(kept(&[]).is_empty());
    }
}
