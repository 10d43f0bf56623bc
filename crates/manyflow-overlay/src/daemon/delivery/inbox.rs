//! The messages for one client that the client has not read.

use std::collections::VecDeque;

use crate::CLIENT_WINDOW;
use crate::daemon::outbox::Outbox;
use crate::message::{ClientFrame, ClientId, DaemonId, Data};

/// One client's messages: the number of those that it was handed, and those that wait here.
#[derive(Debug)]
pub(super) struct Inbox<P> {
    waiting: VecDeque<((DaemonId, Data, bool), P)>,
    /// The number of messages that the client was handed and has not read.
    unread: u32,
}

impl<P> Default for Inbox<P> {
    fn default() -> Inbox<P> {
        Inbox {
            waiting: VecDeque::new(),
            unread: 0,
        }
    }
}

impl<P> Inbox<P> {
    /// Returns the number of messages for which the client's window has no room.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, message: (DaemonId, Data, bool), payload: P) {
        self.waiting.push_back((message, payload));
    }

    /// Handles a client's report that it has read messages. A report of more
    /// messages than are unread counts as one of all of them.
    pub(super) fn handle_took(&mut self, messages: u32) {
        self.unread = self.unread.saturating_sub(messages);
    }

    /// Hands the client the messages for which its window has room.
    pub(super) fn hand_over(&mut self, client: ClientId, outbox: &mut Outbox<P>) {
        while self.unread < CLIENT_WINDOW
            && let Some(((origin, data, layered), payload)) = self.waiting.pop_front()
        {
            self.unread += 1;
            let frame = ClientFrame::Deliver {
                origin,
                data,
                layered,
            };
            outbox.push_client_frame(client, frame, payload);
        }
        debug_assert!(
            self.waiting.is_empty() || self.unread == CLIENT_WINDOW,
            "messages wait although {client:?} has room"
        );
    }
}
