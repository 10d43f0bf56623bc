//! The datagrams of members.

use manyflow_anypoint::{Body, Reason};
use manyflow_core::time::Time;

use super::hub::{Hub, NO_SLOT};
use crate::anypoint::envelope::{self, Cookie, Datagram, NO_COOKIE};
use crate::anypoint::{Number, segment};
use crate::net::udp::Arrival;

impl Hub {
    /// Handles a datagram of a member. Datagrams from other addresses are ignored.
    pub(super) fn handle_member(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let Some(member) = self.members.find(arrival.source) else {
            self.counters.invalid += 1;
            return;
        };
        match envelope::decode(bytes) {
            Ok(Datagram::Segment(segment, header)) => {
                self.members.note_heard(now, member);
                let number = segment.connection;
                let slot = (number & NO_SLOT) as usize;
                let session = self.sessions.get(slot);
                let Some(id) = session.and_then(|session| session.find(member, number)) else {
                    return self.answer_member(now, member, number, segment.body);
                };
                if let Body::Data(_) = segment.body {
                    let status = &mut self.members.get_mut(member).status;
                    status.frames_from += 1;
                    status.bytes_from += (bytes.len() - header) as u64;
                }
                let payload = self.payload(&segment, &bytes[header..]);
                self.sessions[slot].handle_member(now, id, segment.body, payload);
                self.finish(slot);
            }
            Ok(Datagram::Challenge(number, cookie)) => {
                self.members.note_heard(now, member);
                self.handle_challenge(member, number, cookie);
            }
            // Members open no connections.
            Ok(Datagram::Open(..)) | Err(_) => self.counters.invalid += 1,
        }
    }

    /// Repeats the Open of a connection with the member's cookie.
    fn handle_challenge(&mut self, member: u16, number: Number, cookie: Cookie) {
        let session = self.sessions.get((number & NO_SLOT) as usize);
        let leg =
            session.and_then(|session| Some(&session.legs[session.find(member, number)?.index()]));
        if let Some(open) = leg.and_then(|leg| leg.open) {
            let member = self.members.get_mut(member);
            member.cookie = cookie;
            let header = envelope::encode(&open, &cookie);
            self.wires.send_to_member(member.address, &header, &[]);
        }
    }

    /// Answers a member's segment of no connection with a Reset, at a limited rate.
    fn answer_member(&mut self, now: Time, member: u16, number: Number, body: Body) {
        let address = self.members.get_mut(member).address;
        let is_reset = matches!(body, Body::Reset(_));
        if !is_reset && self.answers.may_reset(now, address.ip()) {
            self.counters.resets += 1;
            let reset = segment(number, Body::Reset(Reason::Unknown));
            let header = envelope::encode(&reset, &NO_COOKIE);
            self.wires.send_to_member(address, &header, &[]);
        }
    }
}
