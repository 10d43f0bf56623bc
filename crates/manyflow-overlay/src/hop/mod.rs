//! One daemon's end of an overlay link: a stream or datagrams.
//!
//! | file | kind | order | losses |
//! |---|---|---|---|
//! | `stream.rs` | the simulator's TCP | in order | none; messages behind a loss wait for its retransmission |
//! | `kernel.rs` | the kernel's TCP, live | in order | none; a link continues over its next connection |
//! | `delay.rs` | how long messages wait below `kernel.rs` | | |
//! | `datagram.rs` | datagrams and NACKs | as they arrive | none; a retransmitted message arrives late and is flagged as repaired |

mod datagram;
mod delay;
mod kernel;
mod stream;

use core::fmt;
use core::time::Duration;

pub use datagram::DatagramHop;
pub use kernel::KernelHop;
pub use stream::StreamHop;

use super::message::{Frame, Message};
use super::sequence::LinkSeq;
use manyflow_core::Ecn;
use manyflow_core::time::Time;

/// A message that has arrived over a hop.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival<P> {
    /// The message's header.
    pub message: Message,
    /// The message's payload; empty if the message has none.
    pub payload: P,
}

/// One end of an overlay link. It delivers every message once and drops none. The daemon must wait
/// for room before it pushes a message. Messages that the daemon does not take eventually stop the
/// other end.
///
/// A hop over a socket of its own, such as one of the kernel's TCP, has no room while the socket's
/// buffer is full, until [`handle_writable`](Hop::handle_writable) is called.
///
/// After each call of a `handle_*` method or [`push`](Hop::push), drain
/// [`poll_arrival`](Hop::poll_arrival) and [`poll_transmit`](Hop::poll_transmit), then read
/// [`poll_timeout`](Hop::poll_timeout).
pub trait Hop<P>: fmt::Debug + Send {
    /// Returns the number of bytes that a message takes on the link besides its own header and
    /// payload. Lower layers are included.
    fn overhead_bytes(&self) -> u32;

    /// Returns whether messages arrive in the order in which the hop accepts them, without gaps.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Returns whether the hop accepts another message now. Messages that the hop could not send
    /// soon should wait in the daemon's queue, where controllers observe them.
    fn has_room(&self) -> bool;

    /// Accepts a message for the other end. The caller checks [`has_room`](Hop::has_room) first;
    /// one message more than the hop has room for does no harm.
    fn push(&mut self, now: Time, message: Message, payload: P);

    /// Handles a frame from the other end; `ecn` is the mark of its packet. Ignores frames of other
    /// kinds of hops.
    fn handle_frame(&mut self, now: Time, frame: &Frame, ecn: Ecn, payload: P);

    /// Asks the other end for an answer if it was not asked for a second, so that a program that
    /// hangs is noticed: its kernel still acknowledges what it does not read. Hops that send their
    /// own keep-alives, and those of a simulation, ignore this.
    fn keep_alive(&mut self, _now: Time) {}

    /// Handles the drain of the socket buffer below the hop, after it was full. Hops without a
    /// socket of their own ignore this.
    fn handle_writable(&mut self, _now: Time) {}

    /// Handles a new connection to the other end, which has received the messages before
    /// `received`. Hops without connections ignore this.
    fn handle_connected(&mut self, _now: Time, _received: LinkSeq) {}

    /// Handles the end of the connection. The hop has no room until
    /// [`handle_connected`](Hop::handle_connected) is called. Hops without connections ignore this.
    fn handle_disconnected(&mut self) {}

    /// Returns the number of the next message from the other end, which a new connection announces.
    fn received(&self) -> LinkSeq {
        LinkSeq(0)
    }

    /// Returns the average round-trip time of the link; `None` if it is not known yet, or if the
    /// hop leaves it to the kernel.
    fn rtt(&self) -> Option<Duration> {
        None
    }

    /// Returns the time for which messages wait below the hop, beyond the shortest time that the
    /// link takes, if the hop has measured it since the last call. Some hops do not measure it.
    fn poll_delay(&mut self) -> Option<Duration> {
        None
    }

    /// Returns the number of messages that this end has sent again.
    fn retransmissions(&self) -> u64 {
        0
    }

    /// Returns whether the driver should not read the connection, because the daemon takes no
    /// messages.
    fn is_full(&self) -> bool {
        false
    }

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    fn handle_timeout(&mut self, now: Time);

    /// Returns when [`handle_timeout`](Hop::handle_timeout) is wanted next, if at all.
    fn poll_timeout(&self) -> Option<Time>;

    /// Returns the next frame for the other end, with its payload.
    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)>;

    /// Returns the next message that has arrived. A daemon whose queues are full leaves it in the
    /// hop.
    fn poll_arrival(&mut self, now: Time) -> Option<Arrival<P>>;
}
