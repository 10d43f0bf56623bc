//! The links of the daemon: connections that begin, continue and end them.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyflow_core::{Ecn, Time};
use manyflow_overlay::hop::{DatagramHop, Hop, KernelHop};
use manyflow_overlay::{Body, DaemonId, Frame, LinkSeq};
use tokio::sync::Notify;

use super::{DaemonCore, Neighbour};
use crate::datagram::DatagramLink;
use crate::hello::{Hello, Resume};
use crate::link::LinkError;
use crate::link_traffic::{LinkMeter, LinkTraffic};
use crate::outgoing::Outgoing;

/// The time for which a link whose connection broke remains in the topology. An address that
/// changes, or a router that begins again, costs no change of the topology if both ends are
/// connected again in this time.
const GRACE: Duration = Duration::from_millis(200);
/// The time for which a link remains besides while its ends agree on another connection, which says
/// how the link continues.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// A connection of a link.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Bytes that wait for it.
    pub(crate) out: Rc<Outgoing>,
    /// The link's packets, if it is one of datagrams.
    pub(crate) datagrams: Option<Rc<DatagramLink>>,
    /// The meter of the TCP connection.
    pub(crate) meter: Option<LinkMeter>,
    /// The address of the other end.
    pub(crate) peer: Option<SocketAddr>,
}

impl DaemonCore {
    /// Returns what this daemon has of its link to another, for a new connection. Ends the present
    /// connection: a message that still arrived over it would be repeated over the new one.
    pub(crate) fn resume(&mut self, neighbour: DaemonId) -> Resume {
        self.end_connection(neighbour);
        let until = self.clock.now() + HANDSHAKE;
        if let Some(known) = self.neighbours.get_mut(&neighbour) {
            known.handshake_until = until;
        }
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

    pub(crate) fn is_connected_to(&self, neighbour: DaemonId) -> bool {
        let known = self.neighbours.get(&neighbour);
        known.is_some_and(|known| known.out.is_some())
    }

    /// Returns the address and the incarnation at the other end of the present connection to a
    /// neighbour, if there is one.
    pub(crate) fn present_end(&self, neighbour: DaemonId) -> Option<(Option<SocketAddr>, u32)> {
        let known = self.neighbours.get(&neighbour);
        let known = known.filter(|known| known.out.is_some())?;
        Some((known.peer, known.incarnation))
    }

    /// Ends the present connection to a neighbour, if there is one.
    fn end_connection(&mut self, neighbour: DaemonId) {
        let now = self.clock.now();
        let known = self.neighbours.get_mut(&neighbour);
        let Some(known) = known.filter(|known| known.out.is_some()) else {
            return;
        };
        if let Some(out) = known.out.take() {
            out.abort();
        }
        known.broken_at = Some(now);
        self.schedule_removal(now);
        self.daemon.handle_disconnected(now, neighbour);
        self.pump();
    }

    /// Lets the daemon's timer remove the link whose connection has broken now.
    fn schedule_removal(&mut self, now: Time) {
        self.removal_at.get_or_insert(now + GRACE);
    }

    /// Continues or begins a link on a new connection, which replaces an older one. `own` is what
    /// this daemon sent. Returns the number of the connection; `None` if another connection has
    /// continued the link since `own` was sent.
    pub(crate) fn attach(
        &mut self,
        hello: &Hello,
        (own, other): (Resume, Resume),
        weight: u32,
        connection: Connection,
    ) -> Option<u64> {
        let Connection {
            out,
            datagrams,
            meter,
            peer,
        } = connection;
        if self.resume(hello.id) != own {
            return None;
        }
        let (now, id) = (self.clock.now(), hello.id);
        let continues = own.incarnation == hello.incarnation
            && other.incarnation == self.hello.incarnation
            && self.daemon.hop(id).is_some();
        self.connections += 1;
        let known = self.neighbours.entry(id).or_insert_with(|| Neighbour {
            name: hello.name.clone(),
            peer,
            incarnation: hello.incarnation,
            connection: 0,
            out: None,
            datagrams: None,
            readable: Rc::default(),
            broken_at: None,
            handshake_until: Time::ZERO,
            traffic: LinkTraffic::default(),
        });
        known.out = Some(out);
        let hop: Box<dyn Hop<Bytes>> = match &datagrams {
            None => Box::new(KernelHop::new()),
            Some(link) => {
                link.attached.set(Some((id, self.connections)));
                Box::new(DatagramHop::new())
            }
        };
        known.datagrams = datagrams;
        known.peer = peer;
        known.incarnation = hello.incarnation;
        known.connection = self.connections;
        known.broken_at = None;
        known.handshake_until = Time::ZERO;
        known.readable.notify_waiters();
        known.traffic.attach(meter);
        if !continues {
            self.daemon.add_link(now, id, weight, hop);
        }
        let received = if continues {
            other.received
        } else {
            LinkSeq(0)
        };
        self.daemon.handle_connected(now, id, received);
        self.pump();
        Some(self.connections)
    }

    /// Handles a neighbour that took no control messages, so that the daemon has removed its link.
    pub(super) fn handle_overflow(&mut self, neighbour: DaemonId) {
        if let Some(known) = self.neighbours.get(&neighbour) {
            tracing::warn!(
                "the daemon {} reads too slowly: its link begins again",
                known.name
            );
        }
        self.end_link(neighbour);
    }

    /// Ends the connection of a link that the overlay has removed.
    pub(super) fn end_link(&mut self, neighbour: DaemonId) {
        if let Some(known) = self.neighbours.get_mut(&neighbour) {
            known.incarnation = 0;
            if let Some(out) = known.out.take() {
                out.abort();
            }
            // The neighbour is no longer linked; what the driver knows of it is forgotten in time.
            known.broken_at = Some(self.clock.now());
        }
    }

    /// Returns whether a connection is the present one of its link.
    pub(super) fn is_present(&self, neighbour: DaemonId, connection: u64) -> bool {
        let known = self.neighbours.get(&neighbour);
        known.is_some_and(|known| known.connection == connection && known.out.is_some())
    }

    /// Handles the end of a connection. Returns whether it was the present one of its link.
    pub(crate) fn detach(&mut self, neighbour: DaemonId, connection: u64) -> bool {
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
        self.schedule_removal(now);
        self.daemon.handle_disconnected(now, neighbour);
        self.pump();
        true
    }

    /// Removes the links that have had no connection for [`GRACE`], if it is time. Their messages
    /// would fill a queue, for which all clients of the daemon would wait. The daemons that these
    /// messages come from keep them as well.
    pub(super) fn remove_broken_links(&mut self, now: Time) {
        if self.removal_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let broken = self.neighbours.iter();
        let broken = broken.filter_map(|(id, known)| {
            let due = (known.broken_at? + GRACE).max(known.handshake_until);
            Some((*id, due))
        });
        let broken: Vec<_> = broken.collect();
        for (id, due) in broken {
            if due <= now {
                self.daemon.remove_link(now, id);
            } else {
                let next = self.removal_at.get_or_insert(due);
                *next = (*next).min(due);
            }
        }
    }

    /// Forgets neighbours whose link has had no connection for as long as `hold`.
    pub(crate) fn forget_neighbours(&mut self, hold: Duration) {
        let now = self.clock.now();
        let hold = hold.max(GRACE);
        self.neighbours
            .retain(|_, known| known.broken_at.is_none_or(|at| now - at < hold));
    }

    /// Returns what to wait for before the link is read again; `None` if it may be read now.
    pub(crate) fn link_pause(&self, neighbour: DaemonId) -> Option<Rc<Notify>> {
        let is_full = self.daemon.hop(neighbour).is_some_and(|hop| hop.is_full());
        let known = self.neighbours.get(&neighbour).filter(|_| is_full)?;
        Some(Rc::clone(&known.readable))
    }

    /// Handles the frames at the beginning of the bytes read from a link. Stops where the daemon
    /// takes no more, or where a frame is incomplete.
    ///
    /// # Errors
    /// Returns an error if the bytes are not frames, or if another connection has replaced this
    /// one.
    pub(crate) fn handle_link_bytes(
        &mut self,
        neighbour: DaemonId,
        connection: u64,
        bytes: &mut BytesMut,
    ) -> Result<(), LinkError> {
        if !self.is_present(neighbour, connection) {
            return Err(LinkError::Replaced);
        }
        let now = self.clock.now();
        let (before, mut messages) = (bytes.len(), 0);
        let result = loop {
            if self.daemon.hop(neighbour).is_none_or(|hop| hop.is_full()) {
                break Ok(());
            }
            let (frame, payload) = match Frame::decode_framed(bytes) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            };
            let payload = bytes.split_to(payload.end).freeze().slice(payload);
            let payload = own_name(&frame, payload);
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

    /// Asks the other end of a connection for an answer if nothing else was sent for a second.
    pub(crate) fn keep_link_alive(&mut self, neighbour: DaemonId, connection: u64) {
        if self.is_present(neighbour, connection) {
            self.daemon.keep_alive(self.clock.now(), neighbour);
            self.pump();
        }
    }

    /// Handles the moment at which all bytes for a neighbour have been written.
    pub(crate) fn handle_link_drained(&mut self, neighbour: DaemonId, connection: u64) {
        let known = self.neighbours.get(&neighbour);
        if known.is_none_or(|known| known.connection != connection) {
            return;
        }
        self.daemon.handle_writable(self.clock.now(), neighbour);
        self.pump();
    }
}

/// Returns the payload of a frame. The name of a group lives long: a copy keeps no buffer of a
/// socket alive.
pub(super) fn own_name(frame: &Frame, payload: Bytes) -> Bytes {
    let (Frame::Stream(message) | Frame::Datagram { message, .. }) = frame else {
        return payload;
    };
    match message.body {
        Body::Change(_) | Body::Part(_) => Bytes::copy_from_slice(&payload),
        _ => payload,
    }
}

/// Returns whether a frame carries a message of a client.
pub(super) fn is_message(frame: &Frame) -> bool {
    let (Frame::Stream(message) | Frame::Segment { message, .. } | Frame::Datagram { message, .. }) =
        frame
    else {
        return false;
    };
    message.is_data()
}

#[cfg(test)]
mod tests {
    use manyflow_net::clock::Clock;
    use manyflow_overlay::controller::Open;
    use manyflow_overlay::{Daemon, Message, OverlayConfig};

    use super::*;

    fn hello(name: &str, id: u16) -> Hello {
        Hello {
            overlay: "test".to_owned(),
            name: name.to_owned(),
            id: DaemonId(id),
            incarnation: 5,
            dials: false,
            datagrams: false,
        }
    }

    fn core() -> DaemonCore {
        let own = hello("own", 1);
        let config = OverlayConfig::default();
        let daemon = Daemon::<Bytes>::new(config, Box::new(Open), own.id, own.incarnation);
        DaemonCore::new(daemon.unwrap(), own, Clock::start(), 1_000_000)
    }

    /// Lets the daemon's timer run for this time.
    async fn pass(core: &mut DaemonCore, span: Duration) {
        let end = core.clock.now() + span;
        while core.armed().is_some_and(|at| at <= end) {
            core.clock.sleep_until(core.armed()).await;
            core.handle_timeout();
        }
        core.clock.sleep_until(Some(end)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_outlives_a_short_break_of_its_connection_and_is_removed_after_a_longer_one() {
        let (mut core, other) = (core(), hello("other", 2));
        let own = core.resume(other.id);
        let first = core.attach(&other, (own, resume(0)), 1, Connection::default());
        assert!(core.detach(other.id, first.unwrap()));
        pass(&mut core, GRACE / 2).await;
        let own = core.resume(other.id);
        assert_eq!(own, resume(0), "the link continues");
        let second = core.attach(&other, (own, resume(0)), 1, Connection::default());
        pass(&mut core, 2 * GRACE).await;
        assert!(core.daemon.hop(other.id).is_some());
        assert!(core.detach(other.id, second.unwrap()));
        pass(&mut core, GRACE * 9 / 10).await;
        assert!(core.daemon.hop(other.id).is_some());
        pass(&mut core, GRACE / 5).await;
        assert!(core.daemon.hop(other.id).is_none());
        // The status names it for longer.
        core.forget_neighbours(Duration::from_secs(5));
        assert!(core.neighbours.contains_key(&other.id));
        pass(&mut core, Duration::from_secs(5)).await;
        core.forget_neighbours(Duration::from_secs(5));
        assert!(!core.neighbours.contains_key(&other.id));
    }

    /// A newcomer whose handshake fails after it has ended the connection.
    #[tokio::test(start_paused = true)]
    async fn a_link_whose_connection_was_ended_for_one_that_never_comes_is_removed() {
        let (mut core, other) = (core(), hello("other", 2));
        let own = core.resume(other.id);
        core.attach(&other, (own, resume(0)), 1, Connection::default());
        core.resume(other.id);
        // Meanwhile the ends may agree that the link continues.
        pass(&mut core, HANDSHAKE * 9 / 10).await;
        assert!(core.daemon.hop(other.id).is_some());
        pass(&mut core, GRACE + HANDSHAKE / 5).await;
        assert!(core.daemon.hop(other.id).is_none());
    }

    fn resume(received: u32) -> Resume {
        Resume {
            incarnation: 5,
            received: LinkSeq(received),
        }
    }

    /// Returns the bytes of a message.
    fn message() -> BytesMut {
        let message = Message {
            origin: DaemonId(2),
            copy: Default::default(),
            body: manyflow_overlay::Body::Request,
        };
        BytesMut::from(message.encode_framed(0).unwrap().as_bytes())
    }

    #[test]
    fn a_connection_that_another_replaces_brings_no_more_messages() {
        let (mut core, other) = (core(), hello("other", 2));
        let own = core.resume(other.id);
        let first = core.attach(&other, (own, resume(0)), 1, Connection::default());
        let first = first.unwrap();
        core.handle_link_bytes(other.id, first, &mut message())
            .unwrap();
        assert_eq!(core.resume(other.id), resume(1));
        assert!(!core.is_connected_to(other.id));
        let late = core.handle_link_bytes(other.id, first, &mut message());
        assert!(matches!(late, Err(LinkError::Replaced)));
        assert_eq!(core.resume(other.id), resume(1));
    }

    #[test]
    fn a_link_continues_only_from_the_last_message_that_has_arrived() {
        let (mut core, other) = (core(), hello("other", 2));
        let own = core.resume(other.id);
        let first = core.attach(&other, (own, resume(0)), 1, Connection::default());
        core.handle_link_bytes(other.id, first.unwrap(), &mut message())
            .unwrap();
        // Two connections replace the first, and messages arrive over one of them.
        let [one, two] = [core.resume(other.id), core.resume(other.id)];
        let second = core.attach(&other, (one, resume(0)), 1, Connection::default());
        core.handle_link_bytes(other.id, second.unwrap(), &mut message())
            .unwrap();
        let stale = core.attach(&other, (two, resume(0)), 1, Connection::default());
        assert_eq!(stale, None);
        assert_eq!(core.resume(other.id), resume(2));
    }
}
