//! Stub.
/// Stub.
#[derive(Debug)]
pub struct StreamHop;
