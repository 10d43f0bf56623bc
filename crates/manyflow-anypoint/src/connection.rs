//! One end of a connection: opening, closing and keep-alive. Its two halves send and receive
//! frames.
//!
//! ```text
//!   listen --Open--> established --both directions closed and acknowledged--> lingering --time--> over
//!   connect: opening --Accept--^     |
//!                  |                 | Reset, or no answer to `attempts` of Open or Probe in a row
//!                  +-----------------+--------------------------------------------------------> over
//! ```
//!
//! - Credit counts from the acknowledgement's cumulative number, as TCP's window does; frames
//!   beyond a gap are part of it. Before the first frame nothing can be acknowledged, so an Accept
//!   that is repeated then renews the first credit. A switch repeats it when its members change.
//! - A retransmission time-out means that frames do not arrive. A slow reader under soft flow
//!   control can cause that too, so a time-out only starts to probe the other end. Only `attempts`
//!   probes in a row without an answer end the connection.
//! - An acceptor answers each Open with an Accept until another segment of the connection arrives.
//!   A later Open is ignored: it is a late duplicate, or comes from a switch that has restarted and
//!   opens the connection again with numbers from 0. Such a switch gives up without an answer, and
//!   then both ends do.
//! - Sequence numbers do not wrap: a direction has at most 2^32 - 2 frames, then
//!   [`SendError::Exhausted`].
//! - Both ends must agree on the longest frame. A receiver ignores a longer one, so it is never
//!   acknowledged.
//!
//! A [`Connection`] does no I/O. After each call, drain
//! [`poll_transmit`](Connection::poll_transmit), then [`poll_event`](Connection::poll_event), then
//! read [`poll_timeout`](Connection::poll_timeout).

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

/// The time for which a finished end answers repeated Closes.
///
/// The other end's time-out is unknown, and may have been backed off to its maximum of 60 s (RFC
/// 6298 section 2.5). The time suffices for the loss of one Close at that maximum.
pub(super) const LINGER: Duration = Duration::from_secs(120);

fn to_segment(connection: u32, body: Body) -> Segment {
    Segment { connection, body }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection<P> {
    config: AcpConfig,
    /// The connection's number. An acceptor takes it from the Open.
    number: u32,
    is_initiator: bool,
    /// The other end has sent more than its Open and the answers to probes.
    is_underway: bool,
    state: ConnectionState,
    sender: Sender<P>,
    receiver: Receiver<P>,
    /// Segments of neither half: opening, keep-alive, resets.
    control: VecDeque<Segment>,
    /// When to probe the other end. Each segment from it postpones this time.
    probe_at: Time,
    /// The number of probes in a row without an answer.
    probes: u32,
    is_finished: bool,
    events: VecDeque<Event>,
    /// The window that was last reported, in frames.
    reported_window: f64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// Accepts the first connection that the other end opens.
    Listening,
    /// Open was sent `times` times, first at `since`. At `again` it is repeated, or the connection
    /// fails.
    Opening {
        since: Time,
        times: u32,
        again: Time,
    },
    Established,
    /// Both directions are closed and acknowledged. Repeated Closes are answered until `until`.
    Lingering {
        until: Time,
    },
    Over,
}

impl<P: Payload> Connection<P> {
    /// Opens the connection with this number.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn connect(
        config: AcpConfig,
        number: u32,
        now: Time,
    ) -> Result<Connection<P>, ConfigError> {
        let mut connection = Connection::new(config, number, ConnectionState::Over)?;
        connection.is_initiator = true;
        connection.send_open(now, now, 1);
        Ok(connection)
    }

    /// Waits for the other end, and accepts the first connection that it opens.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn listen(config: AcpConfig) -> Result<Connection<P>, ConfigError> {
        Connection::new(config, 0, ConnectionState::Listening)
    }

    fn new(
        config: AcpConfig,
        number: u32,
        state: ConnectionState,
    ) -> Result<Connection<P>, ConfigError> {
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
            reported_window: 0.0,
            config,
        })
    }

    /// Returns whether frames can pass: the opening was answered, and the connection is not closed.
    pub fn is_established(&self) -> bool {
        matches!(self.state, ConnectionState::Established)
    }

    /// Returns whether the connection has ended, for any reason.
    pub fn is_over(&self) -> bool {
        matches!(self.state, ConnectionState::Over)
    }

    /// Returns whether the other end has closed its direction and all its frames have arrived. Some
    /// of them may not have been read.
    pub fn is_remote_closed(&self) -> bool {
        self.receiver.is_closed()
    }

    /// Returns whether [`receive`](Connection::receive) would return a frame.
    pub fn is_readable(&self) -> bool {
        self.receiver.is_readable()
    }

    /// Returns the free bytes of the send buffer. Their number grows only when a segment is
    /// handled.
    pub fn room(&self) -> u32 {
        self.sender.room()
    }

    /// Queues a frame for sending. `key` is for the application and for a switch's policy.
    ///
    /// # Errors
    /// If the send buffer is full, the frame's length is out of range, or this direction takes no
    /// more frames. The error returns the payload.
    pub fn send(&mut self, key: u32, payload: P) -> Result<(), SendError<P>> {
        if self.is_over() {
            return Err(SendError::Closed(payload));
        }
        self.sender.send(Frame { key, payload })
    }

    /// Reads the next frame, in the order in which the frames were sent.
    pub fn receive(&mut self, now: Time) -> Option<Frame<P>> {
        self.receiver.read(now)
    }

    /// Closes this direction. Frames that were queued before are still delivered.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// Ends the connection in both directions at once, and sends a Reset to the other end.
    pub fn abort(&mut self) {
        if !matches!(
            self.state,
            ConnectionState::Listening | ConnectionState::Over
        ) {
            self.send_reset(self.number, Reason::Aborted);
        }
        self.state = ConnectionState::Over;
    }

    /// Handles a segment that arrived at `now`. `payload` is the frame's; it is ignored with any
    /// other segment.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment, payload: P) {
        if let Body::Open { credit } = segment.body {
            self.handle_open(now, segment.connection, credit);
        } else if let Body::Reset(reason) = segment.body {
            self.handle_reset(segment.connection, reason);
        } else if !self.is_current(segment.connection) {
            self.send_reset(segment.connection, Reason::Unknown);
        } else {
            self.handle_known(now, segment, payload);
            self.check_finished(now);
        }
    }

    fn is_current(&self, number: u32) -> bool {
        number == self.number
            && !matches!(
                self.state,
                ConnectionState::Listening | ConnectionState::Over
            )
    }

    fn handle_open(&mut self, now: Time, number: u32, credit: u32) {
        if self.state == ConnectionState::Listening {
            self.number = number;
            self.establish(now, credit);
        }
        if !self.is_current(number) {
            self.send_reset(number, Reason::Refused);
        } else if !self.is_initiator && !self.is_underway {
            self.note_alive(now);
            let credit = self.receiver.credit();
            self.send_control(Body::Accept { credit });
        }
    }

    fn establish(&mut self, now: Time, credit: u32) {
        self.sender.grant(credit);
        self.state = ConnectionState::Established;
        self.note_alive(now);
    }

    /// Notes that the other end is alive: postpones the next probe.
    fn note_alive(&mut self, now: Time) {
        self.probes = 0;
        self.probe_at = now + self.config.keep_alive;
    }

    fn handle_reset(&mut self, number: u32, reason: Reason) {
        if !self.is_current(number) {
            return;
        }
        if !matches!(self.state, ConnectionState::Lingering { .. }) {
            self.events.push_back(Event::Failed(reason));
        }
        self.state = ConnectionState::Over;
    }

    fn handle_known(&mut self, now: Time, segment: &Segment, payload: P) {
        if let ConnectionState::Opening { since, times, .. } = self.state {
            match segment.body {
                Body::Accept { credit } => {
                    self.establish(now, credit);
                    if times == 1 {
                        self.sender.sample_rtt(now - since, &mut self.events);
                    }
                }
                // The Accept was lost. The other end may give up before the next Open is due.
                Body::Probe => self.send_control(Body::Alive),
                _ => {}
            }
            return;
        }
        self.note_alive(now);
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
                self.send_control(Body::Alive);
                self.receiver.repeat_ack();
            }
            Body::Alive => self.sender.expect_repeat(),
            Body::Accept { credit } if self.is_initiator => self.sender.renew_grant(credit),
            Body::Accept { .. } | Body::Open { .. } | Body::Reset(_) => {}
        }
    }

    fn handle_close(&mut self, now: Time, sequence: u32) {
        self.receiver.handle_close(sequence);
        // A repeated Close means that its acknowledgement was lost.
        if matches!(self.state, ConnectionState::Lingering { .. }) {
            self.linger(now);
        }
    }

    /// Reports when all frames are acknowledged, and begins to linger when both directions are
    /// done.
    fn check_finished(&mut self, now: Time) {
        if self.sender.is_done() && !self.is_finished {
            self.is_finished = true;
            self.events.push_back(Event::Finished);
        }
        if self.is_established() && self.is_finished && self.receiver.is_closed() {
            self.linger(now);
        }
    }

    fn linger(&mut self, now: Time) {
        let until = now + LINGER;
        self.state = ConnectionState::Lingering { until };
    }

    /// Handles the timers that are due at `now`. A spurious call does nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.state {
            ConnectionState::Opening {
                since,
                times,
                again,
            } if now >= again => {
                if times < self.config.attempts {
                    self.sender.back_off();
                    self.send_open(now, since, times + 1);
                } else {
                    self.fail(Reason::TimedOut);
                }
            }
            ConnectionState::Established => {
                // Frames may fail to arrive because the path is broken, or because a slow reader
                // has no room. A probe distinguishes the two.
                if self.sender.handle_timeout(now, &mut self.events) || now >= self.probe_at {
                    self.probe_or_give_up(now);
                }
            }
            ConnectionState::Lingering { until } if now >= until => {
                self.state = ConnectionState::Over
            }
            ConnectionState::Opening { .. }
            | ConnectionState::Lingering { .. }
            | ConnectionState::Listening
            | ConnectionState::Over => {}
        }
    }

    fn send_open(&mut self, now: Time, since: Time, times: u32) {
        self.state = ConnectionState::Opening {
            since,
            times,
            again: now + self.sender.timeout(),
        };
        let credit = self.receiver.credit();
        self.send_control(Body::Open { credit });
    }

    fn probe_or_give_up(&mut self, now: Time) {
        if self.probes == self.config.attempts {
            self.fail(Reason::TimedOut);
            return;
        }
        self.probes += 1;
        self.probe_at = now + self.sender.timeout();
        self.send_control(Body::Probe);
    }

    fn fail(&mut self, reason: Reason) {
        self.state = ConnectionState::Over;
        self.send_reset(self.number, reason);
        self.events.push_back(Event::Failed(reason));
    }

    fn send_control(&mut self, body: Body) {
        self.control.push_back(to_segment(self.number, body));
    }

    fn send_reset(&mut self, number: u32, reason: Reason) {
        self.control
            .push_back(to_segment(number, Body::Reset(reason)));
    }

    /// Returns the next segment to send. The payload is `Some` if the segment is a frame.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Segment, Option<P>)> {
        if let Some(segment) = self.control.pop_front() {
            return Some((segment, None));
        }
        if !matches!(
            self.state,
            ConnectionState::Established | ConnectionState::Lingering { .. }
        ) {
            return None;
        }
        if let Some(ack) = self.receiver.poll_transmit() {
            return Some((to_segment(self.number, Body::Ack(ack)), None));
        }
        let (body, payload) = self.sender.poll_transmit(now)?;
        if self.sender.has_retransmitted() {
            self.events.push_back(Event::Retransmission);
        }
        Some((to_segment(self.number, body), payload))
    }

    /// Returns when to call [`handle_timeout`](Connection::handle_timeout) next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            ConnectionState::Opening { again, .. } => Some(again),
            ConnectionState::Established => self
                .sender
                .poll_timeout()
                .into_iter()
                .chain([self.probe_at])
                .min(),
            ConnectionState::Lingering { until } => Some(until),
            ConnectionState::Listening | ConnectionState::Over => None,
        }
    }

    /// Returns the congestion window in frames of the longest length sent so far.
    pub fn window_frames(&self) -> f64 {
        self.sender.window_frames()
    }

    /// Returns the next event: [`Event::Rtt`], [`Event::CongestionWindow`] in frames,
    /// [`Event::LossEvent`], [`Event::RetransmissionTimeout`], [`Event::Overflow`],
    /// [`Event::Failed`], or [`Event::Finished`] when all frames and the closing are acknowledged.
    pub fn poll_event(&mut self) -> Option<Event> {
        let packets = self.window_frames();
        if (packets - self.reported_window).abs() >= 1.0 {
            self.reported_window = packets;
            return Some(Event::CongestionWindow { packets });
        }
        self.events.pop_front()
    }
}
