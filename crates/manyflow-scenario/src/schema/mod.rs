//! The tables of a scenario file. `docs/scenarios.md` describes each key.

mod cell;
pub mod links;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::protocols::{
    AcpTable, CbrTable, CommandTable, OverlaySessionTable, OverlayTable, Protocol, RlmTable,
    SimTable, TcpTable, TfmccTable, WebrcTable,
};
use links::{LinkProperties, LinkTable};

pub use cell::Cell;
use manyflow_model::quantity::{Bits, Count, Seconds};

pub use manyflow_model::tables::{
    Across, AgainstTable, BoundsTable, CurveTable, ExpectTable, Label, LogAxes, MeasureTable,
    OneOrMany, PlotTable, RunTable, SeriesTable,
};
pub use manyflow_model::{Combination, Observable, Statistic, Subject};

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
