//! The missing packets of one group.

/// The number of packets before the next one whose arrival a child remembers.
pub const HORIZON: u32 = u128::BITS;

/// The maximum number of groups in one request.
pub const GAP_GROUPS_MAX: usize = 32;

/// The packets of one group that have and have not arrived at a child.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GroupGaps {
    /// The number of the session.
    pub session: u32,
    /// The rank of the group, below [`GROUPS_MAX`](crate::GROUPS_MAX).
    pub rank: u8,
    /// The number after the highest that has arrived.
    pub next: u32,
    /// The missing packets among the [`HORIZON`] before `next`: bit 0 for `next - 1`.
    pub missing: u128,
}

/// The state of a packet at a child.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The packet is missing, and a later one of its group has arrived.
    Missing,
    /// The packet has arrived, or is no longer wanted.
    Settled,
    /// No packet with this number or a later one has arrived.
    Ahead,
}

impl GroupGaps {
    /// Returns what is known of the packet with this number.
    pub(super) fn known(&self, sequence: u32) -> Known {
        let behind = self.next.wrapping_sub(sequence);
        if behind == 0 || behind > u32::MAX / 2 {
            return Known::Ahead;
        }
        let bit = 1_u128.checked_shl(behind - 1).unwrap_or(0);
        match self.missing & bit {
            0 => Known::Settled,
            _ => Known::Missing,
        }
    }
}
