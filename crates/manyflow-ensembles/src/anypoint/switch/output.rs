//! The datagrams that connections send.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use manyflow_anypoint::switch::{self, MemberId};
use manyflow_anypoint::{Body, Segment};
use manyflow_core::time::Time;
use manyflow_net::trains::Trains;

use super::members::Members;
use super::session::SwitchSession;
use crate::anypoint::envelope::{self, NO_COOKIE, Short};
use crate::anypoint::{segment, way::Path, wire::Wire};

/// The two sockets of a switch, and the datagrams that wait to be sent. Inside of a process, the
/// front is no socket but memory. A switch of initiators has them the other way round: its clients
/// are peers here, and its service is a member.
#[derive(Debug)]
pub(super) struct Wires {
    pub(super) front: Wire,
    pub(super) back: Wire,
    to_peers: Trains,
    to_members: Trains,
}

impl Wires {
    /// Opens the sockets. Returns the address for peers too. `is_ipv4`: the members' IP version.
    pub(super) fn open(listen: SocketAddr, is_ipv4: bool) -> io::Result<(Wires, SocketAddr)> {
        let (front, local) = Wire::open(listen)?;
        Ok((Wires::new(front, is_ipv4)?, local))
    }

    /// Opens the socket for members. `front`: what carries the datagrams of peers.
    pub(super) fn new(front: Wire, is_ipv4: bool) -> io::Result<Wires> {
        let (back, _) = Wire::open(match is_ipv4 {
            true => (Ipv4Addr::UNSPECIFIED, 0).into(),
            false => (Ipv6Addr::UNSPECIFIED, 0).into(),
        })?;
        Ok(Wires {
            front,
            back,
            to_peers: Trains::default(),
            to_members: Trains::default(),
        })
    }

    pub(super) fn send_to_peer(&mut self, path: Path, header: &Short) {
        let Path { remote, local } = path;
        let trains = &mut self.to_peers;
        trains.push(&self.front, local, remote, header.as_bytes(), &[]);
    }

    pub(super) fn send_to_member(&mut self, to: SocketAddr, header: &Short) {
        let trains = &mut self.to_members;
        trains.push(&self.back, None, to, header.as_bytes(), &[]);
    }

    /// Returns what a [`Way`] sends to peers with.
    pub(super) fn peer_wire(&mut self) -> (&Wire, &mut Trains) {
        (&self.front, &mut self.to_peers)
    }

    /// Returns what a [`Way`] sends to members with.
    pub(super) fn member_wire(&mut self) -> (&Wire, &mut Trains) {
        (&self.back, &mut self.to_members)
    }

    /// Takes the peer and the length of a datagram that the interface refused.
    pub(super) fn take_too_long_for_peer(&mut self) -> Option<(SocketAddr, usize)> {
        self.to_peers.take_too_long()
    }

    /// Takes the member and the length of a datagram that the interface refused.
    pub(super) fn take_too_long_for_member(&mut self) -> Option<(SocketAddr, usize)> {
        self.to_members.take_too_long()
    }

    /// Sends everything that waits.
    pub(super) fn flush(&mut self) {
        self.to_peers.flush(&self.front);
        self.to_members.flush(&self.back);
    }

    /// Returns the number of datagrams that the kernel did not take for other reasons than their
    /// length.
    pub(super) fn unsent(&self) -> u64 {
        let both = [self.to_peers.unsent(), self.to_members.unsent()];
        both.iter().map(|lost| lost.refused).sum()
    }

    /// Returns the number of datagrams that were longer than the MTU of the interface.
    pub(super) fn too_long(&self) -> u64 {
        let both = [self.to_peers.unsent(), self.to_members.unsent()];
        both.iter().map(|lost| lost.too_long).sum()
    }
}

impl SwitchSession {
    /// Sends everything that the connection has to send.
    pub(super) fn send_output(&mut self, now: Time, wires: &mut Wires, members: &mut Members) {
        while let Some((to, segment, payload)) = self.switch.poll_transmit() {
            match to {
                switch::Leg::Peer => {
                    let segment = Segment {
                        connection: self.number,
                        ..segment
                    };
                    let mut is_repeated = false;
                    if let Body::Data(data) = segment.body {
                        is_repeated = data.sequence < self.sent;
                        self.sent = self.sent.max(data.sequence.saturating_add(1));
                    }
                    let header = envelope::encode(&segment, &NO_COOKIE);
                    let (wire, to) = (wires.peer_wire(), (self.path, self.number));
                    self.way
                        .send(now, wire, to, (&header, &payload), is_repeated);
                }
                switch::Leg::Member(id) => {
                    self.send_to(now, id, (segment, &payload), wires, members);
                }
            }
        }
    }

    /// Returns whether the ways to all members carry datagrams of this size, as
    /// [`Way::carries`](crate::anypoint::way::Way::carries) has it.
    pub(super) fn members_carry(
        &self,
        now: Time,
        bytes: u16,
        wires: &Wires,
        members: &mut Members,
    ) -> bool {
        let mut carry = true;
        for leg in self.legs.iter().filter(|leg| leg.is_active) {
            let member = members.get_mut(leg.member);
            let to = (member.path(), leg.number);
            carry &= member.way.carries(now, &wires.back, to, bytes);
        }
        carry
    }

    /// Returns whether the way to the peer carries datagrams of this size, in the same way.
    pub(super) fn peer_carries(&mut self, now: Time, bytes: u16, wires: &Wires) -> bool {
        let to = (self.path, self.number);
        self.way.carries(now, &wires.front, to, bytes)
    }

    fn send_to(
        &mut self,
        now: Time,
        id: MemberId,
        (mut segment, payload): (Segment, &[u8]),
        wires: &mut Wires,
        members: &mut Members,
    ) {
        let leg = &mut self.legs[id.index()];
        let member = members.get_mut(leg.member);
        segment.connection = leg.number;
        let mut is_repeated = false;
        match segment.body {
            Body::Open { .. } => leg.open = Some(segment),
            Body::Data(data) => {
                is_repeated = data.sequence < leg.sent;
                leg.sent = leg.sent.max(data.sequence.saturating_add(1));
                member.status.frames_to += 1;
                member.status.bytes_to += payload.len() as u64;
            }
            Body::Close { sequence } => leg.sent = leg.sent.max(sequence.saturating_add(1)),
            _ => {}
        }
        let header = envelope::encode(&segment, &member.cookie);
        let to = (member.path(), leg.number);
        let wire = wires.member_wire();
        member
            .way
            .send(now, wire, to, (&header, payload), is_repeated);
    }

    /// Ends the connection for both sides.
    pub(super) fn reset(
        &mut self,
        reason: manyflow_anypoint::Reason,
        wires: &mut Wires,
        members: &mut Members,
    ) {
        let reset = |number| envelope::encode(&segment(number, Body::Reset(reason)), &NO_COOKIE);
        wires.send_to_peer(self.path, &reset(self.number));
        for leg in self.legs.iter().filter(|leg| leg.is_active) {
            let address = members.get_mut(leg.member).address;
            wires.send_to_member(address, &reset(leg.number));
        }
        self.is_reset = true;
    }
}
