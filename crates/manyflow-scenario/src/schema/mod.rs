//! The tables of a scenario file. `docs/scenarios.md` describes each key.

pub(crate) mod check;
pub mod links;
pub(crate) mod observables;
pub(crate) mod reports;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::expression::Expression;
use crate::protocols::{
    AcpTable, CbrTable, OverlaySessionTable, OverlayTable, Protocol, RlmTable, SimTable, TcpTable,
    TfmccTable, WebrcTable,
};
use crate::quantity::{Bits, Count, Number, Probability, Seconds};
use links::{LinkProperties, LinkTable};

pub use observables::{Combination, Observable, Statistic, Subject};

/// A scenario, with the values of one cell of its sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Schema {
    /// What it shows, in a line.
    pub title: String,
    /// Where it comes from: a paper's figure, or this project.
    pub source: Option<String>,
    /// What a reader should know: the set-up, the choices made and why.
    pub about: Option<String>,
    /// Quantities that formulas name; read before the rest.
    #[serde(default)]
    pub parameters: Kept,
    /// What varies; read before the rest.
    #[serde(default)]
    pub sweep: Kept,
    /// The shortened form; read before the rest.
    #[serde(default)]
    pub fast: Kept,
    /// How long, and how often.
    pub run: RunTable,
    /// Routers and hosts.
    pub nodes: NodesTable,
    /// What joins them.
    #[serde(default)]
    pub links: Vec<LinkTable>,
    /// Daemons that carry messages between groups of clients.
    #[serde(default)]
    pub overlays: Vec<OverlayTable>,
    /// Who sends to whom.
    #[serde(default)]
    pub sessions: Vec<SessionTable>,
    /// What changes in the course of a run.
    #[serde(default)]
    pub at: Vec<ChangeTable>,
    /// Numbers to take from each run.
    #[serde(default)]
    pub measure: Vec<MeasureTable>,
    /// Figures to draw.
    #[serde(default)]
    pub plots: Vec<PlotTable>,
    /// What has to come out.
    #[serde(default)]
    pub expect: Vec<ExpectTable>,
}

/// A table that has been taken out before the rest is read; it stands in the schema so that its
/// name is known.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {}

/// `[run]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RunTable {
    /// How long a run lasts, in simulated time.
    pub duration: Seconds,
    /// How many runs there are of each cell of the sweep, each with another seed.
    #[serde(default = "one")]
    pub seeds: Count,
    /// The first of them; the others follow.
    #[serde(default = "one")]
    pub first_seed: Count,
    /// When the steady state begins, in which measures are taken; by default half the duration.
    pub steady_from: Option<Seconds>,
    /// How long a router goes on sending to a host that has left a channel.
    #[serde(default)]
    pub leave_latency: Seconds,
    /// The distance of the points in time series.
    #[serde(default = "one_second")]
    pub bin: Seconds,
    /// How many packets all links together may carry, in queues and on wires; with more a run
    /// fails. 16 million by default.
    pub carried_packets_max: Option<Count>,
}

impl RunTable {
    /// When the steady state begins.
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
    /// Single nodes.
    #[serde(default)]
    pub names: Vec<String>,
    /// Groups of so many nodes: a group `R` of 3 has the nodes.
    #[serde(default)]
    pub groups: BTreeMap<String, Count>,
    /// Balanced trees: a tree `T` has the nodes T-0 (its root), T-1 and so on, row by row.
    #[serde(default)]
    pub trees: BTreeMap<String, TreeTable>,
    /// Two routers with hosts at each: a dumbbell `D` has the hosts D-left-0, D-right-0 and so on.
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
    /// Rows below the root.
    pub depth: Count,
    /// Children of each node.
    pub children: Count,
}

/// `[nodes.dumbbells]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DumbbellTable {
    /// Hosts on the left.
    pub left: Count,
    /// Hosts on the right.
    pub right: Count,
}

/// `[nodes.random]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomTable {
    /// Nodes.
    pub nodes: Count,
    /// Links, at least one less than nodes.
    pub links: Count,
    /// The seed of the graph; the same for all runs, so that they run on the same graph.
    #[serde(default)]
    pub seed: Count,
}

/// `[[sessions]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SessionTable {
    /// Its name in measures and plots.
    pub name: String,
    /// Which protocol.
    pub protocol: Protocol,
    /// The sender's node.
    pub sender: String,
    /// Where the receivers are; a unicast protocol has a connection to each.
    pub receivers: Vec<ReceiverEntry>,
    /// When the sender starts: a time, or `uniform 0 s to 10 s`.
    #[serde(default)]
    pub start: Start,
    /// When the sender stops.
    pub stop: Option<Seconds>,
    /// So many sessions of this kind; `{i}`, `{i+1}` and `{i+1 mod 800}` in names stand for the
    /// number of each, from 0.
    pub count: Option<Count>,
    /// WEBRC's parameters.
    pub webrc: Option<WebrcTable>,
    /// TCP's parameters.
    #[serde(default)]
    pub tcp: TcpTable,
    /// The parameters of a source of constant bit rate.
    pub cbr: Option<CbrTable>,
    /// SIM's parameters.
    #[serde(default)]
    pub sim: SimTable,
    /// RLM's parameters.
    pub rlm: Option<RlmTable>,
    /// TFMCC's parameters.
    #[serde(default)]
    pub tfmcc: TfmccTable,
    /// ACP's parameters.
    #[serde(default)]
    pub acp: AcpTable,
    /// What a session of an overlay is.
    #[serde(default)]
    pub overlay: OverlaySessionTable,
}

/// A receiver: a node's name, or a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiverEntry(pub ReceiverTable);

/// A receiver, or all of a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReceiverTable {
    /// A node, or a group of nodes.
    pub node: String,
    /// When it joins; by default at once.
    #[serde(default)]
    pub start: Start,
    /// When it leaves.
    pub stop: Option<Seconds>,
    /// After this, it joins again for as long as before, again and again.
    pub every: Option<Seconds>,
    /// It joins all channels at once and keeps them, without rate control: to see what a sender
    /// sends.
    #[serde(default)]
    pub whole_session: bool,
    /// A receiver of SIM that lies.
    pub lie: Option<Lie>,
    /// Of ACP: its own send buffer.
    pub send_buffer: Option<Bits>,
    /// Of ACP: its own receive buffer.
    pub receive_buffer: Option<Bits>,
    /// Of ACP and overlays: how long its application works on a frame or message.
    pub service: Option<Seconds>,
    /// Of ACP: when it sends, if it is to send at all; by default always.
    #[serde(default)]
    pub sends: Vec<SpanTable>,
    /// Of ACP and overlays: when it dies.
    pub crash: Option<Seconds>,
}

/// `sends` of a receiver
#[derive(Copy, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SpanTable {
    /// When it begins to send.
    #[serde(default)]
    pub from: Seconds,
    /// When it ends.
    pub to: Option<Seconds>,
}

/// What a receiver of SIM says in place of the truth.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// The truth.
    Honest,
    /// That it is congested, in each round.
    AlwaysCongested,
    /// That it is never congested; it drops no group for it either.
    NeverCongested,
    /// That it receives ten times what it does.
    TenfoldRate,
    /// That it receives a tenth of what it does.
    TenthOfRate,
}

/// A time that may be drawn for each run.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// The earliest.
    pub from: Seconds,
    /// The latest.
    pub to: Seconds,
}

/// `[[at]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ChangeTable {
    /// When.
    pub time: Seconds,
    /// Again and again, after so long.
    pub every: Option<Seconds>,
    /// No more after this.
    pub until: Option<Seconds>,
    /// The link, or all links of an entry; both directions unless one is named.
    pub link: String,
    /// Cuts it, or restores it.
    pub cut: Option<bool>,
    /// What becomes different; the rest stays as it was.
    #[serde(default)]
    pub set: LinkProperties,
    /// Every second time this instead.
    pub then: Option<TurnTable>,
}

/// `then` of `[[at]]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TurnTable {
    /// Cuts the link, or restores it.
    pub cut: Option<bool>,
    /// What becomes different; the rest stays as it was.
    #[serde(default)]
    pub set: LinkProperties,
}

/// `[[measure]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MeasureTable {
    /// Its name in formulas.
    pub name: String,
    /// So many measures like this; read before the rest.
    pub count: Option<Count>,
    /// A formula over other measures and parameters, instead of the keys below.
    pub value: Option<Expression>,
    /// What is observed.
    pub what: Option<Observable>,
    /// Of which sessions, receivers or links.
    #[serde(default)]
    pub of: OneOrMany,
    /// Only this channel of the session.
    pub channel: Option<Count>,
    /// From when; by default the steady state.
    pub from: Option<Seconds>,
    /// Until when; by default the end.
    pub to: Option<Seconds>,
    /// How the values over time become one number.
    pub statistic: Option<Statistic>,
    /// For `quantile`: which, 0 to 1.
    pub quantile: Option<Probability>,
    /// For `time-to-rise` and `time-to-fall`: the level, a formula over parameters.
    pub level: Option<Expression>,
    /// How those of several receivers or links become one.
    #[serde(default)]
    pub combine: Combination,
    /// The length of the intervals over which rates are taken.
    pub bin: Option<Seconds>,
    /// What its values are divided by, or correlated with.
    pub against: Option<AgainstTable>,
}

/// What a measure's values are compared with at the same times.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgainstTable {
    /// What is observed.
    pub what: Observable,
    /// Of which sessions, receivers or links; of several the lowest value counts.
    pub of: OneOrMany,
}

/// A text or a list of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneOrMany(pub Vec<String>);

/// A value of an axis of the sweep, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(pub String);

/// `[[plots]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PlotTable {
    /// Its title.
    pub title: String,
    /// Part of the file's name.
    pub name: String,
    /// Time series, drawn against time.
    #[serde(default)]
    pub series: Vec<SeriesTable>,
    /// The parameter on the horizontal axis, instead of time.
    pub x: Option<String>,
    /// Measures drawn as points with error bars of one standard deviation, where `x` is given.
    #[serde(default)]
    pub points: Vec<String>,
    /// Formulas drawn as lines.
    #[serde(default)]
    pub curves: Vec<CurveTable>,
    /// A figure for each value of these axes; the values of the others are lines in it.
    #[serde(default)]
    pub each: OneOrMany,
    /// Only cells with these values of axes of the sweep, as they stand there.
    #[serde(default)]
    pub only: BTreeMap<String, Label>,
    /// Only cells in which this holds.
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
    /// Which axes are logarithmic: `x`, `y` or `xy`.
    #[serde(default)]
    pub log: LogAxes,
    /// From when, for time series.
    #[serde(default)]
    pub from: Seconds,
    /// Until when, for time series.
    pub to: Option<Seconds>,
    /// The lowest value of the vertical axis.
    pub y_min: Option<Expression>,
    /// The highest value of the vertical axis.
    pub y_max: Option<Expression>,
    /// How many of the seeds are drawn.
    #[serde(default = "one")]
    pub seeds: Count,
}

/// Which axes are logarithmic.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogAxes {
    /// None.
    #[default]
    None,
    /// The horizontal one.
    X,
    /// The vertical one.
    Y,
    /// Both.
    Xy,
}

/// A time series of a plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SeriesTable {
    /// What is observed.
    pub what: Observable,
    /// Of which session, receiver or link.
    pub of: String,
    /// Its name in the legend.
    pub label: Option<String>,
    /// The length of the intervals over which rates are taken.
    pub bin: Option<Seconds>,
    /// Drawn after multiplication with this.
    pub scale: Option<Number>,
}

/// A formula drawn as a line.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CurveTable {
    /// The formula, over parameters and measures.
    pub value: Expression,
    /// Its name in the legend.
    pub label: String,
}

/// `[[expect]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ExpectTable {
    /// What is expected, in a line.
    pub what: String,
    /// The quantity: a formula over measures and parameters.
    pub value: Expression,
    /// How its values in the cells of a sweep become one; by default each has to keep the bound.
    #[serde(default)]
    pub across: Across,
    /// For `quantile`: which, 0 to 1.
    pub quantile: Option<Probability>,
    /// Only cells with these values of axes of the sweep, as they stand there.
    #[serde(default)]
    pub only: BTreeMap<String, Label>,
    /// Only cells in which this holds.
    #[serde(rename = "where")]
    pub condition: Option<Expression>,
    /// The lower bound.
    pub at_least: Option<Expression>,
    /// The upper bound.
    pub at_most: Option<Expression>,
    /// The share of the seeds whose own values have to keep the bounds, instead of the mean over
    /// the seeds.
    pub share_of_seeds: Option<Probability>,
    /// What the paper has.
    pub paper: Option<String>,
    /// Where the bound comes from.
    pub source: String,
    /// Other bounds for shortened runs.
    pub fast: Option<BoundsTable>,
    /// The value has to print as a share of one hundred.
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

/// How the values of an expectation in the cells of a sweep become one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Across {
    /// Each keeps the bounds; the one that is worst is shown.
    #[default]
    Every,
    /// Their mean.
    Mean,
    /// Their median.
    Median,
    /// A quantile of them.
    Quantile,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The smallest step from one cell to the next: above 0 where they grow.
    SmallestStep,
    /// The largest over the smallest: 1 where all are the same.
    Ratio,
}
