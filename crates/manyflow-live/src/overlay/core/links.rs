//! The links of the daemon: connections that begin, continue and end them.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use manyflow_core::Ecn;
use manyflow_overlay::hop::KernelHop;
use manyflow_overlay::{Body, DaemonId, Frame, LinkSeq, WireError};
use tokio::sync::Notify;

use super::{Core, Neighbour};
use crate::overlay::hello::{Hello, Resume};
use crate::overlay::link_traffic::{LinkMeter, LinkTraffic};
use crate::overlay::outgoing::Outgoing;

impl Core {
    /// Returns what this daemon has of its link to another.
    pub(in crate::overlay) fn resume(&self, neighbour: DaemonId) -> Resume {
        let known = self.neighbours.get(&neighbour);
        let hop = self.daemon.hop(neighbour);
        match (known, hop) {
            (Some(known), Some(hop)) => Resume {
                incarnation: known.incarnation,
                received: hop.received(),
            },
            _ => Resume {
                incarnation: 0,
                received: LinkSeq(0),
            },
        }
    }

    pub(in crate::overlay) fn is_connected_to(&self, neighbour: DaemonId) -> bool {
        let known = self.neighbours.get(&neighbour);
        known.is_some_and(|known| known.out.is_some())
    }

    /// Continues or begins a link on a new connection, which replaces an older one. `own` is what
    /// this daemon sent. Returns the number of the connection.
    pub(in crate::overlay) fn attach(
        &mut self,
        hello: &Hello,
        (own, other): (Resume, Resume),
        weight: u32,
        (out, meter): (Rc<Outgoing>, LinkMeter),
    ) -> u64 {
        let (now, id) = (self.clock.now(), hello.id);
        let continues = own.incarnation == hello.incarnation
            && other.incarnation == self.hello.incarnation
            && self.daemon.hop(id).is_some();
        self.connections += 1;
        let known = self.neighbours.entry(id).or_insert_with(|| Neighbour {
            name: hello.name.clone(),
            incarnation: hello.incarnation,
            connection: 0,
            out: None,
            readable: Rc::default(),
            broken_at: None,
            traffic: LinkTraffic::default(),
        });
        if let Some(old) = known.out.replace(out) {
            old.close();
            self.daemon.handle_disconnected(now, id);
        }
        known.incarnation = hello.incarnation;
        known.connection = self.connections;
        known.broken_at = None;
        known.readable.notify_waiters();
        known.traffic.attach(meter);
        if !continues {
            self.daemon
                .add_link(now, id, weight, Box::new(KernelHop::new()));
        }
        let received = if continues {
            other.received
        } else {
            LinkSeq(0)
        };
        self.daemon.handle_connected(now, id, received);
        self.pump();
        self.connections
    }

    /// Handles the end of a connection. Returns whether it was the present one of its link.
    pub(in crate::overlay) fn detach(&mut self, neighbour: DaemonId, connection: u64) -> bool {
        let now = self.clock.now();
        let Some(known) = self.neighbours.get_mut(&neighbour) else {
            return false;
        };
        if known.connection != connection || known.out.is_none() {
            return false;
        }
        known.out = None;
        known.traffic.detach();
        known.broken_at = Some(now);
        self.daemon.handle_disconnected(now, neighbour);
        self.pump();
        true
    }

    /// Removes a link that has had no connection for as long as `hold`.
    pub(in crate::overlay) fn remove_broken_links(&mut self, hold: Duration) {
        let now = self.clock.now();
        let is_over = |known: &Neighbour| known.broken_at.is_some_and(|at| now - at >= hold);
        let over = self.neighbours.iter().filter(|(_, known)| is_over(known));
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.neighbours.remove(&id);
            self.daemon.remove_link(now, id);
            self.pump();
        }
    }

    /// Returns what to wait for before the link is read again; `None` if it may be read now.
    pub(in crate::overlay) fn link_pause(&self, neighbour: DaemonId) -> Option<Rc<Notify>> {
        let is_full = self.daemon.hop(neighbour).is_some_and(|hop| hop.is_full());
        let known = self.neighbours.get(&neighbour).filter(|_| is_full)?;
        Some(Rc::clone(&known.readable))
    }

    /// Handles the frames at the beginning of the bytes read from a link. Stops where the daemon
    /// takes no more, or where a frame is incomplete.
    ///
    /// # Errors
    /// Returns an error if the bytes are not frames.
    pub(in crate::overlay) fn handle_link_bytes(
        &mut self,
        neighbour: DaemonId,
        bytes: &mut BytesMut,
    ) -> Result<(), WireError> {
        let now = self.clock.now();
        let (before, mut messages) = (bytes.len(), 0);
        let result = loop {
            if self.daemon.hop(neighbour).is_none_or(|hop| hop.is_full()) {
                break Ok(());
            }
            let (frame, payload) = match Frame::decode_framed(bytes) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let payload = bytes.split_to(payload.end).freeze().slice(payload);
            messages += u64::from(is_message(&frame));
            let ecn = Ecn::NotCapable;
            self.daemon
                .handle_frame(now, neighbour, &frame, ecn, payload);
        };
        if let Some(known) = self.neighbours.get_mut(&neighbour) {
            known.traffic.received_bytes += (before - bytes.len()) as u64;
            known.traffic.received_messages += messages;
        }
        self.pump();
        result
    }

    /// Handles the moment at which all bytes for a neighbour have been written.
    pub(in crate::overlay) fn handle_link_drained(&mut self, neighbour: DaemonId, connection: u64) {
        let known = self.neighbours.get(&neighbour);
        if known.is_none_or(|known| known.connection != connection) {
            return;
        }
        self.daemon.handle_writable(self.clock.now(), neighbour);
        self.pump();
    }
}

/// Returns whether a frame carries a message of a client.
pub(super) fn is_message(frame: &Frame) -> bool {
    let (Frame::Stream(message) | Frame::Segment { message, .. } | Frame::Datagram { message, .. }) =
        frame
    else {
        return false;
    };
    matches!(message.body, Body::Data(_) | Body::Resent(_))
}
