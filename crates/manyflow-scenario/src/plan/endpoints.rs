//! Allots the numbers of endpoints. A world numbers endpoints in the order in which they are added:
//! first the daemons of each overlay, then the endpoints of each session. Nothing outside this file
//! calculates with these numbers.

use manyflow_netsim::NodeId;

use crate::plan::ids::{Ends, Ids};
use crate::plan::overlays::Overlays;
use crate::plan::sessions::{PlannedSession, Sessions};
use crate::schema::protocols::Protocol;
use manyflow_model::error::Fault;

/// Hands out the numbers of endpoints, in the order in which the scene adds them.
#[derive(Debug, Default)]
pub struct Allotment {
    /// The number of endpoints so far, which is the number of the next one.
    count: u64,
}

/// The maximum number of endpoints. An endpoint takes about 1 kB, so more are a mistake.
const ENDPOINTS_MAX: u64 = 100_000_000;

impl Allotment {
    /// Allots all endpoints of a plan. Returns their number.
    ///
    /// # Errors
    /// Returns an error if there are too many.
    pub fn all(overlays: &mut Overlays, sessions: &mut Sessions) -> Result<usize, Fault> {
        let mut allotment = Allotment::default();
        for overlay in &mut overlays.0 {
            overlay.endpoints = allotment.take(overlay.nodes.len());
        }
        for session in &mut sessions.0 {
            allotment.session(session);
        }
        if allotment.is_exhausted() {
            let message = format!("the sessions need more than {ENDPOINTS_MAX} endpoints");
            return Err(Fault::value(message));
        }
        Ok(allotment.count as usize)
    }

    fn is_exhausted(&self) -> bool {
        self.count > ENDPOINTS_MAX
    }

    /// Takes the next numbers. They are meaningless if there are too many endpoints.
    pub fn take(&mut self, count: usize) -> Ids {
        let first = self.count as u32;
        self.count = self.count.saturating_add(count as u64);
        Ids::new(first, count as u32)
    }

    /// Allots the endpoints of a session, in the order in which its protocol adds them.
    fn session(&mut self, session: &mut PlannedSession) {
        match session.protocol {
            Protocol::Tcp | Protocol::Cbr => self.pairs(session),
            Protocol::Command => self.staff(session, session.sender),
            Protocol::Webrc
            | Protocol::Sim
            | Protocol::Rlm
            | Protocol::Rlc
            | Protocol::Flid
            | Protocol::Tfmcc => {
                self.staff(session, session.sender);
                for place in 0..session.aggregators.len() {
                    self.staff(session, session.aggregators[place]);
                }
                self.memberships(session);
            }
            Protocol::Acp => {
                self.memberships(session);
                let connections = match session.switches.len() {
                    0 => session.intervals(),
                    _ => 1,
                };
                for _ in 0..connections {
                    self.staff(session, session.sender);
                }
                for switch in 0..session.switches.len() {
                    self.staff(session, session.switches[switch].node);
                }
                for initiator in 0..session.initiators.len() {
                    self.staff(session, session.initiators[initiator]);
                }
            }
            Protocol::Overlay => {
                self.memberships(session);
                for _ in 0..session.affiliation.map_or(0, |own| own.clients) {
                    self.staff(session, session.sender);
                }
            }
        }
    }

    /// Allots the next endpoint to a session, at a node and apart from its receivers.
    fn staff(&mut self, session: &mut PlannedSession, node: u32) {
        let id = self.take(1).at(0);
        if !self.is_exhausted() {
            session.staff.push((id, NodeId(node)));
        }
    }

    /// Allots an endpoint to each membership interval of each receiver.
    fn memberships(&mut self, session: &mut PlannedSession) {
        self.receivers(session, false);
    }

    /// Allots a sending and a receiving endpoint to each membership interval of each receiver.
    fn pairs(&mut self, session: &mut PlannedSession) {
        self.receivers(session, true);
    }

    fn receivers(&mut self, session: &mut PlannedSession, is_unicast: bool) {
        let each = if is_unicast { 2 } else { 1 };
        for receiver in &mut session.receivers {
            let ids = self.take(each * receiver.intervals.len());
            receiver.ends = Ends::new(ids, is_unicast);
        }
    }
}
