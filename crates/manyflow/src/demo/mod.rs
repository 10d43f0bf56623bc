//! `manyflow demo`: what the programs do, to watch on this machine.

pub(crate) mod ensemble;
pub(crate) mod files;
pub(crate) mod overlay;
pub(crate) mod stream;
