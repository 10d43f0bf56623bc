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

    /// Sends the packets of a group no faster than this, in bytes per second on a link: what waits
    /// is spread over the time until more of it comes. In bursts at the rate of the group, a queue
    /// would overflow that carries the same bytes evenly. Groups without such a bound send at their
    /// rate, as those of fixed rates always do.
    fn spread(&mut self, _group: u8, _bytes_per_s: f64) {}
}
