//! The datagrams of members.

use manyflow_anypoint::switch::MemberId;
use manyflow_anypoint::{Body, Segment};
use manyflow_core::time::Time;
use manyflow_net::udp::Arrival;

use super::hub::{Hub, NO_SLOT};
use crate::anypoint::Number;
use crate::anypoint::envelope::{self, Cookie, Datagram, PATH_HEADER_BYTES, Part};

impl Hub {
    /// Handles a datagram of a member. Datagrams from other addresses are ignored.
    pub(super) fn handle_member(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let Some(member) = self.members.find(arrival.source) else {
            self.gate.counters.invalid += 1;
            return;
        };
        match envelope::decode(bytes) {
            Ok(Datagram::Segment(segment, header)) => {
                self.members.note_heard(now, member);
                self.handle_member_segment(now, member, &segment, &bytes[header..]);
            }
            Ok(Datagram::Challenge(number, cookie)) => {
                self.members.note_heard(now, member);
                self.handle_challenge(member, number, cookie);
            }
            Ok(Datagram::PathProbe(number, id, size)) => {
                self.members.note_heard(now, member);
                if let Some((slot, _)) = self.find_leg(member, number)
                    && self.sessions[slot].peer_carries(now, size, &self.gate.wires)
                {
                    let answer = envelope::encode_path_answer(number, id, size);
                    self.gate.wires.send_to_member(arrival.source, &answer);
                }
            }
            Ok(Datagram::PathAnswer(_, id, size)) => {
                self.members.note_heard(now, member);
                self.members
                    .get_mut(member)
                    .way
                    .handle_answer(now, id, size);
            }
            Ok(Datagram::Part(part)) => {
                self.members.note_heard(now, member);
                self.handle_member_part(now, member, &part, &bytes[PATH_HEADER_BYTES..]);
            }
            // Members open no connections. An Admission comes from a switch of initiators, which
            // cannot be a member: clients of this switch do not know prefixes.
            Ok(Datagram::Open(..) | Datagram::Admission(..)) | Err(_) => {
                self.gate.counters.invalid += 1
            }
        }
    }

    /// Returns the slot of the connection, and the member's number in it.
    fn find_leg(&self, member: u16, number: Number) -> Option<(usize, MemberId)> {
        let slot = (number & NO_SLOT) as usize;
        let id = self.sessions.get(slot)?.find(member, number)?;
        Some((slot, id))
    }

    fn handle_member_segment(&mut self, now: Time, member: u16, segment: &Segment, frame: &[u8]) {
        let number = segment.connection;
        let Some((slot, id)) = self.find_leg(member, number) else {
            let address = self.members.get_mut(member).address;
            return self.gate.answer_member(now, address, number, segment.body);
        };
        if let Body::Data(_) = segment.body {
            self.members.get_mut(member).status.count_from(frame.len());
        }
        let payload = self.gate.payload(segment, frame);
        self.sessions[slot].handle_member(now, id, segment.body, payload);
        self.finish(now, slot);
    }

    fn handle_member_part(&mut self, now: Time, member: u16, part: &Part, bytes: &[u8]) {
        let address = self.members.get_mut(member).address;
        if self.find_leg(member, part.connection).is_none() {
            let number = part.connection;
            return self.gate.answer_member(now, address, number, Body::Probe);
        }
        if let Some(whole) = self.member_parts.join(address, part, bytes) {
            if let Ok(Datagram::Segment(segment, header)) = envelope::decode(&whole) {
                self.handle_member_segment(now, member, &segment, &whole[header..]);
            }
            self.member_parts.recycle(whole);
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
            self.gate.wires.send_to_member(member.address, &header);
        }
    }
}
