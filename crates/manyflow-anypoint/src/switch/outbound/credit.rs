//! The peer's credit, and the members' parts of it (section V: strict credit).

use super::super::ensemble::Ensemble;
use crate::UNLIMITED;

/// What the peer grants the ensemble.
#[derive(Debug)]
pub(in super::super) struct PeerCredit {
    /// What the peer granted at first: all of its receive buffer, in bytes.
    buffer: u32,
    /// What the peer grants now, in bytes, from the first frame that it has not acknowledged.
    granted: u32,
    /// The part of it that frames of failed members take.
    orphan_bytes: u32,
}

impl PeerCredit {
    /// The peer grants `credit` bytes with its Open.
    pub(super) fn new(credit: u32) -> PeerCredit {
        PeerCredit {
            buffer: credit,
            granted: credit,
            orphan_bytes: 0,
        }
    }

    /// The peer grants `credit` bytes from now on.
    pub(super) fn grant(&mut self, credit: u32) {
        self.granted = credit;
    }

    /// What the peer grants, in bytes.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// A frame of this many bytes has lost its member.
    pub(super) fn charge_orphan(&mut self, bytes: u32) {
        self.orphan_bytes = self.orphan_bytes.saturating_add(bytes);
    }

    /// A frame of this many bytes, which had lost its member, has reached the peer.
    pub(super) fn release_orphan(&mut self, bytes: u32) {
        self.orphan_bytes = self.orphan_bytes.saturating_sub(bytes);
    }

    /// A member's part of what the peer grants.
    pub(in super::super) fn part(&self, members: &Ensemble) -> u32 {
        part_of(self.granted, members)
    }

    /// A member's part of what the peer grants; `None` if the peer does not limit it.
    pub(super) fn limited_part(&self, members: &Ensemble) -> Option<u32> {
        Some(self.part(members)).filter(|part| *part != UNLIMITED)
    }

    /// A member's part of the peer's receive buffer.
    pub(in super::super) fn part_of_buffer(&self, members: &Ensemble) -> u32 {
        part_of(self.buffer, members)
    }

    /// A member's part of what the peer grants, but not more than remains when the others have used
    /// all that they were `granted`.
    pub(super) fn part_within(
        &self,
        members: &Ensemble,
        granted: impl Iterator<Item = u32>,
    ) -> u32 {
        let Some(part) = self.limited_part(members) else {
            return UNLIMITED;
        };
        let taken = granted.fold(self.orphan_bytes, u32::saturating_add);
        part.min(self.granted.saturating_sub(taken))
    }
}

/// A credit divided by the number of members.
fn part_of(credit: u32, members: &Ensemble) -> u32 {
    match credit {
        UNLIMITED => UNLIMITED,
        credit => credit / members.active().count().max(1) as u32,
    }
}
