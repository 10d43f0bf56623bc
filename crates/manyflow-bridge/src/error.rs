//! The reasons why a bridge carries nothing at the moment.

use manyflow_messages::ClientError;

/// The reason why a bridge carries nothing at the moment. It tries again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// There is no connection to nats-server.
    #[error("cannot connect to nats-server at {address}: {cause}")]
    Nats {
        /// The address.
        address: String,
        /// The reason, and advice.
        cause: String,
    },
    /// The connection to nats-server has ended.
    #[error("the connection to nats-server at {address} was lost")]
    NatsLost {
        /// The address.
        address: String,
    },
    /// There is no connection to the daemon, or it refuses a group.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// A stream cannot be read.
    #[error("stream {stream} of nats-server at {address}: {cause}")]
    Stream {
        /// The name of the stream.
        stream: String,
        /// The address of nats-server.
        address: String,
        /// The reason, and advice.
        cause: String,
    },
    /// Another bridge of the site is active.
    #[error("another bridge of the site {site} is active")]
    Superseded {
        /// The site.
        site: String,
    },
}
