//! What each segment means, by the leg that it comes from.

use super::connection::Connection;
use super::member::State;
use super::reorder::Numbered;
use super::{Leg, MemberId, Policy};
use crate::{Body, Payload, Reason, Segment};
use manyflow_core::time::Time;

impl<P: Payload + Default> Connection<P> {
    /// Takes a segment of this connection.
    pub(super) fn on_segment(
        &mut self,
        now: Time,
        policy: &mut dyn Policy<P>,
        from: Leg,
        segment: &Segment,
        payload: P,
    ) {
        match from {
            Leg::Peer if self.single => self.pass_inbound(segment, payload),
            Leg::Peer => self.on_peer_segment(now, policy, segment.body, payload),
            Leg::Member(MemberId(member)) => {
                let index = usize::from(member);
                match self.members.get_mut(index) {
                    Some(_) if self.single => self.pass_outbound(now, segment, payload),
                    Some(member) if member.state != State::Failed => {
                        member.heard = now;
                        member.probed = false;
                        self.on_member_segment(now, index, segment.body, payload);
                    }
                    // It was given up, or never there: it must not go on alone.
                    _ if matches!(segment.body, Body::Reset(_)) => {}
                    _ => self.send(from, Body::Reset(Reason::Unknown)),
                }
            }
        }
    }

    fn on_peer_segment(&mut self, now: Time, policy: &mut dyn Policy<P>, body: Body, payload: P) {
        match body {
            Body::Open { .. } => self.on_open(),
            Body::Reset(reason) => self.reset_members(reason),
            Body::Alive => self.on_peer_alive(),
            // It knows of an Accept that is none of ours: what it has open here was lost with a restart, and its Open was late.
            _ if !self.accepted => self.end(Reason::Unknown),
            Body::Data(data) => {
                self.on_peer_numbered(policy, data.sequence, Numbered::Frame(data, payload));
            }
            Body::Close { sequence } => self.on_peer_numbered(policy, sequence, Numbered::Close),
            Body::Ack(ack) => self.on_peer_ack(now, &ack),
            Body::Probe => self.on_peer_probe(),
            // The peer opens; it accepts nothing.
            Body::Accept { .. } => {}
        }
    }

    fn on_member_segment(&mut self, now: Time, index: usize, body: Body, payload: P) {
        match body {
            Body::Accept { credit } => self.on_accept(now, index, credit),
            Body::Data(data) => {
                self.on_member_numbered(now, index, data.sequence, Numbered::Frame(data, payload));
            }
            Body::Close { sequence } => {
                self.on_member_numbered(now, index, sequence, Numbered::Close);
            }
            Body::Ack(ack) => self.on_member_ack(index, &ack),
            Body::Probe => self.on_member_probe(index),
            Body::Reset(reason) if self.members[index].is_needed() => self.fail(now, index, reason),
            Body::Open { .. } | Body::Alive | Body::Reset(_) => {}
        }
    }
}
