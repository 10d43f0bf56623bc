//! The wish for another connection, over which a client may reach more members.

/// The round after which a client wants another connection. A member that has just failed is
/// replaced by another one over the same connection.
const AFTER_ROUNDS: u8 = 2;

/// Whether a client wants another connection.
#[derive(Debug, Default)]
pub(crate) struct Reconnect {
    is_wanted: bool,
    /// There was another connection, and no progress since then.
    is_done: bool,
}

impl Reconnect {
    /// Notes that members seem to be missing after this number of rounds. Another connection is
    /// wanted once; then progress must come first.
    pub(crate) fn want(&mut self, rounds: u8) {
        self.is_wanted |= !self.is_done && rounds >= AFTER_ROUNDS;
    }

    /// Notes that the connection may be stuck.
    pub(crate) fn want_at_once(&mut self) {
        self.is_wanted = true;
    }

    /// Returns whether another connection is wanted, once.
    pub(crate) fn poll(&mut self) -> bool {
        core::mem::take(&mut self.is_wanted)
    }

    /// Notes that the client has another connection.
    pub(crate) fn note_done(&mut self) {
        (self.is_wanted, self.is_done) = (false, true);
    }

    /// Notes that a chunk was stored or read.
    pub(crate) fn note_progress(&mut self) {
        self.is_done = false;
    }
}
