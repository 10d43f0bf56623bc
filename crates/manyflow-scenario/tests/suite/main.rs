//! Scenario files, as a user writes them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod acp;
mod keys;
mod layered;
mod limits;
mod losses;
