//! Scenario files, as a user writes them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod acp;
mod capture;
mod errors;
mod evaluation;
mod files;
mod inspect;
mod keys;
mod layered;
mod limits;
mod losses;
mod manual;
mod paths;
mod plan;
mod templates;
mod watch;
