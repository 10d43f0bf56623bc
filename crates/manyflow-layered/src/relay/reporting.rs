//! The child's side of a hop with its messages: what receivers and relays share.

use core::time::Duration;
use std::collections::VecDeque;

use super::config::{LOWER_BYTES, RelayError};
use super::inner::inner_data;
use crate::hop::{Direction, FEEDBACKS_MAX, HopEnd, HopKey, HopMessage, Stamp};
use crate::repair::{Arrival, Gaps};
use crate::{Experiment, Feedback};

/// The maximum number of datagrams that wait for the parent, and of experiments that wait for the
/// receiver.
const WAITING_MAX: usize = 64;
/// The age up to which an end uses packets unless it says otherwise.
const WAIT: Duration = Duration::from_secs(2);

/// A receiver's or relay's side towards its parent: answers soundings, asks for missing packets,
/// and seals reports and experiments.
#[derive(Debug)]
pub struct ReportingEnd {
    end: HopEnd,
    key: Option<HopKey>,
    datagrams: VecDeque<Vec<u8>>,
    experiments: VecDeque<Experiment>,
    /// The stamp of the last experiment from the parent.
    last: Stamp,
    gaps: Gaps,
    wait: Duration,
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
            gaps: Gaps::default(),
            wait: WAIT,
        }
    }

    /// Sets the age up to which this end can use a packet: its latency. Without it, 2 s.
    pub fn set_wait(&mut self, wait: Duration) {
        self.wait = wait;
    }

    /// Counts an AMT Multicast Data message of a session from the parent, and asks for packets that
    /// it shows to be missing. A duplicate needs no further handling.
    pub fn handle_data(&mut self, session: u32, message: &[u8]) -> Arrival {
        let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
        self.end.handle_data(bytes.saturating_add(LOWER_BYTES));
        let Some(data) = inner_data(message) else {
            return Arrival::Fresh;
        };
        let arrival = self.gaps.note(session, data.group, data.sequence);
        self.ask_for_repairs();
        arrival
    }

    /// Sends the request for repairs that is due, if there is one, to all that can be the parent.
    fn ask_for_repairs(&mut self) {
        if self.end.nonce() == 0 {
            return;
        }
        let Some(groups) = self.gaps.poll_request() else {
            return;
        };
        let stamps: Vec<_> = self.end.next_stamps().collect();
        let requests = stamps.iter().map(|stamp| {
            let mut out = Vec::new();
            stamp.encode_repair(self.wait, groups, self.key.as_ref(), &mut out);
            out
        });
        let requests: Vec<_> = requests.collect();
        requests.into_iter().for_each(|request| self.queue(request));
    }

    /// Handles a message of a hop from the parent
    /// ([`is_hop_message`](crate::hop::is_hop_message)).
    ///
    /// # Errors
    /// If the message is refused. Nothing has changed then.
    pub fn handle_datagram(&mut self, bytes: &[u8]) -> Result<(), RelayError> {
        match HopMessage::decode(bytes, Direction::Down, self.key.as_ref())? {
            HopMessage::Sounding(sounding) => {
                let parent = self.end.nonce();
                let echo = self.end.handle_sounding(&sounding);
                let echo = echo.ok_or(RelayError::Stale)?;
                if self.end.nonce() != parent {
                    self.gaps.forget_parent();
                }
                if self.end.nonce() == sounding.nonce {
                    self.gaps.handle_sounding(sounding.packets, echo.packets);
                }
                let mut out = Vec::new();
                echo.encode(self.key.as_ref(), &mut out);
                self.queue(out);
                self.ask_for_repairs();
                Ok(())
            }
            HopMessage::Experiment(stamp, experiment) => self.on_experiment(stamp, experiment),
            HopMessage::Echo(_) | HopMessage::Report(..) | HopMessage::Repair { .. } => {
                Err(RelayError::Direction)
            }
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
