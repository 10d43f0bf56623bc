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
    ///
    /// Default: 1.
    #[serde(default = "one")]
    pub seeds: Count,
    /// The seed of the first run. The following runs use the following numbers.
    ///
    /// Default: 1.
    #[serde(default = "one")]
    pub first_seed: Count,
    /// The beginning of measures that have no `from`.
    ///
    /// Default: half the duration.
    pub steady_from: Option<Seconds>,
    /// The time for which a router continues to send to a node that has left a channel (with IGMP:
    /// seconds).
    ///
    /// Default: `0 s`.
    #[serde(default)]
    pub leave_latency: Seconds,
    /// The interval between the points of a time series, over which rates are averaged.
    ///
    /// Default: `1 s`.
    #[serde(default = "one_second")]
    pub bin: Seconds,
    /// The number of packets that all links together may carry, in queues and on wires (about 2
    /// GB); if there are more, the run fails and names the link that carries the most.
    ///
    /// Default: 16,000,000.
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
    /// The number of measures like this, see docs/scenarios.md#many-from-one.
    ///
    /// Default: 1.
    pub count: Option<Count>,
    /// A formula over parameters and earlier measures, instead of an observable.
    ///
    /// Default: either this or `what`.
    pub value: Option<Expression>,
    /// The observable.
    ///
    /// Default: either this or `value`.
    pub what: Option<Observable>,
    /// A session (its receivers), a receiver `session/node`, or a link; or a list of them. With
    /// ACP, `session/node` is also the sender, an initiator or a switch, if no receiver is at the
    /// node, and `session/initiator/receiver` is the frames of an initiator at a receiver. With an
    /// overlay, it is also the sending clients at the node, and `overlay/node` is a daemon.
    /// `flow-{i}` is all sessions of the entry with this name: their receivers, and their sending
    /// clients.
    ///
    /// Default: required with `what`.
    #[serde(default)]
    pub of: OneOrMany,
    /// For `channel-rate` and `group-rate`: the number of the channel.
    ///
    /// Default: all.
    pub channel: Option<Count>,
    /// The beginning of the window.
    ///
    /// Default: the steady state.
    pub from: Option<Seconds>,
    /// The end of the window.
    ///
    /// Default: the end.
    pub to: Option<Seconds>,
    /// The statistic over the window that makes one number of the values.
    ///
    /// Default: `total` of counts, otherwise `mean`.
    pub statistic: Option<Statistic>,
    /// For `quantile`: the share, 0 to 1.
    ///
    /// Default: required with `quantile`.
    pub quantile: Option<Probability>,
    /// For `time-to-rise` and `time-to-fall`: a formula over parameters.
    ///
    /// Default: required with these statistics.
    pub level: Option<Expression>,
    /// The way in which the numbers of several receivers or links become one.
    ///
    /// Default: `mean`.
    #[serde(default)]
    pub combine: Combination,
    /// The length of the intervals over which rates are taken.
    ///
    /// Default: that of `[run]`.
    pub bin: Option<Seconds>,
    /// Another observable: the statistic is that of the ratio to it at each time.
    ///
    /// Default: none.
    pub against: Option<AgainstTable>,
}

/// The series with which a measure's values are compared at the same times.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgainstTable {
    /// An observable; of the same unit, unless the statistic is `correlation`.
    pub what: Observable,
    /// The sessions, receivers or links that are observed, as for the measure; of several values
    /// the lowest counts.
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
    /// The title above the figure.
    pub title: String,
    /// The name of the plot, which becomes part of a file name.
    pub name: String,
    /// The time series, drawn against time.
    ///
    /// Default: either this or `x`.
    #[serde(default)]
    pub series: Vec<SeriesTable>,
    /// The axis of the sweep along the horizontal axis. Replaces time.
    ///
    /// Default: either this or `series`.
    pub x: Option<String>,
    /// The measures drawn as points, with error bars of one standard deviation. Requires `x`.
    ///
    /// Default: none.
    #[serde(default)]
    pub points: Vec<String>,
    /// The formulas drawn as lines.
    ///
    /// Default: none.
    #[serde(default)]
    pub curves: Vec<CurveTable>,
    /// Axes of the sweep; each of their values has a figure.
    ///
    /// Default: none.
    #[serde(default)]
    pub each: OneOrMany,
    /// Only cells with these values of axes of the sweep: `{ "sessions.flow.protocol" = "tcp" }`.
    ///
    /// Default: all cells.
    #[serde(default)]
    pub only: BTreeMap<String, Label>,
    /// A condition: only the cells in which it holds are drawn.
    ///
    /// Default: all cells.
    #[serde(rename = "where")]
    pub condition: Option<Expression>,
    /// The label of the x axis.
    ///
    /// Default: what is drawn.
    pub x_label: Option<String>,
    /// The label of the y axis.
    ///
    /// Default: what is drawn.
    pub y_label: Option<String>,
    /// The unit of the y axis.
    ///
    /// Default: one that fits.
    pub y_unit: Option<String>,
    /// The unit of the x axis.
    ///
    /// Default: one that fits.
    pub x_unit: Option<String>,
    /// The logarithmic axes: `x`, `y` or `xy`.
    ///
    /// Default: `none`.
    #[serde(default)]
    pub log: LogAxes,
    /// The beginning of the time span of series.
    ///
    /// Default: the whole run.
    #[serde(default)]
    pub from: Seconds,
    /// The end of the time span of series.
    ///
    /// Default: the whole run.
    pub to: Option<Seconds>,
    /// The lower end of the y axis.
    ///
    /// Default: what fits.
    pub y_min: Option<Expression>,
    /// The upper end of the y axis.
    ///
    /// Default: what fits.
    pub y_max: Option<Expression>,
    /// The number of seeds that are drawn over time.
    ///
    /// Default: 1.
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
    /// The label in the legend.
    ///
    /// Default: the observable.
    pub label: Option<String>,
    /// The length of the intervals over which rates are taken.
    ///
    /// Default: that of `[run]`.
    pub bin: Option<Seconds>,
    /// The factor by which the values are multiplied before they are drawn.
    ///
    /// Default: 1.
    pub scale: Option<Number>,
}

/// A formula drawn as a line.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CurveTable {
    /// The formula, over parameters and measures.
    pub value: Expression,
    /// The label in the legend.
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
    /// The way in which the values in the cells of a sweep become one.
    ///
    /// Default: `every`.
    #[serde(default)]
    pub across: Across,
    /// For `quantile`: the share, 0 to 1.
    ///
    /// Default: 0.5.
    pub quantile: Option<Probability>,
    /// Only cells with these values of axes of the sweep: `{ "sessions.flow.protocol" = "tcp" }`.
    ///
    /// Default: all cells.
    #[serde(default)]
    pub only: BTreeMap<String, Label>,
    /// A condition: only the cells in which it holds are considered.
    ///
    /// Default: all cells.
    #[serde(rename = "where")]
    pub condition: Option<Expression>,
    /// The lower bound.
    ///
    /// Default: one of the two.
    pub at_least: Option<Expression>,
    /// The upper bound.
    ///
    /// Default: one of the two.
    pub at_most: Option<Expression>,
    /// The share of the seeds whose own values have to be within the bounds, such as `3 / 4` or
    /// `90 %`; without the key, the mean over the seeds has to be. A seed without a value is not
    /// within them. The share applies to each cell, so it cannot be combined with `across`.
    ///
    /// Default: none.
    pub share_of_seeds: Option<Probability>,
    /// The value in the paper, as text.
    ///
    /// Default: none.
    pub paper: Option<String>,
    /// The source of the bound.
    pub source: String,
    /// The bounds for shortened runs. They replace the bounds above.
    ///
    /// Default: the same.
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
    ///
    /// Default: no bound.
    pub at_least: Option<Expression>,
    /// The upper bound.
    ///
    /// Default: no bound.
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
