//! What the switch knows of a member.

use super::missing::Missing;
use super::reorder::Reorder;
use super::ring::Ring;
use crate::anypoint::{Data, UNLIMITED};
use crate::time::Time;
use crate::xcp::{Congestion, WindowChange};

/// The weight of an acknowledgement in a member's feedback. A router gives neighbouring packets unlike parts of its budget, so the
/// least of the latest values of several members is less than any of their paths means; of averages it is not.
const FEEDBACK_WEIGHT: f64 = 1.0 / 8.0;

/// How far a member has come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is to be sent an Open, when the peer's credit has room for it.
    Waiting,
    /// It was sent an Open.
    Opening,
    /// It takes frames.
    Open,
    /// It gets no new frames and a Close; what it has to say is still heard.
    Leaving,
    /// It has left, or was gone when the connection was opened.
    Left,
    /// It answered nothing for too long, gave up, or left before it had accepted: what it says is not heard.
    Failed,
}

/// A member, and its two streams.
#[derive(Debug)]
pub(super) struct Member<P> {
    pub(super) state: State,
    /// When something came from it.
    pub(super) heard: Time,
    /// When it was seen to owe no answer.
    pub(super) idle: Time,
    /// It was sent a Probe and has not answered.
    pub(super) probed: bool,
    /// It has sent a Probe: it wants to know whether the peer lives.
    pub(super) asks: bool,
    /// Its place among the candidates.
    pub(super) place: Option<usize>,

    // Inbound: its numbers are ours.
    /// The peer's number of each of its frames.
    pub(super) sent: Ring<u32>,
    /// It has acknowledged all below.
    pub(super) acknowledged: u32,
    /// Frames sent and not acknowledged.
    pub(super) outstanding: u32,
    /// The number of our Close to it.
    pub(super) close: Option<u32>,
    pub(super) close_acknowledged: bool,
    /// What it grants.
    pub(super) credit: u32,
    /// What its acknowledgements bring, averaged.
    pub(super) feedback: Option<WindowChange>,

    // Outbound: its numbers are its own.
    pub(super) arrivals: Reorder<P>,
    /// Our number towards the peer of each of its frames that the peer has not acknowledged.
    pub(super) forwarded: Ring<u32>,
    /// Those of them that the peer misses, by the member's numbers.
    pub(super) missing: Missing,
    /// Bytes from the first of these on that it was told it may send.
    pub(super) granted: u32,
    /// More of them have reached the peer than it has heard.
    pub(super) has_news: bool,
    /// The number of its Close.
    pub(super) closed: Option<u32>,
    /// XCP's header of its latest frame.
    pub(super) header: Congestion,
    /// When that came.
    pub(super) header_at: Option<Time>,
}

impl<P> Member<P> {
    pub(super) fn new(state: State, now: Time, held_frames_max: u32) -> Member<P> {
        Member {
            state,
            heard: now,
            idle: now,
            probed: false,
            asks: false,
            place: None,
            sent: Ring::new(),
            acknowledged: 0,
            outstanding: 0,
            close: None,
            close_acknowledged: false,
            credit: UNLIMITED,
            feedback: None,
            arrivals: Reorder::new(held_frames_max),
            forwarded: Ring::new(),
            missing: Missing::default(),
            granted: 0,
            has_news: false,
            closed: None,
            header: Congestion::default(),
            header_at: None,
        }
    }

    /// Whether it belongs to the connection.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.state, State::Left | State::Failed)
    }

    /// Whether frames of both ways may pass.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Leaving)
    }

    /// Whether it should answer something.
    pub(super) fn owes_an_answer(&self) -> bool {
        let close = self.close.is_some() && !self.close_acknowledged;
        self.state == State::Opening || self.probed || self.outstanding > 0 || close
    }

    /// Whether both of its streams are closed, and all of both acknowledged: it may be gone.
    pub(super) fn is_done(&self) -> bool {
        self.close_acknowledged && self.has_sent_all()
    }

    /// Whether the connection would miss it.
    pub(super) fn is_needed(&self) -> bool {
        self.is_active() && !self.is_done()
    }

    /// Whether all that it has to say has reached the peer.
    pub(super) fn has_sent_all(&self) -> bool {
        self.closed.is_some() && self.forwarded.is_empty()
    }

    /// The number after the last that it was sent.
    pub(super) fn next_number(&self) -> u32 {
        let next = self.sent.next();
        next.wrapping_add(u32::from(self.close == Some(next)))
    }

    /// Of its own frames all below have reached the peer, its Close included.
    pub(super) fn cumulative(&self) -> u32 {
        match self.closed {
            Some(close) if self.forwarded.is_empty() => close.wrapping_add(1),
            _ => self.forwarded.base(),
        }
    }

    /// Takes note of what an acknowledgement brings, on its way to the peer.
    pub(super) fn note_feedback(&mut self, latest: WindowChange) {
        let average = self.feedback.unwrap_or(latest).bytes();
        let change = FEEDBACK_WEIGHT * (latest.bytes() - average);
        self.feedback = Some(WindowChange::from_bytes(average + change));
    }

    /// Takes note of a frame's header, on its way in.
    pub(super) fn note_header(&mut self, now: Time, data: &Data) {
        self.header = data.congestion;
        self.header_at = Some(now);
    }
}
