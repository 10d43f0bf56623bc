//! The command line of manyflow.
fn main() {}
