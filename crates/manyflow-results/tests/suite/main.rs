//! Results of scenarios, as a user reads them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod results;
mod rows;
