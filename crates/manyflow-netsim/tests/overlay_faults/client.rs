//! Clients that note what they send and read.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use manyflow_core::overlay::{ClientFrame, DaemonId, Data, Frame};
use manyflow_core::{Action, Destination, Ecn, Endpoint, EndpointId, Event, Header, Packet, Time};

use crate::plan::{Ends, Member, Sender};

/// What a client has done, for the judge.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// When its daemon took each message, a sender's.
    pub(crate) taken: Vec<Time>,
    /// What it read, a member's: from where, and its header.
    pub(crate) read: Vec<(DaemonId, Data)>,
    /// It will do no more: it has sent all, or has left, crashed, or been evicted.
    pub(crate) over: bool,
    pub(crate) evicted: bool,
    /// A payload had another length than its header tells.
    pub(crate) garbled: bool,
}

/// The length of a message: it tells one from another.
pub(crate) fn length_of(data: &Data) -> u32 {
    1 + data.sent_us.wrapping_mul(7919) % 1400
}

/// A client that sends, or one that reads.
pub(crate) struct Client {
    daemon: EndpointId,
    task: Task,
    log: Rc<RefCell<Log>>,
    out: VecDeque<(ClientFrame, u32)>,
    connected: bool,
    /// Messages that it has not read yet, and when it has done with the present one.
    unread: VecDeque<(DaemonId, Data)>,
    busy_until: Option<Time>,
    /// When the next message is ready to be sent, where one is.
    sends_at: Option<Time>,
}

pub(crate) enum Task {
    Sends(Sender),
    Reads(Member),
}

impl Client {
    pub(crate) fn new(daemon: EndpointId, task: Task, log: Rc<RefCell<Log>>) -> Client {
        Client {
            daemon,
            task,
            log,
            out: VecDeque::new(),
            connected: false,
            unread: VecDeque::new(),
            busy_until: None,
            sends_at: None,
        }
    }

    fn start(&self) -> Time {
        match &self.task {
            Task::Sends(sender) => sender.start,
            Task::Reads(member) => member.start,
        }
    }

    fn end(&self) -> Option<Time> {
        match &self.task {
            Task::Sends(sender) => sender.crash,
            Task::Reads(member) => match member.ends {
                Some(Ends::Leaves(time) | Ends::Crashes(time)) => Some(time),
                None => None,
            },
        }
    }

    fn service(&self) -> Duration {
        match &self.task {
            Task::Sends(_) => Duration::ZERO,
            Task::Reads(member) => member.service,
        }
    }

    fn work(&mut self, now: Time) {
        if self.log.borrow().over {
            return;
        }
        if !self.connected && now >= self.start() {
            self.connect(now);
        }
        if self.connected && self.end().is_some_and(|end| now >= end) {
            self.finish();
            return;
        }
        if self.sends_at.take_if(|time| now >= *time).is_some() {
            self.send_next();
        }
        self.read(now);
    }

    fn connect(&mut self, now: Time) {
        self.connected = true;
        self.out
            .push_back((ClientFrame::Connect { priority: 100 }, 0));
        match &self.task {
            Task::Sends(_) => self.sends_at = Some(now),
            Task::Reads(member) => self.out.push_back((ClientFrame::Join(member.group), 0)),
        }
    }

    /// Where the senders' messages go takes turns. A message is known by its number among its sender's, which stands for its time.
    fn send_next(&mut self) {
        let Task::Sends(sender) = &self.task else {
            return;
        };
        let number = self.log.borrow().taken.len() as u32;
        let group = sender.groups[number as usize % sender.groups.len()];
        let send = ClientFrame::Send {
            group,
            sent_us: number,
        };
        let length = 1 + number.wrapping_mul(7919) % 1400;
        self.out.push_back((send, length));
    }

    fn on_taken(&mut self, now: Time) {
        let mut log = self.log.borrow_mut();
        log.taken.push(now);
        if let Task::Sends(sender) = &self.task {
            log.over = log.taken.len() as u32 == sender.messages;
            self.sends_at = Some(now + sender.pause);
        }
    }

    fn finish(&mut self) {
        self.log.borrow_mut().over = true;
        if let Task::Reads(Member {
            ends: Some(Ends::Leaves(_)),
            group,
            ..
        }) = self.task
        {
            self.out.push_back((ClientFrame::Leave(group), 0));
        }
        self.out.push_back((ClientFrame::Disconnect, 0));
    }

    fn read(&mut self, now: Time) {
        if self.busy_until.is_some_and(|until| now >= until) {
            self.busy_until = None;
            self.out.push_back((ClientFrame::Took { messages: 1 }, 0));
        }
        if self.busy_until.is_none()
            && let Some(message) = self.unread.pop_front()
        {
            self.log.borrow_mut().read.push(message);
            self.busy_until = Some(now + self.service());
        }
    }
}

impl Endpoint for Client {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Header::Overlay(Frame::Client(frame)) = packet.header else {
            panic!("a client's daemon says nothing else: {packet:?}");
        };
        match frame {
            ClientFrame::Ready => {
                self.on_taken(now);
            }
            ClientFrame::Deliver { origin, data } => {
                self.log.borrow_mut().garbled |= packet.payload_bytes != length_of(&data);
                self.unread.push_back((origin, data));
            }
            ClientFrame::Evicted(_) => {
                let mut log = self.log.borrow_mut();
                (log.over, log.evicted) = (true, true);
            }
            _ => {}
        }
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.work(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        let (frame, payload_bytes) = self.out.pop_front()?;
        Some(Action::Send(Packet {
            source: EndpointId::UNSET,
            destination: Destination::Endpoint(self.daemon),
            ecn: Ecn::NotCapable,
            header: Header::Overlay(Frame::Client(frame)),
            payload_bytes,
        }))
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.log.borrow().over {
            return None;
        }
        let start = (!self.connected).then(|| self.start());
        let end = self.end().filter(|_| self.connected);
        [start, end, self.busy_until, self.sends_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
