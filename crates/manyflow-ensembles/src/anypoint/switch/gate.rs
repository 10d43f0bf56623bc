//! Datagrams that do not belong to a connection yet: the switch asks a peer for its cookie, and
//! answers segments of connections that it does not have.

use std::net::SocketAddr;

use bytes::Bytes;
use manyflow_anypoint::{Body, Reason, Segment};
use manyflow_core::time::Time;

use super::output::Wires;
use super::status::Counters;
use crate::anypoint::Number;
use crate::anypoint::answers::Answers;
use crate::anypoint::arena::Arena;
use crate::anypoint::cookies::Cookies;
use crate::anypoint::envelope::{self, Cookie};
use crate::anypoint::way::Path;

/// The sockets of a switch with what all of its connections share.
pub(super) struct Gate {
    pub(super) wires: Wires,
    pub(super) counters: Counters,
    arena: Arena,
    cookies: Cookies,
    answers: Answers,
}

impl Gate {
    pub(super) fn new(wires: Wires) -> Gate {
        Gate {
            wires,
            counters: Counters::default(),
            arena: Arena::default(),
            cookies: Cookies::new(),
            answers: Answers::new(),
        }
    }

    /// Copies the frame of a segment.
    pub(super) fn payload(&mut self, segment: &Segment, frame: &[u8]) -> Bytes {
        match segment.body {
            Body::Data(_) => self.arena.copy(frame),
            _ => Bytes::new(),
        }
    }

    /// Returns whether a peer's Open shows that it receives at its address. If not, asks it for
    /// its cookie, at a limited rate.
    pub(super) fn lets_in(
        &mut self,
        now: Time,
        path: Path,
        number: Number,
        cookie: &Cookie,
    ) -> bool {
        let is_valid = self.cookies.is_valid(now, path.remote, cookie);
        if !is_valid && self.answers.may_challenge(now) {
            self.counters.challenges += 1;
            let cookie = self.cookies.cookie(now, path.remote);
            let challenge = envelope::encode_challenge(number, cookie);
            self.wires.send_to_peer(path, &challenge);
        }
        is_valid
    }

    /// Refuses a peer's connection.
    pub(super) fn refuse(&mut self, now: Time, path: Path, number: Number) {
        self.counters.refused += 1;
        self.reset_peer(now, path, number, Reason::Refused);
    }

    /// Answers a peer's segment of no connection with a Reset, at a limited rate.
    pub(super) fn answer_peer(&mut self, now: Time, path: Path, number: Number, body: Body) {
        if !matches!(body, Body::Reset(_)) {
            self.reset_peer(now, path, number, Reason::Unknown);
        }
    }

    fn reset_peer(&mut self, now: Time, path: Path, number: Number, reason: Reason) {
        if let Some(reset) = self.answers.reset(now, path.remote.ip(), number, reason) {
            self.counters.resets += 1;
            self.wires.send_to_peer(path, &reset);
        }
    }

    /// Answers a member's segment of no connection with a Reset, at a limited rate.
    pub(super) fn answer_member(
        &mut self,
        now: Time,
        address: SocketAddr,
        number: Number,
        body: Body,
    ) {
        if matches!(body, Body::Reset(_)) {
            return;
        }
        let reset = self
            .answers
            .reset(now, address.ip(), number, Reason::Unknown);
        if let Some(reset) = reset {
            self.counters.resets += 1;
            self.wires.send_to_member(address, &reset);
        }
    }
}
