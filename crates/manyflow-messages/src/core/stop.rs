//! The end of the daemon.

use std::rc::Rc;

use bytes::Bytes;

use super::DaemonCore;
use crate::nats::session::{NatsSession, Peer};
use crate::outgoing::Outgoing;

/// The stage of a daemon between its start and its end.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serves clients and other daemons.
    #[default]
    Serves,
    /// Ignores further operations of clients, and delivers the messages that it has accepted.
    Settles,
    /// Closes all connections.
    Closes,
}

impl DaemonCore {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Sends each connected client a line.
    pub(crate) fn send_to_clients(&self, line: impl Fn(Peer) -> String) {
        for (_, session) in &self.sessions {
            session
                .out
                .push(line(session.peer).as_bytes(), Bytes::new());
        }
    }

    /// Sends INFO again to the clients that take it more than once.
    pub(crate) fn send_info(&self, line: impl Fn(Peer) -> String) {
        let takes_info = |session: &&NatsSession| session.options.protocol >= 1;
        let sessions = self.sessions.iter().map(|(_, session)| session);
        for session in sessions.filter(takes_info) {
            let line = line(session.peer);
            session.out.push(line.as_bytes(), Bytes::new());
        }
    }

    pub(crate) fn has_clients(&self) -> bool {
        !self.sessions.is_empty() || !self.spread.is_empty()
    }

    /// Ignores the operations of clients from now on.
    pub(crate) fn settle(&mut self) {
        self.phase = Phase::Settles;
    }

    /// Returns whether all accepted messages have been delivered: written to the clients of this
    /// daemon, and acknowledged by other daemons with members.
    pub(crate) fn is_settled(&self) -> bool {
        let is_idle = self.sessions.iter().all(|(_, session)| {
            !session.is_busy() && session.unread.is_empty() && session.out.bytes() == 0
        });
        let mut spread = self.spread.iter();
        let is_idle = is_idle && spread.all(|(_, s)| !s.is_sending && s.out.bytes() == 0);
        let mut links = self.neighbours.keys();
        let is_empty = |id| self.daemon.queue_messages(id).unwrap_or(0) == 0;
        is_idle && links.all(|id| is_empty(*id)) && self.daemon.unacknowledged_bytes() == 0
    }

    /// Closes all connections, after their last bytes.
    pub(crate) fn close(&mut self) {
        self.phase = Phase::Closes;
        // Connections that wait for messages to enter end now.
        for (_, session) in &self.sessions {
            session.ready.notify_one();
        }
        for (_, session) in &self.spread {
            session.ready.notify_one();
        }
        self.outgoing().for_each(|out| out.close());
    }

    /// Returns whether all bytes have been written.
    pub(crate) fn is_drained(&self) -> bool {
        self.outgoing().all(|out| out.bytes() == 0)
    }

    /// Returns whether no connection is open.
    pub(crate) fn is_closed(&self) -> bool {
        self.outgoing().next().is_none()
    }

    fn outgoing(&self) -> impl Iterator<Item = &Rc<Outgoing>> {
        let links = self.neighbours.values();
        let links = links.filter_map(|known| known.out.as_ref());
        let nats = self.sessions.iter().map(|(_, session)| &session.out);
        let spread = self.spread.iter().map(|(_, session)| &session.out);
        links.chain(nats).chain(spread)
    }
}
