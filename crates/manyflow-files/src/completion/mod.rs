//! Completion reports: a receiver that has all files says so, and the sender counts the receivers.
//!
//! FLUTE has no such reports. This protocol is manyflow's own, of one UDP datagram at a time:
//!
//! ```text
//!   receiver                              sender
//!      |-- Report, without a cookie -------->|   at a random time in a window
//!      |<------------------------ Challenge --|   a cookie for the receiver's address
//!      |-- Report, with the cookie ---------->|   the receiver is counted
//!      |<-------------------------- Counted --|
//! ```
//!
//! Each receiver chooses a random time in a window of two seconds for each receiver that the sender
//! expects, and sends two reports, so that all of them together send one datagram per second. A
//! report that is not answered is repeated at a random time in the next window.
//!
//! The cookie proves the address, so nobody can report for others. Answers have the length of
//! reports, so an attacker cannot use a sender to flood a forged address. Each message has a MAC.
//! Its key is the session's group key; without one, it is the digest of the table of files, which
//! everybody has who can read the description. Then a liar can report as many receivers as
//! [`RECEIVERS_PER_CLIENT_MAX`] for each of its addresses.

mod message;
mod reporter;
mod server;
mod tally;

use std::time::Duration;

use manyflow_net::group_key::GroupKey;
use ring::hmac;

use crate::sdp::SessionDescription;

pub use reporter::{ReportError, Reporter, report};
pub use server::CompletionServer;
pub use tally::{RECEIVERS_PER_CLIENT_MAX, Tally};

/// Time in the window for each expected receiver: one second for each of its two reports.
const TIME_PER_RECEIVER: Duration = Duration::from_secs(2);

/// Returns the window in which `receivers` report once.
pub fn window(receivers: u32) -> Duration {
    TIME_PER_RECEIVER * receivers
}

/// The key of the messages of one session.
#[derive(Clone, Debug)]
pub struct CompletionKey {
    key: hmac::Key,
    tsi: u64,
    /// Whether only members of a group have the key.
    is_secret: bool,
}

impl CompletionKey {
    /// Returns the key of the described session. `None` if it has neither a group key nor the
    /// digest of its table of files, as sessions of other programs.
    pub fn new(description: &SessionDescription, group: Option<&GroupKey>) -> Option<Self> {
        let key = match (group, &description.table_sha256) {
            (Some(group), _) => group.hmac_key(),
            (None, Some(digest)) => hmac::Key::new(hmac::HMAC_SHA256, digest),
            (None, None) => return None,
        };
        Some(CompletionKey {
            key,
            tsi: description.tsi,
            is_secret: group.is_some(),
        })
    }
}

#[cfg(test)]
mod tests;
