//! Addresses that report without a hop: receivers of IP multicast.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use manyflow_core::Time;

use super::child::Reports;
use super::config::{RelayError, SessionInfo};

/// The time after which an address that does not report can be forgotten.
const LIFETIME: Duration = Duration::from_secs(30);
/// The time between two searches for addresses to forget.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// A receiver without a hop.
#[derive(Debug)]
pub(super) struct Stranger {
    /// The source of its reports, for the aggregators of this relay.
    pub(super) source: u32,
    heard: Time,
    /// Its reports about each session.
    pub(super) reported: Box<[Reports]>,
}

/// All receivers without a hop.
#[derive(Debug)]
pub(super) struct Strangers {
    known: BTreeMap<SocketAddr, Stranger>,
    maximum: usize,
    /// The reports of one that has not reported yet, of each session.
    unreported: Box<[Reports]>,
    searched: Time,
}

impl Strangers {
    pub(super) fn new(maximum: usize, sessions: &[SessionInfo]) -> Strangers {
        let unreported = sessions.iter().map(|info| Reports::new(info.groups));
        Strangers {
            known: BTreeMap::new(),
            maximum,
            unreported: unreported.collect(),
            searched: Time::ZERO,
        }
    }

    /// Returns the receiver at `from`. A new one gets the number that `source` returns.
    ///
    /// # Errors
    /// If there are too many that have reported lately.
    pub(super) fn at(
        &mut self,
        now: Time,
        from: SocketAddr,
        source: impl FnOnce() -> u32,
    ) -> Result<&mut Stranger, RelayError> {
        if !self.known.contains_key(&from) && self.known.len() >= self.maximum {
            self.forget_silent(now);
            if self.known.len() >= self.maximum {
                return Err(RelayError::Full);
            }
        }
        let unreported = &self.unreported;
        let stranger = self.known.entry(from).or_insert_with(|| Stranger {
            source: source(),
            heard: now,
            reported: unreported.clone(),
        });
        stranger.heard = now;
        Ok(stranger)
    }

    pub(super) fn remove(&mut self, from: &SocketAddr) {
        self.known.remove(from);
    }

    fn forget_silent(&mut self, now: Time) {
        if now - self.searched >= SEARCH_INTERVAL {
            self.searched = now;
            self.known
                .retain(|_, stranger| now - stranger.heard < LIFETIME);
        }
    }
}
