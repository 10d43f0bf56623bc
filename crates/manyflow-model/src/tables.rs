//! The tables of a scenario file that say what to record, to measure, to draw and to expect. They
//! name no protocol. `docs/scenarios.md` describes each key.

mod names;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::expression::Expression;
use crate::observables::{Combination, Observable, Statistic};
use crate::quantity::{Count, Dimension, Number, Probability, Seconds};

pub use names::{Label, OneOrMany};

/// `[run]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RunTable {
    /// The duration of a run, in simulated time.
    pub duration: Seconds,
    /// The number of runs of each cell, each with a different seed.
    #[serde(default = "one")]
    pub seeds: Count,
    /// The seed of the first run. The following runs use the following numbers.
    #[serde(default = "one")]
    pub first_seed: Count,
    /// The start of the steady state, over which measures are taken. The default is half the
    /// duration.
    pub steady_from: Option<Seconds>,
    /// The time for which a router still forwards a channel to a host that has left it.
    #[serde(default)]
    pub leave_latency: Seconds,
    /// The interval between the points of a time series.
    #[serde(default = "one_second")]
    pub bin: Seconds,
    /// The maximum number of packets that all links together may carry, queued and in
    /// flight. A run that exceeds it fails. The default is 16 million.
    pub carried_packets_max: Option<Count>,
}

impl RunTable {
    /// Returns the start of the steady state.
    pub fn steady_from(&self) -> Seconds {
        self.steady_from.unwrap_or(Seconds(self.duration.0 / 2.0))
    }
}

fn one() -> Count {
    Count(1.0)
}

fn one_second() -> Seconds {
    Seconds(1.0)
}

/// `[[measure]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MeasureTable {
    /// The name of the measure in formulas.
    pub name: String,
    /// The number of measures that this entry stands for. Read before the schema.
    pub count: Option<Count>,
    /// A formula over other measures and parameters. Replaces all keys below.
    pub value: Option<Expression>,
    /// The observable.
    pub what: Option<Observable>,
    /// The sessions, receivers or links that are observed.
    #[serde(default)]
    pub of: OneOrMany,
    /// The only channel of the session that counts. By default all count.
    pub channel: Option<Count>,
    /// The beginning of the window. The default is the start of the steady state.
    pub from: Option<Seconds>,
    /// The end of the window. The default is the end of the run.
    pub to: Option<Seconds>,
    /// The statistic that makes one number of the values over time.
    pub statistic: Option<Statistic>,
    /// The quantile that `quantile` takes, from 0 to 1.
    pub quantile: Option<Probability>,
    /// The level for `time-to-rise` and `time-to-fall`: a formula over parameters.
    pub level: Option<Expression>,
    /// The combination of the numbers of several receivers or links.
    #[serde(default)]
    pub combine: Combination,
    /// The length of the intervals over which rates are taken.
    pub bin: Option<Seconds>,
    /// The series by which the values are divided, or with which they are correlated.
    pub against: Option<AgainstTable>,
}

/// The series with which a measure's values are compared at the same times.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgainstTable {
    /// The observable.
    pub what: Observable,
    /// The sessions, receivers or links that are observed. Of several values at a time, the
    /// lowest counts.
    pub of: OneOrMany,
}

impl MeasureTable {
    /// Returns the unit of the measure's number. The unit of a formula is not known here.
    pub fn dimension(&self) -> Dimension {
        let Some(what) = self.what else {
            return Dimension::NUMBER;
        };
        let statistic = self.statistic_or_default(what);
        self.combine
            .dimension(statistic.dimension(self.value_dimension(what)))
    }

    /// Returns the unit of the values of which the statistic is taken. A ratio has none.
    pub fn value_dimension(&self, what: Observable) -> Dimension {
        match self.against {
            Some(_) => Dimension::NUMBER,
            None => what.dimension(),
        }
    }

    /// Returns the statistic of the measure. The default is the total for counts and the
    /// mean for all other values.
    pub fn statistic_or_default(&self, what: Observable) -> Statistic {
        let default = match what.is_count() {
            true => Statistic::Total,
            false => Statistic::Mean,
        };
        self.statistic.unwrap_or(default)
    }
}

/// `[[plots]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PlotTable {
    /// The title of the figure.
    pub title: String,
    /// The name of the plot, which becomes part of a file name.
    pub name: String,
    /// The time series, drawn against time.
    #[serde(default)]
    pub series: Vec<SeriesTable>,
    /// The axis of the sweep along the horizontal axis. Replaces time.
    pub x: Option<String>,
    /// The measures drawn as points, with error bars of one standard deviation. Requires `x`.
    #[serde(default)]
    pub points: Vec<String>,
    /// The formulas drawn as lines.
    #[serde(default)]
    pub curves: Vec<CurveTable>,
    /// The axes of the sweep for which each value has a figure of its own. The values of
    /// the other axes are lines in each figure.
    #[serde(default)]
    pub each: OneOrMany,
    /// The values of axes to which the plot is restricted, as written in the sweep.
    #[serde(default)]
    pub only: BTreeMap<String, Label>,
    /// A condition: only the cells in which it holds are drawn.
    #[serde(rename = "where")]
    pub condition: Option<Expression>,
    /// The label of the horizontal axis.
    pub x_label: Option<String>,
    /// The label of the vertical axis.
    pub y_label: Option<String>,
    /// The unit of the vertical axis, such as `kbit/s`.
    pub y_unit: Option<String>,
    /// The unit of the horizontal axis.
    pub x_unit: Option<String>,
    /// The logarithmic axes: `x`, `y` or `xy`.
    #[serde(default)]
    pub log: LogAxes,
    /// The beginning of the time axis, for time series.
    #[serde(default)]
    pub from: Seconds,
    /// The end of the time axis, for time series. The default is the end of the run.
    pub to: Option<Seconds>,
    /// The lowest value of the vertical axis.
    pub y_min: Option<Expression>,
    /// The highest value of the vertical axis.
    pub y_max: Option<Expression>,
    /// The number of seeds that are drawn.
    #[serde(default = "one")]
    pub seeds: Count,
}

/// The logarithmic axes of a plot.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogAxes {
    /// Both axes are linear.
    #[default]
    None,
    /// Only the horizontal axis is logarithmic.
    X,
    /// Only the vertical axis is logarithmic.
    Y,
    /// Both axes are logarithmic.
    Xy,
}

/// A time series of a plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SeriesTable {
    /// The observable.
    pub what: Observable,
    /// The session, receiver or link that is observed.
    pub of: String,
    /// The name in the legend.
    pub label: Option<String>,
    /// The length of the intervals over which rates are taken.
    pub bin: Option<Seconds>,
    /// The factor by which the values are multiplied before they are drawn.
    pub scale: Option<Number>,
}

/// A formula drawn as a line.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CurveTable {
    /// The formula, over parameters and measures.
    pub value: Expression,
    /// The name in the legend.
    pub label: String,
}

/// `[[expect]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ExpectTable {
    /// The expectation in words, in one line.
    pub what: String,
    /// The quantity that has to meet the bounds: a formula over measures and parameters.
    pub value: Expression,
    /// The way in which the values in the cells of a sweep become one. By default each cell
    /// has to meet the bounds.
    #[serde(default)]
    pub across: Across,
    /// The quantile that `across = "quantile"` takes, from 0 to 1.
    pub quantile: Option<Probability>,
    /// The values of axes to which the expectation is restricted, as written in the sweep.
    #[serde(default)]
    pub only: BTreeMap<String, Label>,
    /// A condition: only the cells in which it holds are considered.
    #[serde(rename = "where")]
    pub condition: Option<Expression>,
    /// The lower bound.
    pub at_least: Option<Expression>,
    /// The upper bound.
    pub at_most: Option<Expression>,
    /// The share of the seeds whose own values have to meet the bounds. By default the mean
    /// over the seeds has to meet them.
    pub share_of_seeds: Option<Probability>,
    /// The value in the paper, as text.
    pub paper: Option<String>,
    /// The source of the bound.
    pub source: String,
    /// The bounds for shortened runs. They replace the bounds above.
    pub fast: Option<BoundsTable>,
    /// Whether the value is printed as a percentage.
    #[serde(default)]
    pub percent: bool,
}

/// The bounds of shortened runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BoundsTable {
    /// The lower bound.
    pub at_least: Option<Expression>,
    /// The upper bound.
    pub at_most: Option<Expression>,
}

/// The way in which an expectation's values in the cells of a sweep become one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Across {
    /// Each value has to meet the bounds. Reports show the worst one.
    #[default]
    Every,
    /// Takes the mean of the values.
    Mean,
    /// Takes the median of the values.
    Median,
    /// Takes a quantile of the values.
    Quantile,
    /// Takes the smallest value.
    Min,
    /// Takes the largest value.
    Max,
    /// Takes the smallest step from one cell to the next, which is above 0 if the values grow.
    SmallestStep,
    /// Takes the largest value over the smallest, which is 1 if all are equal.
    Ratio,
}

impl Across {
    /// Returns the unit of the combination of values in the unit `of`.
    pub fn dimension(self, of: Dimension) -> Dimension {
        match self {
            Across::Ratio => Dimension::NUMBER,
            _ => of,
        }
    }

    /// Returns the way in words.
    pub fn word(self) -> &'static str {
        match self {
            Across::Every => "worst",
            Across::Mean => "mean",
            Across::Median => "median",
            Across::Quantile => "quantile",
            Across::Min => "smallest",
            Across::Max => "largest",
            Across::SmallestStep => "smallest step",
            Across::Ratio => "largest over smallest",
        }
    }
}
