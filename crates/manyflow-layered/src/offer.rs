//! The offer of a sender's driver: how much waits to be sent.

use manyflow_core::Endpoint;

use crate::{Event, Message};

/// The sending end of a session whose driver fills the packets, as a driver of either protocol
/// holds it.
pub trait Offer: Endpoint<Rx = Message, Tx = Message, Event = Event> {
    /// Sets the payload that waits for the next packet of a group, in bytes; 0 if nothing waits.
    ///
    /// A packet with a payload is due as soon as the rate of its group permits it. It is as long as
    /// the payload, at most the session's packet length, and takes its own length of the rate. The
    /// offer holds for one packet. Without a payload, only packets are sent that the protocol needs
    /// itself. A group for which nothing was ever offered sends full packets, as the sources of the
    /// papers do.
    fn offer(&mut self, group: u8, payload_bytes: u32);
}
