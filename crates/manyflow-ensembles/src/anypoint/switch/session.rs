//! One connection of a switch: its peer, its members, and the numbers that it has with each.

use std::time::Duration;

use bytes::Bytes;
use manyflow_anypoint::switch::{self, MemberId, Switch, SwitchConfig};
use manyflow_anypoint::{Body, ConfigError, Event, Segment};
use manyflow_core::time::Time;

use super::members::{Members, STALLED_AFTER};
use super::routing::{Routing, Rules};
use crate::anypoint::options::FRAME_BYTES_MAX;
use crate::anypoint::timers::Timer;
use crate::anypoint::way::Path;
use crate::anypoint::way::Way;
use crate::anypoint::{Number, segment};

/// The number that every connection has inside its own [`Switch`].
pub(super) const INNER: Number = 0;
/// Maximum number of times that members join one connection.
const JOINS_MAX: u16 = 1000;
/// The time between two attempts to let members join a connection, after the first.
const JOIN_INTERVAL: Duration = Duration::from_secs(1);

/// The silence after which the switch answers for a member whose frames a peer repeats: the
/// shortest time-out of a peer, so that it answers the first repetition.
const SUSPECTED_AFTER: Duration = Duration::from_millis(100);

/// A connection.
pub(super) struct SwitchSession {
    pub(super) path: Path,
    /// The number that the peer has chosen.
    pub(super) number: Number,
    pub(super) switch: Switch<Bytes, Routing>,
    /// The members, by their numbers in the connection.
    pub(super) legs: Vec<Leg>,
    pub(super) timer: Timer,
    /// The way to the peer, and the number of frames that were sent on it at least once.
    pub(super) way: Way,
    pub(super) sent: u32,
    /// When the last datagram came from the peer.
    pub(super) heard: Time,
    /// The peer's congestion window in bytes, as its last frame states it.
    pub(super) window: u32,
    /// An end has reset the connection, and everything only passes through.
    pub(super) is_reset: bool,
    joins: u16,
    next_join: Time,
}

/// A member's part of a connection.
#[derive(Copy, Clone, Debug)]
pub(super) struct Leg {
    /// The member's number in the switch.
    pub(super) member: u16,
    /// The number on the wire between switch and member.
    pub(super) number: Number,
    /// Whether the member has neither failed nor been released.
    pub(super) is_active: bool,
    /// Whether the member is alive, but takes nothing.
    pub(super) is_stalled: bool,
    /// The last Open, until the member answers it.
    pub(super) open: Option<Segment>,
    /// The number of frames sent, and of those that the member has acknowledged.
    pub(super) sent: u32,
    pub(super) acknowledged: u32,
}

impl Leg {
    fn new(member: u16, number: Number) -> Leg {
        Leg {
            member,
            number,
            is_active: true,
            is_stalled: false,
            open: None,
            sent: 0,
            acknowledged: 0,
        }
    }
}

/// The parameters of each connection.
pub(super) fn config() -> SwitchConfig {
    SwitchConfig {
        // Thousands of connections may be idle. The switch probes the members itself.
        keep_alive: Duration::from_secs(10),
        stall_timeout: STALLED_AFTER,
        suspect_timeout: Some(SUSPECTED_AFTER),
        frame_bytes_max: FRAME_BYTES_MAX,
        fallback: true,
        ..SwitchConfig::default()
    }
}

impl SwitchSession {
    /// Creates a connection with these members. `draw` draws a number for the side of a member.
    pub(super) fn new(
        now: Time,
        path: Path,
        number: Number,
        rules: &Rules,
        members: Vec<u16>,
        mut draw: impl FnMut() -> Number,
    ) -> Result<SwitchSession, ConfigError> {
        let legs = members.iter().map(|member| Leg::new(*member, draw()));
        let legs: Vec<_> = legs.collect();
        let seed = draw();
        let routing = Routing::new(rules, members, seed.into());
        Ok(SwitchSession {
            path,
            number,
            switch: Switch::new(config(), routing, legs.len())?,
            legs,
            timer: Timer::default(),
            way: Way::default(),
            sent: 0,
            heard: now,
            window: 0,
            is_reset: false,
            joins: 0,
            next_join: now,
        })
    }

    /// Returns whether everything passes unchanged: there was never more than one member.
    fn is_pass_through(&self) -> bool {
        self.legs.len() == 1
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.is_reset || self.switch.is_idle()
    }

    /// Handles a segment of the peer.
    pub(super) fn handle_peer(&mut self, now: Time, body: Body, payload: Bytes) {
        self.heard = now;
        match body {
            Body::Data(data) => self.window = data.congestion.cwnd,
            Body::Reset(_) if self.is_pass_through() => self.is_reset = true,
            _ => {}
        }
        let segment = segment(INNER, body);
        self.switch
            .handle_segment(now, switch::Leg::Peer, &segment, payload);
    }

    /// Handles a segment of the member with this number in the connection.
    pub(super) fn handle_member(&mut self, now: Time, id: MemberId, body: Body, payload: Bytes) {
        let is_pass_through = self.is_pass_through();
        let leg = &mut self.legs[id.index()];
        leg.open = None;
        match body {
            Body::Ack(ack) if ack.cumulative <= leg.sent => leg.acknowledged = ack.cumulative,
            Body::Reset(_) if is_pass_through => self.is_reset = true,
            _ => {}
        }
        let segment = segment(INNER, body);
        self.switch
            .handle_segment(now, switch::Leg::Member(id), &segment, payload);
    }

    /// Returns the number in the connection of the member that uses this number on the wire.
    pub(super) fn find(&self, member: u16, number: Number) -> Option<MemberId> {
        let is_it = |leg: &Leg| leg.member == member && leg.number == number;
        let place = self.legs.iter().position(is_it)?;
        Some(MemberId(place as u16))
    }

    /// Handles the events of the connection. Returns the number of members that have failed.
    pub(super) fn handle_events(&mut self, now: Time, members: &mut Members) -> u64 {
        let (mut failures, mut last) = (0, None);
        while let Some(event) = self.switch.poll_event() {
            match event {
                Event::MemberStalled(id) => {
                    let leg = &mut self.legs[id.index()];
                    leg.is_stalled = leg.is_active;
                }
                Event::MemberResumed(id) => self.legs[id.index()].is_stalled = false,
                Event::MemberFailed(id) => {
                    last = Some(self.legs[id.index()].member);
                    self.handle_failure(now, id, members);
                    failures += 1;
                }
                Event::Failed(_) => self.name_culprit(last, members),
                _ => {}
            }
        }
        failures
    }

    fn handle_failure(&mut self, now: Time, id: MemberId, members: &mut Members) {
        let leg = &mut self.legs[id.index()];
        leg.is_active = false;
        if std::mem::take(&mut leg.is_stalled) {
            members.note_stuck(now, leg.member);
        }
        members.get_mut(leg.member).status.failures += 1;
    }

    /// Logs which member's failure has ended the connection, if one failed just before.
    fn name_culprit(&self, member: Option<u16>, members: &mut Members) {
        if let Some(member) = member {
            tracing::warn!(
                "the connection of {} has ended: the member {} failed, and no other could take its \
                 place; add a member, and let the peer connect again",
                self.path.remote,
                members.get_mut(member).status.label()
            );
        }
    }

    /// Releases the members that no longer belong to the service, and lets those join that do and
    /// are up.
    pub(super) fn reconcile(
        &mut self,
        now: Time,
        members: &Members,
        mut draw: impl FnMut() -> Number,
    ) {
        for place in 0..self.legs.len() {
            let leg = &mut self.legs[place];
            if leg.is_active && !members.is_present(leg.member) {
                leg.is_active = false;
                leg.is_stalled = false;
                self.switch.leave(now, MemberId(place as u16));
            }
        }
        if now < self.next_join || self.switch.is_finished() {
            return;
        }
        for (member, _) in members.present() {
            let mut active = self.legs.iter().filter(|leg| leg.is_active);
            let takes_part = active.any(|leg| leg.member == member);
            if members.is_ready(now, member) && !takes_part && self.joins < JOINS_MAX {
                self.joins += 1;
                self.next_join = now + JOIN_INTERVAL * u32::from(self.joins).min(60);
                self.legs.push(Leg::new(member, draw()));
                self.switch.policy_mut().add_member(member);
                self.switch.join(now);
            }
        }
        debug_assert!(self.legs.len() <= usize::from(u16::MAX));
    }
}
