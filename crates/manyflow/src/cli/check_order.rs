//! The options of `check-order`.

use std::path::PathBuf;

use clap::Args;

pub(super) const CHECK_ORDER_EXAMPLES: &str = r##"Example:
  manyflow check-order a.jsonl b.jsonl

  # a.jsonl: one JSON object a line, in the order in which the member did and saw it
  {"event":"sent","member":"#a#x","message":1,"service":"agreed","groups":["g"]}
  {"event":"delivered","member":"#a#x","message":1}
  {"event":"end","member":"#a#x","how":"quiet"}

Other events are `view`, `transitional` and `left`, each with a group. A file may have the events of several members. Each message
has a number of its own. A member whose trace does not end with `quiet` need not have seen what others saw. The exit code
is 1 if a promise is broken, and 2 if a line cannot be read. docs/order.md describes the format and the promises."##;

/// Arguments of `check-order`.
#[derive(Debug, Args)]
pub(crate) struct CheckOrderArgs {
    /// Files with the events of members
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}
