//! The peer's credit, and the members' parts of it (section V: strict credit).

use super::super::ensemble::Ensemble;
use crate::UNLIMITED;

/// The credit that the peer grants the service.
#[derive(Debug)]
pub(in super::super) struct PeerCredit {
    /// The first credit of the peer: its whole receive buffer, in bytes.
    buffer: u32,
    /// The present credit in bytes, from the first frame that the peer has not acknowledged.
    granted: u32,
    /// The bytes of the present credit that frames of failed members take.
    orphan_bytes: u32,
}

impl PeerCredit {
    /// Creates the credit that the peer grants with its Open, in bytes.
    pub(super) fn new(credit: u32) -> PeerCredit {
        PeerCredit {
            buffer: credit,
            granted: credit,
            orphan_bytes: 0,
        }
    }

    /// Replaces the present credit, in bytes.
    pub(super) fn grant(&mut self, credit: u32) {
        self.granted = credit;
    }

    /// Replaces the first credit, in bytes, with a larger one.
    pub(super) fn renew(&mut self, credit: u32) {
        debug_assert!(credit > self.granted, "an older opening came late");
        self.buffer = self.buffer.max(credit);
        self.granted = credit;
    }

    /// Returns the present credit in bytes.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// Counts a frame of `bytes` whose member has failed.
    pub(super) fn charge_orphan(&mut self, bytes: u32) {
        self.orphan_bytes = self.orphan_bytes.saturating_add(bytes);
    }

    /// Releases a frame of `bytes` of a failed member, which has reached the peer.
    pub(super) fn release_orphan(&mut self, bytes: u32) {
        self.orphan_bytes = self.orphan_bytes.saturating_sub(bytes);
    }

    /// Returns a member's part of the present credit.
    pub(in super::super) fn part(&self, members: &Ensemble) -> u32 {
        part_of(self.granted, members)
    }

    /// Returns a member's part of the present credit; `None` if the credit is unlimited.
    pub(super) fn limited_part(&self, members: &Ensemble) -> Option<u32> {
        Some(self.part(members)).filter(|part| *part != UNLIMITED)
    }

    /// Returns a member's part of the peer's receive buffer.
    pub(in super::super) fn part_of_buffer(&self, members: &Ensemble) -> u32 {
        part_of(self.buffer, members)
    }

    /// Returns a `part` of the credit, but at most what remains of the present credit besides
    /// `reserve` when the other members have used all that they were `granted`. All are in bytes.
    pub(super) fn within(
        &self,
        part: u32,
        granted: impl Iterator<Item = u32>,
        reserve: u32,
    ) -> u32 {
        if part == UNLIMITED {
            return UNLIMITED;
        }
        let taken = granted.fold(self.orphan_bytes, u32::saturating_add);
        part.min(self.granted.saturating_sub(taken).saturating_sub(reserve))
    }
}

/// Divides a credit by the number of members.
fn part_of(credit: u32, members: &Ensemble) -> u32 {
    match credit {
        UNLIMITED => UNLIMITED,
        credit => credit / members.active().count().max(1) as u32,
    }
}
