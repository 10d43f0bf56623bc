//! The options of `switch`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use manyflow_core::units::parse_duration;
use manyflow_ensembles::anypoint::switch::PolicyName;
use manyflow_terminal::members::{MembersArgs, Named};
use serde::Deserialize;

pub(super) const SWITCH_EXAMPLES: &str = r#"Examples:
  # A service of three members; each gets what its path and its server carry
  manyflow switch --listen 0.0.0.0:7000 --member a=10.0.0.1:7000 --member b=10.0.0.2:7000 --member c=10.0.0.3:7000

  # The same; each key has its member
  manyflow switch --listen 0.0.0.0:7000 --policy hash --member a=10.0.0.1:7000 --member b=10.0.0.2:7000 --member c=10.0.0.3:7000

  # Twice as many frames for one member
  manyflow switch --listen 0.0.0.0:7000 --policy weighted --member a=10.0.0.1:7000 --member b=10.0.0.2:7000 --weight b=2

  # By ranges of keys
  manyflow switch --listen 0.0.0.0:7000 --policy key-range --member a=10.0.0.1:7000 --member b=10.0.0.2:7000 \
      --keys a=0-999 --keys b=1000-1999

  # Before the members of a chunk store
  manyflow switch --listen 0.0.0.0:7000 --policy replicas --member a=10.0.0.1:7001 --member b=10.0.0.2:7001

  # A member at each address of a name, and at each host that records SRV name; looked up every 5 s
  manyflow switch --listen 0.0.0.0:7000 --member web=dns:web.example.net:7000 --member more=srv:_web._udp.example.net

  # Clients that share one connection to the switch of a service: they connect here instead
  manyflow switch --listen 0.0.0.0:7000 --to service.example.net:7000

  # Members that change while connections are open: edit the file
  manyflow switch --config service.toml

  # service.toml
  listen = "0.0.0.0:7000"
  policy = "rate-aware"          # rate-aware, hash, replicas, round-robin, least-outstanding, weighted, key-range or affinity
  metrics = "127.0.0.1:9464"     # http://127.0.0.1:9464/metrics
  # to = "service.example.net:7000"    # instead of a policy and members

  [members]
  a = "10.0.0.1:7000"
  b = { address = "10.0.0.2:7000", weight = 2, keys = ["0-999", "5000-5999"] }"#;

/// Arguments of `switch`.
#[derive(Debug, Args)]
#[command(mut_arg("member", |member| member.required_unless_present_any(["config", "to"])))]
pub(crate) struct SwitchArgs {
    /// The file that describes the service. Its members and policy are read again every --refresh,
    /// and after SIGHUP
    #[arg(long, value_name = "FILE", conflicts_with = "member")]
    pub(crate) config: Option<PathBuf>,
    /// Accept connections of peers at this address
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        required_unless_present = "config",
        conflicts_with = "config", value_parser = crate::address::listen::<7000>)]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) members: MembersArgs,
    /// Instead of members: the service, or its switch, to which the peers have one connection
    /// together. They connect to this switch, and have one share of the way to the service
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with_all = ["config", "member"],
        value_parser = crate::address::connect_with_port)]
    pub(crate) to: Option<String>,
    /// The choice of a member for each frame
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["config", "to"])]
    pub(crate) policy: PolicyArg,
    /// The weight of a member with --policy weighted, 1 unless given; can be repeated
    #[arg(long, value_name = "NAME=WEIGHT", conflicts_with_all = ["config", "to"])]
    pub(crate) weight: Vec<Named<f64>>,
    /// Keys of a member with --policy key-range; can be repeated
    #[arg(long, value_name = "NAME=FIRST-LAST", conflicts_with_all = ["config", "to"])]
    pub(crate) keys: Vec<Named<KeyRange>>,
    /// The time between two looks at the file and at names, which find members that have changed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) refresh: Duration,
    /// The maximum number of connections; further ones are refused
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=131_071))]
    pub(crate) connections_max: u32,
    /// The time that open connections have to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Serve a status page over HTTP on this address, metrics for Prometheus (OpenMetrics text) at
    /// /metrics, and the status for programs at /status.json
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::listen::<9464>)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// The policies of a switch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PolicyArg {
    /// In proportion to what each member's path and server carry, as the switch learns it from all
    /// connections
    #[default]
    RateAware,
    /// By the hash of a frame's key
    Hash,
    /// By the rank of a copy: for the members of manyflow store
    Replicas,
    /// Each member in turn
    RoundRobin,
    /// The member with the fewest unacknowledged frames
    LeastOutstanding,
    /// In proportion to --weight
    Weighted,
    /// By --keys; other frames go to each member in turn
    KeyRange,
    /// The member with the fewest unacknowledged frames for the first frame of a key, and the same
    /// member for the key's later frames; for `manyflow gateway`
    Affinity,
}

impl From<PolicyArg> for PolicyName {
    fn from(policy: PolicyArg) -> PolicyName {
        match policy {
            PolicyArg::Hash => PolicyName::Hash,
            PolicyArg::Replicas => PolicyName::Replicas,
            PolicyArg::RoundRobin => PolicyName::RoundRobin,
            PolicyArg::LeastOutstanding => PolicyName::LeastOutstanding,
            PolicyArg::RateAware => PolicyName::RateAware,
            PolicyArg::Weighted => PolicyName::Weighted,
            PolicyArg::KeyRange => PolicyName::KeyRange,
            PolicyArg::Affinity => PolicyName::Affinity,
        }
    }
}

/// A range of keys, such as `0-99`, or a single key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange(pub(crate) RangeInclusive<u32>);

impl FromStr for KeyRange {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyRange, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(KeyRange(first..=last)),
            _ => Err(format!("`{text}` is not a range of keys such as 0-99")),
        }
    }
}
