//! Requests in flight: their bytes, time-outs and numbers.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use manyflow_core::Time;
use manyflow_core::estimate::rtt::RttEstimator;

use crate::config::StoreConfig;
use crate::yielding::YieldingWindow;

/// A request: a chunk, by its place, and the rank that is asked. It is also the number of the
/// request on the wire, so a late answer is still of use.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ask {
    pub(crate) chunk: u32,
    pub(crate) rank: u8,
}

impl Ask {
    pub(crate) fn id(self) -> u64 {
        u64::from(self.chunk) << 4 | u64::from(self.rank)
    }

    /// Returns the request of an id; `None` if no request has this id.
    pub(crate) fn of_id(id: u64) -> Option<Ask> {
        let chunk = u32::try_from(id >> 4).ok()?;
        let rank = id as u8 & 15;
        Some(Ask { chunk, rank })
    }
}

#[derive(Debug)]
struct Pending {
    sent_at: Time,
    due: Time,
    bytes: u32,
}

/// Requests in flight.
#[derive(Debug)]
pub(crate) struct Requests {
    window_bytes: u64,
    /// The window that yields to others, at most `window_bytes`; `None` if it is constant.
    yielding: Option<YieldingWindow>,
    silence_max: Duration,
    pending: BTreeMap<Ask, Pending>,
    /// The requests by the time at which each times out.
    due: BTreeSet<(Time, Ask)>,
    /// The bytes of all requests in flight.
    bytes: u64,
    rtt: RttEstimator,
    /// Requests that were sent before this time do not back the time-out off again.
    backed_off_at: Time,
    /// The time of the last answer, or of the first request since then; `None` if no answer is
    /// expected.
    waiting_since: Option<Time>,
    /// The last value of `waiting_since` for which the connection was taken for stuck.
    stuck_since: Option<Time>,
}

impl Requests {
    pub(crate) fn new(config: &StoreConfig, now: Time) -> Requests {
        Requests {
            window_bytes: config.window_bytes.into(),
            yielding: config
                .yields
                .then(|| YieldingWindow::new(config.window_bytes.into())),
            silence_max: config.silence_max,
            pending: BTreeMap::new(),
            due: BTreeSet::new(),
            bytes: 0,
            rtt: RttEstimator::new(config.minimum_timeout),
            backed_off_at: now,
            waiting_since: None,
            stuck_since: None,
        }
    }

    /// Returns whether a request of this many bytes may be sent now. A request that is larger than
    /// the window may be sent alone.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        let yielding = self.yielding.as_ref();
        let window = yielding.map_or(self.window_bytes, YieldingWindow::bytes);
        self.pending.is_empty() || self.bytes + u64::from(bytes) <= window
    }

    /// Notes that a request is sent.
    pub(crate) fn start(&mut self, now: Time, ask: Ask, bytes: u32) {
        self.finish(ask);
        self.waiting_since.get_or_insert(now);
        let due = now + self.rtt.timeout();
        let sent_at = now;
        let pending = Pending {
            sent_at,
            due,
            bytes,
        };
        self.pending.insert(ask, pending);
        self.due.insert((due, ask));
        self.bytes += u64::from(bytes);
    }

    /// Notes the answer to a request that was sent once, which is a sample of the answer time, or
    /// several times, which is not.
    pub(crate) fn answer(&mut self, now: Time, ask: Ask, was_repeated: bool) {
        match self.finish(ask) {
            Some(pending) if !was_repeated => {
                self.rtt.sample((now - pending.sent_at).as_secs_f64());
                if let Some(window) = &mut self.yielding {
                    window.note_answer(now, pending.sent_at, pending.bytes);
                }
            }
            _ => self.rtt.end_back_off(),
        }
        self.waiting_since = (!self.pending.is_empty()).then_some(now);
    }

    /// Removes a request whose answer is no longer needed.
    pub(crate) fn cancel(&mut self, ask: Ask) {
        self.finish(ask);
        if self.pending.is_empty() {
            self.waiting_since = None;
        }
    }

    /// Returns whether a request is in flight.
    pub(crate) fn is_pending(&self, ask: Ask) -> bool {
        self.pending.contains_key(&ask)
    }

    /// Removes and returns a request.
    fn finish(&mut self, ask: Ask) -> Option<Pending> {
        let pending = self.pending.remove(&ask)?;
        self.due.remove(&(pending.due, ask));
        self.bytes -= u64::from(pending.bytes);
        debug_assert_eq!(self.pending.len(), self.due.len());
        debug_assert!(!self.pending.is_empty() || self.bytes == 0);
        Some(pending)
    }

    /// Removes and returns a request that has timed out. Requests that were in flight together back
    /// the time-out off once.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Ask> {
        let (due, ask) = *self.due.first()?;
        if due > now {
            return None;
        }
        let sent_at = self.finish(ask)?.sent_at;
        if let Some(window) = &mut self.yielding {
            window.note_loss();
        }
        if sent_at >= self.backed_off_at {
            self.rtt.back_off();
            self.backed_off_at = now;
        }
        Some(ask)
    }

    /// Removes and returns all requests: those of a connection that is over. Answers are still
    /// expected, so that a service whose connections all fail at once counts as silent.
    pub(crate) fn take_all(&mut self) -> Vec<Ask> {
        self.due.clear();
        self.bytes = 0;
        core::mem::take(&mut self.pending).into_keys().collect()
    }

    /// Returns whether an answer is expected, and none has come for too long a time.
    pub(crate) fn is_silent(&self, now: Time) -> bool {
        let since = self.waiting_since;
        since.is_some_and(|since| now - since >= self.silence_max)
    }

    /// Returns whether the connection may be stuck: no answer has come for half of the silence
    /// after which the transfer fails. Returns true once for each silence.
    pub(crate) fn is_stuck(&mut self, now: Time) -> bool {
        let is_stuck = self.stuck_at().is_some_and(|at| now >= at);
        if is_stuck {
            self.stuck_since = self.waiting_since;
        }
        is_stuck
    }

    fn stuck_at(&self) -> Option<Time> {
        let since = self.waiting_since;
        let since = since.filter(|_| self.stuck_since != since)?;
        Some(since + self.silence_max / 2)
    }

    /// Returns the time of the next time-out.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let due = self.due.first().map(|(due, _)| *due);
        let silent_at = self.waiting_since.map(|since| since + self.silence_max);
        [due, self.stuck_at(), silent_at]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_chunk_and_rank() {
        for ask in [
            Ask { chunk: 0, rank: 0 },
            Ask {
                chunk: u32::MAX,
                rank: 15,
            },
        ] {
            assert_eq!(Ask::of_id(ask.id()), Some(ask));
        }
        assert_eq!(Ask::of_id(1 << 36), None);
    }

    #[test]
    fn requests_that_time_out_together_back_off_once() {
        let config = StoreConfig::default();
        let mut requests = Requests::new(&config, Time::ZERO);
        for chunk in 0..5 {
            requests.start(Time::ZERO, Ask { chunk, rank: 0 }, 10);
        }
        let due = Time::ZERO + config.minimum_timeout;
        assert_eq!(requests.poll_timeout(), Some(due));
        let mut expired = 0;
        while requests.expire(due).is_some() {
            expired += 1;
        }
        assert_eq!(expired, 5);
        requests.start(due, Ask { chunk: 0, rank: 0 }, 10);
        let doubled = due + 2 * config.minimum_timeout;
        assert_eq!(requests.poll_timeout(), Some(doubled));
    }

    #[test]
    fn the_window_bounds_bytes_in_flight_but_always_admits_one_request() {
        let config = StoreConfig {
            window_bytes: 100,
            ..StoreConfig::default()
        };
        let mut requests = Requests::new(&config, Time::ZERO);
        assert!(requests.has_room(1000));
        requests.start(Time::ZERO, Ask { chunk: 0, rank: 0 }, 60);
        assert!(requests.has_room(40) && !requests.has_room(41));
        requests.answer(Time::ZERO, Ask { chunk: 0, rank: 0 }, false);
        assert!(requests.has_room(1000));
    }
}
