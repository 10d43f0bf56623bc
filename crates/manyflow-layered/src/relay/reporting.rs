//! The child's side of a hop with its messages: what receivers and relays share.

use std::collections::VecDeque;

use super::config::{LOWER_BYTES, RelayError};
use crate::hop::{Direction, FEEDBACKS_MAX, HopEnd, HopKey, HopMessage, Stamp};
use crate::{Experiment, Feedback};

/// The maximum number of datagrams that wait for the parent, and of experiments that wait for the
/// receiver.
const WAITING_MAX: usize = 64;

/// A receiver's or relay's side towards its parent: answers soundings, and seals reports and
/// experiments.
#[derive(Debug)]
pub struct ReportingEnd {
    end: HopEnd,
    key: Option<HopKey>,
    datagrams: VecDeque<Vec<u8>>,
    experiments: VecDeque<Experiment>,
    /// The stamp of the last experiment from the parent.
    last: Stamp,
}

impl ReportingEnd {
    /// Creates an end that has heard nothing. `seed` is a random number.
    pub fn new(key: Option<HopKey>, seed: u32) -> ReportingEnd {
        ReportingEnd {
            end: HopEnd::new(seed),
            key,
            datagrams: VecDeque::new(),
            experiments: VecDeque::new(),
            last: Stamp::default(),
        }
    }

    /// Counts an AMT Multicast Data message from the parent. `bytes` is its length as the payload
    /// of UDP.
    #[inline]
    pub fn handle_data(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.end.handle_data(bytes.saturating_add(LOWER_BYTES));
    }

    /// Handles a message of a hop from the parent
    /// ([`is_hop_message`](crate::hop::is_hop_message)).
    ///
    /// # Errors
    /// If the message is refused. Nothing has changed then.
    pub fn handle_datagram(&mut self, bytes: &[u8]) -> Result<(), RelayError> {
        match HopMessage::decode(bytes, Direction::Down, self.key.as_ref())? {
            HopMessage::Sounding(sounding) => {
                let echo = self.end.handle_sounding(&sounding);
                let echo = echo.ok_or(RelayError::Stale)?;
                let mut out = Vec::new();
                echo.encode(self.key.as_ref(), &mut out);
                self.queue(out);
                Ok(())
            }
            HopMessage::Experiment(stamp, experiment) => self.on_experiment(stamp, experiment),
            HopMessage::Echo(_) | HopMessage::Report(..) => Err(RelayError::Direction),
        }
    }

    fn on_experiment(&mut self, stamp: Stamp, experiment: Experiment) -> Result<(), RelayError> {
        let is_same = self.last.nonce == stamp.nonce;
        if stamp.nonce != self.end.nonce() || (is_same && !stamp.follows(&self.last)) {
            return Err(RelayError::Stale);
        }
        self.last = stamp;
        if self.experiments.len() == WAITING_MAX {
            return Err(RelayError::TooMany);
        }
        self.experiments.push_back(experiment);
        Ok(())
    }

    /// Sends feedback to the parent.
    pub fn report(&mut self, feedbacks: &[Feedback]) {
        for some in feedbacks.chunks(FEEDBACKS_MAX) {
            for stamp in self.end.next_stamps() {
                let mut out = Vec::new();
                stamp.encode_report(some, self.key.as_ref(), &mut out);
                self.queue(out);
            }
        }
    }

    /// Announces an experiment of RLM to the parent.
    pub fn announce(&mut self, experiment: Experiment) {
        for stamp in self.end.next_stamps() {
            let mut out = Vec::new();
            stamp.encode_experiment(experiment, Direction::Up, self.key.as_ref(), &mut out);
            self.queue(out);
        }
    }

    /// Queues a datagram. If the driver has not taken any for a long time, the oldest is lost.
    fn queue(&mut self, datagram: Vec<u8>) {
        if self.datagrams.len() == WAITING_MAX {
            self.datagrams.pop_front();
        }
        self.datagrams.push_back(datagram);
        debug_assert!(self.datagrams.len() <= WAITING_MAX);
    }

    /// Replaces `out` by the next datagram to the parent. Returns whether there was one.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(datagram) = self.datagrams.pop_front() else {
            return false;
        };
        *out = datagram;
        true
    }

    /// Returns whether a datagram waits for the parent.
    pub fn has_datagrams(&self) -> bool {
        !self.datagrams.is_empty()
    }

    /// Returns the next experiment that the parent has announced.
    pub fn poll_experiment(&mut self) -> Option<Experiment> {
        self.experiments.pop_front()
    }

    /// Returns the data packets that have arrived, and their bytes.
    pub fn received(&self) -> (u64, u64) {
        self.end.received()
    }
}
