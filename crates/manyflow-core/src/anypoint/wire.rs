//! ACP's segments as bytes.

use super::segment::{Body, Segment};

impl Segment {
    /// The bytes of the header alone.
    pub(super) fn header_bytes(&self) -> u32 {
        match &self.body {
            Body::Data(_) => 28,
            Body::Ack(_) => 24,
            _ => 12,
        }
    }
}
