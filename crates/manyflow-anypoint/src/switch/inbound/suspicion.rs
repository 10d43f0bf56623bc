//! Members whose retransmissions the switch answers itself, because they do not answer.
//!
//! While a frame is unanswered, a peer reduces its window to that frame after each time-out. So a
//! member that has died would keep the peer from sending to others until it fails.

use core::time::Duration;

use super::super::context::Context;
use super::super::{MemberId, SwitchConfig};
use super::Inbound;

/// The time after which a member is suspected, if there is one.
#[derive(Debug)]
pub(super) struct Suspicion(Option<Duration>);

impl Suspicion {
    pub(super) fn new(config: &SwitchConfig) -> Suspicion {
        Suspicion(config.suspect_timeout)
    }
}

impl<P> Inbound<P> {
    /// Returns whether a member takes nothing.
    pub(super) fn is_stalled(&self, id: MemberId) -> bool {
        self.streams[id.index()].uptake().is_stalled()
    }

    /// Returns whether a member owes an answer and has been silent for the suspicion time-out,
    /// while another one has sent something.
    pub(super) fn is_suspected(&self, cx: &Context<'_, P>, id: MemberId) -> bool {
        let owed_since = self.streams[id.index()].owed_since();
        let (Some(limit), Some(owed_since)) = (self.suspicion.0, owed_since) else {
            return false;
        };
        let since = owed_since.max(cx.members.heard(id));
        let mut others = cx.members.open().filter(|other| *other != id);
        cx.now - since >= limit && others.any(|other| cx.members.heard(other) > since)
    }
}
