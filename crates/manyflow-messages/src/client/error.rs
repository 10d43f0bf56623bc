//! The errors of clients.

use std::io;
use std::sync::Arc;

/// An error of a client of the overlay. All errors of connections name the daemon's address.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Messages cannot have this subject, or groups this pattern.
    #[error(
        "`{subject}` is not a valid subject: write words between dots, without spaces; wildcards only to join"
    )]
    InvalidSubject {
        /// The subject or pattern.
        subject: String,
    },
    /// A message cannot have this header.
    #[error(
        "`{header}` is not a valid header: the name needs visible ASCII without colons, the value one line"
    )]
    InvalidHeader {
        /// The name and the value.
        header: String,
    },
    /// The layers of a message are not valid, or do not describe its payload.
    #[error(
        "`{layers}` does not describe a payload of {payload} bytes in layers: give all of its bytes, 1 to 8 layers, and the most valuable for each byte first"
    )]
    InvalidLayers {
        /// The purse and the layers.
        layers: String,
        /// The number of bytes of the payload.
        payload: usize,
    },
    /// An ordered group cannot have this name.
    #[error(
        "`{group}` is not a valid name of an ordered group: write words between dots, without spaces and wildcards, 255 bytes at most"
    )]
    InvalidGroup {
        /// The name.
        group: String,
    },
    /// A message is for no ordered group, or for too many.
    #[error("a message is for 1 to 255 ordered groups, not {count}")]
    Groups {
        /// The number of groups.
        count: usize,
    },
    /// The client is a member of ordered groups by another [`Member`](super::Member).
    #[error(
        "the client of the daemon at {address} has a member of ordered groups: join by that one, or connect another client"
    )]
    HasMember {
        /// The daemon's address.
        address: String,
    },
    /// The member has not joined the ordered group that it leaves.
    #[error("not a member of the ordered group `{group}`: join it before leaving it")]
    NotJoined {
        /// The group.
        group: String,
    },
    /// There is no connection to the daemon.
    #[error(
        "cannot connect to the daemon at {address}: {cause}; is `manyflow daemon` running there?"
    )]
    Connect {
        /// The daemon's address.
        address: String,
        /// The reason.
        cause: Arc<io::Error>,
    },
    /// The daemon did not answer in time.
    #[error("the daemon at {address} did not answer within {seconds} s")]
    TimedOut {
        /// The daemon's address.
        address: String,
        /// The time that the client waited, in seconds.
        seconds: f64,
    },
    /// The daemon refuses the client, or one of its requests.
    #[error("the daemon at {address} refuses: {reason}")]
    Refused {
        /// The daemon's address.
        address: String,
        /// The daemon's words.
        reason: String,
    },
    /// The client requires TLS, but the daemon does not offer it.
    #[error(
        "the daemon at {address} does not offer TLS: give it a certificate, or connect without TLS"
    )]
    NoTls {
        /// The daemon's address.
        address: String,
    },
    /// The daemon requires TLS, but the client has no authorities.
    #[error(
        "the daemon at {address} requires TLS: give the authorities that its certificate is checked with"
    )]
    TlsRequired {
        /// The daemon's address.
        address: String,
    },
    /// The message is longer than the daemon accepts.
    #[error(
        "a message of {bytes} B is too long for the daemon at {address}, which accepts {max} B"
    )]
    TooLong {
        /// The daemon's address.
        address: String,
        /// The length of headers and payload.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
    /// Members of the group did not answer a request in time.
    #[error(
        "no answer to a request to `{subject}` through the daemon at {address} within {seconds} s"
    )]
    Unanswered {
        /// The daemon's address.
        address: String,
        /// The subject of the request.
        subject: String,
        /// The time that the client waited, in seconds.
        seconds: f64,
    },
    /// Nobody has joined the group that a request was sent to.
    #[error("nobody answers requests to `{subject}` through the daemon at {address}")]
    NoResponders {
        /// The daemon's address.
        address: String,
        /// The subject of the request.
        subject: String,
    },
    /// The connection ended. Messages may have been lost.
    #[error("the connection to the daemon at {address} was lost: {cause}")]
    Lost {
        /// The daemon's address.
        address: String,
        /// The reason.
        cause: String,
    },
    /// The client was drained.
    #[error("the connection to the daemon at {address} is drained")]
    Drained {
        /// The daemon's address.
        address: String,
    },
}
