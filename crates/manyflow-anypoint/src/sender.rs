//! The sending half of a connection: keeps frames until they are acknowledged, detects losses, and
//! retransmits.
//!
//! ```text
//!   first              next                 end
//!     | in flight:      | waiting for window |
//!     | sent, lost or   | or credit          |
//!     | acknowledged    |                    |
//! ```
//!
//! Only reports in acknowledgements count as losses, because behind a switch the order of
//! acknowledgements proves nothing. A report counts if the frame that it answers was sent after the
//! missing frame. So no report counts twice, and the answers to later frames reveal a lost
//! retransmission.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use super::Payload;
use super::config::AcpConfig;
use super::frame::{FLIGHT_FRAMES_MAX, Frame, Item, SendError, frame_header_bytes};
use super::pacer::Pacer;
use super::segment::{Ack, Body, Data, Gap};
use super::window::Window;
use crate::Event;
use manyflow_core::estimate::rtt::RttEstimator;
use manyflow_core::time::Time;
use manyflow_core::xcp::Congestion;

/// The longest interval between two probes of a closed credit.
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender<P> {
    window: Window,
    rtt: RttEstimator,
    frame_bytes_max: u32,
    send_buffer: u64,
    /// Frames from the first unacknowledged one on.
    frames: VecDeque<Outgoing<P>>,
    /// The number of the first unacknowledged frame.
    first: u32,
    /// The number of the next new frame.
    next: u32,
    /// Total bytes of the frames below `first`.
    acknowledged: u64,
    /// Total bytes of the frames below `next`.
    sent: u64,
    /// Total bytes of the frames that the application has queued.
    accepted: u64,
    /// The total bytes up to which the receiver has granted credit.
    granted: u64,
    /// Bytes on the wire of the frames that are believed to be in the network.
    pipe: u64,
    /// Whether the last transmission was a retransmission.
    has_retransmitted: bool,
    /// The number of transmissions so far, retransmissions included.
    transmissions: u64,
    /// Frames that are lost and were not sent again.
    lost: u32,
    /// The number from which to look for the next lost frame.
    turn: u32,
    /// A loss event has begun, and its first retransmission does not wait for the window.
    is_repair_due: bool,
    /// The value of `next` at the last loss event. Losses below it belong to that event, so there
    /// is one event in each round trip.
    recover: u32,
    /// Whether the window ended the last burst. If the application or the credit did, a larger
    /// window has no use.
    is_window_limited: bool,
    is_closed: bool,
    last_sent: Time,
    pacer: Pacer,
    /// When the frames in flight are given up as lost. With none in flight, when a closed credit is
    /// probed.
    timer: Option<Time>,
    /// The number of time-outs since the cumulative number last advanced.
    timeouts: u32,
    /// The first frame that the latest report names as missing.
    reported: u32,
    /// The number of probes of the closed credit in a row.
    probes: u32,
    /// The next acknowledgement repeats an earlier one, so it gives no round-trip time.
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
    /// The position of the last transmission among all transmissions of this sender.
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
            has_retransmitted: false,
            transmissions: 0,
            lost: 0,
            turn: 0,
            is_repair_due: false,
            recover: 0,
            is_window_limited: true,
            is_closed: false,
            last_sent: Time::ZERO,
            pacer: Pacer::default(),
            timer: None,
            timeouts: 0,
            reported: 0,
            probes: 0,
            is_repeat_due: false,
        }
    }

    /// Returns the current retransmission time-out, back-off included.
    pub(super) fn timeout(&self) -> Duration {
        self.rtt.timeout()
    }

    /// Backs off the time-out, after an Open without an answer.
    pub(super) fn back_off(&mut self) {
        self.rtt.back_off();
    }

    /// Returns cwnd in frames.
    pub(super) fn window_frames(&self) -> f64 {
        self.window.frames()
    }

    /// Returns the free bytes of the send buffer.
    pub(super) fn room(&self) -> u32 {
        (self.send_buffer - (self.accepted - self.acknowledged)) as u32
    }

    /// Returns whether all frames and the closing are acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.frames.is_empty()
    }

    /// Returns when to call [`handle_timeout`](Sender::handle_timeout) next, if at all.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.timer
            .into_iter()
            .chain(self.pacer.poll_timeout())
            .min()
    }

    /// Sets the first credit in bytes, which the other end grants with its Open or Accept.
    pub(super) fn grant(&mut self, credit: u32) {
        self.granted = credit.into();
    }

    /// Replaces the first credit in bytes, unless an acknowledgement has replaced it already.
    pub(super) fn renew_grant(&mut self, credit: u32) {
        if self.first == 0 {
            self.grant(credit);
        }
    }

    /// Adds a frame to the send buffer.
    pub(super) fn send(&mut self, frame: Frame<P>) -> Result<(), SendError<P>> {
        let length = frame.payload.length();
        // The last number is reserved for the closing, so no number ever wraps.
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

    /// Closes the direction after the frames that are queued.
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

    /// Adds a sample of the round-trip time. A sample counts as at most four times the average: it
    /// may be that of a lost acknowledgement, which was repeated after a probe. A path that has
    /// become longer is still learned.
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

    /// Notes that the other end has answered a probe: its last acknowledgement follows once more.
    pub(super) fn expect_repeat(&mut self) {
        self.is_repeat_due = true;
    }

    /// Returns whether the last transmission was a retransmission.
    pub(super) fn has_retransmitted(&self) -> bool {
        self.has_retransmitted
    }

    /// Returns the next frame to send, lost frames first.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<(Body, Option<P>)> {
        let Some(number) = self.next_lost().or_else(|| self.next_new(now)) else {
            self.pacer.rest();
            self.is_window_limited = false;
            return None;
        };
        self.restart_if_idle(now);
        let wire_bytes = self.frame(number).item.wire_bytes();
        let is_repair = self.is_repair_due && self.lost > 0;
        let in_flight = self.pipe > 0;
        let reserve = match in_flight && !self.is_last(number) {
            true => self.pacer.reserve(&self.window, wire_bytes),
            false => 0,
        };
        let has_room = is_repair || self.window.has_room(self.pipe + reserve, wire_bytes);
        if !self.pacer.permits(now, &self.window, in_flight, has_room) {
            self.is_window_limited = true;
            return None;
        }
        let spacing = self.window.spacing(wire_bytes, self.rtt.average_s());
        self.pacer.note(now, &self.window, spacing);
        Some(self.transmit(now, number))
    }

    /// Returns whether no frame but this one is lost or new.
    fn is_last(&self, number: u32) -> bool {
        let new = self.frames.len() - (self.next - self.first) as usize;
        let is_new = number == self.next;
        self.lost as usize + new <= 1 || (is_new && self.next + 1 - self.first >= FLIGHT_FRAMES_MAX)
    }

    /// Returns the entry of a frame that is in the send buffer.
    fn frame(&mut self, number: u32) -> &mut Outgoing<P> {
        &mut self.frames[(number - self.first) as usize]
    }

    /// Returns whether the frame that the latest report names is sent before the first one: after
    /// every second time-out in a row.
    ///
    /// Behind a switch, the first frame may belong to a member that waits for another frame and has
    /// no room for the first. Sent alone, the first frame would then time out again and again.
    fn defers_first(&self) -> bool {
        let is_due = self.timeouts > 0 && self.timeouts.is_multiple_of(2);
        is_due && (self.first + 1..self.next).contains(&self.reported)
    }

    /// Returns the next lost frame: the first unacknowledged one, then the others in turn. Behind a
    /// switch, any of them may be the one for which a full receiver waits.
    fn next_lost(&mut self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        if self.frame(self.first).fate == Fate::Lost && !self.defers_first() {
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

    /// Returns the next new frame, if there is one and the receiver has room for it.
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
            self.is_repair_due = false;
        }
        self.has_retransmitted = !is_new;
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
        let congestion = self
            .window
            .header(now, wire_bytes, self.rtt.average_s(), used);
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
        debug_assert!(
            self.next - self.first <= FLIGHT_FRAMES_MAX,
            "an acknowledgement must be able to name every frame in flight"
        );
    }

    /// Handles an acknowledgement. Ignores it if it covers frames that were never sent.
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
        self.handle_answered(now, ack, is_repeated, events);
        self.advance(now, ack.cumulative);
        // Acknowledgements older than the last one have outdated credit.
        if ack.cumulative == self.first {
            self.granted = self.acknowledged + u64::from(ack.credit);
        }
        debug_assert!(
            self.acknowledged <= self.sent && self.sent <= self.accepted,
            "only sent bytes can be acknowledged, and only queued bytes can be sent"
        );
        let lost_before = self.lost;
        if ack.missing[0].frames > 0 {
            self.reported = ack.cumulative.saturating_add(ack.missing[0].offset.into());
        }
        for gap in ack.missing.iter().rev() {
            self.handle_missing(ack, gap, order);
        }
        if self.lost > lost_before && self.first >= self.recover {
            self.begin_repair(now);
            events.push_back(Event::LossEvent);
        }
    }

    /// Begins a loss event: reduces the window, sends the first lost frame without waiting for it
    /// (RFC 6675 section 5, step 4.3), and gives the repair the time of a time-out.
    fn begin_repair(&mut self, now: Time) {
        self.recover = self.next;
        self.window.on_loss();
        self.is_repair_due = true;
        self.timer = Some(now + self.rtt.timeout());
    }

    /// Marks the frame that the acknowledgement answers as arrived, and follows its feedback.
    fn handle_answered(
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
        let wire_bytes = outgoing.item.wire_bytes();
        // Karn's algorithm: it is unknown which transmission of a retransmitted frame is answered.
        // A frame that counts as lost may have been answered before: a switch answers a frame that
        // it holds beyond a gap, and the member answers it again after the gap is filled. An
        // acknowledgement after a probe may be as old as an outage.
        let is_first = outgoing.fate == Fate::Sent && !outgoing.is_retransmitted;
        if is_first && !is_repeated {
            self.sample_rtt(now - sent, events);
        }
        self.mark_acknowledged(ack.of);
        if self.timeouts > 0 {
            // The path works again, although the first frame may have to wait for others.
            self.rtt.end_back_off();
        }
        if self.timeouts > 0 || self.frame(self.first).fate == Fate::Acknowledged {
            // The first frame may wait for one of another member. The path works meanwhile.
            self.timer = Some(now + self.rtt.timeout());
        }
        if is_frame {
            let may_grow = self.is_window_limited && self.first >= self.recover;
            let rtt_s = self.rtt.average_s();
            self.window
                .on_ack(now, wire_bytes, rtt_s, ack.feedback, may_grow);
        }
    }

    /// Marks a frame as acknowledged: it is no longer in the network.
    fn mark_acknowledged(&mut self, number: u32) {
        let outgoing = self.frame(number);
        let wire_bytes = u64::from(outgoing.item.wire_bytes());
        match core::mem::replace(&mut outgoing.fate, Fate::Acknowledged) {
            Fate::Sent => self.pipe -= wire_bytes,
            Fate::Lost => self.lost -= 1,
            Fate::Acknowledged | Fate::Waiting => {}
        }
    }

    /// Removes all frames below `cumulative`, which have arrived.
    fn advance(&mut self, now: Time, cumulative: u32) {
        if cumulative <= self.first {
            return;
        }
        while self.first < cumulative {
            self.mark_acknowledged(self.first);
            let bytes = self.frame(self.first).item.bytes();
            self.acknowledged += u64::from(bytes);
            self.frames.pop_front();
            self.first += 1;
        }
        self.timeouts = 0;
        self.turn = self.first;
        self.rtt.end_back_off();
        self.timer = (self.first < self.next).then(|| now + self.rtt.timeout());
    }

    /// Marks frames that are reported missing as lost, if they were sent before the answered frame,
    /// whose transmission has position `order`. The lowest of them is the next to be sent.
    fn handle_missing(&mut self, ack: &Ack, gap: &Gap, order: u64) {
        let from = ack.cumulative.saturating_add(gap.offset.into());
        let to = from.saturating_add(gap.frames.into()).min(self.next);
        for number in (from.max(self.first)..to).rev() {
            if self.frame(number).order < order {
                self.mark_lost(number);
            }
            if self.frame(number).fate == Fate::Lost {
                self.turn = number;
            }
        }
    }

    /// Marks a frame as lost. The frame may have been acknowledged: only the cumulative number is
    /// final (RFC 2018 section 8). A switch acknowledges frames that it holds beyond a gap, and
    /// such a frame can be lost behind the switch.
    fn mark_lost(&mut self, number: u32) {
        let outgoing = self.frame(number);
        let wire_bytes = u64::from(outgoing.item.wire_bytes());
        match core::mem::replace(&mut outgoing.fate, Fate::Lost) {
            Fate::Sent => self.pipe -= wire_bytes,
            Fate::Lost => return,
            Fate::Acknowledged | Fate::Waiting => {}
        }
        self.lost += 1;
    }

    /// Handles the timer if it is due. Returns whether it was: then it is time to probe the other
    /// end.
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

    /// Marks all frames in flight as lost after a time-out (RFC 6298 section 5, 5.4 to 5.6),
    /// including those that were acknowledged individually (RFC 2018 section 8).
    fn on_timeout(&mut self, now: Time) {
        self.rtt.back_off();
        // The window shrinks only if the first frame did not arrive. If it was acknowledged
        // individually, it waits for another frame, behind a switch for one on another path.
        if self.frame(self.first).fate != Fate::Acknowledged {
            self.window.on_timeout(self.timeouts > 0);
        }
        self.timeouts += 1;
        (self.first..self.next).for_each(|number| self.mark_lost(number));
        if self.defers_first() {
            self.turn = self.reported;
        }
        // A loss that is reported from now on is a new event.
        self.recover = self.first;
        self.timer = Some(now + self.rtt.timeout());
    }
}

impl<P: Payload> Item<P> {
    /// Returns the packet that carries the item with number `sequence`.
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
