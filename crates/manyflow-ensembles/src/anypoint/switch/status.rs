//! The status of a switch.

use serde::Serialize;

/// Counters of a switch, from its start.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Connections that peers have opened.
    pub opened: u64,
    /// Opens that were refused: no member, too many connections, or the switch drains.
    pub refused: u64,
    /// Challenges sent: Opens without a valid cookie.
    pub challenges: u64,
    /// Resets sent for unknown connections.
    pub resets: u64,
    /// Datagrams that were not valid, or that came from neither a peer nor a member.
    pub invalid: u64,
    /// Connections that ended because nothing came from the peer.
    pub silent: u64,
    /// Members that failed in a connection.
    pub failures: u64,
    /// Frames of the service that a switch of initiators has dropped, because they were for clients
    /// that are gone.
    pub dropped: u64,
    /// Datagrams that the kernel did not take: its queue was full, or there was no route.
    pub unsent: u64,
    /// Datagrams that were longer than the MTU of the interface, which had become smaller. Their
    /// frames are sent again in shorter ones.
    pub too_long: u64,
}

/// The status of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// The member's name.
    pub name: String,
    /// The member's address.
    pub address: String,
    /// Whether the member belongs to the service. One that has left may still finish.
    pub is_present: bool,
    /// Whether datagrams come from the member.
    pub is_up: bool,
    /// Whether connections are opened without the member for now: one has given it up, because it
    /// kept frames without an answer.
    pub is_resting: bool,
    /// Connections in which the member is alive and takes nothing, so that others get its frames.
    pub stalled: u64,
    /// Connections in which the member takes part.
    pub connections: u64,
    /// Frames on their way to the member that it has not acknowledged.
    pub outstanding: u64,
    /// Frames sent to the member, retransmissions included.
    pub frames_to: u64,
    /// Bytes of these frames.
    pub bytes_to: u64,
    /// Frames received from the member, repeated ones included.
    pub frames_from: u64,
    /// Bytes of these frames.
    pub bytes_from: u64,
    /// How often the member failed in a connection.
    pub failures: u64,
}

impl MemberStatus {
    /// Returns the name and the address for a sentence; only one of them if they are the same.
    pub fn label(&self) -> String {
        match self.name == self.address {
            true => self.address.clone(),
            false => format!("{} at {}", self.name, self.address),
        }
    }

    /// Counts a frame of `bytes` from the member.
    pub(super) fn count_from(&mut self, bytes: usize) {
        self.frames_from += 1;
        self.bytes_from += bytes as u64;
    }
}

/// The status of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwitchStatus {
    /// Open connections, those that are closing included.
    pub connections: u64,
    /// Whether the switch accepts no further connections.
    pub is_draining: bool,
    /// The sum of the peers' congestion windows in bytes, as they state them.
    pub window_bytes: u64,
    /// The counters.
    pub counters: Counters,
    /// The members, those that have left included.
    pub members: Vec<MemberStatus>,
}
