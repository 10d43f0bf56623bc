//! A link of datagrams: each goes at once, and what is missing is asked for and sent again by the neighbour.
//!
//! ```text
//!   push -> [ outbound: kept until acknowledged ] == Datagram ==> [ inbound: gaps ] -> poll_arrival, as they come, each once
//!                ^  sent again, flagged as repaired                      |
//!                +------------- Feedback: expected, missing -------------+
//! ```
//!
//! It has no congestion control of its own: a [controller](crate::overlay::controller) paces what enters the overlay. Memory is
//! bounded at both ends by a window of numbers. Only what the daemon has taken is acknowledged, so one that takes nothing stops the
//! other end. Numbers are compared by their distance from the window's beginning: they may wrap.

mod inbound;
mod outbound;
#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;

use inbound::Inbound;
use outbound::Outbound;

use super::{Arrival, Hop};
use crate::estimate::rtt::RttEstimator;
use crate::overlay::message::{Frame, Message};
use crate::packet::Ecn;
use crate::payload::Payload;
use crate::time::Time;

/// Unacknowledged datagrams from which on there is no room.
const ROOM: u32 = 4096;
/// Numbers from the first unacknowledged one on that may be in use: the rest is for control, which comes without asking for room.
const WINDOW: u32 = 2 * ROOM;
/// What was taken is acknowledged after this many datagrams,
const ACKNOWLEDGE_EVERY: u32 = 16;
/// and where the last acknowledgement is so long ago.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(50);
/// A gap is asked for after so many later datagrams,
const REORDERING: u32 = 3;
/// or so long after it was seen.
const REORDERING_TIME: Duration = Duration::from_millis(10);
/// Nothing is repeated sooner.
const REPEAT_MINIMUM: Duration = Duration::from_millis(20);
/// A gap is asked for ever more rarely, until the interval was doubled so often: what asks is small, and waits for a link that is cut.
const REPEAT_GROWTH: u32 = 3;
/// No datagram is sent again later.
const REPEAT_MAXIMUM: Duration = Duration::from_secs(60);

/// One end of a link of datagrams.
#[derive(Debug)]
pub struct DatagramHop<P> {
    outbound: Outbound<P>,
    inbound: Inbound<P>,
    /// Both directions measure the same link: what was acknowledged, and how soon a repair came.
    rtt: RttEstimator,
}

impl<P> DatagramHop<P> {
    /// An end that has sent nothing yet.
    pub fn new() -> DatagramHop<P> {
        DatagramHop {
            outbound: Outbound::new(),
            inbound: Inbound::new(),
            rtt: RttEstimator::new(REPEAT_MINIMUM),
        }
    }
}

impl<P> Default for DatagramHop<P> {
    fn default() -> DatagramHop<P> {
        DatagramHop::new()
    }
}

/// `span`, doubled for each time that nothing came of it.
fn backed_off(span: Duration, repeats: u32) -> Duration {
    span.saturating_mul(1 << repeats.min(16))
        .min(REPEAT_MAXIMUM)
}

impl<P: Payload + Default + fmt::Debug> Hop<P> for DatagramHop<P> {
    fn has_room(&self) -> bool {
        self.outbound.len() < ROOM
    }

    fn push(&mut self, _now: Time, message: Message, payload: P) {
        self.outbound.push(message, payload);
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame, _ecn: Ecn, payload: P) {
        match frame {
            Frame::Datagram { number, message } => {
                let arrival = Arrival {
                    message: *message,
                    payload,
                };
                self.inbound.arrive(now, *number, arrival, &mut self.rtt);
            }
            Frame::Feedback(feedback) => {
                self.outbound.take_feedback(now, feedback, &mut self.rtt);
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.outbound.handle_timeout(now, &self.rtt);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timers = [self.outbound.poll_timeout(), self.inbound.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)> {
        if let Some(feedback) = self.inbound.feedback(now, self.rtt.timeout()) {
            return Some((Frame::Feedback(feedback), P::default()));
        }
        self.outbound.poll_transmit(now, &self.rtt)
    }

    fn poll_arrival(&mut self, now: Time) -> Option<Arrival<P>> {
        self.inbound.take(now)
    }
}
