//! One neighbour: the hop that leads to it, and the messages that wait for the hop.

use core::time::Duration;
use std::collections::VecDeque;

use super::Share;
use crate::hop::{Arrival, Hop};
use crate::message::{Body, Control, CostUpdate, DaemonId, Frame, LinkId, Message};
use crate::sequence::LinkSeq;
use manyflow_core::Ecn;
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The maximum number of control messages in a row while clients' messages wait. Without this
/// limit, a slow link would carry only cost updates.
const CONTROL_RUN: u32 = 3;
/// The maximum number of control messages that wait, besides the state of a daemon.
const CONTROL_MAX: usize = 1 << 16;

/// The daemon at the other end of a link, and two queues of messages for it. The number of queues
/// does not depend on senders or groups.
#[derive(Debug)]
pub(super) struct Neighbour<P> {
    link: LinkId,
    hop: Box<dyn Hop<P>>,
    /// Control messages, which precede data. This queue stays short, because a newer cost update
    /// replaces an older one.
    control: VecDeque<(Message, P)>,
    /// The number of control messages that were sent in a row while data waited.
    control_run: u32,
    data: VecDeque<(Message, P)>,
    /// Daemons whose states this neighbour has asked for.
    requests: VecDeque<DaemonId>,
    /// The number of messages of the last state that was queued for this neighbour.
    state_messages: usize,
    /// The last share whose payload was queued for this neighbour.
    given: Option<Share>,
    /// The last share that began at this neighbour, and its payload.
    taken: Option<(Share, P)>,
}

impl<P: Payload + Default> Neighbour<P> {
    pub(super) fn new(link: LinkId, hop: Box<dyn Hop<P>>) -> Neighbour<P> {
        Neighbour {
            link,
            hop,
            control: VecDeque::new(),
            control_run: 0,
            data: VecDeque::new(),
            requests: VecDeque::new(),
            state_messages: 0,
            given: None,
            taken: None,
        }
    }

    pub(super) fn id(&self) -> DaemonId {
        self.link.to
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

    /// Queues a client's message, or one that waits with them. The payload of a share is queued
    /// with its first message only.
    pub(super) fn push_data(&mut self, message: Message, payload: &P, share: Option<Share>) {
        debug_assert!(
            message.waits_with_data(),
            "{message:?} is a control message"
        );
        let share = share.filter(|_| self.hop.keeps_order());
        let (body, payload) = match (share, message.data()) {
            (Some(_), Some(data)) if self.given == share => (Body::Again(data), P::default()),
            (Some(_), Some(data)) => {
                self.given = share;
                (Body::Shared(data), payload.clone())
            }
            _ => (message.body, payload.clone()),
        };
        self.data.push_back((Message { body, ..message }, payload));
    }

    /// Queues a control message. A cost update replaces a waiting update of the same links.
    pub(super) fn push_control(&mut self, message: Message, payload: P) {
        debug_assert!(
            !message.waits_with_data(),
            "{message:?} is no control message"
        );
        if let Body::Control(Control::Cost(update)) = &{ message.body } {
            let mut waiting = self.control.iter_mut();
            let outdated = waiting.find(
                |(old, _)| { old.origin } == { message.origin } && replaces(update, &{ old.body }),
            );
            if let Some((old, _)) = outdated {
                *old = message;
                return;
            }
        }
        self.control.push_back((message, payload));
    }

    /// Returns whether more control messages wait than a working link leaves waiting.
    pub(super) fn has_overflowed(&self) -> bool {
        self.control.len() > CONTROL_MAX + self.state_messages
    }

    /// Notes that the neighbour wants the state of a daemon.
    pub(super) fn request(&mut self, origin: DaemonId) {
        if !self.requests.contains(&origin) {
            self.requests.push_back(origin);
        }
    }

    /// Returns the next daemon whose state the neighbour wants, when the last state has left the
    /// queue. States are long: a neighbour that reads slowly must not fill the memory with them.
    pub(super) fn pop_request(&mut self) -> Option<DaemonId> {
        match self.control.is_empty() {
            true => self.requests.pop_front(),
            false => None,
        }
    }

    /// Queues the messages of a daemon's state.
    pub(super) fn push_state(&mut self, messages: impl Iterator<Item = (Message, P)>) {
        self.control.extend(messages);
        self.state_messages = self.control.len();
    }

    /// Returns the next message for the hop: control first, but at most [`CONTROL_RUN`] control
    /// messages in a row while data waits.
    fn pop(&mut self) -> Option<(Message, P)> {
        if self.data.is_empty() {
            self.control_run = 0;
        }
        if self.control_run < CONTROL_RUN
            && let Some(control) = self.control.pop_front()
        {
            self.control_run += 1;
            return Some(control);
        }
        self.control_run = 0;
        self.data.pop_front()
    }

    /// Hands messages to the hop while it has room, with what `cut` returns of their payloads.
    /// Returns whether there were any. A message is cut when it leaves the queue, at the price of
    /// that moment: a queue that has become long drains the sooner.
    pub(super) fn fill_hop(
        &mut self,
        now: Time,
        mut cut: impl FnMut(LinkId, &Message, P) -> P,
    ) -> bool {
        let mut has_filled = false;
        while self.hop.has_room() {
            let Some((message, payload)) = self.pop() else {
                break;
            };
            let payload = cut(self.link, &message, payload);
            self.hop.push(now, message, payload);
            has_filled = true;
        }
        has_filled
    }

    pub(super) fn handle_frame(&mut self, now: Time, frame: &Frame, ecn: Ecn, payload: P) {
        self.hop.handle_frame(now, frame, ecn, payload);
    }

    pub(super) fn keep_alive(&mut self, now: Time) {
        self.hop.keep_alive(now);
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

    /// Returns the next message that has arrived, whole, and its share. A share that begins is
    /// `next`. Drops messages whose payload came before this link began: their origin sends them
    /// again.
    pub(super) fn poll_arrival(
        &mut self,
        now: Time,
        next: Share,
    ) -> Option<(Arrival<P>, Option<Share>)> {
        loop {
            let Arrival { message, payload } = self.hop.poll_arrival(now)?;
            let (data, (share, payload)) = match message.body {
                Body::Shared(data) => (data, self.taken.insert((next, payload)).clone()),
                Body::Again(data) => match &self.taken {
                    Some(taken) => (data, taken.clone()),
                    None => continue,
                },
                _ => return Some((Arrival { message, payload }, None)),
            };
            let body = Body::Data(data);
            let message = Message { body, ..message };
            return Some((Arrival { message, payload }, Some(share)));
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<(Frame, P)> {
        self.hop.poll_transmit(now)
    }

    /// Returns a new measurement of the delay below the hop.
    pub(super) fn poll_delay(&mut self) -> Option<Duration> {
        self.hop.poll_delay()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.hop.poll_timeout()
    }
}

/// Returns whether a cost update makes an older message of the same origin obsolete: an update of
/// the same links.
fn replaces(new: &CostUpdate, old: &Body) -> bool {
    let links = |update: &CostUpdate| update.links.map(|state| state.map(|state| state.to));
    match old {
        Body::Control(Control::Cost(old)) => links(old) == links(new),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::world::{G, Pipe};
    use crate::message::{ClientId, Data};
    use crate::sequence::OriginSeq;
    use manyflow_core::Length;

    fn message(body: Body) -> Message {
        Message {
            origin: DaemonId(0),
            copy: Default::default(),
            body,
        }
    }

    #[test]
    fn at_most_three_control_messages_precede_a_waiting_client_message() {
        let (closed, _) = Pipe::new(0);
        let link = LinkId {
            from: DaemonId(0),
            to: DaemonId(1),
        };
        let mut neighbour = Neighbour::new(link, Box::new(closed));
        for _ in 1..=8 {
            neighbour.push_control(message(Body::Request), Length(0));
        }
        for number in 1..=2 {
            let data = Data {
                group: G,
                version: 0,
                sequence: OriginSeq::new(number),
                sender: ClientId(0),
                sent_us: 0,
            };
            neighbour.push_data(message(Body::Data(data)), &Length(1), None);
        }
        let order = core::iter::from_fn(|| neighbour.pop());
        let is_data = order.map(|(message, _)| message.is_data());
        let places: Vec<_> = is_data.enumerate().filter(|(_, data)| *data).collect();
        assert_eq!(places, [(3, true), (7, true)]);
    }
}
