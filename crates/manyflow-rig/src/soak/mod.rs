//! `manyflow-rig soak`: long tests with faults.

pub(crate) mod files;
mod memory;
pub(crate) mod order;
pub(crate) mod overlay;
pub(crate) mod stream;
