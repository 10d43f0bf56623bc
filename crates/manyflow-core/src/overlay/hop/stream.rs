//! To be replaced: a stream that sends at once and knows no loss.

use std::collections::VecDeque;

use super::{Arrival, Hop};
use crate::config_error::ConfigError;
use crate::overlay::message::{Frame, Message};
use crate::packet::Ecn;
use crate::tcp::TcpConfig;
use crate::time::Time;

/// One end of a stream.
#[derive(Debug)]
pub struct StreamHop<P> {
    out: VecDeque<(Message, P)>,
    arrived: VecDeque<Arrival<P>>,
}

impl<P> StreamHop<P> {
    /// A stream.
    ///
    /// # Errors
    /// None yet.
    pub fn new(_config: TcpConfig, _seed: u64) -> Result<StreamHop<P>, ConfigError> {
        Ok(StreamHop {
            out: VecDeque::new(),
            arrived: VecDeque::new(),
        })
    }
}

impl<P: core::fmt::Debug> Hop<P> for StreamHop<P> {
    fn has_room(&self) -> bool {
        true
    }
    fn push(&mut self, _now: Time, message: Message, payload: P) {
        self.out.push_back((message, payload));
    }
    fn handle_frame(&mut self, _now: Time, frame: &Frame, _ecn: Ecn, payload: P) {
        if let Frame::Segment { message, .. } = *frame {
            self.arrived.push_back(Arrival { message, payload });
        }
    }
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_frame(&mut self, _now: Time) -> Option<(Frame, P)> {
        let (message, payload) = self.out.pop_front()?;
        Some((
            Frame::Segment {
                sequence: 0,
                message,
            },
            payload,
        ))
    }
    fn poll_arrival(&mut self, _now: Time) -> Option<Arrival<P>> {
        self.arrived.pop_front()
    }
}
