//! Clients that log the messages that they send and read.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard};

use manyflow_core::{Action, Destination, Endpoint, EndpointId, Length, Packet, Time};
use manyflow_overlay::{Client, ClientEvent, DaemonId, Data, Event, Frame, GroupId};

use crate::overlay_faults::plan::{Ends, Member, Sender};

/// A record of a client's actions for the checks.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The time at which the daemon accepted each message of a sender.
    pub(crate) taken: Vec<Time>,
    /// The origin and header of each message that a member has read.
    pub(crate) read: Vec<(DaemonId, Data)>,
    /// Whether the client is done: it has sent all messages, has left, or has crashed.
    pub(crate) over: bool,
    /// The groups from which the member was evicted.
    pub(crate) evicted: Vec<GroupId>,
    /// Whether a payload did not have the length that belongs to its header.
    pub(crate) garbled: bool,
}

/// A log that the test reads while the client is in the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLog(Arc<Mutex<Log>>);

impl SharedLog {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }
}

/// The factor of a message's identity: its sender's number times this, plus its own number.
pub(crate) const SENDER: u32 = 1 << 16;

/// Returns the length of a message, which depends on its identity.
fn length_of(message: u32) -> u32 {
    1 + message.wrapping_mul(7919) % 1400
}

/// A client that sends, or one that reads.
pub(crate) struct LoggingClient {
    daemon: EndpointId,
    task: Task,
    log: SharedLog,
    client: Client<Length>,
    /// The time at which the client finishes the oldest unread message, if it works on one.
    busy_until: Option<Time>,
    /// The time at which the next message is ready to be sent, if there is one.
    sends_at: Option<Time>,
}

pub(crate) enum Task {
    /// Sends messages as the sender with this number.
    Sends(u32, Sender),
    Reads(Member),
}

impl LoggingClient {
    pub(crate) fn new(daemon: EndpointId, task: Task, log: SharedLog) -> LoggingClient {
        LoggingClient {
            daemon,
            task,
            log,
            client: Client::new(),
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
        if self.log.lock().over {
            return;
        }
        if !self.client.is_connected() && now >= self.start() {
            self.connect(now);
        }
        if self.client.is_connected() && self.end().is_some_and(|end| now >= end) {
            self.finish();
            return;
        }
        if self.sends_at.take_if(|time| now >= *time).is_some() {
            self.send_next();
        }
        self.read(now);
    }

    fn connect(&mut self, now: Time) {
        self.client.connect(100);
        match &self.task {
            Task::Sends(..) => self.sends_at = Some(now),
            Task::Reads(member) => {
                for group in &member.groups {
                    self.client.join(*group, Length(0));
                }
            }
        }
    }

    /// Sends to the sender's groups in turn. The message's identity is sent in the place of its
    /// time.
    fn send_next(&mut self) {
        let Task::Sends(sender_number, sender) = &self.task else {
            return;
        };
        let number = self.log.lock().taken.len();
        let group = sender.groups[number % sender.groups.len()];
        let sent_us = sender_number * SENDER + number as u32;
        let payload = Length(length_of(sent_us));
        self.client.send(group, sent_us, payload).unwrap();
    }

    fn on_ready(&mut self, now: Time) {
        let mut log = self.log.lock();
        log.taken.push(now);
        if let Task::Sends(_, sender) = &self.task {
            log.over = log.taken.len() as u32 == sender.messages;
            self.sends_at = Some(now + sender.pause);
        }
    }

    fn finish(&mut self) {
        self.log.lock().over = true;
        if let Task::Reads(Member {
            ends: Some(Ends::Leaves(_)),
            groups,
            ..
        }) = &self.task
        {
            for group in groups {
                self.client.leave(*group);
            }
        }
        self.client.disconnect();
    }

    fn read(&mut self, now: Time) {
        if self.is_asleep(now) {
            return;
        }
        if self.busy_until.take_if(|until| now >= *until).is_some()
            && let Some(message) = self.client.read()
        {
            let mut log = self.log.lock();
            log.garbled |= message.payload.0 != length_of(message.data.sent_us);
            log.read.push((message.origin, message.data));
        }
        if self.busy_until.is_none() && self.client.unread() > 0 {
            self.busy_until = Some(now + self.service().max(Duration::from_micros(1)));
        }
    }
}

impl Endpoint for LoggingClient {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let Frame::Client(frame) = packet.header else {
            panic!("only frames for clients come from a daemon: {packet:?}");
        };
        let payload = Length(packet.payload_bytes());
        self.client.handle_frame(&frame, payload).unwrap();
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Ready => self.on_ready(now),
                ClientEvent::Evicted(group) => self.log.lock().evicted.push(group),
                _ => {}
            }
        }
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.work(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        let (frame, Length(payload_bytes)) = self.client.poll_transmit()?;
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.daemon),
            Frame::Client(frame),
            payload_bytes,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.log.lock().over {
            return None;
        }
        let is_connected = self.client.is_connected();
        let start = (!is_connected).then(|| self.start());
        let end = self.end().filter(|_| is_connected);
        // A member that falls asleep over a message, or before it begins with one, continues when
        // it wakes up.
        let finished = match (self.busy_until, self.sleeps()) {
            (Some(until), Some((from, to))) if (from..to).contains(&until) => Some(to),
            (None, Some((_, to))) if self.client.unread() > 0 => Some(to),
            (until, _) => until,
        };
        [start, end, finished, self.sends_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
