//! A link of datagrams. Each message is sent at once; missing ones are retransmitted end to end
//! over this link.
//!
//! ```text
//!   push -> [ outbound: kept until acknowledged ] == Datagram ==> [ inbound: gaps ] -> poll_arrival, as they come, each once
//!                ^  retransmitted, flagged as repaired                   |
//!                +------------- Feedback: expected, missing -------------+
//! ```
//!
//! The link has no congestion control of its own: a [controller](crate::controller) paces the
//! messages that enter the overlay. A window of numbers bounds the memory of both ends. Only
//! datagrams that the daemon has taken are acknowledged, so that a daemon which takes none stops
//! the other end. A link whose connection has ended keeps its messages for the next one. Numbers
//! may wrap: they are compared by their distance from the beginning of the window.

mod inbound;
mod outbound;
#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;

use inbound::Inbound;
use outbound::Outbound;

use super::{Arrival, Hop};
use crate::message::{CopyFlags, DATAGRAM_BYTES, Frame, Message, NUMBER_BYTES};
use crate::sequence::LinkSeq;
use manyflow_core::Ecn;
use manyflow_core::Payload;
use manyflow_core::estimate::rtt::RttEstimator;
use manyflow_core::time::{Time, seconds};

/// The number of unacknowledged datagrams at which a hop has no more room.
const ROOM: u32 = 4096;
/// The size of the window: how many numbers from the first unacknowledged one on may be in use.
/// Those beyond [`ROOM`] are spare, because `push` does not check for room.
const WINDOW: u32 = 2 * ROOM;
/// Feedback is due when the daemon has taken this many datagrams.
const ACKNOWLEDGE_EVERY: u32 = 16;
/// Feedback for taken datagrams is due at the latest this long after the last feedback.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(50);
/// The NACK for a gap is due when this many later datagrams have arrived.
const REORDERING: u32 = 3;
/// The NACK for a gap is due at the latest this long after the gap was noticed.
const REORDERING_TIME: Duration = Duration::from_millis(10);
/// The minimum time between two NACKs for a gap, or two retransmissions of a datagram.
const REPEAT_MINIMUM: Duration = Duration::from_millis(20);
/// The maximum number of times that the interval between NACKs for a gap doubles. NACKs are small,
/// and repeated ones restart a link that was cut.
const REPEAT_GROWTH: u32 = 3;
/// The maximum time between two probes or NACKs.
const REPEAT_MAXIMUM: Duration = Duration::from_secs(60);

/// One end of a link of datagrams.
#[derive(Debug)]
pub struct DatagramHop<P> {
    outbound: Outbound<P>,
    inbound: Inbound<P>,
    /// The round-trip time of the link. One half of the hop measures acknowledgements, the other
    /// repairs.
    rtt: RttEstimator,
    /// Nothing is sent without a connection. A world without connections never ends one.
    is_connected: bool,
}

impl<P> DatagramHop<P> {
    /// Returns an end that has sent nothing yet.
    pub fn new() -> DatagramHop<P> {
        DatagramHop {
            outbound: Outbound::new(),
            inbound: Inbound::new(),
            rtt: RttEstimator::new(REPEAT_MINIMUM),
            is_connected: true,
        }
    }
}

impl<P> Default for DatagramHop<P> {
    fn default() -> DatagramHop<P> {
        DatagramHop::new()
    }
}

/// Returns `span`, doubled for each repetition and limited to [`REPEAT_MAXIMUM`].
fn backed_off(span: Duration, repeats: u32) -> Duration {
    span.saturating_mul(1 << repeats.min(16))
        .min(REPEAT_MAXIMUM)
}

impl<P: Payload + Default + fmt::Debug + Send> Hop<P> for DatagramHop<P> {
    fn overhead_bytes(&self) -> u32 {
        DATAGRAM_BYTES + NUMBER_BYTES
    }

    fn has_room(&self) -> bool {
        self.outbound.len() < ROOM
    }

    fn push(&mut self, _now: Time, message: Message, payload: P) {
        self.outbound.push(message, payload);
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame, ecn: Ecn, payload: P) {
        match frame {
            Frame::Datagram { number, message } => {
                let mut message = *message;
                if ecn == Ecn::Marked {
                    message.copy = message.copy.with(CopyFlags::MARKED);
                }
                let arrival = Arrival { message, payload };
                self.inbound
                    .handle_datagram(now, *number, arrival, &mut self.rtt);
            }
            Frame::Feedback(feedback) => {
                self.outbound.handle_feedback(now, feedback, &mut self.rtt);
            }
            _ => {}
        }
    }

    fn handle_connected(&mut self, now: Time, _received: LinkSeq) {
        self.is_connected = true;
        self.outbound.handle_connected(now);
        self.inbound.handle_connected(now);
    }

    fn handle_disconnected(&mut self) {
        self.is_connected = false;
    }

    fn rtt(&self) -> Option<Duration> {
        let average_s = self.rtt.average_s();
        (average_s > 0.0).then(|| seconds(average_s))
    }

    fn retransmissions(&self) -> u64 {
        self.outbound.retransmissions()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.outbound.handle_timeout(now, &self.rtt);
    }

    fn poll_timeout(&self) -> Option<Time> {
        if !self.is_connected {
            return None;
        }
        let timers = [self.outbound.poll_timeout(), self.inbound.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)> {
        if !self.is_connected {
            return None;
        }
        if let Some(feedback) = self.inbound.poll_feedback(now, self.rtt.timeout()) {
            return Some((Frame::Feedback(feedback), P::default()));
        }
        self.outbound.poll_transmit(now, &self.rtt)
    }

    fn poll_arrival(&mut self, now: Time) -> Option<Arrival<P>> {
        self.inbound.pop_arrival(now)
    }
}
