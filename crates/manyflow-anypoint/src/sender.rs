//! The sending half of a connection: frames until they are acknowledged, what is lost, and when it
//! goes again.
//!
//! ```text
//!   first              next                 end
//!     | in flight:      | waiting for window |
//!     | sent, lost or   | or credit          |
//!     | acknowledged    |                    |
//! ```
//!
//! Losses are what acknowledgements report as missing, as behind a switch nothing follows from the
//! order in which they come. A report counts if the frame that it answers was sent after the
//! missing one: so none counts twice, and where a retransmission is lost, those behind it tell.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use super::Payload;
use super::config::AcpConfig;
use super::frame::{FLIGHT_FRAMES_MAX, Frame, Item, SendError, frame_header_bytes};
use super::segment::{Ack, Body, Data, Gap};
use super::window::Window;
use crate::Event;
use manyflow_core::estimate::rtt::RttEstimator;
use manyflow_core::time::Time;
use manyflow_core::xcp::Congestion;

/// A closed window is probed at most this rarely.
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender<P> {
    window: Window,
    rtt: RttEstimator,
    frame_bytes_max: u32,
    send_buffer: u64,
    /// From the first unacknowledged one on.
    frames: VecDeque<Outgoing<P>>,
    first: u32,
    next: u32,
    /// Bytes of all frames below `first`.
    acknowledged: u64,
    /// Bytes of all frames below `next`.
    sent: u64,
    /// Bytes of all frames that the application handed over.
    accepted: u64,
    /// Bytes that the receiver has, or has room for.
    granted: u64,
    /// Bytes on the wire of frames that are in the network, as far as is known.
    pipe: u64,
    /// Frames sent so far, each as often as it was.
    transmissions: u64,
    /// Frames that are lost and were not sent again, and the number from which to look for the next
    /// one to send.
    lost: u32,
    turn: u32,
    /// What was next at the last loss event: one event per round trip.
    recover: u32,
    /// Whether it was the window that ended the last burst. If it was the application or credit, a
    /// larger one is no use.
    is_window_limited: bool,
    is_closed: bool,
    last_sent: Time,
    /// No frame goes before this.
    paced_until: Time,
    /// A frame waits for that, and for nothing else.
    is_paced: bool,
    /// When the first frame in flight is given up as lost; with none in flight, when a closed
    /// credit is probed.
    timer: Option<Time>,
    /// The first frame in flight was given up before.
    has_timed_out: bool,
    /// Probes of the closed credit in a row.
    probes: u32,
    /// The next acknowledgement repeats one that may have been lost: it tells no round-trip time.
    is_repeat_due: bool,
}

/// A frame between the application and its acknowledgement.
#[derive(Debug)]
struct Outgoing<P> {
    item: Item<P>,
    fate: Fate,
    /// When it was last sent.
    sent: Time,
    is_retransmitted: bool,
    /// Its place among all transmissions, when it was last sent.
    order: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fate {
    Waiting,
    Sent,
    Lost,
    Acknowledged,
}

impl<P: Payload> Sender<P> {
    pub(super) fn new(config: &AcpConfig) -> Sender<P> {
        Sender {
            window: Window::new(config, frame_header_bytes()),
            rtt: RttEstimator::new(config.minimum_rto),
            frame_bytes_max: config.frame_bytes_max,
            send_buffer: config.send_buffer.into(),
            frames: VecDeque::new(),
            first: 0,
            next: 0,
            acknowledged: 0,
            sent: 0,
            accepted: 0,
            granted: 0,
            pipe: 0,
            transmissions: 0,
            lost: 0,
            turn: 0,
            recover: 0,
            is_window_limited: true,
            is_closed: false,
            last_sent: Time::ZERO,
            paced_until: Time::ZERO,
            is_paced: false,
            timer: None,
            has_timed_out: false,
            probes: 0,
            is_repeat_due: false,
        }
    }

    /// RTO, backed off as it is.
    pub(super) fn timeout(&self) -> Duration {
        self.rtt.timeout()
    }

    /// The opening was not answered in time.
    pub(super) fn back_off(&mut self) {
        self.rtt.back_off();
    }

    /// cwnd in frames.
    pub(super) fn window_frames(&self) -> f64 {
        self.window.frames()
    }

    /// Bytes that the send buffer has room for.
    pub(super) fn room(&self) -> u32 {
        (self.send_buffer - (self.accepted - self.acknowledged)) as u32
    }

    /// All frames and the closing are acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.frames.is_empty()
    }

    /// When [`handle_timeout`](Sender::handle_timeout) is wanted.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let paced = self.is_paced.then_some(self.paced_until);
        self.timer.into_iter().chain(paced).min()
    }

    /// The other end has room for this many bytes, to begin with.
    pub(super) fn grant(&mut self, credit: u32) {
        self.granted = credit.into();
    }

    /// Takes a frame into the send buffer.
    pub(super) fn send(&mut self, frame: Frame<P>) -> Result<(), SendError<P>> {
        let length = frame.payload.length();
        // The last number is left for closing; so no number ever wraps.
        let end = self.first + self.frames.len() as u32;
        if self.is_closed {
            return Err(SendError::Closed(frame.payload));
        }
        if !(1..=self.frame_bytes_max).contains(&length) {
            return Err(SendError::Length(frame.payload, self.frame_bytes_max));
        }
        if end >= u32::MAX - 1 {
            return Err(SendError::Exhausted(frame.payload));
        }
        if length > self.room() {
            return Err(SendError::Full(frame.payload));
        }
        self.accepted += u64::from(length);
        self.push(Item::Frame(frame));
        Ok(())
    }

    /// No frame follows.
    pub(super) fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.push(Item::Close);
        }
    }

    fn push(&mut self, item: Item<P>) {
        self.frames.push_back(Outgoing {
            item,
            fate: Fate::Waiting,
            sent: Time::ZERO,
            is_retransmitted: false,
            order: 0,
        });
    }

    /// A round trip was measured. One that is suddenly much longer may be of an acknowledgement
    /// that was lost and came again when somebody was probed: it counts as four times the average,
    /// so that a path that has become long is learned all the same.
    pub(super) fn sample_rtt(&mut self, sample: Duration, events: &mut VecDeque<Event>) {
        let average_s = self.rtt.average_s();
        let limit_s = if average_s > 0.0 {
            4.0 * average_s
        } else {
            f64::INFINITY
        };
        let sample_s = sample.as_secs_f64().min(limit_s);
        self.rtt.sample(sample_s);
        let average_s = self.rtt.average_s();
        events.push_back(Event::Rtt {
            sample_s,
            average_s,
        });
    }

    /// The other end has answered a probe. Its last acknowledgement comes again right behind.
    pub(super) fn expect_repeat(&mut self) {
        self.is_repeat_due = true;
    }

    /// The next frame to send: what is lost first.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<(Body, Option<P>)> {
        self.is_paced = false;
        let Some(number) = self.next_lost().or_else(|| self.next_new(now)) else {
            self.is_window_limited = false;
            return None;
        };
        self.restart_if_idle(now);
        let wire_bytes = self.frame(number).item.wire_bytes();
        let has_room = self.window.has_room(self.pipe, wire_bytes);
        // With nothing in flight nothing tells whether the round-trip time is still as long as it
        // was taken to be.
        self.is_paced = has_room && self.pipe > 0 && now < self.paced_until;
        if !has_room || self.is_paced {
            self.is_window_limited = true;
            return None;
        }
        self.pace(now, wire_bytes);
        Some(self.transmit(now, number))
    }

    /// The next frame goes when this one has had its time. A world whose timers are late may catch
    /// up by two frames.
    fn pace(&mut self, now: Time, wire_bytes: u32) {
        let spacing = self.window.spacing(wire_bytes, self.rtt.average_s());
        let is_late = now > self.paced_until + 2 * spacing;
        let due = if is_late { now } else { self.paced_until };
        self.paced_until = due + spacing;
    }

    fn frame(&mut self, number: u32) -> &mut Outgoing<P> {
        &mut self.frames[(number - self.first) as usize]
    }

    /// The next lost frame: the first, and then they go round until that arrives, as behind a
    /// switch it may be another one that a full receiver waits for.
    fn next_lost(&mut self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        if self.frame(self.first).fate == Fate::Lost {
            return Some(self.first);
        }
        loop {
            if !(self.first..self.next).contains(&self.turn) {
                self.turn = self.first;
            }
            if self.frame(self.turn).fate == Fate::Lost {
                return Some(self.turn);
            }
            self.turn += 1;
        }
    }

    /// The next new frame, if there is one and the receiver has room for it.
    fn next_new(&mut self, now: Time) -> Option<u32> {
        let flight = self.next - self.first;
        let waiting = self.frames.get(flight as usize)?;
        if self.sent + u64::from(waiting.item.bytes()) > self.granted {
            self.timer.get_or_insert(now + self.rtt.timeout());
            return None;
        }
        (flight < FLIGHT_FRAMES_MAX).then_some(self.next)
    }

    fn restart_if_idle(&mut self, now: Time) {
        if self.first == self.next && now - self.last_sent > self.rtt.timeout() {
            self.window.restart();
        }
    }

    fn transmit(&mut self, now: Time, number: u32) -> (Body, Option<P>) {
        let is_new = number == self.next;
        if is_new {
            self.count_new(now);
        } else {
            self.lost -= 1;
        }
        self.transmissions += 1;
        let order = self.transmissions;
        let outgoing = self.frame(number);
        outgoing.fate = Fate::Sent;
        outgoing.sent = now;
        outgoing.is_retransmitted = !is_new;
        outgoing.order = order;
        let (bytes, wire_bytes) = (outgoing.item.bytes(), outgoing.item.wire_bytes());
        self.pipe += u64::from(wire_bytes);
        self.last_sent = now;
        self.timer.get_or_insert(now + self.rtt.timeout());
        if bytes > 0 {
            self.window.note_frame(bytes, wire_bytes);
        }
        let used = self.is_window_limited;
        let congestion = self.window.header(wire_bytes, self.rtt.average_s(), used);
        self.frame(number).item.to_body(number, congestion)
    }

    fn count_new(&mut self, now: Time) {
        if self.first == self.next {
            self.timer = Some(now + self.rtt.timeout());
        }
        let number = self.next;
        self.sent += u64::from(self.frame(number).item.bytes());
        self.next += 1;
        self.probes = 0;
    }

    /// Takes an acknowledgement; one of what was never sent is ignored.
    pub(super) fn handle_ack(&mut self, now: Time, ack: &Ack, events: &mut VecDeque<Event>) {
        let is_repeated = core::mem::take(&mut self.is_repeat_due);
        if ack.cumulative > self.next || ack.of >= self.next {
            return;
        }
        let in_flight = ack.of >= self.first;
        let order = if in_flight {
            self.frame(ack.of).order
        } else {
            0
        };
        self.on_answered(now, ack, is_repeated, events);
        self.advance(now, ack.cumulative);
        // An older acknowledgement than the last says nothing new about the receiver's room.
        if ack.cumulative == self.first {
            self.granted = self.acknowledged + u64::from(ack.credit);
        }
        let lost_before = self.lost;
        for gap in ack.missing.iter().rev() {
            self.on_missing(ack, gap, order);
        }
        if self.lost > lost_before && self.first >= self.recover {
            self.recover = self.next;
            self.window.on_loss();
            events.push_back(Event::LossEvent);
        }
    }

    /// The frame that the acknowledgement answers has arrived.
    fn on_answered(
        &mut self,
        now: Time,
        ack: &Ack,
        is_repeated: bool,
        events: &mut VecDeque<Event>,
    ) {
        if ack.of < self.first || self.frame(ack.of).fate == Fate::Acknowledged {
            return;
        }
        let outgoing = self.frame(ack.of);
        let (sent, is_frame) = (outgoing.sent, outgoing.item.bytes() > 0);
        // Karn: of a frame sent twice nobody knows which one is answered. What a probe brings may
        // be as old as an outage.
        if !outgoing.is_retransmitted && !is_repeated {
            self.sample_rtt(now - sent, events);
        }
        self.settle(ack.of);
        if is_frame {
            let may_grow = self.is_window_limited && self.first >= self.recover;
            self.window.on_ack(ack.feedback, may_grow);
        }
    }

    /// The frame is out of the network, and acknowledged.
    fn settle(&mut self, number: u32) {
        let outgoing = self.frame(number);
        let wire_bytes = u64::from(outgoing.item.wire_bytes());
        match core::mem::replace(&mut outgoing.fate, Fate::Acknowledged) {
            Fate::Sent => self.pipe -= wire_bytes,
            Fate::Lost => self.lost -= 1,
            Fate::Acknowledged | Fate::Waiting => {}
        }
    }

    /// All below `cumulative` have arrived.
    fn advance(&mut self, now: Time, cumulative: u32) {
        if cumulative <= self.first {
            return;
        }
        while self.first < cumulative {
            self.settle(self.first);
            let bytes = self.frame(self.first).item.bytes();
            self.acknowledged += u64::from(bytes);
            self.frames.pop_front();
            self.first += 1;
        }
        self.has_timed_out = false;
        self.turn = self.first;
        self.rtt.end_back_off();
        self.timer = (self.first < self.next).then(|| now + self.rtt.timeout());
    }

    /// What is reported missing is lost, if it was sent before the frame that is answered, the one
    /// that is number `order` among all transmissions. And it is the next to go.
    fn on_missing(&mut self, ack: &Ack, gap: &Gap, order: u64) {
        let from = ack.cumulative.saturating_add(gap.offset.into());
        let to = from.saturating_add(gap.frames.into()).min(self.next);
        for number in (from.max(self.first)..to).rev() {
            if self.frame(number).order < order {
                self.lose(number);
            }
            if self.frame(number).fate == Fate::Lost {
                self.turn = number;
            }
        }
    }

    /// A frame that was sent is lost. It may have been acknowledged: only the cumulative number is
    /// a promise (RFC 2018 section 8), as a switch acknowledges what it holds beyond a gap, and the
    /// frame can be lost behind it.
    fn lose(&mut self, number: u32) {
        let outgoing = self.frame(number);
        let wire_bytes = u64::from(outgoing.item.wire_bytes());
        match core::mem::replace(&mut outgoing.fate, Fate::Lost) {
            Fate::Sent => self.pipe -= wire_bytes,
            Fate::Lost => return,
            Fate::Acknowledged | Fate::Waiting => {}
        }
        self.lost += 1;
    }

    /// Does what is due; returns whether there was anything, as then it is time to ask whether the
    /// other end is alive.
    pub(super) fn handle_timeout(&mut self, now: Time, events: &mut VecDeque<Event>) -> bool {
        if self.timer.is_none_or(|timer| now < timer) {
            return false;
        }
        if self.first == self.next {
            self.probes += 1;
            let wait = self.rtt.timeout() * (1 << self.probes.min(16));
            self.timer = Some(now + wait.min(PROBE_INTERVAL_MAX));
        } else {
            self.on_timeout(now);
            events.push_back(Event::RetransmissionTimeout);
        }
        true
    }

    /// RFC 6298 section 5 (5.4 to 5.6): nothing of what is in flight arrives any more, and what was
    /// acknowledged by itself goes again as well (RFC 2018 section 8).
    fn on_timeout(&mut self, now: Time) {
        self.rtt.back_off();
        // Otherwise it has come through, and waits for another frame: behind a switch for one on
        // another path.
        if self.frame(self.first).fate != Fate::Acknowledged {
            self.window.on_timeout(self.has_timed_out);
        }
        self.has_timed_out = true;
        (self.first..self.next).for_each(|number| self.lose(number));
        // What is lost from now on is another event.
        self.recover = self.first;
        self.timer = Some(now + self.rtt.timeout());
    }
}

impl<P: Payload> Item<P> {
    /// The packet that carries it, as number `sequence`.
    fn to_body(&self, sequence: u32, congestion: Congestion) -> (Body, Option<P>) {
        match self {
            Item::Frame(Frame { key, payload }) => {
                let data = Data {
                    sequence,
                    key: *key,
                    congestion,
                };
                (Body::Data(data), Some(payload.clone()))
            }
            Item::Close => (Body::Close { sequence }, None),
        }
    }
}
