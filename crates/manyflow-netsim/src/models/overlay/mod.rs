//! A simulated client of an overlay: a model of an application around the protocol's [`Client`].
//! Besides, two orders of messages to compare with: a [`Ring`] and a [`Sequencer`].
//!
//! ```text
//!   before --start--> connected --stop--> leaving --all messages are read--> gone
//!                         +-----stop, by a crash-----------------------------^
//! ```

#[cfg(test)]
mod orders;
mod ring;
mod sequencer;

pub use ring::{Ring, RingConfig};
pub use sequencer::{Sequencer, SequencerConfig};

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use manyflow_core::interval::Interval;
use manyflow_core::units::Rate;
use manyflow_core::{
    Action, ConfigError, Contents, Destination, Endpoint, EndpointId, Packet, Time,
};
use manyflow_overlay::{
    Client, ClientEvent, Event, Frame, GroupId, LayerSize, Layers, LayersError, PAYLOAD_BYTES_MAX,
};

/// The behaviour of a simulated client's application.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// The client's share under its daemon's controller, in percent of the share of a client with
    /// priority 100; at least 1.
    pub priority: u16,
    /// The time at which the client connects, joins its group and starts to send.
    pub start: Time,
    /// The time at which the client stops, after `start`. The client then leaves its group, sends
    /// no more messages, reads those that were delivered, and disconnects.
    pub stop: Option<Time>,
    /// Whether the client crashes at `stop`: it disconnects at once, without reading the delivered
    /// messages.
    pub crash: bool,
    /// The group that the client joins.
    pub joins: Option<GroupId>,
    /// The messages that the client sends.
    pub sends: Option<Source>,
    /// How long the application works on a message before it reads the next.
    pub service: Duration,
}

/// The time that an application takes to produce a message. Without it, a greedy application whose
/// group has no members would send forever at one instant.
const MAKING: Duration = Duration::from_micros(10);

/// The messages that an application sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The group that receives the messages.
    pub group: GroupId,
    /// The payload of each message in bytes, 1 to [`PAYLOAD_BYTES_MAX`].
    pub message_bytes: u32,
    /// The rate at which messages become ready, counted in payload. Ready messages wait until the
    /// daemon accepts them. If `None`, a message is ready 10 microseconds after the last one was
    /// accepted.
    pub rate: Option<Rate>,
    /// The number of messages; `None` means no limit.
    pub messages: Option<u32>,
    /// The layers of each message, which have `message_bytes` in all, behind their table; none if
    /// messages are not layered. They need a `rate`: a message's purse is the time to the next.
    pub layers: Vec<LayerSize>,
}

/// The layers of a source, and what they must be.
const LAYERS: (&str, &str) = (
    "the layers of a message",
    "1 to 8 with all bytes of the message, at a rate, the most valuable for each byte first",
);

impl Source {
    /// Returns the payload of each message. That of a layered message has bytes: daemons read its
    /// table.
    fn payload(&self) -> Result<Contents, LayersError> {
        if self.layers.is_empty() {
            return Ok(self.message_bytes.into());
        }
        let mut interval = self
            .rate
            .map(|rate| Interval::new(self.message_bytes, rate));
        let purse = interval.as_mut().map(Interval::advance).unwrap_or_default();
        let mut payload = Layers::encode(purse, 0, &self.layers)?;
        payload.resize(payload.len() + self.message_bytes as usize, 0);
        Layers::read(&payload)?;
        Ok(payload[..].into())
    }

    /// Returns whether the layers have all bytes of a message.
    fn has_all_layers(&self) -> bool {
        let bytes = self.layers.iter().map(|layer| u32::from(layer.bytes));
        self.layers.is_empty() || bytes.sum::<u32>() == self.message_bytes
    }
}

impl Default for Application {
    /// An application that neither sends nor joins.
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
                "1 to 65,465 bytes",
                source.is_none_or(|source| lengths.contains(&source.message_bytes)),
            ),
            (
                "a client's rate",
                "1 bit/s to 1 Tbit/s",
                source
                    .and_then(|source| source.rate)
                    .is_none_or(|rate| rates.contains(&rate.bits_per_s())),
            ),
            (
                LAYERS.0,
                LAYERS.1,
                source.is_none_or(|source| source.has_all_layers() && source.payload().is_ok()),
            ),
        ])
    }
}

/// A client of a simulated overlay, as an endpoint.
#[derive(Debug)]
pub struct ClientEndpoint {
    application: Application,
    daemon: EndpointId,
    phase: Phase,
    client: Client<Contents>,
    /// The payload of all messages.
    payload: Contents,
    producer: Option<Producer>,
    consumer: Consumer,
    events: VecDeque<Event>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Connected,
    /// The client has left its group and reads the messages that were delivered.
    Leaving,
    Gone,
}

impl ClientEndpoint {
    /// Returns a client of `daemon`. `seed` determines when its first message is ready, so that
    /// clients of equal rates do not all send at the same time.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(
        application: Application,
        daemon: EndpointId,
        seed: u64,
    ) -> Result<ClientEndpoint, ConfigError> {
        application.check()?;
        let source = application.sends.clone();
        let payload = source.as_ref().and_then(|source| source.payload().ok());
        Ok(ClientEndpoint {
            payload: payload.unwrap_or_default(),
            producer: source.map(|source| Producer::new(source, application.start, seed)),
            consumer: Consumer::new(application.service),
            daemon,
            phase: Phase::Before,
            client: Client::new(),
            events: VecDeque::new(),
            application,
        })
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Connected | Phase::Leaving)
    }

    fn start(&mut self) {
        self.phase = Phase::Connected;
        self.client.connect(self.application.priority);
        if let Some(group) = self.application.joins {
            self.client.join(group, Contents::default());
        }
    }

    fn stop(&mut self) {
        self.phase = Phase::Leaving;
        if self.application.crash {
            self.disconnect();
        } else if let Some(group) = self.application.joins {
            self.client.leave(group);
        }
    }

    fn disconnect(&mut self) {
        self.phase = Phase::Gone;
        self.client.disconnect();
    }

    /// Returns when the next message can be sent, if there is one and the daemon is ready.
    fn next_send(&self) -> Option<Time> {
        let due = self.producer.as_ref()?.next_due()?;
        self.client.is_ready().then_some(due)
    }

    /// Sends the next message, if it is due and the daemon is ready.
    fn send_due_message(&mut self, now: Time) {
        if self.next_send().is_none_or(|due| now < due) {
            return;
        }
        let Some(producer) = &mut self.producer else {
            return;
        };
        let group = producer.source.group;
        let (sent_us, payload) = (producer.produce(), self.payload.clone());
        let sent = match producer.source.layers.is_empty() {
            true => self.client.send(group, sent_us, payload),
            false => self.client.send_layered(group, sent_us, payload),
        };
        debug_assert_eq!(sent, Ok(()), "the client was ready");
    }

    /// Reads the messages on which the application has finished its work.
    fn read_finished_messages(&mut self, now: Time) {
        while self.next_read().is_some_and(|finished| now >= finished)
            && let Some(message) = self.client.read()
        {
            self.consumer.begin_next();
            let bytes = message.payload.length();
            let age_us = micros(now).wrapping_sub(message.data.sent_us);
            let seconds = f64::from(age_us) / 1e6;
            self.events.push_back(Event::Delivered { bytes });
            self.events.push_back(Event::Latency { seconds });
        }
    }

    /// Returns when the application finishes its current message, if there is one.
    fn next_read(&self) -> Option<Time> {
        (self.client.unread() > 0).then_some(self.consumer.finished_at)
    }

    fn handle_event(&mut self, now: Time, event: ClientEvent) {
        match event {
            ClientEvent::Ready => {
                if let Some(producer) = &mut self.producer {
                    producer.on_ready(now);
                    let bytes = producer.source.message_bytes;
                    self.events.push_back(Event::Sent { bytes });
                }
            }
            ClientEvent::View { group, members } => {
                self.events.push_back(Event::View { group, members });
            }
            _ => {}
        }
    }
}

impl Endpoint for ClientEndpoint {
    type Rx = Frame;
    type Tx = Frame;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Frame>) {
        let Frame::Client(frame) = &packet.header else {
            return;
        };
        if !self.is_running() {
            return;
        }
        let was_idle = self.client.unread() == 0;
        let handled = self.client.handle_frame(frame, packet.payload());
        debug_assert_eq!(handled, Ok(()), "a daemon keeps to the protocol");
        if was_idle {
            self.consumer.begin(now);
        }
        while let Some(event) = self.client.poll_event() {
            self.handle_event(now, event);
        }
        self.handle_timeout(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.phase == Phase::Before && now >= self.application.start {
            self.start();
        }
        // Messages finished by `stop` count as read, even if the client crashes.
        if self.is_running() {
            self.read_finished_messages(now);
        }
        if self.phase == Phase::Connected {
            match self.application.stop.filter(|stop| now >= *stop) {
                Some(_) => self.stop(),
                None => self.send_due_message(now),
            }
        }
        if self.phase == Phase::Leaving && self.client.unread() == 0 {
            self.disconnect();
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Frame>> {
        let (frame, payload) = self.client.poll_transmit()?;
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.daemon),
            Frame::Client(frame),
            payload,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.phase {
            Phase::Before => Some(self.application.start),
            Phase::Connected => {
                let times = [self.application.stop, self.next_send(), self.next_read()];
                times.into_iter().flatten().min()
            }
            Phase::Leaving => self.next_read(),
            Phase::Gone => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Produces the application's messages.
#[derive(Debug)]
struct Producer {
    source: Source,
    /// The time between two messages; `None` if a message is ready when the last one was accepted.
    interval: Option<Interval>,
    /// The time at which the next message is, or was, ready. Each later one is ready an interval
    /// later.
    ready_at: Time,
    /// The application produces a message until this time.
    free_at: Time,
    produced: u32,
}

impl Producer {
    fn new(source: Source, start: Time, seed: u64) -> Producer {
        let mut interval = source
            .rate
            .map(|rate| Interval::new(source.message_bytes, rate));
        let share: f64 = Pcg64Mcg::seed_from_u64(seed).random();
        let phase = interval.as_mut().map(Interval::advance).unwrap_or_default();
        Producer {
            ready_at: start + phase.mul_f64(share),
            source,
            interval,
            free_at: start,
            produced: 0,
        }
    }

    /// Returns when the next message can be sent, if there is one.
    fn next_due(&self) -> Option<Time> {
        let has_more = self.source.messages.is_none_or(|all| self.produced < all);
        has_more.then_some(self.ready_at.max(self.free_at))
    }

    /// Produces the next message. Returns when it was ready, in microseconds modulo 2^32.
    fn produce(&mut self) -> u32 {
        self.produced += u32::from(self.source.messages.is_some());
        let sent_us = micros(self.ready_at);
        if let Some(interval) = &mut self.interval {
            self.ready_at += interval.advance();
        }
        sent_us
    }

    /// Handles the entry of the last message into the overlay.
    fn on_ready(&mut self, now: Time) {
        self.free_at = now + MAKING;
        if self.interval.is_none() {
            self.ready_at = self.free_at;
        }
    }
}

/// Works on the delivered messages, one after the other.
#[derive(Debug)]
struct Consumer {
    service: Duration,
    /// The time at which the application finishes the oldest unread message.
    finished_at: Time,
}

impl Consumer {
    fn new(service: Duration) -> Consumer {
        Consumer {
            service,
            finished_at: Time::ZERO,
        }
    }

    /// Starts the work on a message after an idle time.
    fn begin(&mut self, now: Time) {
        self.finished_at = now + self.service;
    }

    /// Starts the work on the next message at the time at which the last one was finished.
    fn begin_next(&mut self) {
        self.finished_at += self.service;
    }
}

/// Returns the time since the start of the world in microseconds, modulo 2^32.
fn micros(time: Time) -> u32 {
    (time.as_nanos() / 1_000) as u32
}

#[cfg(test)]
mod tests;
