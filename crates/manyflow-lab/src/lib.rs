//! Everything that a page needs to show scenarios, their runs and their results, as JSON.
//!
//! | file | contents |
//! |---|---|
//! | `wanted.rs` | what a page asks for: a check, a run, or all runs of a sweep |
//! | `describe.rs` | a scenario as a page has it before it runs: cells, plots, expectations, network |
//! | `conclude.rs` | what a page shows after a run, or after a sweep, and files of the results |
//! | `offered.rs` | scenarios in a list |
//! | `local.rs` | the lab without a server: questions of a page, and runs on the calling thread |
//!
//! There are no threads, clocks and sockets here. `manyflow lab` answers requests with these
//! values, and a page of one file has them from the same code in the browser.
#![forbid(unsafe_code)]

mod conclude;
mod describe;
mod local;
mod offered;
mod wanted;

pub use conclude::{
    Download, SweepProgress, conclusion_of_all, conclusion_of_one, download, results,
};
pub use local::LocalLab;
pub use offered::Entry;
pub use wanted::{Prepared, Wanted, Work};
