//! One daemon's end of an overlay link, of either kind.
//!
//! | file | kind | order | what is lost |
//! |---|---|---|---|
//! | `stream.rs` | TCP | in order | nothing; what follows a loss waits for its repair |
//! | `datagram.rs` | datagrams and NACKs | as they come | nothing; a repaired message comes late, and says so |

mod datagram;
mod stream;

use core::fmt;

pub use datagram::DatagramHop;
pub use stream::StreamHop;

use super::message::{Frame, Message};
use crate::packet::Ecn;
use crate::time::Time;

/// A message that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival<P> {
    /// Its header.
    pub message: Message,
    /// Its payload; an empty one where it has none.
    pub payload: P,
}

/// One end of an overlay link. It delivers every message once, and never drops one: who wants to send must wait for room, and what
/// is not taken from it holds up the other end.
pub trait Hop<P>: fmt::Debug {
    /// Whether it takes another message now. What it cannot send soon should wait in the daemon's queue, where it has its price.
    fn has_room(&self) -> bool;

    /// Takes a message for the other end. The caller has asked [`has_room`](Hop::has_room); one message more does no harm, so that
    /// control does not wait behind a queue.
    fn push(&mut self, now: Time, message: Message, payload: P);

    /// Takes what came from the other end, with the mark of the packet that carried it. What is not of this kind is ignored.
    fn handle_frame(&mut self, now: Time, frame: &Frame, ecn: Ecn, payload: P);

    /// Does what is due; a spurious call does nothing.
    fn handle_timeout(&mut self, now: Time);

    /// When [`handle_timeout`](Hop::handle_timeout) is wanted next.
    fn poll_timeout(&self) -> Option<Time>;

    /// The next frame for the other end, with its payload. Drain it after each call of the others.
    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)>;

    /// The next message that has arrived. A daemon that is full leaves it here.
    fn poll_arrival(&mut self, now: Time) -> Option<Arrival<P>>;
}
