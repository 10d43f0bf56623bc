//! Sessions that continue after their sender has ended.

use std::fmt;

use crate::sdp::SessionDescription;

/// The reason why a session cannot be continued.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The session has a TSI of more than 32 bits.
    #[error("not a session of `manyflow send`, which never has so long a TSI")]
    LongTsi,
    /// The session has an image, whose sections would be others.
    #[error("a session of a pipe or device cannot be continued; start a new session")]
    Image,
    /// The session has a group key.
    #[error(
        "a session with a group key cannot be continued, because its receivers refuse packet numbers \
         that they have seen; start a new session"
    )]
    GroupKey,
    /// The session differs from the one to continue.
    #[error(
        "the session cannot be continued with other {0}: repeat what was sent, or start a new session"
    )]
    Differs(Difference),
}

/// A part of a session that has to be as it was.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The files and their contents.
    Files,
    /// The source address, groups or port.
    Addresses,
    /// The address of the relay.
    Relay,
    /// The address for reports, or the number of receivers.
    Reports,
    /// The rate control, packet length, or forward error correction.
    Parameters,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Files => "files",
            Difference::Addresses => "addresses or ports",
            Difference::Relay => "relay addresses",
            Difference::Reports => "reports",
            Difference::Parameters => "rates, profiles or parameters",
        })
    }
}

/// Returns the TSI of a session that continues the `earlier` one, with or without a group key.
pub(super) fn resumed_tsi(
    earlier: &SessionDescription,
    has_group_key: bool,
) -> Result<u32, ResumeError> {
    let tsi = u32::try_from(earlier.tsi).map_err(|_| ResumeError::LongTsi)?;
    match has_group_key || earlier.protection.is_some() {
        true => Err(ResumeError::GroupKey),
        false => Ok(tsi),
    }
}

/// Checks that receivers with the `earlier` description understand the session that `now`
/// describes.
pub(super) fn check_continues(
    earlier: &SessionDescription,
    now: &SessionDescription,
) -> Result<(), ResumeError> {
    let addresses =
        |session: &SessionDescription| (session.source, session.first_group, session.port);
    let differs = [
        (Difference::Files, earlier.table_sha256 != now.table_sha256),
        (Difference::Addresses, addresses(earlier) != addresses(now)),
        (Difference::Relay, earlier.amt_relay != now.amt_relay),
        (Difference::Reports, earlier.completion != now.completion),
        (
            Difference::Parameters,
            (&earlier.webrc, earlier.fec_encoding_id) != (&now.webrc, now.fec_encoding_id),
        ),
    ];
    match differs.into_iter().find(|(_, differs)| *differs) {
        Some((difference, _)) => Err(ResumeError::Differs(difference)),
        None => Ok(()),
    }
}
