//! The criteria of RFC 9743 (BCP 133, "Specifying New Congestion Control Algorithms", 2025) as
//! scenarios, in which any protocol or [`Control`](manyflow_tcp::Control) can be put.
//!
//! ```
//! use manyflow_scenario::evaluation::{Subject, scenarios};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let subject = Subject::named("cubic")?;
//! for scenario in scenarios(&subject, true)? {
//!     println!("{}: {} runs", scenario.id(), scenario.jobs()?.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The files beside this one are scenarios, except that a table `[[tested]]` stands for a session
//! of the protocol that is evaluated. Its key `ecn = true` asks for a session that routers may
//! mark, and `count` repeats it. [`Subject`] has the other keys of such a session. All packets have
//! 1500 bytes. Each expectation says where its bound comes from: the RFC gives criteria and no
//! numbers, so most bounds are this project's. `docs/evaluate.md` explains them.

mod subject;

use crate::file::{Form, Scenario};
use manyflow_model::ScenarioError;

pub use subject::Subject;

/// The name and the text of a scenario with `[[tested]]` tables.
macro_rules! texts {
    ($($id:literal),* $(,)?) => {
        &[$((concat!($id, ".toml"), include_str!(concat!($id, ".toml")))),*]
    };
}

/// The scenarios, in the order in which the RFC has their criteria.
const TEXTS: &[(&str, &str)] = texts![
    "collapse",
    "crowd",
    "bufferbloat",
    "loss",
    "fairness",
    "latecomer",
    "short",
    "beside",
    "real-time",
    "short-mixed",
    "tail-drop",
    "range",
    "wireless",
    "aqm",
    "aqm-mixed",
    "ecn",
    "delay",
    "reordering",
    "changes",
];

/// The criteria of the RFC that no scenario covers, each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "RFC 9743, Operation with the Envelope Set by Circuit Breakers",
        "depends on the equipment of a network; the loss rates of other criteria are what it reacts to",
    ),
    (
        "RFC 9743, Differences with Congestion Control Principles",
        "an explanation by the authors",
    ),
    (
        "RFC 9743, Incremental Deployment",
        "an explanation by the authors",
    ),
    (
        "RFC 9743, Tunnel Behavior",
        "concerns explicit signals other than ECN: the simulator has no tunnels",
    ),
    (
        "RFC 9743, Internet of Things",
        "concerns the power and memory of devices; the slowest path of `range` has 100 kbit/s",
    ),
    (
        "RFC 9743, Misbehaving Nodes",
        "depends on the feedback of each protocol: `any-liar` and `sim-liar` show it for two",
    ),
    (
        "RFC 9743, Multipath Transport",
        "the protocols here have one path",
    ),
    (
        "RFC 9743, Data Centers",
        "a controlled environment, to which the general criteria may not apply",
    ),
];

impl Subject {
    /// Returns the title of the evaluation.
    pub fn title(&self) -> String {
        format!("{} by the criteria of RFC 9743", self.name())
    }

    /// Returns the criteria of the RFC that no scenario covers, each with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let ecn = (
            "RFC 9743, Active Queue Management: marks",
            "the protocol has no answer to marks here, so routers do not mark its packets",
        );
        let ecn = (!self.can_be_marked()).then_some(ecn);
        ecn.into_iter().chain(LEFT_OUT.iter().copied())
    }
}

/// Returns the scenarios for a subject, or their shortened forms. The scenario `ecn` is left out if
/// the subject has no answer to marks.
///
/// # Errors
/// Returns the error of a scenario that the subject's keys make invalid.
pub fn scenarios(subject: &Subject, fast: bool) -> Result<Vec<Scenario>, ScenarioError> {
    let texts = TEXTS.iter().filter_map(|(file, text)| {
        let text = subject.put_into(text)?;
        let form = Form {
            fast,
            ..Form::default()
        };
        Some(Scenario::parse_form(file, &text, form))
    });
    texts.collect()
}
