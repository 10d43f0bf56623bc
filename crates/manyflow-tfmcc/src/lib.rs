//! TFMCC: TCP-friendly multicast congestion control (RFC 4654): headers and their wire format.
#![forbid(unsafe_code)]

mod header;
mod number;
mod wire;

pub use header::{Data, Echo, Feedback, Message, ReceiverId};
pub use number::{RateCode, RttCode, Stamp};
pub use wire::{DATA_BYTES, Encoded, FEEDBACK_BYTES, WireError};
