//! The native part of the Python package `manyflow`, as its module `manyflow._native`.
//!
//! It only binds: scenarios are read and run by `manyflow-scenario`, messages are carried by the
//! overlay's client in `manyflow-messages`. The classes for users are in `python/manyflow`, and
//! `docs/python.md` in the repository is their manual.
//!
//! | file | contents |
//! |---|---|
//! | `builtin.rs` | the scenarios of the repository, which the package contains |
//! | `scenario.rs` | a scenario |
//! | `running.rs` | runs in threads of their own, beside which Python handles signals |
//! | `control.rs` | congestion controls that are written in Python |
//! | `evaluation.rs` | the criteria of RFC 9743 |
//! | `live.rs` | clients of the overlay |
//! | `member.rs` | members of ordered groups |
//! | `transfer.rs` | sending files, and roles that run as tasks |
//! | `receiving.rs` | receiving files |
//! | `runtime.rs` | the runtime of the live roles |
//! | `results.rs` | the results of runs |
//! | `sweep.rs` | the folder of a sweep |
//! | `table.rs` | columns for Arrow's C interface |
//! | `errors.rs` | errors as Python's exceptions |

mod builtin;
mod control;
mod errors;
mod evaluation;
mod live;
mod member;
mod receiving;
mod results;
mod running;
mod runtime;
mod scenario;
mod sweep;
mod table;
mod transfer;

/// The module `manyflow._native`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::builtin::{builtin_names, builtin_text};
    #[pymodule_export]
    use crate::control::Moment;
    #[pymodule_export]
    use crate::evaluation::{evaluation_texts, evaluation_verdicts};
    #[pymodule_export]
    use crate::live::{Client, Message, Messages, connect};
    #[pymodule_export]
    use crate::member::Member;
    #[pymodule_export]
    use crate::receiving::{FileReceiver, start_receiving};
    #[pymodule_export]
    use crate::results::Results;
    #[pymodule_export]
    use crate::scenario::Scenario;
    #[pymodule_export]
    use crate::sweep::{Rows, SweepStore};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::transfer::{Sender, send};

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name of a version")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
