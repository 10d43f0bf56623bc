//! The tables of a scenario file. `docs/scenarios.md` describes each key.

pub(crate) mod check;
pub mod links;
pub(crate) mod observables;
pub(crate) mod reports;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::expression::Expression;
use crate::protocols::{
    AcpTable, CbrTable, CommandTable, OverlaySessionTable, OverlayTable, Protocol, RlmTable,
    SimTable, TcpTable, TfmccTable, WebrcTable,
};
use crate::quantity::{Bits, Count, Number, Probability, Seconds};
use links::{LinkProperties, LinkTable};

pub use observables::{Combination, Observable, Statistic, Subject};

/// A scenario, with the values of one cell of its sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Schema {
    /// The title: one line that says what the scenario shows.
    pub title: String,
    /// The origin of the scenario: a paper's figure, or this project.
    pub source: Option<String>,
    /// Background for the reader: the set-up, and the choices made with their reasons.
    pub about: Option<String>,
    /// Named quantities for formulas. Read before all other tables.
    #[serde(default)]
    pub parameters: Kept,
    /// The axes of the sweep. Read before all other tables.
    #[serde(default)]
    pub sweep: Kept,
    /// The values of the shortened form. Read before all other tables.
    #[serde(default)]
    pub fast: Kept,
    /// The duration and the number of runs.
    pub run: RunTable,
    /// The routers and hosts.
    pub nodes: NodesTable,
    /// The links between nodes.
    #[serde(default)]
    pub links: Vec<LinkTable>,
    /// Overlays: daemons that carry messages between groups of clients.
    #[serde(default)]
    pub overlays: Vec<OverlayTable>,
    /// The sessions: one sender each, with its receivers.
    #[serde(default)]
    pub sessions: Vec<SessionTable>,
    /// Changes of links during a run.
    #[serde(default)]
    pub at: Vec<ChangeTable>,
    /// The numbers to take from each run.
    #[serde(default)]
    pub measure: Vec<MeasureTable>,
    /// The figures to draw.
    #[serde(default)]
    pub plots: Vec<PlotTable>,
    /// Bounds that the results have to meet.
    #[serde(default)]
    pub expect: Vec<ExpectTable>,
}

/// A table that is read before the schema. Its field only makes its name known to serde.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {}

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

/// `[nodes]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NodesTable {
    /// Names of single nodes.
    #[serde(default)]
    pub names: Vec<String>,
    /// Groups of nodes, with their sizes. A group `R` of 3 has the nodes.
    #[serde(default)]
    pub groups: BTreeMap<String, Count>,
    /// Balanced trees. A tree `T` has the nodes T-0 (the root), T-1 and so on, row by row.
    #[serde(default)]
    pub trees: BTreeMap<String, TreeTable>,
    /// Dumbbells: two routers with hosts at each. A dumbbell `D` has the hosts D-left-0,
    /// D-right-0 and so on.
    #[serde(default)]
    pub dumbbells: BTreeMap<String, DumbbellTable>,
    /// Connected random graphs.
    #[serde(default)]
    pub random: BTreeMap<String, RandomTable>,
}

/// `[nodes.trees]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TreeTable {
    /// The number of rows below the root.
    pub depth: Count,
    /// The number of children of each inner node.
    pub children: Count,
}

/// `[nodes.dumbbells]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DumbbellTable {
    /// The number of hosts on the left.
    pub left: Count,
    /// The number of hosts on the right.
    pub right: Count,
}

/// `[nodes.random]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomTable {
    /// The number of nodes.
    pub nodes: Count,
    /// The number of links: at least the number of nodes less one.
    pub links: Count,
    /// The seed of the graph. All runs use the same graph.
    #[serde(default)]
    pub seed: Count,
}

/// `[[sessions]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SessionTable {
    /// The name of the session in measures and plots.
    pub name: String,
    /// The protocol of the session.
    pub protocol: Protocol,
    /// The node of the sender, or of the command.
    pub sender: String,
    /// The receivers, which only a command has none of. A unicast protocol opens a connection to
    /// each.
    pub receivers: Option<Vec<ReceiverEntry>>,
    /// The start of the sender: a time, or a range such as `uniform 0 s to 10 s`.
    #[serde(default)]
    pub start: Start,
    /// The time at which the sender stops. By default it does not stop.
    pub stop: Option<Seconds>,
    /// The number of sessions that this entry stands for. In names, `{i}`, `{i+1}` and
    /// `{i+1 mod 800}` become numbers, with `i` from 0.
    pub count: Option<Count>,
    /// Parameters of WEBRC.
    pub webrc: Option<WebrcTable>,
    /// Parameters of TCP.
    #[serde(default)]
    pub tcp: TcpTable,
    /// Parameters of a source of constant bit rate.
    pub cbr: Option<CbrTable>,
    /// Parameters of SIM.
    #[serde(default)]
    pub sim: SimTable,
    /// Parameters of RLM.
    pub rlm: Option<RlmTable>,
    /// Parameters of TFMCC.
    #[serde(default)]
    pub tfmcc: TfmccTable,
    /// Parameters of ACP.
    #[serde(default)]
    pub acp: AcpTable,
    /// Parameters of a session over an overlay.
    #[serde(default)]
    pub overlay: OverlaySessionTable,
    /// The command, in emulated runs only.
    pub command: Option<CommandTable>,
}

impl SessionTable {
    /// Returns the receivers; empty for a command.
    pub fn receivers(&self) -> &[ReceiverEntry] {
        self.receivers.as_deref().unwrap_or_default()
    }
}

/// A receiver, written as a node's name or as a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiverEntry(pub ReceiverTable);

/// A receiver, or one receiver at each node of a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReceiverTable {
    /// The node, or group of nodes.
    pub node: String,
    /// The time at which the receiver joins. The default is the beginning of the run.
    #[serde(default)]
    pub start: Start,
    /// The time at which the receiver leaves. By default it does not leave.
    pub stop: Option<Seconds>,
    /// The period after which the receiver joins again, each time for the same duration.
    pub every: Option<Seconds>,
    /// Whether the receiver joins all channels at once and keeps them, without rate
    /// control. Such a receiver shows everything that the sender sends.
    #[serde(default)]
    pub whole_session: bool,
    /// The false reports of a SIM receiver.
    pub lie: Option<Lie>,
    /// The receiver's own send buffer. ACP only.
    pub send_buffer: Option<Bits>,
    /// The receiver's own receive buffer. ACP only.
    pub receive_buffer: Option<Bits>,
    /// The time for which the application works on each frame or message. ACP and overlays only.
    pub service: Option<Seconds>,
    /// The periods in which the receiver itself sends, in sessions where receivers send.
    /// The default is the whole run. ACP only.
    #[serde(default)]
    pub sends: Vec<SpanTable>,
    /// The time at which the receiver crashes. ACP and overlays only.
    pub crash: Option<Seconds>,
}

/// An entry of `sends` of a receiver: a period in which it sends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SpanTable {
    /// The beginning of the period.
    #[serde(default)]
    pub from: Seconds,
    /// The end of the period. The default is the end of the run.
    pub to: Option<Seconds>,
}

/// The reports of a SIM receiver, true or false.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// Reports the truth.
    Honest,
    /// Reports congestion in each round.
    AlwaysCongested,
    /// Never reports congestion, and drops no group because of it.
    NeverCongested,
    /// Reports ten times the rate at which it receives.
    TenfoldRate,
    /// Reports a tenth of the rate at which it receives.
    TenthOfRate,
}

/// A time, or a range from which each run draws one.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// The earliest time.
    pub from: Seconds,
    /// The latest time.
    pub to: Seconds,
}

/// `[[at]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ChangeTable {
    /// The time of the change.
    pub time: Seconds,
    /// The period after which the change repeats.
    pub every: Option<Seconds>,
    /// The time after which the change no longer repeats. The default is the end of the run.
    pub until: Option<Seconds>,
    /// The link, or the entry whose links all change. Both directions change unless the
    /// name gives one.
    pub link: String,
    /// Cuts the link if true, and restores it if false.
    pub cut: Option<bool>,
    /// The properties that change. The others keep their values.
    #[serde(default)]
    pub set: LinkProperties,
    /// The change that alternates with this one.
    pub then: Option<TurnTable>,
}

/// `then` of `[[at]]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TurnTable {
    /// Cuts the link if true, and restores it if false.
    pub cut: Option<bool>,
    /// The properties that change. The others keep their values.
    #[serde(default)]
    pub set: LinkProperties,
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

/// A name, or a list of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneOrMany(pub Vec<String>);

/// A value of an axis of the sweep, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(pub String);

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
