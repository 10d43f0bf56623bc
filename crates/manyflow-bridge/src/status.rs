//! The status of a bridge.

/// The messages that a bridge has carried since its start.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages from nats-server to the overlay, those of streams included. A message of a stream
    /// that is sent again counts again.
    pub left: u64,
    /// Messages from the overlay to nats-server.
    pub arrived: u64,
    /// Core messages that were too long or invalid for the other side, and at least those that came
    /// faster than the overlay carries them.
    pub dropped: u64,
}

/// Whether a bridge carries messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BridgeState {
    /// It has not connected yet.
    #[default]
    Starting,
    /// It carries messages.
    Active,
    /// Another bridge of its site does.
    Standby,
    /// It tries again to connect: the reason.
    Failing(String),
}

/// A stream that leaves the site.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The name of the stream.
    pub name: String,
    /// The number of messages on the way that each site has not stored, by site.
    pub waiting: Vec<(String, usize)>,
}

/// The status of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeStatus {
    /// Whether the bridge carries messages.
    pub state: BridgeState,
    /// The messages that it has carried.
    pub counters: Counters,
    /// The streams that leave the site.
    pub streams: Vec<StreamStatus>,
}
