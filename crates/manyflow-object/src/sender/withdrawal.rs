//! Files that can no longer be read: the session goes on without them.

use super::ObjectSender;
use crate::error::ReadError;
use crate::storage::Storage;

/// The flags of a packet (RFC 5651 section 5.1).
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Flags {
    None,
    /// A: the session ends.
    ClosesSession,
    /// B: no more packets of the object follow.
    ClosesObject,
}

/// Packets of the other objects between two that say that an object is withdrawn.
pub(super) const WITHDRAWAL_INTERVAL: u32 = 16;
/// Maximum number of turns of withdrawn objects that a packet skips.
pub(super) const TRIES: u32 = 1_000;

impl<S: Storage> ObjectSender<S> {
    /// Sends no more packets of the file that cannot be read, so that the others can still be
    /// received. Announces this with LCT flag B (RFC 5651 section 5.1). Returns whether
    /// there are other files.
    pub fn withdraw(&mut self, error: &ReadError) -> bool {
        let mut files = self.objects.iter_mut().skip(1);
        let file = files.find(|file| *file.name == *error.name);
        if let Some(file) = file {
            file.is_withdrawn = true;
        }
        // The first packet of the next that are sent.
        self.since_withdrawal = WITHDRAWAL_INTERVAL;
        self.objects.iter().skip(1).any(|file| !file.is_withdrawn)
    }
}
