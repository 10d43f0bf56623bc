//! TFMCC: TCP-friendly multicast congestion control (RFC 4654): headers, their wire format, and the receiver.
#![forbid(unsafe_code)]

mod config;
mod event;
mod header;
mod number;
mod receiver;
mod wire;

pub use config::{ROUND_RTTS, ReceiverConfig, SenderConfig};
pub use event::Event;
pub use header::{Data, Echo, Feedback, Message, ReceiverId};
pub use number::{RateCode, RttCode, Stamp};
pub use receiver::{Receiver, Status};
pub use wire::{DATA_BYTES, Encoded, FEEDBACK_BYTES, WireError};

/// The one channel of a session.
fn channel(session: u32) -> manyflow_core::Channel {
    manyflow_core::Channel { session, number: 0 }
}
