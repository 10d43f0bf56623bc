//! Stub.
/// Stub.
#[derive(Debug)]
pub struct DatagramHop;
