//! The status of a daemon.
//!
//! Keys that are missing in JSON have their default values, because daemons of several versions are
//! watched together.

use serde::{Deserialize, Serialize};

/// The number of events since the daemon began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Counters {
    /// The number of connections that clients have made.
    pub connections: u64,
    /// The number of messages from clients.
    pub published: u64,
    /// Bytes of these messages, with subjects and headers.
    pub published_bytes: u64,
    /// The number of messages delivered to clients.
    pub delivered: u64,
    /// The number of messages that slow members missed.
    pub dropped: u64,
    /// How often senders had to wait for a slow member.
    pub blocked: u64,
    /// The number of slow members that were removed from a group.
    pub evicted: u64,
    /// How often a daemon was reachable again that had not been for longer than the time for which
    /// messages to it are kept: clients here miss messages of its clients, and vice versa.
    pub gaps: u64,
    /// The number of connections between daemons that broke or could not be made.
    pub failed_links: u64,
    /// The number of subscriptions that were refused, because their users or connections have too
    /// many.
    pub refused_subscriptions: u64,
    /// The number of clients that were refused for wrong credentials, or for too many of them from
    /// their address.
    pub refused_credentials: u64,
    /// The number of links that were refused because the neighbour announced a state that no daemon
    /// can have.
    pub refused_states: u64,
    /// The number of groups of other daemons that do not count, because groups take too much
    /// memory.
    pub refused_groups: u64,
    /// The number of messages from other daemons that no client can have published.
    pub refused_messages: u64,
    /// The number of packets to links of datagrams that were forged, repeated, or of no link.
    pub refused_packets: u64,
}

/// A link to a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LinkStatus {
    /// The neighbour's name.
    pub name: String,
    /// Whether there is a connection.
    pub is_up: bool,
    /// The number of messages that wait for the link.
    pub queue_messages: usize,
    /// The link's price under Cost-Benefit, in dollars.
    pub price_dollars: Option<f64>,
    /// Bytes written for the neighbour that its connection has not taken.
    pub outgoing_bytes: usize,
    /// The round-trip time in milliseconds, as TCP or the link of datagrams measures it. `None`
    /// without a connection, and over TCP on systems other than Linux.
    pub rtt_ms: Option<f64>,
    /// The number of segments or datagrams that were retransmitted to the neighbour since the link
    /// was added. `None` over TCP on systems other than Linux.
    pub retransmissions: Option<u64>,
    /// Bytes of frames for the neighbour since the link was added, before encryption.
    pub sent_bytes: u64,
    /// Bytes of frames from the neighbour since the link was added, after decryption.
    pub received_bytes: u64,
    /// The number of messages for the neighbour since the link was added, repeated ones included.
    pub sent_messages: u64,
    /// The number of messages from the neighbour since the link was added, repeated ones included.
    pub received_messages: u64,
}

/// A daemon's action on a client that reads too slowly.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SlowVerdict {
    /// The group's senders wait for the client.
    Blocks,
    /// The client misses messages.
    Misses,
    /// The client was removed from the group.
    Evicted,
}

/// A client that reads the messages of a group too slowly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlowMemberStatus {
    /// The pattern of the group's subjects.
    pub pattern: String,
    /// The queue group, if it is one. Its members count as one client.
    pub queue: Option<String>,
    /// The client's number in the INFO that it received; `None` for a queue group.
    pub client: Option<u64>,
    /// The client's own name, if it gave one.
    pub name: Option<String>,
    /// The address that the client connected from; `None` for a queue group.
    pub address: Option<String>,
    /// The daemon's action.
    pub verdict: SlowVerdict,
    /// Seconds since the daemon first took this action.
    pub slow_for_s: f64,
    /// The number of messages that the client has missed since.
    pub missed_messages: u64,
}

/// A group with members at any daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GroupStatus {
    /// The pattern of subjects.
    pub pattern: String,
    /// The queue group, if it is one.
    pub queue: Option<String>,
    /// The daemons with members, and the number of members at each.
    pub members: Vec<(String, u32)>,
    /// The rate in bits per second at which this daemon's clients may send to the group together,
    /// under TFRC; `None` if none of them does.
    pub allowed_bits_per_s: Option<u64>,
}

/// The state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct DaemonStatus {
    /// The daemon's name.
    pub name: String,
    /// The name of the overlay.
    pub overlay: String,
    /// The flow control.
    pub controller: String,
    /// Seconds since the daemon began.
    pub uptime_s: f64,
    /// How often the topology has changed since the daemon began.
    pub topology_version: u64,
    /// The names of all daemons that can be reached, this one included, sorted.
    pub daemons: Vec<String>,
    /// The links to neighbours.
    pub links: Vec<LinkStatus>,
    /// Bytes of messages that this daemon keeps until other daemons with members have acknowledged
    /// them. A message counts 64 bytes besides its payload.
    pub unacknowledged_bytes: usize,
    /// The number of connected clients.
    pub clients: usize,
    /// The number of groups with members at any daemon.
    pub groups: usize,
    /// The first of these groups by their patterns.
    pub first_groups: Vec<GroupStatus>,
    /// The number of members that read too slowly.
    pub slow_members: usize,
    /// The first of these members by their groups. A member that missed messages is listed for 10 s
    /// after the last, and an evicted one for 5 minutes, or until the client disconnects.
    pub first_slow_members: Vec<SlowMemberStatus>,
    /// The number of events since the daemon began.
    pub counters: Counters,
}
