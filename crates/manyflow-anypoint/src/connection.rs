//! One end of a connection: opening, closing, keep-alive; frames go through its two halves.
//!
//! ```text
//!   listen --Open--> established --both directions closed and acknowledged--> lingering --time--> over
//!   connect: opening --Accept--^     |
//!                  |                 | Reset, or no answer to `attempts` of Open or Probe in a row
//!                  +-----------------+--------------------------------------------------------> over
//! ```
//!
//! - Credit counts from the acknowledgement's cumulative number, as TCP's window does: what arrived
//!   beyond a gap is part of it.
//! - A retransmission time-out says that frames come to nothing, which a slow reader under soft
//!   flow control can cause as well; so it only begins to probe the other end. Nothing but
//!   `attempts` probes without any answer ends the connection.
//! - An Open is answered again until more is heard. Then it is a late duplicate, or a switch that
//!   has restarted opens anew what is underway here, with numbers that begin again: without an
//!   answer it gives up, and so do both ends.
//! - Sequence numbers do not wrap: a direction has 2^32 - 2 frames at most, then
//!   [`SendError::Exhausted`].
//! - Both ends must agree on the longest frame: a longer one is not taken, and so never
//!   acknowledged.
//!
//! It is sans-IO: after each call drain [`poll_transmit`](Connection::poll_transmit), then
//! [`poll_event`](Connection::poll_event), then read [`poll_timeout`](Connection::poll_timeout).

use core::time::Duration;
use std::collections::VecDeque;

use super::Payload;
use super::config::{AcpConfig, ConfigError};
use super::frame::{Frame, SendError};
use super::receiver::Receiver;
use super::segment::{Body, Reason, Segment};
use super::sender::Sender;
use crate::Event;
use manyflow_core::time::Time;

/// An end that is done answers a repeated Close for this long at least, or for two retransmission
/// time-outs of its own: those of the other end, which nobody knows here, may be backed off.
const LINGER_MIN: Duration = Duration::from_secs(30);

fn packet(connection: u32, body: Body) -> Segment {
    Segment { connection, body }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection<P> {
    config: AcpConfig,
    /// The connection's number; an acceptor learns it.
    number: u32,
    is_initiator: bool,
    /// The other end has said more than that it opens the connection, and is alive.
    is_underway: bool,
    state: State,
    sender: Sender<P>,
    receiver: Receiver<P>,
    /// Packets without a place in either half: opening, keep-alive, resets.
    control: VecDeque<Segment>,
    /// When the other end is probed if nothing is heard before; each packet from it moves this on.
    probe_at: Time,
    /// Probes without an answer.
    probes: u32,
    is_finished: bool,
    events: VecDeque<Event>,
    /// The last window told, in frames.
    told_window: f64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Takes the first connection that comes.
    Listening,
    /// Open was sent so many times, first at `since`; it is repeated or given up at `again`.
    Opening {
        since: Time,
        times: u32,
        again: Time,
    },
    Established,
    /// Both directions are done; until then a repeated Close is answered.
    Lingering {
        until: Time,
    },
    Over,
}

impl<P: Payload> Connection<P> {
    /// Opens connection number `number`.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn connect(
        config: AcpConfig,
        number: u32,
        now: Time,
    ) -> Result<Connection<P>, ConfigError> {
        let mut connection = Connection::new(config, number, State::Over)?;
        connection.is_initiator = true;
        connection.open(now, now, 1);
        Ok(connection)
    }

    /// Takes the first connection that the other end opens.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn listen(config: AcpConfig) -> Result<Connection<P>, ConfigError> {
        Connection::new(config, 0, State::Listening)
    }

    fn new(config: AcpConfig, number: u32, state: State) -> Result<Connection<P>, ConfigError> {
        config.check()?;
        Ok(Connection {
            number,
            is_initiator: false,
            is_underway: false,
            state,
            sender: Sender::new(&config),
            receiver: Receiver::new(&config),
            control: VecDeque::new(),
            probe_at: Time::MAX,
            probes: 0,
            is_finished: false,
            events: VecDeque::new(),
            told_window: 0.0,
            config,
        })
    }

    /// Whether frames can pass: the opening was answered, and the connection is not over.
    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established)
    }

    /// Whether it has ended, one way or another.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether the other end has closed its direction and all its frames have arrived; they may
    /// wait to be read.
    pub fn is_remote_closed(&self) -> bool {
        self.receiver.is_closed()
    }

    /// Whether [`receive`](Connection::receive) has a frame.
    pub fn is_readable(&self) -> bool {
        self.receiver.is_readable()
    }

    /// Bytes that the send buffer has room for. It can only grow while segments are handled.
    pub fn room(&self) -> u32 {
        self.sender.room()
    }

    /// Hands over a frame.
    ///
    /// # Errors
    /// Where there is no room, or never will be; the frame is given back.
    pub fn send(&mut self, key: u32, payload: P) -> Result<(), SendError<P>> {
        if self.is_over() {
            return Err(SendError::Closed(payload));
        }
        self.sender.send(Frame { key, payload })
    }

    /// Reads the next frame, in the order in which they were sent.
    pub fn receive(&mut self, now: Time) -> Option<Frame<P>> {
        self.receiver.read(now)
    }

    /// Closes this direction: what was handed over is still delivered.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// Gives up the connection in both directions, and tells the other end.
    pub fn abort(&mut self) {
        if !matches!(self.state, State::Listening | State::Over) {
            self.reset(self.number, Reason::Aborted);
        }
        self.state = State::Over;
    }

    /// Takes a segment; `payload` is that of a frame, and of no matter with any other.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment, payload: P) {
        if let Body::Open { credit } = segment.body {
            self.handle_open(now, segment.connection, credit);
        } else if let Body::Reset(reason) = segment.body {
            self.handle_reset(segment.connection, reason);
        } else if !self.knows(segment.connection) {
            self.reset(segment.connection, Reason::Unknown);
        } else {
            self.handle_known(now, segment, payload);
            self.settle(now);
        }
    }

    fn knows(&self, number: u32) -> bool {
        number == self.number && !matches!(self.state, State::Listening | State::Over)
    }

    fn handle_open(&mut self, now: Time, number: u32, credit: u32) {
        if self.state == State::Listening {
            self.number = number;
            self.establish(now, credit);
        }
        if !self.knows(number) {
            self.reset(number, Reason::Refused);
        } else if !self.is_initiator && !self.is_underway {
            self.hear(now);
            let credit = self.receiver.credit();
            self.say(Body::Accept { credit });
        }
    }

    fn establish(&mut self, now: Time, credit: u32) {
        self.sender.grant(credit);
        self.state = State::Established;
        self.hear(now);
    }

    /// The other end is alive.
    fn hear(&mut self, now: Time) {
        self.probes = 0;
        self.probe_at = now + self.config.keep_alive;
    }

    fn handle_reset(&mut self, number: u32, reason: Reason) {
        if !self.knows(number) {
            return;
        }
        if !matches!(self.state, State::Lingering { .. }) {
            self.events.push_back(Event::Failed(reason));
        }
        self.state = State::Over;
    }

    fn handle_known(&mut self, now: Time, segment: &Segment, payload: P) {
        if let State::Opening { since, times, .. } = self.state {
            match segment.body {
                Body::Accept { credit } => {
                    self.establish(now, credit);
                    if times == 1 {
                        self.sender.sample_rtt(now - since, &mut self.events);
                    }
                }
                // The Accept was lost, and the other end may give up before the next Open is due.
                Body::Probe => self.say(Body::Alive),
                _ => {}
            }
            return;
        }
        self.hear(now);
        self.is_underway |= segment.body != Body::Alive;
        match segment.body {
            Body::Data(data) => {
                let wire_bytes = segment.wire_bytes().saturating_add(payload.length());
                self.receiver
                    .handle_data(now, &data, payload, wire_bytes, &mut self.events);
            }
            Body::Ack(ack) => self.sender.handle_ack(now, &ack, &mut self.events),
            Body::Close { sequence } => self.handle_close(now, sequence),
            Body::Probe => {
                self.say(Body::Alive);
                self.receiver.repeat_ack();
            }
            Body::Alive => self.sender.expect_repeat(),
            Body::Accept { .. } | Body::Open { .. } | Body::Reset(_) => {}
        }
    }

    fn handle_close(&mut self, now: Time, sequence: u32) {
        self.receiver.handle_close(sequence);
        // It is repeated, as our acknowledgement was lost.
        if matches!(self.state, State::Lingering { .. }) {
            self.linger(now);
        }
    }

    /// Finds out whether the connection is done.
    fn settle(&mut self, now: Time) {
        if self.sender.is_done() && !self.is_finished {
            self.is_finished = true;
            self.events.push_back(Event::Finished);
        }
        if self.is_established() && self.is_finished && self.receiver.is_closed() {
            self.linger(now);
        }
    }

    fn linger(&mut self, now: Time) {
        let until = now + LINGER_MIN.max(2 * self.sender.timeout());
        self.state = State::Lingering { until };
    }

    /// Does what is due; a spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.state {
            State::Opening {
                since,
                times,
                again,
            } if now >= again => {
                if times < self.config.attempts {
                    self.sender.back_off();
                    self.open(now, since, times + 1);
                } else {
                    self.fail(Reason::TimedOut);
                }
            }
            State::Established => {
                // Frames that come to nothing may lack a way, or room at a slow reader: only probes
                // tell.
                if self.sender.handle_timeout(now, &mut self.events) || now >= self.probe_at {
                    self.probe_or_give_up(now);
                }
            }
            State::Lingering { until } if now >= until => self.state = State::Over,
            State::Opening { .. } | State::Lingering { .. } | State::Listening | State::Over => {}
        }
    }

    fn open(&mut self, now: Time, since: Time, times: u32) {
        self.state = State::Opening {
            since,
            times,
            again: now + self.sender.timeout(),
        };
        let credit = self.receiver.credit();
        self.say(Body::Open { credit });
    }

    fn probe_or_give_up(&mut self, now: Time) {
        if self.probes == self.config.attempts {
            self.fail(Reason::TimedOut);
            return;
        }
        self.probes += 1;
        self.probe_at = now + self.sender.timeout();
        self.say(Body::Probe);
    }

    fn fail(&mut self, reason: Reason) {
        self.state = State::Over;
        self.reset(self.number, reason);
        self.events.push_back(Event::Failed(reason));
    }

    fn say(&mut self, body: Body) {
        self.control.push_back(packet(self.number, body));
    }

    fn reset(&mut self, number: u32, reason: Reason) {
        self.control.push_back(packet(number, Body::Reset(reason)));
    }

    /// The next segment to send, and the payload of a frame.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Segment, Option<P>)> {
        if let Some(segment) = self.control.pop_front() {
            return Some((segment, None));
        }
        if !matches!(self.state, State::Established | State::Lingering { .. }) {
            return None;
        }
        if let Some(ack) = self.receiver.poll_transmit() {
            return Some((packet(self.number, Body::Ack(ack)), None));
        }
        let (body, payload) = self.sender.poll_transmit(now)?;
        Some((packet(self.number, body), payload))
    }

    /// When [`handle_timeout`](Connection::handle_timeout) is wanted next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            State::Opening { again, .. } => Some(again),
            State::Established => self
                .sender
                .poll_timeout()
                .into_iter()
                .chain([self.probe_at])
                .min(),
            State::Lingering { until } => Some(until),
            State::Listening | State::Over => None,
        }
    }

    /// What happened: [`Event::Rtt`], [`Event::CongestionWindow`] in frames, [`Event::LossEvent`],
    /// [`Event::RetransmissionTimeout`], [`Event::Overflow`], [`Event::Failed`], and
    /// [`Event::Finished`] when all frames and the closing are acknowledged.
    pub fn poll_event(&mut self) -> Option<Event> {
        let packets = self.sender.window_frames();
        if (packets - self.told_window).abs() >= 1.0 {
            self.told_window = packets;
            return Some(Event::CongestionWindow { packets });
        }
        self.events.pop_front()
    }
}
