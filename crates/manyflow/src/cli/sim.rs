//! The options of `sim`, `figure` and `evaluate`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use manyflow_results::shard::Shard;
use manyflow_terminal::completion::{figures, scenarios};

pub(super) const SIM_EXAMPLES: &str = "\
Examples:
  # A scenario of your own, from a template
  manyflow sim --new bottleneck my.toml
  manyflow sim my.toml --fast

  # One run of a figure, by its id
  manyflow sim webrc-5 --cell 17 --seed 3

  # The third of ten equal parts, for a batch queue; `manyflow results merge` joins them
  manyflow sim my.toml --shard 3/10 --out part

  # Capture the bottleneck in the first run, for Wireshark
  manyflow sim webrc-9 --pcap webrc-9.pcap
  tshark -r webrc-9.pcap -d udp.port==5445,alc

  # List every packet that a link dropped in the run with seed 3
  manyflow sim webrc-8 --seed 3 --trace webrc-8.jsonl
  jq -c 'select(.event == \"drop\")' webrc-8.jsonl

--pcap and --trace record one run: the first of those that --cell and --seed select.";

pub(super) const FIGURE_EXAMPLES: &str = "\
Examples:
  manyflow figure --list
  manyflow figure webrc-4 webrc-7
  manyflow figure --all --fast --out results";

pub(super) const EVALUATE_EXAMPLES: &str = "\
Examples:
  manyflow evaluate cubic --fast
  manyflow evaluate own_controller.py";

/// Arguments of `sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The scenario file, whose format docs/scenarios.md describes, or the id of a figure
    #[arg(value_name = "FILE|ID", required_unless_present = "schema", add = scenarios())]
    pub(crate) scenario: Option<String>,
    /// Write a scenario of your own to FILE instead, to be edited and run
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "schema", value_parser = templates())]
    pub(crate) new: Option<String>,
    /// Write a JSON schema of scenario files to this file instead, for editors (taplo)
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub(crate) schema: Option<PathBuf>,
    /// Run only this cell of the sweep; messages about failed runs name it
    #[arg(long)]
    pub(crate) cell: Option<usize>,
    /// Run only this seed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Run shard I of N equal parts of the cells, and write their rows as Parquet instead of
    /// results. Cells that are there already, from the same scenario and program, are not run again
    #[arg(long, value_name = "I/N", conflicts_with_all = ["cell", "seed", "pcap", "trace"])]
    pub(crate) shard: Option<Shard>,
    /// Replace a value of the file, as in 'links.bottleneck.rate=5 Mbit/s'. To replace one that is
    /// swept, set 'sweep.KEY=[...]'; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) inspect: InspectArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Returns a parser of the names of templates.
fn templates() -> PossibleValuesParser {
    let templates = manyflow_figures::TEMPLATES.iter();
    PossibleValuesParser::new(templates.map(|template| template.name))
}

/// Options to record one run.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Write the packets that cross a link to this file in pcap format; - means standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// The link to capture: A-B for one direction, a name from the scenario for both; can be
    /// repeated [default: the only link with a limited rate]
    #[arg(long, value_name = "LINK", requires = "pcap")]
    pub(crate) pcap_link: Vec<String>,
    /// Write the events of protocols and links to this file as JSON objects, one in each line; -
    /// means standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// Arguments of `figure`.
#[derive(Debug, Args)]
pub(crate) struct FigureArgs {
    /// The ids of the figures
    #[arg(required_unless_present_any = ["all", "list"], add = figures())]
    pub(crate) ids: Vec<String>,
    /// Run all figures
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Only list the figures
    #[arg(long)]
    pub(crate) list: bool,
    /// The folder of the scenario files [default: ./scenarios if it exists, else those that the
    /// program holds]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scenarios: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// The protocol, such as cubic, bbr3 or webrc, or a file in Python with a subclass of
    /// `manyflow.Controller`
    pub(crate) protocol: String,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Options for running scenarios.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Use fewer seeds, shorter runs, coarser sweeps and wider bounds of expectations
    #[arg(long)]
    pub(crate) fast: bool,
    /// The folder for results. Each scenario gets a folder in it with index.html, summary.json, CSV
    /// and SVG
    #[arg(long, default_value = "results", value_parser = super::folder())]
    pub(crate) out: PathBuf,
    /// The number of threads, which does not change the results; by default the number of cores
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
}
