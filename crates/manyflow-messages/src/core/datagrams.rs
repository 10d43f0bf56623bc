//! Packets of links of datagrams.

use bytes::{Buf as _, Bytes};
use manyflow_core::Ecn;
use manyflow_overlay::{DaemonId, Frame};

use super::DaemonCore;
use super::links::{is_message, own_name};
use crate::datagram::{DatagramLink, Direct};

impl DaemonCore {
    /// Handles a frame of a neighbour. Ignores bytes that are none, and links that are not attached
    /// yet: what they bring is repaired. [`finish_datagrams`](DaemonCore::finish_datagrams)
    /// follows.
    pub(crate) fn handle_datagram(&mut self, link: &DatagramLink, mut bytes: Bytes) {
        let Some((neighbour, connection)) = link.attached.get() else {
            return;
        };
        match Frame::decode(&bytes) {
            Ok((frame @ (Frame::Datagram { .. } | Frame::Feedback(_)), header))
                if self.is_present(neighbour, connection) =>
            {
                if let Some(known) = self.neighbours.get_mut(&neighbour) {
                    known.traffic.received_bytes += bytes.len() as u64;
                    known.traffic.received_messages += u64::from(is_message(&frame));
                }
                bytes.advance(header);
                let bytes = own_name(&frame, bytes);
                let (now, ecn) = (self.clock.now(), Ecn::NotCapable);
                self.daemon.handle_frame(now, neighbour, &frame, ecn, bytes);
            }
            _ => {}
        }
    }

    /// Handles a direct message, or forwards it. [`finish_datagrams`](DaemonCore::finish_datagrams)
    /// follows.
    pub(crate) fn handle_direct(&mut self, link: &DatagramLink, route: Direct, bytes: Bytes) {
        let frame = match Frame::decode(&bytes) {
            Ok((frame @ Frame::Direct(_), header)) if header == bytes.len() => frame,
            _ => return,
        };
        if link.attached.get().is_none() {
            return;
        }
        if route.to == self.hello.id {
            let (now, ecn) = (self.clock.now(), Ecn::NotCapable);
            self.daemon
                .handle_frame(now, route.from, &frame, ecn, Bytes::new());
        } else if let Some(route) = route.forwarded() {
            self.forward_direct(route, &frame);
        }
    }

    /// Does what follows from packets that have arrived together.
    pub(crate) fn finish_datagrams(&mut self) {
        self.pump();
    }

    /// Sends a direct message to the next daemon on the shortest path. It is lost if there is none,
    /// or if that link is none of datagrams.
    pub(super) fn forward_direct(&self, route: Direct, frame: &Frame) {
        let next = self.next_daemon(route.to);
        let neighbour = next.and_then(|next| self.neighbours.get(&next));
        let link = neighbour.and_then(|known| known.datagrams.as_ref());
        if let (Some(link), Ok(encoded)) = (link, frame.encode(0)) {
            link.push_direct(route, encoded.as_bytes());
        }
    }

    /// Returns the next daemon on the shortest path to another.
    fn next_daemon(&self, to: DaemonId) -> Option<DaemonId> {
        let tree = self.daemon.topology().tree(to)?;
        tree.parent(self.hello.id)
    }

    /// Sends the packets that wait.
    pub(super) fn flush_datagrams(&self) {
        let known = self.neighbours.values();
        let links = known.filter_map(|known| known.datagrams.as_ref());
        links.for_each(|link| link.flush());
    }
}
