//! Spread clients in ordered groups.

use std::net::IpAddr;
use std::rc::Rc;

use manyflow_order::{Event, RequestError};

use super::order::UserOwner;
use super::{DaemonCore, SpreadKey};
use crate::client_stream::PeerAddress;
use crate::outgoing::Outgoing;
use crate::spread::session::{SpreadSession, with_ordered};
use crate::spread::wire::{Message, Purpose};

/// The share of a client under the controller, in percent.
const PRIORITY: u16 = 100;

impl DaemonCore {
    /// Connects a client under the name of its private group. Its bytes go to `out`.
    ///
    /// # Errors
    /// Returns an error if another client has the name.
    pub(crate) fn connect_spread(
        &mut self,
        out: Rc<Outgoing>,
        name: String,
        peer: PeerAddress,
        wants_views: bool,
    ) -> Result<SpreadKey, RequestError> {
        let key = self.spread.vacant_key();
        let user = self.connect_user(UserOwner::Spread(key), &name, PRIORITY)?;
        let session = SpreadSession::new(out, user, name, peer, wants_views);
        let inserted = self.spread.insert(session);
        debug_assert_eq!(inserted, key, "nothing was connected in between");
        self.counters.connections += 1;
        Ok(key)
    }

    /// Disconnects a client. Messages of the client that have not entered vanish.
    pub(crate) fn disconnect_spread(&mut self, key: SpreadKey) {
        let session = self.spread.remove(key);
        self.disconnect_user(session.user);
    }

    pub(crate) fn spread_session(&mut self, key: SpreadKey) -> &mut SpreadSession {
        &mut self.spread[key]
    }

    /// Handles a message of a client. One that cannot be handled is rejected.
    pub(crate) fn handle_spread(
        &mut self,
        key: SpreadKey,
        message: &Message,
        payload_bytes_max: usize,
    ) {
        let is_done = match message.header.purpose {
            Purpose::Send { .. } => self.send_spread(key, message, payload_bytes_max),
            Purpose::Join | Purpose::Leave => self.change_member(key, message),
            Purpose::Kill => return,
        };
        if !is_done {
            let session = &self.spread[key];
            let (peer, name) = (session.peer, &session.name);
            tracing::debug!(%peer, name, ?message, "rejected a message of a Spread client");
            session.reject(message);
        }
    }

    /// Sends a message of a client to its groups. Returns whether that can be done.
    fn send_spread(&mut self, key: SpreadKey, message: &Message, payload_bytes_max: usize) -> bool {
        if message.header.groups == 0 {
            return true;
        }
        if message.header.payload_bytes > payload_bytes_max {
            return false;
        }
        let session = &mut self.spread[key];
        let user = session.user;
        session.is_sending = true;
        let sent = with_ordered(message, |ordered| self.send_ordered(user, ordered));
        let is_done = matches!(sent, Some(Ok(())));
        if !is_done {
            self.spread[key].is_sending = false;
        }
        is_done
    }

    /// Lets a client join or leave a group. Returns whether that can be done.
    fn change_member(&mut self, key: SpreadKey, message: &Message) -> bool {
        let user = self.spread[key].user;
        let group = match message.groups().next() {
            Some(Some(group)) if !group.starts_with('#') => group,
            _ => return false,
        };
        let changed = match message.header.purpose {
            Purpose::Join => self.join_ordered(user, group),
            _ => self.leave_ordered(user, group),
        };
        changed.is_ok()
    }

    /// Continues with the messages of a client, the last of which has entered.
    pub(super) fn continue_spread(&mut self, key: SpreadKey) {
        if let Some(session) = self.spread.get_mut(key) {
            session.is_sending = false;
            session.ready.notify_one();
        }
    }

    pub(super) fn show_to_spread(&mut self, key: SpreadKey, event: &Event) {
        if let Some(session) = self.spread.get_mut(key) {
            self.counters.delivered += u64::from(matches!(event, Event::Delivered(_)));
            session.show(event);
        }
    }

    /// Disconnects a client that reads too slowly, as Spread does.
    pub(super) fn evict_spread(&mut self, key: SpreadKey) {
        let Some(session) = self.spread.get(key) else {
            return;
        };
        let (peer, name, user) = (session.peer, &session.name, session.user);
        tracing::warn!(%peer, name, "a Spread client reads too slowly: it was disconnected");
        session.out.abort();
        self.continue_spread(key);
        self.disconnect_user(user);
    }

    /// Handles a Spread client that was refused, or has violated the protocol.
    pub(crate) fn refuse_spread(&mut self, from: IpAddr, reason: &dyn core::fmt::Display) {
        let now = self.clock.now();
        if let Some((count, reason)) = self.refused_spread.count(now, from, reason, true) {
            log_refused_spread(from, count, &reason);
        }
    }
}

pub(super) fn log_refused_spread(from: IpAddr, count: u64, reason: &str) {
    tracing::warn!(peer = %from, reason, count, "disconnected Spread clients");
}
