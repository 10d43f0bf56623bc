//! Draws charts as SVG.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::ErrorBar;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;

const WIDTH: u32 = 800;
/// The height without title and legend.
const HEIGHT: u32 = 400;
const TITLE_HEIGHT: u32 = 40;
const SUBTITLE_HEIGHT: u32 = 18;
const LEGEND_ROW: u32 = 20;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// The maximum number of entries in a legend. A note gives the number of the others.
const LEGEND_MAX: usize = 12;

/// The colours of Okabe and Ito, which colour-blind readers can distinguish, without the yellow.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// The contents of a chart.
pub(super) struct Chart {
    pub(super) title: String,
    /// The name of this chart among several of the same title. Empty if there is only one.
    pub(super) subtitle: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

/// A line or a row of points.
pub(super) struct Line {
    /// The name in the legend. A line with an empty name is not listed.
    pub(super) label: String,
    /// The index of the colour.
    pub(super) color: usize,
    pub(super) style: LineStyle,
    pub(super) points: Vec<Point>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum LineStyle {
    Solid,
    Dashed,
    /// Draws points with error bars.
    Points,
    /// Draws points with error bars, joined by a thin line.
    JoinedPoints,
}

#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The length of the error bar, upwards and downwards.
    pub(super) error: f64,
}

impl Chart {
    /// Returns the chart as SVG.
    pub(super) fn draw(&self) -> String {
        let mut svg = String::new();
        self.draw_into(&mut svg)
            .expect("writing into a text does not fail");
        // The size of the picture adapts to its page.
        svg.replacen("<svg ", "<svg role=\"img\" ", 1)
    }

    fn draw_into<'a>(&self, svg: &'a mut String) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let legend = self.legend();
        let rows = legend.last().map_or(0, |entry| entry.row + 1);
        let top = self.legend_top() + rows * LEGEND_ROW;
        let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT + top)).into_drawing_area();
        root.fill(&WHITE)?;
        let top_left = Pos::new(HPos::Left, VPos::Top);
        let text = |size: u32| (FONT, size).into_font().color(&INK).pos(top_left);
        root.draw_text(&self.title, &text(18), (16, 12))?;
        root.draw_text(&self.subtitle, &text(13), (16, 36))?;
        for entry in &legend {
            self.draw_legend_entry(&root, entry)?;
        }
        let (_, below) = root.split_vertically(top);
        self.draw_lines(&below)?;
        root.present()?;
        Ok(())
    }

    fn draw_lines<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let mut chart = ChartBuilder::on(area)
            .margin_right(24)
            .margin_top(8)
            .margin_left(10)
            .margin_bottom(6)
            .x_label_area_size(40)
            .y_label_area_size(66)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        let text = |size: u32| (FONT, size).into_font().color(&INK);
        chart
            .configure_mesh()
            .x_labels(self.x.ticks.len() + 1)
            .y_labels(self.y.ticks.len() + 1)
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(13))
            .axis_desc_style(text(14))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .draw()?;
        for line in &self.lines {
            for piece in self.pieces(line) {
                self.draw_piece(&mut chart, line, &piece)?;
            }
        }
        Ok(())
    }

    fn draw_piece<'a>(
        &self,
        chart: &mut Plane<'a>,
        line: &Line,
        piece: &[Point],
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let color = color(line.color);
        let points = || piece.iter().map(|point| (point.x, point.y));
        match line.style {
            LineStyle::Solid => {
                chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
            }
            LineStyle::Dashed => {
                let style = color.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(points(), 6, 4, style))?;
            }
            LineStyle::Points | LineStyle::JoinedPoints => {
                if line.style == LineStyle::JoinedPoints {
                    chart.draw_series(LineSeries::new(points(), color.stroke_width(1)))?;
                }
                let bars = piece.iter().filter(|point| point.error > 0.0);
                chart.draw_series(bars.map(|point| {
                    let ends = [-point.error, point.error];
                    let [low, high] = ends.map(|error| self.error_end(point, error));
                    ErrorBar::new_vertical(point.x, low, point.y, high, color.filled(), 7)
                }))?;
                chart.draw_series(points().map(|dot| Circle::new(dot, 3, color.filled())))?;
            }
        }
        Ok(())
    }

    /// Returns the position of an end of an error bar, limited to the picture. The position of the
    /// point itself is known.
    fn error_end(&self, point: &Point, error: f64) -> f64 {
        let (low, high) = self.y.range;
        let value = match self.y.log {
            true => self.y.place(libm::pow(10.0, point.y) + error),
            false => point.y + error,
        };
        if value.is_nan() {
            low
        } else {
            value.clamp(low, high)
        }
    }

    /// Returns the positions of the points, split where a point has no position.
    fn pieces(&self, line: &Line) -> Vec<Vec<Point>> {
        let placed = line.points.iter().map(|point| Point {
            x: self.x.place(point.x),
            y: self.y.place(point.y).clamp(self.y.range.0, self.y.range.1),
            error: point.error,
        });
        let placed: Vec<Point> = placed.collect();
        placed
            .split(|point| !point.x.is_finite() || !point.y.is_finite())
            .filter(|piece| !piece.is_empty())
            .map(<[Point]>::to_vec)
            .collect()
    }

    /// Returns the position of the first row of the legend.
    fn legend_top(&self) -> u32 {
        match self.subtitle.as_str() {
            "" => TITLE_HEIGHT,
            _ => TITLE_HEIGHT + SUBTITLE_HEIGHT,
        }
    }

    /// Returns the entries of the legend, in rows above the chart, where they hide nothing.
    fn legend(&self) -> Vec<LegendEntry> {
        let labelled = self.lines.iter().filter(|line| !line.label.is_empty());
        let count = labelled.clone().count();
        let mut entries: Vec<LegendEntry> = Vec::new();
        let (mut row, mut x) = (0, 76);
        for line in labelled.take(LEGEND_MAX) {
            let width = 44 + 8 * line.label.chars().count() as u32;
            if x + width > WIDTH && x > 76 {
                (row, x) = (row + 1, 76);
            }
            entries.push(LegendEntry {
                row,
                x,
                label: line.label.clone(),
                color: line.color,
                style: Some(line.style),
            });
            x += width;
        }
        if count > LEGEND_MAX {
            entries.push(LegendEntry {
                row: row + 1,
                x: 76,
                label: format!("and {} more", count - LEGEND_MAX),
                color: 6,
                style: None,
            });
        }
        entries
    }

    fn draw_legend_entry<'a>(
        &self,
        root: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
        entry: &LegendEntry,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let (x, y) = (
            entry.x as i32,
            (self.legend_top() + entry.row * LEGEND_ROW + 8) as i32,
        );
        let stroke = color(entry.color).stroke_width(2);
        let dashes: &[(i32, i32)] = match entry.style {
            Some(LineStyle::Solid) => &[(0, 24)],
            Some(LineStyle::Dashed) => &[(0, 6), (10, 16), (20, 24)],
            _ => &[],
        };
        for (from, to) in dashes {
            root.draw(&PathElement::new(vec![(x + from, y), (x + to, y)], stroke))?;
        }
        if matches!(
            entry.style,
            Some(LineStyle::Points | LineStyle::JoinedPoints)
        ) {
            root.draw(&Circle::new((x + 12, y), 3, color(entry.color).filled()))?;
        }
        let text = (FONT, 13)
            .into_font()
            .color(&INK)
            .pos(Pos::new(HPos::Left, VPos::Center));
        root.draw_text(&entry.label, &text, (x + 30, y))?;
        Ok(())
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, placed: &f64, (from, to): (i32, i32)) -> i32 {
        let (low, high) = self.range;
        let share = (placed - low) / (high - low);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, placed: &f64) -> String {
        self.text(*placed)
    }
}

struct LegendEntry {
    row: u32,
    x: u32,
    label: String,
    color: usize,
    style: Option<LineStyle>,
}

fn color(index: usize) -> RGBColor {
    COLORS[index % COLORS.len()]
}
