//! What a daemon reports of itself.

/// What has happened since the daemon began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The number of connections of clients.
    pub connections: u64,
    /// The number of messages from clients.
    pub published: u64,
    /// The number of messages delivered to clients.
    pub delivered: u64,
    /// The number of messages that slow members missed.
    pub dropped: u64,
    /// How often senders had to wait for a slow member.
    pub blocked: u64,
    /// The number of slow members that were removed from a group.
    pub evicted: u64,
}

/// A link of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The neighbour's name.
    pub name: String,
    /// Whether there is a connection.
    pub is_up: bool,
}

/// The state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DaemonStatus {
    /// What has happened since the daemon began.
    pub counters: Counters,
    /// The number of connected clients.
    pub clients: usize,
    /// The links to neighbours.
    pub links: Vec<LinkStatus>,
}
