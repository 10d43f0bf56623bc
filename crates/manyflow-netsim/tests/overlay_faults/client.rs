//! Clients that note what they send and read.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use manyflow_core::{Action, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_overlay::{self as overlay, ClientFrame, DaemonId, Data, Frame, GroupId};

use crate::plan::{Ends, Member, Sender};

/// What a client has done, for the judge.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// When its daemon took each message, a sender's.
    pub(crate) taken: Vec<Time>,
    /// What it read, a member's: from where, and its header.
    pub(crate) read: Vec<(DaemonId, Data)>,
    /// It will do no more: it has sent all, or has left or crashed.
    pub(crate) over: bool,
    /// Groups that it was too slow for.
    pub(crate) evicted: Vec<GroupId>,
    /// A payload had another length than its header tells.
    pub(crate) garbled: bool,
}

/// A message is known by its sender's number times this, and its own number.
pub(crate) const SENDER: u32 = 1 << 16;

/// The length of a message: it tells one from another.
fn length_of(message: u32) -> u32 {
    1 + message.wrapping_mul(7919) % 1400
}

/// A client that sends, or one that reads.
pub(crate) struct Client {
    daemon: EndpointId,
    task: Task,
    log: Arc<RwLock<Log>>,
    out: VecDeque<(ClientFrame, u32)>,
    connected: bool,
    /// Messages that it has not read yet, and when it has done with the present one.
    unread: VecDeque<(DaemonId, Data)>,
    busy_until: Option<Time>,
    /// When the next message is ready to be sent, where one is.
    sends_at: Option<Time>,
}

pub(crate) enum Task {
    /// With its number.
    Sends(u32, Sender),
    Reads(Member),
}

impl Client {
    pub(crate) fn new(daemon: EndpointId, task: Task, log: Arc<RwLock<Log>>) -> Client {
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
            Task::Sends(_, sender) => sender.start,
            Task::Reads(member) => member.start,
        }
    }

    fn end(&self) -> Option<Time> {
        match &self.task {
            Task::Sends(_, sender) => sender.crash,
            Task::Reads(member) => match member.ends {
                Some(Ends::Leaves(time) | Ends::Crashes(time)) => Some(time),
                None => None,
            },
        }
    }

    fn service(&self) -> Duration {
        match &self.task {
            Task::Sends(..) => Duration::ZERO,
            Task::Reads(member) => member.service,
        }
    }

    fn sleeps(&self) -> Option<(Time, Time)> {
        match &self.task {
            Task::Sends(..) => None,
            Task::Reads(member) => member.sleeps,
        }
    }

    fn is_asleep(&self, now: Time) -> bool {
        self.sleeps()
            .is_some_and(|(from, to)| (from..to).contains(&now))
    }

    fn work(&mut self, now: Time) {
        if self.log.read().unwrap().over {
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
            Task::Sends(..) => self.sends_at = Some(now),
            Task::Reads(member) => {
                let joins = member.groups.iter().map(|group| ClientFrame::Join(*group));
                self.out.extend(joins.map(|join| (join, 0)));
            }
        }
    }

    /// A sender's groups take turns. What a message is known by stands for its time.
    fn send_next(&mut self) {
        let Task::Sends(sender_number, sender) = &self.task else {
            return;
        };
        let number = self.log.read().unwrap().taken.len();
        let group = sender.groups[number % sender.groups.len()];
        let sent_us = sender_number * SENDER + number as u32;
        let send = ClientFrame::Send { group, sent_us };
        self.out.push_back((send, length_of(sent_us)));
    }

    fn on_taken(&mut self, now: Time) {
        let mut log = self.log.write().unwrap();
        log.taken.push(now);
        if let Task::Sends(_, sender) = &self.task {
            log.over = log.taken.len() as u32 == sender.messages;
            self.sends_at = Some(now + sender.pause);
        }
    }

    fn finish(&mut self) {
        self.log.write().unwrap().over = true;
        if let Task::Reads(Member {
            ends: Some(Ends::Leaves(_)),
            groups,
            ..
        }) = &self.task
        {
            let leaves = groups.iter().map(|group| ClientFrame::Leave(*group));
            self.out.extend(leaves.map(|leave| (leave, 0)));
        }
        self.out.push_back((ClientFrame::Disconnect, 0));
    }

    fn read(&mut self, now: Time) {
        if self.is_asleep(now) {
            return;
        }
        if self.busy_until.is_some_and(|until| now >= until) {
            self.busy_until = None;
            self.out.push_back((ClientFrame::Took { messages: 1 }, 0));
        }
        if self.busy_until.is_none()
            && let Some(message) = self.unread.pop_front()
        {
            self.log.write().unwrap().read.push(message);
            self.busy_until = Some(now + self.service().max(Duration::from_micros(1)));
        }
    }
}

impl Endpoint for Client {
    type Rx = Frame;
    type Tx = Frame;
    type Event = overlay::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let Frame::Client(frame) = packet.header else {
            panic!("a client's daemon says nothing else: {packet:?}");
        };
        match frame {
            ClientFrame::Ready => {
                self.on_taken(now);
            }
            ClientFrame::Deliver { origin, data } => {
                self.log.write().unwrap().garbled |=
                    packet.payload_bytes() != length_of(data.sent_us);
                self.unread.push_back((origin, data));
            }
            ClientFrame::Evicted(group) => self.log.write().unwrap().evicted.push(group),
            _ => {}
        }
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.work(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        let (frame, payload_bytes) = self.out.pop_front()?;
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.daemon),
            Frame::Client(frame),
            payload_bytes,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.log.read().unwrap().over {
            return None;
        }
        let start = (!self.connected).then(|| self.start());
        let end = self.end().filter(|_| self.connected);
        // Who is not done before it falls asleep, or has something to read that it does not, is asleep.
        let done = match (self.busy_until, self.sleeps()) {
            (Some(until), Some((from, to))) if (from..to).contains(&until) => Some(to),
            (None, Some((_, to))) if !self.unread.is_empty() => Some(to),
            (until, _) => until,
        };
        [start, end, done, self.sends_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_event(&mut self) -> Option<overlay::Event> {
        None
    }
}
