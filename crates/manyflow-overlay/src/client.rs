//! A client: an application that sends to a group, is a member of one, or both, and the little that stands between it and its daemon.
//!
//! ```text
//!   before --start--> connected --stop--> leaving --all is read--> gone
//!                         +-----stop, with a crash-----------------^
//! ```
//!
//! The daemon has one message of a client at a time; the next one waits for [`ClientFrame::Ready`]. It has at most
//! [`CLIENT_WINDOW`] messages for a client on their way: these are what the application has not read.

use core::time::Duration;
#[cfg(debug_assertions)]
use std::collections::BTreeMap;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::message::{
    CLIENT_WINDOW, ClientFrame, DaemonId, Data, Frame, GroupId, PAYLOAD_BYTES_MAX,
};
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::interval::Interval;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Destination, EndpointId, Packet};

/// What a client's application does: a model for scenarios.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// What its daemon's controller gives it, in percent of what others get; at least 1.
    pub priority: u16,
    /// When it connects, joins and begins to send.
    pub start: Time,
    /// When it ends, after `start`: it sends and takes no more, reads what it has, and disconnects.
    pub stop: Option<Time>,
    /// It ends by a crash: what it had not read is lost.
    pub crash: bool,
    /// The group that it is a member of.
    pub joins: Option<GroupId>,
    /// What it sends.
    pub sends: Option<Source>,
    /// How long it works on a message that it has read, before it reads the next.
    pub service: Duration,
}

/// What an application needs to make a message. Without it, one that nobody holds up would send without end at one moment, as long
/// as its group has no members.
const MAKING: Duration = Duration::from_micros(10);

/// What an application sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// To whom.
    pub group: GroupId,
    /// The length of its messages, 1 to [`PAYLOAD_BYTES_MAX`].
    pub message_bytes: u32,
    /// How fast it has messages ready, in payload; those that its daemon does not take yet wait. `None` is as fast as they are taken,
    /// with 10 microseconds from one to the next.
    pub rate: Option<Rate>,
    /// It ends after so many.
    pub messages: Option<u32>,
}

impl Default for Application {
    /// Neither sends nor joins.
    fn default() -> Application {
        Application {
            priority: 100,
            start: Time::ZERO,
            stop: None,
            crash: false,
            joins: None,
            sends: None,
            service: Duration::ZERO,
        }
    }
}

impl Application {
    fn check(&self) -> Result<(), ConfigError> {
        let lengths = 1..=PAYLOAD_BYTES_MAX;
        let rates = 1..=1_000_000_000_000;
        let source = self.sends.as_ref();
        ConfigError::first_of([
            (
                "a client's priority",
                "at least 1 percent",
                self.priority >= 1,
            ),
            (
                "a client's stop",
                "after its start",
                self.stop.is_none_or(|stop| stop > self.start),
            ),
            (
                "a client's messages",
                "1 to 65,473 bytes",
                source.is_none_or(|source| lengths.contains(&source.message_bytes)),
            ),
            (
                "a client's rate",
                "1 bit/s to 1 Tbit/s",
                source
                    .and_then(|source| source.rate)
                    .is_none_or(|rate| rates.contains(&rate.bits_per_s())),
            ),
        ])
    }
}

/// A client.
#[derive(Debug)]
pub struct ClientEndpoint {
    application: Application,
    daemon: EndpointId,
    phase: Phase,
    sender: Option<Sender>,
    reader: Reader,
    /// It has joined, and was neither evicted nor has it left.
    is_member: bool,
    /// What goes to the daemon, with the lengths of payloads.
    outbox: VecDeque<(ClientFrame, u32)>,
    events: VecDeque<Event>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Connected,
    /// It has left, and reads what it has.
    Leaving,
    Gone,
}

impl ClientEndpoint {
    /// A client of `daemon`. When the first of its messages is ready is drawn from `seed`, so that clients of equal rates do not
    /// all send at the same moments.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn new(
        application: Application,
        daemon: EndpointId,
        seed: u64,
    ) -> Result<ClientEndpoint, ConfigError> {
        application.check()?;
        let sends = application.sends.clone();
        Ok(ClientEndpoint {
            sender: sends.map(|source| Sender::new(source, application.start, seed)),
            reader: Reader::new(application.service),
            daemon,
            phase: Phase::Before,
            is_member: false,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            application,
        })
    }

    fn say(&mut self, frame: ClientFrame) {
        self.outbox.push_back((frame, 0));
    }

    fn connect(&mut self) {
        self.phase = Phase::Connected;
        let priority = self.application.priority;
        self.say(ClientFrame::Connect { priority });
        if let Some(group) = self.application.joins {
            self.is_member = true;
            self.say(ClientFrame::Join(group));
        }
    }

    fn stop(&mut self) {
        self.phase = Phase::Leaving;
        if self.application.crash {
            return self.disconnect();
        }
        if let Some(group) = self.application.joins.filter(|_| self.is_member) {
            self.is_member = false;
            self.say(ClientFrame::Leave(group));
        }
    }

    fn disconnect(&mut self) {
        self.phase = Phase::Gone;
        self.reader.unread.clear();
        self.say(ClientFrame::Disconnect);
    }

    /// Sends the message that is due, if its daemon will have one.
    fn send(&mut self, now: Time) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        if sender.next_due().is_some_and(|due| now >= due) {
            let frame = sender.send();
            self.outbox.push_back((frame, sender.source.message_bytes));
        }
    }

    fn on_ready(&mut self, now: Time) {
        let Some(sender) = self.sender.as_mut().filter(|sender| sender.is_waiting) else {
            return;
        };
        sender.on_ready(now);
        let bytes = sender.source.message_bytes;
        self.events.push_back(Event::Sent { bytes });
    }

    /// Reads what the application has time for.
    fn read(&mut self, now: Time) {
        while let Some(message) = self.reader.read(now) {
            let seconds = f64::from(micros(now).wrapping_sub(message.sent_us)) / 1e6;
            let bytes = message.bytes;
            self.events.push_back(Event::Delivered { bytes });
            self.events.push_back(Event::Latency { seconds });
        }
        if let Some(messages) = self.reader.took() {
            self.say(ClientFrame::Took { messages });
        }
    }

    fn handle_frame(&mut self, now: Time, frame: &ClientFrame, payload_bytes: u32) {
        match *frame {
            ClientFrame::Ready => self.on_ready(now),
            ClientFrame::Deliver { origin, data } => {
                self.reader.take(now, origin, &data, payload_bytes);
            }
            ClientFrame::View { group, members } => {
                self.events.push_back(Event::View { group, members });
            }
            ClientFrame::Evicted(group) => {
                self.is_member &= self.application.joins != Some(group);
            }
            // These go to daemons only.
            ClientFrame::Connect { .. }
            | ClientFrame::Join(_)
            | ClientFrame::Leave(_)
            | ClientFrame::Send { .. }
            | ClientFrame::Took { .. }
            | ClientFrame::Disconnect => {}
        }
    }
}

impl Endpoint for ClientEndpoint {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        if !matches!(self.phase, Phase::Connected | Phase::Leaving) {
            return;
        }
        if let Frame::Client(frame) = &packet.header {
            self.handle_frame(now, frame, packet.payload_bytes());
            self.handle_timeout(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Before && now >= self.application.start {
            self.connect();
        }
        // What was read up to the stop counts, even in a crash.
        if matches!(self.phase, Phase::Connected | Phase::Leaving) {
            self.read(now);
        }
        if self.phase == Phase::Connected {
            match self.application.stop.filter(|stop| now >= *stop) {
                Some(_) => self.stop(),
                None => self.send(now),
            }
        }
        if self.phase == Phase::Leaving && self.reader.unread.is_empty() {
            self.disconnect();
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        let (frame, payload_bytes) = self.outbox.pop_front()?;
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.daemon),
            Frame::Client(frame),
            payload_bytes,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Before => Some(self.application.start),
            Phase::Connected => {
                let due = self.sender.as_ref().and_then(Sender::next_due);
                [self.application.stop, due, self.reader.next_done()]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Phase::Leaving => self.reader.next_done(),
            Phase::Gone => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// The application's messages on their way to the daemon.
#[derive(Debug)]
struct Sender {
    source: Source,
    /// Between messages; `None` where the next is ready when the last is taken.
    interval: Option<Interval>,
    /// When the next message is ready, or was: those behind it, which may be ready as well, are so many intervals later.
    ready: Time,
    /// Before this it does not send.
    free: Time,
    /// The daemon has one.
    is_waiting: bool,
    sent: u32,
}

impl Sender {
    fn new(source: Source, start: Time, seed: u64) -> Sender {
        let mut interval = source
            .rate
            .map(|rate| Interval::new(source.message_bytes, rate));
        let share: f64 = Pcg64Mcg::seed_from_u64(seed).random();
        let phase = interval.as_mut().map(Interval::advance).unwrap_or_default();
        Sender {
            ready: start + phase.mul_f64(share),
            source,
            interval,
            free: start,
            is_waiting: false,
            sent: 0,
        }
    }

    /// When the next message is sent, if it can be.
    fn next_due(&self) -> Option<Time> {
        let has_more = self.source.messages.is_none_or(|all| self.sent < all);
        (has_more && !self.is_waiting).then_some(self.ready.max(self.free))
    }

    fn send(&mut self) -> ClientFrame {
        self.is_waiting = true;
        self.sent += u32::from(self.source.messages.is_some());
        let sent_us = micros(self.ready);
        if let Some(interval) = &mut self.interval {
            self.ready += interval.advance();
        }
        let group = self.source.group;
        ClientFrame::Send { group, sent_us }
    }

    fn on_ready(&mut self, now: Time) {
        self.is_waiting = false;
        self.free = now + MAKING;
        if self.interval.is_none() {
            self.ready = self.free;
        }
    }
}

/// A message that the application has not read.
#[derive(Debug)]
struct Unread {
    bytes: u32,
    sent_us: u32,
}

/// The daemon's messages on their way to the application.
#[derive(Debug)]
struct Reader {
    service: Duration,
    unread: VecDeque<Unread>,
    /// When the application is done with the first of them.
    done: Time,
    /// What it has read and the daemon was not told of.
    taken: u32,
    /// The last sequence number of each origin and group: messages are in order.
    #[cfg(debug_assertions)]
    last: BTreeMap<(DaemonId, GroupId), super::OriginSeq>,
}

impl Reader {
    fn new(service: Duration) -> Reader {
        Reader {
            service,
            unread: VecDeque::with_capacity(CLIENT_WINDOW as usize),
            done: Time::ZERO,
            taken: 0,
            #[cfg(debug_assertions)]
            last: BTreeMap::new(),
        }
    }

    #[cfg_attr(not(debug_assertions), expect(unused_variables))]
    fn take(&mut self, now: Time, origin: DaemonId, data: &Data, bytes: u32) {
        #[cfg(debug_assertions)]
        {
            let last = self.last.insert((origin, data.group), data.sequence);
            assert!(
                last < Some(data.sequence),
                "message {:?} of {origin:?} to {:?} came after message {last:?}",
                data.sequence,
                data.group,
            );
        }
        debug_assert!(
            self.unread.len() + (self.taken as usize) < CLIENT_WINDOW as usize,
            "a daemon keeps to the window"
        );
        if self.unread.is_empty() {
            self.done = now + self.service;
        }
        let sent_us = data.sent_us;
        self.unread.push_back(Unread { bytes, sent_us });
    }

    /// A message that the application is done with.
    fn read(&mut self, now: Time) -> Option<Unread> {
        self.next_done().filter(|done| now >= *done)?;
        self.done += self.service;
        self.taken += 1;
        self.unread.pop_front()
    }

    fn next_done(&self) -> Option<Time> {
        (!self.unread.is_empty()).then_some(self.done)
    }

    /// What the daemon is to be told: at once when nothing is left, so that it never waits for what is done; else not each
    /// message on its own.
    fn took(&mut self) -> Option<u32> {
        let is_worth_it = self.unread.is_empty() || self.taken >= CLIENT_WINDOW / 2;
        (is_worth_it && self.taken > 0).then(|| core::mem::take(&mut self.taken))
    }
}

/// Microseconds since the start, modulo 2^32.
fn micros(time: Time) -> u32 {
    (time.as_nanos() / 1_000) as u32
}

#[cfg(test)]
mod tests;
