//! The tables of a scenario file: their keys, the papers' values as defaults, and their ranges.
//! `docs/scenarios.md` describes each key, from the comments here. `manyflow-scenario` reads files
//! into a [`Schema`] for each cell of their sweep, and runs it.
//!
//! ```
//! use manyflow_model::file::read_tables;
//! use manyflow_schema::protocols::TcpTable;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let table: TcpTable = read_tables("tcp.toml", "variant = \"cubic\"\nsegment = \"500 B\"")?;
//! table.check()?;
//! assert_eq!(table.config().segment_bytes, 500);
//!
//! let error = read_tables::<TcpTable>("tcp.toml", "segmnet = \"500 B\"").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "tcp.toml:1: `segmnet`: there is no key `segmnet`; did you mean `segment`?"
//! );
//! # Ok(())
//! # }
//! ```
//!
//! A module refers only to those above it:
//!
//! | module | contents |
//! |---|---|
//! | `manyflow-model` | quantities, TOML, and the tables that name no protocol |
//! | [`protocols`] | the tables of sessions and overlays, a file for each protocol |
//! | [`links`] | the properties of links |
//! | this page | [`Schema`]: the whole file |
#![forbid(unsafe_code)]

mod cell;
mod entries;
pub mod links;
pub mod protocols;
pub mod queues;
pub mod rates;

use std::collections::BTreeMap;

use serde::Deserialize;

use links::{LinkProperties, LinkTable};
use protocols::{
    AcpTable, CbrTable, CommandTable, FlidTable, OverlaySessionTable, OverlayTable, Protocol,
    RlcTable, RlmTable, SimTable, TcpTable, TfmccTable, WebrcTable,
};

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
    /// The statement that the scenario shows, in a line.
    pub title: String,
    /// The origin of the scenario: a paper's figure, or this project.
    ///
    /// Default: none.
    pub source: Option<String>,
    /// Notes for a reader: the set-up, the choices and their reasons.
    ///
    /// Default: none.
    pub about: Option<String>,
    /// Names for quantities, each of which can be a formula over those before it, and for texts:
    /// `{ text = "cubic" }`.
    ///
    /// Default: none.
    #[serde(default)]
    pub parameters: Kept,
    /// A parameter or any key (`links.bottleneck.rate`) with a list of values; every combination is
    /// a cell; at most 100,000 runs. `together` lists axes that vary together.
    ///
    /// Default: none.
    #[serde(default)]
    pub sweep: Kept,
    /// Other values for `--fast`, by the same keys: `run.seeds = 2`, `sweep.loss = ["1 %"]`.
    ///
    /// Default: none.
    #[serde(default)]
    pub fast: Kept,
    /// The duration and the number of runs.
    pub run: RunTable,
    /// The routers and hosts.
    pub nodes: NodesTable,
    /// The links between nodes.
    ///
    /// Default: none.
    #[serde(default)]
    pub links: Vec<LinkTable>,
    /// Overlays: daemons that carry messages between groups of clients.
    ///
    /// Default: none.
    #[serde(default)]
    pub overlays: Vec<OverlayTable>,
    /// The sessions: one sender each, with its receivers.
    ///
    /// Default: none.
    #[serde(default)]
    pub sessions: Vec<SessionTable>,
    /// Changes of links during a run.
    ///
    /// Default: none.
    #[serde(default)]
    pub at: Vec<ChangeTable>,
    /// The numbers to take from each run.
    ///
    /// Default: none.
    #[serde(default)]
    pub measure: Vec<MeasureTable>,
    /// The figures to draw.
    ///
    /// Default: none.
    #[serde(default)]
    pub plots: Vec<PlotTable>,
    /// Bounds that the results have to meet.
    ///
    /// Default: none.
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
    ///
    /// Default: none.
    #[serde(default)]
    pub names: Vec<String>,
    /// Groups of nodes, with their sizes. `{ R = 16 }` is the nodes R-0 to R-15, together called R.
    ///
    /// Default: none.
    #[serde(default)]
    pub groups: BTreeMap<String, Count>,
    /// Balanced trees; `T` is all nodes, `T-0` the root, the children of node i of a binary tree
    /// are 2i+1 and 2i+2, and `T-leaves` the leaves.
    ///
    /// Default: none.
    #[serde(default)]
    pub trees: BTreeMap<String, TreeTable>,
    /// Two routers with hosts at each; `D` is all nodes, `D-router-0` and `D-router-1` the routers,
    /// the groups `D-left` and `D-right` their hosts.
    ///
    /// Default: none.
    #[serde(default)]
    pub dumbbells: BTreeMap<String, DumbbellTable>,
    /// Connected random graphs.
    ///
    /// Default: none.
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
    /// The number of hosts at `D-router-0`.
    pub left: Count,
    /// The number of hosts at `D-router-1`.
    pub right: Count,
}

/// `[nodes.random]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RandomTable {
    /// The number of nodes.
    pub nodes: Count,
    /// The number of links, at least one less than nodes.
    pub links: Count,
    /// The seed of the graph; all runs have the same graph.
    ///
    /// Default: 0.
    #[serde(default)]
    pub seed: Count,
}

/// `[[sessions]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SessionTable {
    /// The name in measures and plots: `webrc` is all its receivers, `webrc/R` the receiver (or the
    /// group) at R.
    pub name: String,
    /// The protocol of the session. `webrc`, `sim`, `rlm`, `rlc`, `flid`, `tfmcc`, `tcp`, `cbr`,
    /// `acp`, `overlay`, `command`; can be swept, if the session has the tables of all of them.
    /// Tables and keys of receivers that none of them reads are refused.
    pub protocol: Protocol,
    /// A node; with `command`, the one at which it runs.
    pub sender: String,
    /// A list of nodes, groups, or tables; a unicast protocol has a connection to each; `[]` if
    /// other sessions list the members of an overlay's group.
    ///
    /// Default: required except with `command`.
    pub receivers: Option<Vec<ReceiverEntry>>,
    /// The start of the sender: a time, or `uniform 0 s to 10 s`, drawn for each seed.
    ///
    /// Default: `0 s`.
    #[serde(default)]
    pub start: Start,
    /// The time at which the sender stops.
    ///
    /// Default: never.
    pub stop: Option<Seconds>,
    /// The number of sessions like this; in `name`, `sender`, `receivers` and `group`, `{i}` is the
    /// number of the session from 0, `{i+1}` the next number, and `{i+1 mod 800}` its remainder.
    ///
    /// Default: 1.
    pub count: Option<Count>,
    /// Parameters of WEBRC.
    ///
    /// Default: required with the protocol.
    pub webrc: Option<WebrcTable>,
    /// Parameters of TCP.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub tcp: TcpTable,
    /// Parameters of a source of constant bit rate.
    ///
    /// Default: required with the protocol.
    pub cbr: Option<CbrTable>,
    /// Parameters of SIM.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub sim: SimTable,
    /// Parameters of RLM.
    ///
    /// Default: required with the protocol.
    pub rlm: Option<RlmTable>,
    /// Parameters of RLC.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub rlc: RlcTable,
    /// Parameters of FLID-DL.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub flid: FlidTable,
    /// Parameters of TFMCC.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub tfmcc: TfmccTable,
    /// Parameters of ACP.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub acp: AcpTable,
    /// Parameters of a session over an overlay.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub overlay: OverlaySessionTable,
    /// The command, in emulated runs only.
    ///
    /// Default: required with the protocol.
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
    /// The time at which the receiver joins; drawn for each receiver if it is `uniform`.
    ///
    /// Default: `0 s`.
    #[serde(default)]
    pub start: Start,
    /// The time at which the receiver leaves.
    ///
    /// Default: never.
    pub stop: Option<Seconds>,
    /// The time from one start to the next; each membership lasts as long as the first.
    ///
    /// Default: once.
    pub every: Option<Seconds>,
    /// Whether the receiver joins all channels at once and keeps them, to show everything that a
    /// multicast sender sends.
    #[serde(default)]
    pub whole_session: bool,
    /// Of SIM: a false report: `always-congested`, `never-congested`, `tenfold-rate`,
    /// `tenth-of-rate`.
    ///
    /// Default: `honest`.
    pub lie: Option<Lie>,
    /// The receiver's own send buffer. ACP only.
    ///
    /// Default: that of `acp`.
    pub send_buffer: Option<Bits>,
    /// The receiver's own receive buffer. ACP only.
    ///
    /// Default: that of `acp`.
    pub receive_buffer: Option<Bits>,
    /// With ACP and overlays: the time that the receiver's application spends on a frame or a
    /// message.
    ///
    /// Default: that of `acp`; `0 s`.
    pub service: Option<Seconds>,
    /// Of ACP, if receivers send: a list of spans of time such as `{ from = "5 s", to = "10 s" }`.
    ///
    /// Default: while it is there.
    #[serde(default)]
    pub sends: Vec<SpanTable>,
    /// With ACP and overlays: the time at which the receiver crashes without a message. In an
    /// overlay, the client's daemon sees the end of the connection.
    ///
    /// Default: never.
    pub crash: Option<Seconds>,
}

/// An entry of `sends` of a receiver: a period in which it sends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SpanTable {
    /// The time at which the receiver begins to send, as fast as the connection permits.
    ///
    /// Default: `0 s`.
    #[serde(default)]
    pub from: Seconds,
    /// The time at which the receiver stops.
    ///
    /// Default: never.
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
    /// The time after which the change is repeated.
    ///
    /// Default: once.
    pub every: Option<Seconds>,
    /// The time after which the change no longer repeats.
    ///
    /// Default: the end.
    pub until: Option<Seconds>,
    /// A link, or all links of an entry in both directions; `A-B` is one direction.
    pub link: String,
    /// Whether the link is cut: `true` cuts it, and the packets on it are lost, as are those that
    /// come later: paths stay; `false` restores it.
    ///
    /// Default: as it is.
    pub cut: Option<bool>,
    /// The properties that change; the others do not.
    ///
    /// Default: as it is.
    #[serde(default)]
    pub set: LinkProperties,
    /// The change that is made every second time instead: a table with `cut` and `set`.
    ///
    /// Default: none.
    pub then: Option<TurnTable>,
}

/// `then` of `[[at]]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TurnTable {
    /// Cuts the link if true, and restores it if false.
    ///
    /// Default: as it is.
    pub cut: Option<bool>,
    /// The properties that change. The others keep their values.
    ///
    /// Default: as it is.
    #[serde(default)]
    pub set: LinkProperties,
}
