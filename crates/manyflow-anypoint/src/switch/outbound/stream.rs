//! The stream of frames from one member to the switch.

use core::time::Duration;

use super::super::acknowledgement::Acknowledgement;
use super::super::missing::Missing;
use super::super::numbered::Numbered;
use super::super::reorder::{Arrival, Reorder};
use super::super::ring::Ring;
use super::super::sequence::{MemberSeq, PeerSeq, Sequence};
use super::super::transform::Sending;
use manyflow_core::time::Time;
use manyflow_core::xcp::{Congestion, Feedback};

/// A member counts as silent after this many of its round trips, and not before [`QUIET`]. A silent
/// member has no share in the header for the peer.
const QUIET_ROUND_TRIPS: u32 = 4;
/// The shortest time after which a member counts as silent.
const QUIET: Duration = Duration::from_millis(100);

/// The weight of one frame in the average of the change that a member's path offers.
const OFFER_WEIGHT: f64 = 1.0 / 16.0;

/// The frames that came from one member, and how many of them have reached the peer.
#[derive(Debug)]
pub(super) struct Stream<P> {
    /// The member's frames, in the order of their numbers.
    arrivals: Reorder<MemberSeq, P>,
    /// The number towards the peer of each frame that the peer has not acknowledged.
    forwarded: Ring<MemberSeq, PeerSeq>,
    /// The frames that the peer misses, which are in `forwarded`, and those that were lost before
    /// they reached the switch.
    missing: Missing<MemberSeq>,
    /// The credit that the member was granted, in bytes from the first frame in `forwarded`.
    granted: u32,
    /// The bytes of the frames in `forwarded`, except those that the switch has never seen.
    used: u32,
    /// The peer has acknowledged frames whose acknowledgement was not yet sent to the member.
    has_progress: bool,
    /// The next number towards the peer at the last loss event on the leg to the peer in which the
    /// member lost a frame.
    reduced_before: PeerSeq,
    /// The number of the member's Close.
    close: Option<MemberSeq>,
    /// XCP's header of the member's latest frame, and the average offer of its path.
    sending: Sending,
    /// When the latest frame arrived.
    header_at: Option<Time>,
}

impl<P> Stream<P> {
    /// Creates an empty stream. At most `held_frames_max` frames are held beyond a gap.
    pub(super) fn new(held_frames_max: u32) -> Stream<P> {
        Stream {
            arrivals: Reorder::new(held_frames_max),
            forwarded: Ring::new(),
            missing: Missing::new(),
            granted: 0,
            used: 0,
            has_progress: false,
            reduced_before: PeerSeq::FIRST,
            close: None,
            sending: Sending::default(),
            header_at: None,
        }
    }

    /// Records the header of an arriving frame of `bytes`.
    pub(super) fn note_header(&mut self, now: Time, header: Congestion, bytes: u32) {
        let offered = header.feedback.bytes() / f64::from(bytes.max(1));
        self.sending.header = header;
        self.sending.offered += OFFER_WEIGHT * (offered - self.sending.offered);
        self.header_at = Some(now);
    }

    /// Returns XCP's header of the latest frame, and the average offer of the member's path.
    pub(super) fn latest(&self) -> Sending {
        self.sending
    }

    /// Returns the same as [`latest`](Stream::latest), if the member is still sending.
    pub(super) fn sending(&self, now: Time) -> Option<Sending> {
        let silence = now - self.header_at?;
        let round_trip = Duration::from_micros(self.sending.header.rtt_us.into());
        let is_sending = silence <= (round_trip * QUIET_ROUND_TRIPS).max(QUIET);
        is_sending.then_some(self.sending)
    }

    /// Returns whether the number lies after the member's Close.
    pub(super) fn is_beyond_close(&self, number: MemberSeq) -> bool {
        self.close.is_some_and(|close| close.is_before(number))
    }

    /// Returns the place of the number in the stream.
    pub(super) fn classify(&self, number: MemberSeq) -> Arrival {
        self.arrivals.classify(number)
    }

    /// Holds an element whose number is [`Arrival::Beyond`] or [`Arrival::Next`].
    pub(super) fn hold(&mut self, number: MemberSeq, item: Numbered<P>) {
        self.arrivals.hold(number, item);
        self.missing.remove(number);
        self.missing.extend(self.arrivals.find_missing());
    }

    /// Holds the element with the next number, for which there is no room at present.
    pub(super) fn hold_next(&mut self, item: Numbered<P>) {
        self.arrivals.hold(self.arrivals.next(), item);
    }

    /// Removes and returns the element that is held under the next number.
    pub(super) fn take_next(&mut self) -> Option<Numbered<P>> {
        self.arrivals.take_next()
    }

    /// Completes the next number, and returns the element that was held under the one after it.
    pub(super) fn advance(&mut self) -> Option<Numbered<P>> {
        self.arrivals.advance()
    }

    /// Completes the next number, which is that of the Close.
    pub(super) fn close_next(&mut self) {
        debug_assert!(self.close.is_none(), "a stream closes once");
        let close = self.arrivals.next();
        self.close = Some(close);
        self.missing.remove(close);
        self.arrivals.advance();
    }

    /// Assigns the next frame the number `number` towards the peer. Returns its number in this
    /// stream.
    pub(super) fn forward(&mut self, number: PeerSeq) -> MemberSeq {
        let sequence = self.forwarded.next();
        self.forwarded.push(number);
        self.missing.remove(sequence);
        sequence
    }

    /// Counts the `bytes` of a forwarded frame that was counted with `before` bytes: 0 if the
    /// switch had not seen the frame.
    pub(super) fn count_bytes(&mut self, before: u32, bytes: u32) {
        self.used = self.used.saturating_sub(before).saturating_add(bytes);
    }

    /// Returns the number towards the peer of a frame that the peer has not acknowledged.
    pub(super) fn peer_number(&self, number: MemberSeq) -> Option<PeerSeq> {
        self.forwarded.get(number).copied()
    }

    /// Returns the number towards the peer of the first frame that the peer has not acknowledged.
    pub(super) fn first_unacknowledged(&self) -> Option<PeerSeq> {
        self.forwarded.front().copied()
    }

    /// Records that the peer misses a frame.
    pub(super) fn note_missing(&mut self, number: MemberSeq) {
        self.missing.insert(number);
    }

    /// Records that a frame that was last sent before the frame `sent_before` was lost on the way
    /// to the peer. `next` is the next number. The member will reduce its window for the loss, once
    /// in a round trip.
    pub(super) fn note_loss(&mut self, sent_before: PeerSeq, next: PeerSeq) {
        if self.reduced_before.is_before(sent_before) {
            self.reduced_before = next;
        }
    }

    /// Returns whether the frame with this number towards the peer was sent before the member could
    /// know of its latest loss. The answers to such frames come while the member reduces its window
    /// for that loss, so they must not reduce it once more.
    pub(super) fn reduces_itself(&self, number: PeerSeq) -> bool {
        number.is_before(self.reduced_before)
    }

    /// Records that the peer has the frame, or that the member has just sent it again.
    pub(super) fn note_arrived(&mut self, number: MemberSeq) {
        self.missing.remove(number);
    }

    /// Forgets the first frame, of `bytes`: the peer's cumulative acknowledgement covers it.
    pub(super) fn forget(&mut self, number: MemberSeq, bytes: u32) {
        debug_assert_eq!(
            self.forwarded.base(),
            number,
            "frames reach the peer in order"
        );
        self.forwarded.pop();
        self.missing.remove(number);
        self.granted = self.granted.saturating_sub(bytes);
        self.count_bytes(bytes, 0);
        self.has_progress = true;
    }

    /// Returns whether frames have reached the peer since this was last called.
    pub(super) fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.has_progress)
    }

    /// Returns whether the member has closed its stream.
    pub(super) fn is_closed(&self) -> bool {
        self.close.is_some()
    }

    /// Returns whether the number is that of the member's Close, and frames before it have not
    /// reached the peer. The Close is acknowledged when they have.
    pub(super) fn is_pending_close(&self, number: MemberSeq) -> bool {
        self.close == Some(number) && !self.forwarded.is_empty()
    }

    /// Returns the number of the member's Close, if all frames before it have reached the peer.
    pub(super) fn completed_close(&self) -> Option<MemberSeq> {
        self.close.filter(|_| self.forwarded.is_empty())
    }

    /// Returns whether everything that the member sends, its Close included, has reached the peer.
    pub(super) fn has_sent_all(&self) -> bool {
        self.completed_close().is_some()
    }

    /// Returns the cumulative number for the member: every frame before it, and the Close if it is
    /// before it, has reached the peer.
    pub(super) fn cumulative(&self) -> MemberSeq {
        match self.completed_close() {
            Some(close) => close.next(),
            None => self.forwarded.base(),
        }
    }

    /// Returns the next number at the switch, and the first that the peer has not acknowledged.
    pub(super) fn marks(&self) -> [u32; 2] {
        [self.arrivals.next(), self.forwarded.base()].map(Sequence::to_wire)
    }

    /// Returns the bytes that the member was granted.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// Returns whether the member was granted room for a further frame of `bytes`.
    pub(super) fn has_room(&self, bytes: u32) -> bool {
        self.used.saturating_add(bytes) <= self.granted
    }

    /// Sets the credit that the member is granted, in bytes.
    pub(super) fn grant(&mut self, credit: u32) {
        self.granted = credit;
    }

    /// Returns the acknowledgement of frame `of`, which grants `credit` bytes. A larger earlier
    /// grant remains valid, because frames that use it may be on their way.
    pub(super) fn acknowledge(
        &mut self,
        of: MemberSeq,
        credit: u32,
        feedback: Feedback,
    ) -> Acknowledgement<MemberSeq> {
        self.granted = self.granted.max(credit);
        let cumulative = self.cumulative();
        Acknowledgement {
            cumulative,
            of,
            credit: self.granted,
            feedback,
            missing: self.missing.report(cumulative),
        }
    }

    /// Records the Close that the member sends with number `close`, and that passes unchanged.
    pub(super) fn note_close(&mut self, close: MemberSeq) {
        self.close = Some(close);
    }

    /// Records that every number before `next` has passed unchanged, or was lost before the switch.
    pub(super) fn skip_to(&mut self, next: MemberSeq) {
        self.arrivals.skip_to(next);
    }
}
