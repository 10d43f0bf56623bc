//! One neighbour: the hop that leads to it, and the messages that wait for the hop.

use std::collections::VecDeque;

use crate::hop::{Arrival, Hop};
use crate::message::{Body, Control, DaemonId, Frame, LinkId, Message};
use crate::sequence::LinkSeq;
use manyflow_core::Ecn;
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The maximum number of control messages in a row while clients' messages wait. Without this
/// limit, a slow link would carry only cost updates.
const CONTROL_RUN: u32 = 3;

/// The daemon at the other end of a link, and two queues of messages for it. The number of queues
/// does not depend on senders or groups.
#[derive(Debug)]
pub(super) struct Neighbour<P> {
    id: DaemonId,
    link: LinkId,
    hop: Box<dyn Hop<P>>,
    /// Control messages, which precede data. This queue stays short, because a newer cost update
    /// replaces an older one.
    control: VecDeque<Message>,
    /// The number of control messages that were sent in a row while data waited.
    control_run: u32,
    data: VecDeque<(Message, P)>,
}

impl<P: Payload + Default> Neighbour<P> {
    pub(super) fn new(id: DaemonId, link: LinkId, hop: Box<dyn Hop<P>>) -> Neighbour<P> {
        Neighbour {
            id,
            link,
            hop,
            control: VecDeque::new(),
            control_run: 0,
            data: VecDeque::new(),
        }
    }

    pub(super) fn id(&self) -> DaemonId {
        self.id
    }

    /// Returns the direction of the link that leads to this neighbour.
    pub(super) fn link(&self) -> LinkId {
        self.link
    }

    /// Returns the number of bytes that a message takes on the link besides its own header and
    /// payload.
    pub(super) fn overhead_bytes(&self) -> u32 {
        self.hop.overhead_bytes()
    }

    /// Returns the number of messages that wait for the hop.
    pub(super) fn waiting(&self) -> usize {
        self.control.len() + self.data.len()
    }

    /// Returns the number of clients' messages that wait for the hop.
    pub(super) fn waiting_data(&self) -> usize {
        self.data.len()
    }

    pub(super) fn push_data(&mut self, message: Message, payload: P) {
        debug_assert!(message.is_data(), "{message:?} is not a client's message");
        self.data.push_back((message, payload));
    }

    /// Queues a control message. A cost update replaces a waiting update of the same links.
    pub(super) fn push_control(&mut self, message: Message) {
        debug_assert!(!message.is_data(), "{message:?} is a client's message");
        let outdated = self
            .control
            .iter_mut()
            .find(|old| old.origin == message.origin && replaces(&message.body, &old.body));
        match outdated {
            Some(old) => *old = message,
            None => self.control.push_back(message),
        }
    }

    /// Returns the next message for the hop: control first, but at most [`CONTROL_RUN`] control
    /// messages in a row while data waits.
    fn pop(&mut self) -> Option<(Message, P)> {
        if self.data.is_empty() {
            self.control_run = 0;
        }
        if self.control_run < CONTROL_RUN
            && let Some(message) = self.control.pop_front()
        {
            self.control_run += 1;
            return Some((message, P::default()));
        }
        self.control_run = 0;
        self.data.pop_front()
    }

    /// Hands messages to the hop while it has room. Returns whether there were any.
    pub(super) fn fill_hop(&mut self, now: Time) -> bool {
        let mut has_filled = false;
        while self.hop.has_room() {
            let Some((message, payload)) = self.pop() else {
                break;
            };
            self.hop.push(now, message, payload);
            has_filled = true;
        }
        has_filled
    }

    pub(super) fn handle_frame(&mut self, now: Time, frame: &Frame, ecn: Ecn, payload: P) {
        self.hop.handle_frame(now, frame, ecn, payload);
    }

    pub(super) fn handle_writable(&mut self, now: Time) {
        self.hop.handle_writable(now);
    }

    pub(super) fn hop(&self) -> &dyn Hop<P> {
        &*self.hop
    }

    pub(super) fn handle_connected(&mut self, now: Time, received: LinkSeq) {
        self.hop.handle_connected(now, received);
    }

    pub(super) fn handle_disconnected(&mut self) {
        self.hop.handle_disconnected();
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.hop.handle_timeout(now);
    }

    pub(super) fn poll_arrival(&mut self, now: Time) -> Option<Arrival<P>> {
        self.hop.poll_arrival(now)
    }

    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)> {
        self.hop.poll_transmit(now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.hop.poll_timeout()
    }
}

/// Returns whether a message makes an older one of the same origin obsolete: both are cost updates
/// of the same links.
fn replaces(new: &Body, old: &Body) -> bool {
    let links = |body: &Body| match body {
        Body::Control(Control::Cost(update)) => {
            Some(update.links.map(|state| state.map(|state| state.link)))
        }
        _ => None,
    };
    links(new).is_some() && links(new) == links(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::world::{G, Pipe};
    use crate::message::{ClientId, Data, Pause};
    use crate::sequence::{ChangeSeq, OriginSeq};
    use manyflow_core::Length;

    fn message(body: Body) -> Message {
        Message {
            origin: DaemonId(0),
            repaired: false,
            body,
        }
    }

    #[test]
    fn at_most_three_control_messages_precede_a_waiting_client_message() {
        let (closed, _) = Pipe::new(0);
        let mut neighbour = Neighbour::new(DaemonId(1), LinkId(0), Box::new(closed));
        for change in 1..=8 {
            neighbour.push_control(message(Body::Pause(Pause {
                group: G,
                paused: true,
                change: ChangeSeq(change),
            })));
        }
        for number in 1..=2 {
            let data = Data {
                group: G,
                sequence: OriginSeq(number),
                sender: ClientId(0),
                sent_us: 0,
            };
            neighbour.push_data(message(Body::Data(data)), Length(1));
        }
        let order = core::iter::from_fn(|| neighbour.pop());
        let is_data = order.map(|(message, _)| message.is_data());
        let places: Vec<_> = is_data.enumerate().filter(|(_, data)| *data).collect();
        assert_eq!(places, [(3, true), (7, true)]);
    }
}
