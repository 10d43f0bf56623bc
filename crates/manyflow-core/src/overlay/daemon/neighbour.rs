//! One link's queues and its hop.

use std::collections::VecDeque;

use super::{Daemon, Transmit};
use crate::endpoint::Event;
use crate::overlay::hop::Hop;
use crate::overlay::message::{Body, Control, DaemonId, LinkId, Message};
use crate::payload::Payload;
use crate::time::Time;

/// Control messages that go in a row while clients' messages wait. Without a limit, a link that carries fewer messages than there are
/// cost updates would carry nothing else.
const CONTROL_RUN: u32 = 3;

/// The daemon at the other end of a link, and what waits for it: two queues, however many senders and groups there are.
#[derive(Debug)]
pub(super) struct Neighbour<P> {
    pub(super) id: DaemonId,
    pub(super) link: LinkId,
    pub(super) hop: Box<dyn Hop<P>>,
    /// Goes first; it is small, because what is outdated is replaced.
    control: VecDeque<Message>,
    /// How many of them went in a row while data waited.
    control_run: u32,
    pub(super) data: VecDeque<(Message, P)>,
    /// Something is to be done for it.
    pub(super) dirty: bool,
    /// When its hop is to be called, as it stands among the daemon's timers.
    pub(super) armed: Option<Time>,
    /// The last message that was forwarded to it, by the daemon's count.
    pub(super) stamp: u64,
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
            dirty: false,
            armed: None,
            stamp: 0,
        }
    }

    /// Messages that wait for the link.
    pub(super) fn waiting(&self) -> usize {
        self.control.len() + self.data.len()
    }

    /// The next message for the link.
    pub(super) fn pop(&mut self) -> Option<(Message, P)> {
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

    /// A cost update replaces one of the same links that still waits.
    pub(super) fn push_control(&mut self, message: Message) {
        let outdated = self
            .control
            .iter_mut()
            .find(|old| old.origin == message.origin && replaces(&message.body, &old.body));
        match outdated {
            Some(old) => *old = message,
            None => self.control.push_back(message),
        }
    }
}

fn replaces(new: &Body, old: &Body) -> bool {
    let links = |body: &Body| match body {
        Body::Control(Control::Cost(update)) => {
            Some(update.links.map(|state| state.map(|state| state.link)))
        }
        _ => None,
    };
    links(new).is_some() && links(new) == links(old)
}

impl<P: Payload + Default> Daemon<P> {
    /// A message for a neighbour's queue.
    pub(super) fn enqueue(&mut self, now: Time, index: u16, message: Message, payload: P) {
        let neighbour = &mut self.neighbours[usize::from(index)];
        if message.is_data() {
            neighbour.data.push_back((message, payload));
            let messages = neighbour.data.len();
            let link = neighbour.link;
            self.full += usize::from(messages == self.config.queue_messages);
            self.half_full += usize::from(messages == self.half());
            self.controller.on_queue(now, link, messages);
            let messages = messages as u32;
            self.events.push_back(Event::Queue { link, messages });
        } else {
            neighbour.push_control(message);
        }
        self.touch(index);
    }

    /// Messages that make a queue half full.
    fn half(&self) -> usize {
        self.config.queue_messages.div_ceil(2)
    }

    /// Fills the link, hands on what came over it, and notes when it wants to be called.
    pub(super) fn serve(&mut self, now: Time, index: u16) {
        self.neighbours[usize::from(index)].dirty = false;
        self.read(now, index);
        // What a hop sends makes room for more.
        while self.fill(now, index) | self.drain_frames(now, index) {}
        self.rearm(index);
    }

    /// Puts a hop's frames among the outputs; returns whether there were any.
    fn drain_frames(&mut self, now: Time, index: u16) -> bool {
        let neighbour = &mut self.neighbours[usize::from(index)];
        let before = self.outputs.len();
        while let Some((frame, payload)) = neighbour.hop.poll_transmit(now) {
            self.outputs
                .push_back(Transmit::Daemon(neighbour.id, frame, payload));
        }
        self.outputs.len() > before
    }

    /// Hands messages to the link while it has room, control first; returns whether there were any.
    fn fill(&mut self, now: Time, index: u16) -> bool {
        let mut has_filled = false;
        let before = self.neighbours[usize::from(index)].data.len();
        let neighbour = &mut self.neighbours[usize::from(index)];
        while neighbour.hop.has_room() {
            let Some((message, payload)) = neighbour.pop() else {
                break;
            };
            neighbour.hop.push(now, message, payload);
            has_filled = true;
        }
        let (after, link) = (neighbour.data.len(), neighbour.link);
        if after < before {
            self.controller.on_queue(now, link, after);
            self.on_drained(now, before, after);
        }
        has_filled
    }

    /// Where a queue is no longer full, links are read again; where none is half full, clients may send again.
    pub(super) fn on_drained(&mut self, now: Time, before: usize, after: usize) {
        let crossed = |limit: usize| before >= limit && after < limit;
        if crossed(self.config.queue_messages) {
            self.full -= 1;
            for index in 0..self.neighbours.len() {
                self.touch(index as u16);
            }
        }
        if crossed(self.half()) {
            self.half_full -= 1;
            if self.half_full == 0 {
                self.try_all(now, |_| true);
            }
        }
    }

    /// Takes what has come over a link, unless another link's queue is full.
    fn read(&mut self, now: Time, index: u16) {
        loop {
            let neighbour = &mut self.neighbours[usize::from(index)];
            let own = usize::from(neighbour.data.len() >= self.config.queue_messages);
            if self.full > own {
                return;
            }
            let Some(arrival) = neighbour.hop.poll_arrival(now) else {
                return;
            };
            self.take(now, arrival.message, arrival.payload);
        }
    }

    fn rearm(&mut self, index: u16) {
        let neighbour = &mut self.neighbours[usize::from(index)];
        let wanted = neighbour.hop.poll_timeout();
        if neighbour.armed == wanted {
            return;
        }
        if let Some(time) = neighbour.armed {
            self.timers.remove(&(time, index));
        }
        neighbour.armed = wanted;
        if let Some(time) = wanted {
            self.timers.insert((time, index));
        }
    }
}
