//! The PINGs of a client whose messages wait to enter the overlay.
//!
//! Libraries use PING for two purposes. A program that flushes wants to know that its messages have
//! been taken, so PONG waits until they have entered the overlay. The library itself checks every
//! one or two minutes whether the connection is alive, and gives it up if two PONGs are missing, so
//! PONG must not wait without a limit. By default a flush fails after 10 s. A later PONG therefore
//! tells the program nothing, but still tells the library that the connection is alive.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The maximum time for which PONG waits for messages before its PING.
const WAIT: Duration = Duration::from_secs(15);
/// The number of PINGs that may wait. With more, the daemon reads nothing from the client.
const WAITING_MAX: usize = 1024;

/// PINGs that have not been answered, in their order.
#[derive(Debug, Default)]
pub(super) struct WaitingPings(VecDeque<WaitingPing>);

#[derive(Copy, Clone, Debug)]
struct WaitingPing {
    /// The number of messages that the client had sent before.
    after: u64,
    /// When the PING is answered all the same.
    until: Instant,
}

impl WaitingPings {
    /// Adds a PING that the client has sent after this number of messages.
    pub(super) fn push(&mut self, now: Instant, after: u64) {
        let until = now + WAIT;
        self.0.push_back(WaitingPing { after, until });
    }

    /// Removes the PINGs that are answered now, when `entered` messages of the client have entered
    /// the overlay. Returns their number.
    pub(super) fn take_due(&mut self, now: Instant, entered: u64) -> usize {
        let is_due = |ping: &&WaitingPing| ping.after <= entered || ping.until <= now;
        let count = self.0.iter().take_while(is_due).count();
        self.0.drain(..count);
        count
    }

    /// Returns when the first PING is answered at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|ping| ping.until)
    }

    /// Returns whether no further PING may be read.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= WAITING_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_answered_when_the_messages_before_them_have_entered() {
        let (mut pings, now) = (WaitingPings::default(), Instant::now());
        assert_eq!(pings.deadline(), None);
        for after in [3, 3, 5] {
            pings.push(now, after);
        }
        assert_eq!(pings.take_due(now, 2), 0);
        assert_eq!(pings.take_due(now, 3), 2);
        assert_eq!(pings.take_due(now, 9), 1);
        assert_eq!(pings.deadline(), None);
    }

    #[test]
    fn pings_are_answered_after_fifteen_seconds_in_any_case() {
        let (mut pings, now) = (WaitingPings::default(), Instant::now());
        pings.push(now, 7);
        pings.push(now + Duration::from_secs(1), 8);
        assert_eq!(pings.deadline(), Some(now + WAIT));
        assert_eq!(pings.take_due(now + WAIT - Duration::from_millis(1), 6), 0);
        assert_eq!(pings.take_due(now + WAIT, 6), 1);
        assert_eq!(pings.take_due(now + 2 * WAIT, 6), 1);
    }

    #[test]
    fn a_client_cannot_let_pings_pile_up() {
        let (mut pings, now) = (WaitingPings::default(), Instant::now());
        while !pings.is_full() {
            pings.push(now, 1);
        }
        assert_eq!(pings.take_due(now, 1), WAITING_MAX);
        assert!(!pings.is_full());
    }
}
