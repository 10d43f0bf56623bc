//! Frames that their member cannot take: those of a failed member, and those that are bound to a
//! member that does not exist.

use super::super::context::Context;
use super::super::routes::Route;
use super::super::sequence::PeerSeq;
use super::{Inbound, MemberId};
use crate::{Data, Event, Payload};
use manyflow_core::xcp::Feedback;

impl<P: Payload + Default> Inbound<P> {
    /// Abandons a failed member: the peer must send again the frames that the member has not
    /// acknowledged. Frames that are bound to the member are dropped. Returns the number of the
    /// last frame that is acknowledged, if there is one.
    pub(in super::super) fn abandon(&mut self, failed: MemberId) -> Option<PeerSeq> {
        self.ratios.forget(failed);
        let mut arrived = None;
        for (sequence, route) in self.routes.iter_mut() {
            let is_left = !route.is_acknowledged() && route.abandon(failed);
            if is_left && self.is_bound {
                *route = Route::dropped();
                self.missing.remove(sequence);
            } else if is_left {
                self.missing.insert(sequence);
            }
            if route.is_acknowledged() {
                arrived = Some(sequence);
            }
        }
        arrived
    }

    /// Acknowledges the peer's next frame, or one that it sends again, and drops it: the frame is
    /// bound to a member that does not exist. The peer's other frames must not wait for it.
    pub(super) fn drop_frame(&mut self, cx: &mut Context<'_, P>, sequence: PeerSeq, data: &Data) {
        debug_assert!(self.is_bound);
        match self.routes.get_mut(sequence) {
            Some(known) => *known = Route::dropped(),
            None => self.routes.push(Route::dropped()),
        }
        cx.out.report(Event::FrameDropped { key: data.key });
        self.settle(cx);
        // The path to the switch has carried the frame, so its routers' answer counts.
        let feedback = Feedback {
            change: data.congestion.feedback,
            answered: data.congestion.answered,
            averaged: self.source.rtt_us > 0,
        };
        self.acknowledge(cx, Some(sequence), feedback);
    }
}
