//! The frames and events that a daemon hands to its world.

use std::collections::VecDeque;

use crate::Event;
use crate::config::Verdict;
use crate::message::{ClientFrame, ClientId, DaemonId, Frame, GroupId, Message};

/// A frame that a daemon sends, with its destination and payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Transmit<P> {
    /// A frame for another daemon, and its payload.
    Daemon(DaemonId, Frame, P),
    /// A frame for a client, and its payload.
    Client(ClientId, ClientFrame, P),
}

/// Frames and events that the world has not taken yet.
#[derive(Debug)]
pub(super) struct Outbox<P> {
    transmits: VecDeque<Transmit<P>>,
    events: VecDeque<Event>,
}

impl<P> Default for Outbox<P> {
    fn default() -> Outbox<P> {
        Outbox {
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }
}

impl<P> Outbox<P> {
    pub(super) fn push_frame(&mut self, to: DaemonId, frame: Frame, payload: P) {
        let transmit = Transmit::Daemon(to, frame, payload);
        self.transmits.push_back(transmit);
    }

    pub(super) fn push_client_frame(&mut self, to: ClientId, frame: ClientFrame, payload: P) {
        debug_assert!(
            !matches!(frame, ClientFrame::Send { .. } | ClientFrame::Took { .. }),
            "{frame:?} goes to daemons only"
        );
        let transmit = Transmit::Client(to, frame, payload);
        self.transmits.push_back(transmit);
    }

    pub(super) fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Reports an action on a slow member.
    pub(super) fn report_slow(&mut self, client: ClientId, group: GroupId, verdict: Verdict) {
        self.push_event(Event::SlowMember {
            client,
            group,
            verdict,
        });
    }

    pub(super) fn pop_transmit(&mut self) -> Option<Transmit<P>> {
        self.transmits.pop_front()
    }

    pub(super) fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl<P: Default> Outbox<P> {
    /// Sends a message directly to another daemon, not over overlay links.
    pub(super) fn push_direct(&mut self, to: DaemonId, message: Message) {
        self.push_frame(to, Frame::Direct(message), P::default());
    }

    /// Sends a frame without payload to a client.
    pub(super) fn notify_client(&mut self, to: ClientId, frame: ClientFrame) {
        self.push_client_frame(to, frame, P::default());
    }
}
