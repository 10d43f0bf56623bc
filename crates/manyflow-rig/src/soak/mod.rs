//! `manyflow-rig soak`: long tests with faults.

pub(crate) mod files;
pub(crate) mod overlay;
pub(crate) mod stream;
