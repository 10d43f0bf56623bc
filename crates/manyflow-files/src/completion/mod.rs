//! Reports of receivers: the sender learns who has all files, how far the others are, and who has
//! failed.
//!
//! FLUTE has no such reports. This protocol is manyflow's own, of one UDP datagram at a time:
//!
//! ```text
//!   receiver                              sender
//!      |-- report, without a cookie -------->|   at a random time in a window
//!      |<------------------------ challenge --|   a cookie for the receiver's address
//!      |-- report, with the cookie ---------->|   the sender notes the receiver's state
//!      |<------------------------- accepted --|   the cookie for the next report
//! ```
//!
//! A sender asks for one of two things in its description ([`Audience`]):
//!
//! - **A number** of receivers. Each reports once, when it has all files, at a random time in
//!   a window of two seconds for each receiver that the sender expects: two reports, so that all
//!   together send one datagram per second.
//! - **A list** of receivers. Each reports its state once in each window, from its start on. The
//!   window has a second for 20 receivers, at least two, and the sender's answers make it longer if
//!   there are more receivers than listed. So the sender gets about 20 reports per second, however
//!   many receivers there are. A receiver that fails or leaves reports that within half a second.
//!
//! A receiver of a list that has a part of the files from elsewhere, such as a former version, also
//! reports which symbols it needs. If all receivers do so, the sender sends nothing else
//! ([`Wanted`]).
//!
//! The last report is repeated at a random time in each of three windows until it is answered.
//!
//! The cookie proves the address, so nobody can report for others. It is good for one report, so
//! a report that somebody has recorded counts nothing when it is sent again. Answers are shorter
//! than reports, so an attacker cannot use a sender to flood a forged address. Each message has
//! a MAC. Its key is the session's group key; without one, it is the digest of the table of files,
//! which everybody has who can read the description. Then a liar can report under each name that
//! the list has without a key, and as [`RECEIVERS_PER_CLIENT_MAX`] other receivers for each of its
//! addresses. A name that the list has with a key belongs to the holder of the key: it signs each
//! report ([`Identity`]).

mod audience;
mod expected;
mod identity;
mod message;
mod report;
mod reporter;
mod server;
mod status;
mod table;
mod tally;
mod wanted;

use std::time::Duration;

use manyflow_net::group_key::GroupKey;
use ring::hmac;

use crate::sdp::SessionDescription;

pub use audience::{Audience, AudienceError, UntilDone, UntilDoneError};
pub use expected::{EXPECTED_MAX, Expected, ExpectedError, LineError, read_expected};
pub use identity::{Identity, NameError, ReceiverName};
pub use report::{ReportError, ReportPlan, Reporting};
pub use reporter::Reporter;
pub use server::{CompletionServer, ReportTaker};
pub use status::{Failure, ReceiverStatus, Transfer};
pub use table::{Receiver, ReceiverCounts, ReceiverState, ReceiverTable};
pub use tally::{RECEIVERS_PER_CLIENT_MAX, Tally, UNEXPECTED_MAX};
pub use wanted::Wanted;

pub(crate) use message::NEEDS_BYTES_MAX;

/// Time in the window for each expected receiver: one second for each of its two reports.
const TIME_PER_RECEIVER: Duration = Duration::from_secs(2);
/// Reports per second that a sender with a list of receivers gets, about.
const REPORTS_PER_S: u32 = 20;
/// The shortest window in which receivers report their progress.
const PROGRESS_WINDOW_MIN: Duration = Duration::from_secs(2);
/// The longest window: a year.
pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Returns the window in which `receivers` report once that they have all files.
pub fn window(receivers: u32) -> Duration {
    TIME_PER_RECEIVER * receivers
}

/// Returns the window in which `receivers` report their progress once.
pub fn progress_window(receivers: u32) -> Duration {
    let seconds = receivers.div_ceil(REPORTS_PER_S);
    PROGRESS_WINDOW_MIN.max(Duration::from_secs(seconds.into()))
}

/// The key of the messages of one session.
#[derive(Clone, Debug)]
pub struct CompletionKey {
    key: hmac::Key,
    tsi: u64,
    /// The digest of the table of files, or the key of an image, which signatures cover; 0 if the
    /// session has neither.
    content_id: [u8; 32],
    /// Whether only members of a group have the key.
    is_secret: bool,
}

impl CompletionKey {
    /// Returns the key of the described session. `None` if it has neither a group key nor the
    /// digest of its table of files, as sessions of other programs.
    pub fn new(description: &SessionDescription, group: Option<&GroupKey>) -> Option<Self> {
        let key = match (group, &description.content_id()) {
            (Some(group), _) => group.hmac_key(),
            (None, Some(digest)) => hmac::Key::new(hmac::HMAC_SHA256, digest),
            (None, None) => return None,
        };
        Some(CompletionKey {
            key,
            tsi: description.tsi,
            content_id: description.content_id().unwrap_or_default(),
            is_secret: group.is_some(),
        })
    }
}

#[cfg(test)]
mod tests;
