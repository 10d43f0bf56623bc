//! A link that is a stream each way: every message in a TCP segment of its own, over [`tcp`].
//!
//! ```text
//!   push -> unacknowledged --Segment-->  <--Ack-- arrived -> poll_arrival
//!           (until its Ack)                       (until taken: what is there closes the window)
//! ```
//!
//! There is no ECN: frames carry no echo.

use std::collections::VecDeque;

use super::{Arrival, Hop};
use crate::config_error::ConfigError;
use crate::endpoint::Endpoint;
use crate::overlay::message::{Ack, Frame, Message};
use crate::packet::{Ecn, EndpointId};
use crate::payload::Payload;
use crate::tcp::{Receiver, Segment, Sender, TcpConfig};
use crate::time::Time;

/// Messages that may wait for the congestion window here; what comes on top has its price in the daemon's queue.
const UNSENT: u32 = 2;

/// One end of a stream link. Each direction carries at most 2^32 - 1 messages.
#[derive(Debug)]
pub struct StreamHop<P> {
    sender: Sender,
    /// What was pushed and is not acknowledged.
    unacknowledged: VecDeque<(Message, P)>,
    /// The first one's segment.
    first: u32,
    receiver: Receiver,
    /// What arrived and was not taken, and the gaps in it; not longer than the receiver's window.
    arrived: VecDeque<Option<Arrival<P>>>,
    /// The first one's segment.
    next: u32,
}

impl<P: Payload> StreamHop<P> {
    /// An end whose jitter is drawn from `seed`. Of the configuration `start`, `stop`, `transfer`, `ecn` and `segment_bytes` do not
    /// count; `maximum_window` is how many messages this end holds for a daemon that does not take them, at most 65,534.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn new(config: TcpConfig, seed: u64) -> Result<StreamHop<P>, ConfigError> {
        let most = u32::from(Segment::UNLIMITED) - 1;
        let config = TcpConfig {
            ecn: false,
            maximum_window: config.maximum_window.min(most),
            ..config
        };
        Ok(StreamHop {
            sender: Sender::of_stream(config.clone(), EndpointId::UNSET, seed)?,
            unacknowledged: VecDeque::new(),
            first: 0,
            receiver: Receiver::of_stream(config, EndpointId::UNSET)?,
            arrived: VecDeque::new(),
            next: 0,
        })
    }

    fn on_segment(&mut self, now: Time, sequence: u32, arrival: Arrival<P>) {
        let segment = Segment {
            sequence,
            ..Segment::default()
        };
        if self.receiver.handle_segment(now, &segment, Ecn::NotCapable) {
            // It is in the receiver's window, and so is its place.
            let place = (sequence - self.next) as usize;
            if place >= self.arrived.len() {
                self.arrived.resize_with(place + 1, || None);
            }
            self.arrived[place] = Some(arrival);
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let segment = Segment {
            acknowledgement: ack.acknowledgement,
            window: ack.window,
            sack: ack.sack,
            ..Segment::default()
        };
        self.sender.handle_segment(now, &segment);
        let acknowledged = self.sender.acknowledged_segments() - self.first;
        self.unacknowledged.drain(..acknowledged as usize);
        self.first += acknowledged;
        self.forget_events();
    }

    /// A hop tells nothing: what would pile up is dropped.
    fn forget_events(&mut self) {
        while self.sender.poll_event().is_some() {}
    }

    fn poll_segment(&mut self, now: Time) -> Option<(Frame, P)> {
        let (Segment { sequence, .. }, _) = self.sender.poll_segment(now)?;
        let place = (sequence - self.first) as usize;
        let (message, payload) = self.unacknowledged.get(place)?.clone();
        Some((Frame::Segment { sequence, message }, payload))
    }
}

impl<P: Payload + Default + core::fmt::Debug> Hop<P> for StreamHop<P> {
    fn has_room(&self) -> bool {
        self.sender.unsent_segments() <= UNSENT
    }

    fn push(&mut self, now: Time, message: Message, payload: P) {
        self.unacknowledged.push_back((message, payload));
        self.sender.offer(now, 1);
    }

    fn handle_frame(&mut self, now: Time, frame: &Frame, _ecn: Ecn, payload: P) {
        match *frame {
            Frame::Segment { sequence, message } => {
                self.on_segment(now, sequence, Arrival { message, payload });
            }
            Frame::Ack(ref ack) => self.on_ack(now, ack),
            Frame::Datagram { .. } | Frame::Feedback(_) | Frame::Direct(_) | Frame::Client(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.forget_events();
    }

    fn poll_timeout(&self) -> Option<Time> {
        let ends = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        ends.into_iter().flatten().min()
    }

    fn poll_frame(&mut self, now: Time) -> Option<(Frame, P)> {
        match self.receiver.poll_segment() {
            Some(segment) => Some((Frame::Ack(Ack::from(segment)), P::default())),
            None => self.poll_segment(now),
        }
    }

    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<P>> {
        self.arrived.front()?.as_ref()?;
        self.next += 1;
        self.receiver.take();
        self.arrived.pop_front()?
    }
}

impl From<Segment> for Ack {
    fn from(segment: Segment) -> Ack {
        Ack {
            acknowledgement: segment.acknowledgement,
            window: segment.window,
            sack: segment.sack,
        }
    }
}
