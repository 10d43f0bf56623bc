//! Periodic work of a switch: timers, the members' health, silent peers, and the status.

use std::time::Duration;

use manyflow_anypoint::{Body, Reason};
use manyflow_core::time::Time;
use manyflow_net::udp::Arrival;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::hub::{Hub, NO_SLOT, SLOT_BITS, number_of};
use super::members::Members;
use super::output::Wires;
use super::server::{Target, Traffic};
use super::status::SwitchStatus;
use crate::anypoint::envelope::{self, NO_COOKIE};
use crate::anypoint::{Number, segment};

/// The time between two rounds of periodic work.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// The silence after which a connection ends. Ends probe each other every ten seconds.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Sends each member a Probe of no connection. The member answers with a Reset, and so shows that
/// it is there.
pub(super) fn probe_members(members: &Members, wires: &mut Wires, rng: &mut StdRng) {
    for (_, member) in members.present() {
        let number = rng.random::<Number>() << SLOT_BITS | NO_SLOT;
        let header = envelope::encode(&segment(number, Body::Probe), &NO_COOKIE);
        wires.send_to_member(member.address, &header);
    }
}

impl Hub {
    fn note_stalled(&mut self, now: Time) {
        let mut connections = vec![0; self.members.count()];
        for (_, session) in &self.sessions {
            for leg in session.legs.iter().filter(|leg| leg.is_stalled) {
                connections[usize::from(leg.member)] += 1;
            }
        }
        self.members.note_stalled(now, &connections);
    }

    /// Lets members join and leave connections.
    pub(super) fn reconcile(&mut self, now: Time) {
        let slots: Vec<_> = self.sessions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let draw = || number_of(slot, &mut self.rng);
            self.sessions[slot].reconcile(now, &self.members, draw);
            self.finish(now, slot);
        }
    }

    fn end_silent(&mut self, now: Time) {
        let silent = self.sessions.iter();
        let silent = silent.filter(|(_, session)| now - session.heard >= SILENCE_MAX);
        let silent: Vec<_> = silent.map(|(slot, _)| slot).collect();
        self.gate.counters.silent += silent.len() as u64;
        for slot in silent {
            self.reset(slot, Reason::TimedOut);
        }
    }

    fn reset(&mut self, slot: usize, reason: Reason) {
        self.sessions[slot].reset(reason, &mut self.gate.wires, &mut self.members);
        self.remove(slot);
    }
}

impl Traffic for Hub {
    fn wires(&self) -> &Wires {
        &self.gate.wires
    }

    fn handle_front(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        self.handle_peer(now, arrival, bytes);
    }

    fn handle_back(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        self.handle_member(now, arrival, bytes);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    fn set_target(&mut self, now: Time, target: &Target) {
        if let Target::Members(service) = target {
            self.set_service(now, service);
        }
    }

    fn begin_draining(&mut self) {
        self.is_draining = true;
    }

    fn handle_timeouts(&mut self, now: Time) {
        while let Some((due, slot)) = self.timers.take_due(now) {
            let Some(session) = self.sessions.get_mut(slot) else {
                continue;
            };
            if session.timer.expire(due) {
                session.switch.handle_timeout(now);
                self.finish(now, slot);
            }
        }
    }

    fn handle_tick(&mut self, now: Time) {
        self.members.check_health(now);
        self.note_stalled(now);
        probe_members(&self.members, &mut self.gate.wires, &mut self.rng);
        self.reconcile(now);
        self.end_silent(now);
    }

    // Notes which datagrams were too long for their interface as well.
    fn flush(&mut self, now: Time) {
        self.gate.wires.flush();
        while let Some((remote, length)) = self.gate.wires.take_too_long_for_peer() {
            for (_, session) in &mut self.sessions {
                if session.path.remote == remote {
                    session.way.handle_too_long(now, remote, length);
                }
            }
        }
        while let Some((remote, length)) = self.gate.wires.take_too_long_for_member() {
            if let Some(member) = self.members.find(remote) {
                let way = &mut self.members.get_mut(member).way;
                way.handle_too_long(now, remote, length);
            }
        }
    }

    fn reset_all(&mut self) {
        let slots: Vec<_> = self.sessions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.reset(slot, Reason::Aborted);
        }
        self.gate.wires.flush();
    }

    fn is_finished(&self) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.all(|(_, session)| session.switch.is_finished())
    }

    fn status(&self) -> SwitchStatus {
        let mut status = SwitchStatus {
            connections: self.sessions.len() as u64,
            is_draining: self.is_draining,
            window_bytes: 0,
            counters: self.gate.counters,
            members: self.members.statuses(),
        };
        status.counters.unsent = self.gate.wires.unsent();
        status.counters.too_long = self.gate.wires.too_long();
        for (_, session) in &self.sessions {
            status.window_bytes += u64::from(session.window);
            for leg in session.legs.iter().filter(|leg| leg.is_active) {
                let member = &mut status.members[usize::from(leg.member)];
                member.connections += 1;
                member.outstanding += u64::from(leg.sent - leg.acknowledged);
            }
        }
        status
    }
}
