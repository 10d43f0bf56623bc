//! The segments between the first unacknowledged one and the highest sent: the scoreboard of RFC
//! 6675 and its pipe.
//!
//! The pipe is the number of segments that are assumed to be in the network. The mark of a segment
//! decides whether it counts:
//!
//! ```text
//!   sent: 1 --SACKed--> 0        sent: 1 --lost--> 0 --retransmitted--> 1 --SACKed--> 0
//! ```
//!
//! NewReno has no SACK and counts duplicate acknowledgements instead: each shows that one segment
//! has left the network, but not which. RFC 6582 adds them to the window, which gives the same
//! comparison.

use std::collections::VecDeque;

use manyflow_core::time::Time;

use super::control::{Delivery, Lost};
use super::delivery::Deliveries;
use super::rack::Rack;

const SENT: u8 = 0;
const SACKED: u8 = 1;
const LOST: u8 = 2;
const RETRANSMITTED: u8 = 3;

/// The number of SACKed segments above a segment that show its loss (RFC 6675 section 2,
/// DupThresh).
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;

/// The segments in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The first unacknowledged segment's number.
    first: u32,
    /// The mark of each segment from `first` on.
    marks: VecDeque<u8>,
    /// The number of segments whose mark says that they are in the network.
    in_network: u32,
    /// The number of lost segments that were not retransmitted, and a lower bound of their numbers.
    lost: u32,
    lost_from: u32,
    /// The number of segments that have left the network, as NewReno knows from duplicates.
    duplicates: u32,
    /// The three highest SACKed numbers, in ascending order. Segments below the first of them that
    /// are not SACKed are lost.
    highest_sacked: [u32; DUPLICATE_THRESHOLD as usize],
    /// The number below which losses were inferred already.
    judged: u32,
    /// The blocks of the last acknowledgement that had any. Most of the next one's blocks are the
    /// same.
    last_blocks: [(u32, u32); 3],
    /// The number of segments that the present acknowledgement has delivered.
    delivered: u32,
    /// The number of SACKed segments.
    sacked: u32,
    /// The records of the segments, if deliveries are measured.
    deliveries: Option<Deliveries>,
    /// Detects losses by time, instead of counts; needs the records.
    rack: Option<Rack>,
}

/// Returns whether a segment with this mark is in the network.
fn in_network(mark: u8) -> bool {
    mark == SENT || mark == RETRANSMITTED
}

impl Flight {
    /// Returns the number of the first unacknowledged segment (SND.UNA).
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number of the next new segment (SND.NXT, HighData + 1).
    pub(super) fn next(&self) -> u32 {
        self.first + self.marks.len() as u32
    }

    /// Returns FlightSize in segments (RFC 5681).
    pub(super) fn len(&self) -> u32 {
        self.marks.len() as u32
    }

    /// Returns the number of segments in the network (RFC 6675 section 4).
    pub(super) fn pipe(&self) -> u32 {
        self.in_network.saturating_sub(self.duplicates)
    }

    /// Returns the number of duplicate acknowledgements that count.
    pub(super) fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// Returns whether the first segment was lost. It may have been retransmitted since.
    pub(super) fn first_was_lost(&self) -> bool {
        matches!(self.marks.front(), Some(&(LOST | RETRANSMITTED)))
    }

    /// Returns whether a lost segment has not been retransmitted yet.
    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Keeps a record of each segment from now on, before any is sent, and detects losses by time
    /// if `with_rack`.
    pub(super) fn measure(&mut self, with_rack: bool) {
        debug_assert!(self.marks.is_empty(), "nothing was sent");
        self.deliveries = Some(Deliveries::default());
        self.rack = with_rack.then(Rack::default);
    }

    /// Returns the records of the segments, if deliveries are measured.
    pub(super) fn deliveries(&mut self) -> Option<&mut Deliveries> {
        self.deliveries.as_mut()
    }

    /// Begins an acknowledgement.
    pub(super) fn begin_acknowledgement(&mut self, now: Time) {
        self.delivered = 0;
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.begin(now);
        }
    }

    /// Returns the number of segments that the present acknowledgement has delivered
    /// (DeliveredData of RFC 6937).
    pub(super) fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Returns what the present acknowledgement has delivered, if deliveries are measured.
    pub(super) fn finish_acknowledgement(&mut self) -> Option<Delivery> {
        self.deliveries.as_mut()?.finish()
    }

    /// Returns the next segment that was marked as lost, if deliveries are measured.
    pub(super) fn pop_lost(&mut self) -> Option<Lost> {
        self.deliveries.as_mut()?.pop_lost()
    }

    /// Notes the time of the transmission of `number`, which is in the network already.
    pub(super) fn note_transmission(&mut self, now: Time, number: u32) {
        let (place, others) = (number - self.first, self.pipe().saturating_sub(1));
        let Some(deliveries) = &mut self.deliveries else {
            return;
        };
        deliveries.note_transmission(now, place, others);
        if let Some(rack) = &mut self.rack {
            rack.note_transmission(number, deliveries.record(place));
        }
    }

    /// Returns whether a segment is SACKed.
    pub(super) fn has_sacked(&self) -> bool {
        self.sacked > 0
    }

    /// Adds a new segment, which is sent. Returns its number.
    pub(super) fn send_new(&mut self) -> u32 {
        let number = self.next();
        self.marks.push_back(SENT);
        self.in_network += 1;
        number
    }

    /// Notes that the first lost segment is retransmitted. Returns its number.
    pub(super) fn retransmit(&mut self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        let from = self.lost_from.max(self.first);
        let number = (from..self.next()).find(|n| self.mark(*n) == LOST)?;
        self.set_mark(number, RETRANSMITTED);
        self.lost_from = number + 1;
        Some(number)
    }

    /// Notes that the last segment is sent again, although it may still be in the network. Returns
    /// its number.
    pub(super) fn retransmit_last(&mut self) -> Option<u32> {
        let mark = self.marks.back_mut().filter(|mark| in_network(**mark))?;
        *mark = RETRANSMITTED;
        Some(self.next() - 1)
    }

    /// Removes all segments below `upto`, which have arrived. Returns how many of them were in
    /// flight.
    pub(super) fn acknowledge(&mut self, upto: u32) -> u32 {
        let acknowledged = upto.saturating_sub(self.first).min(self.len());
        self.note_deliveries(acknowledged);
        for _ in 0..acknowledged {
            let Some(mark) = self.marks.pop_front() else {
                break;
            };
            self.delivered += u32::from(mark != SACKED);
            self.in_network -= u32::from(in_network(mark));
            self.lost -= u32::from(mark == LOST);
            self.sacked -= u32::from(mark == SACKED);
        }
        self.first += acknowledged;
        acknowledged
    }

    /// Marks the segments in the blocks of an acknowledgement as SACKed, and infers losses from
    /// them (RFC 6675 section 4, Update, IsLost).
    pub(super) fn sack(&mut self, blocks: &[(u32, u32); 3]) {
        if blocks[0].0 >= blocks[0].1 {
            return;
        }
        for &(from, to) in blocks {
            let (from, to) = (from.max(self.first), to.min(self.next()));
            let known = self.last_blocks.iter().find(|b| b.0 <= from && from < b.1);
            for number in known.map_or(from, |block| block.1)..to {
                self.sack_one(number);
            }
        }
        self.last_blocks = *blocks;
        if self.rack.is_none() {
            self.infer_losses();
        }
    }

    /// Notes the delivery of the first `count` segments, except SACKed ones, which were noted then.
    fn note_deliveries(&mut self, count: u32) {
        if self.deliveries.is_none() {
            return;
        }
        for place in 0..count {
            if self.marks[place as usize] != SACKED {
                self.note_delivery(self.first + place);
            }
        }
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.forget(count);
        }
    }

    fn note_delivery(&mut self, number: u32) {
        let Some(deliveries) = &mut self.deliveries else {
            return;
        };
        let record = deliveries.note_delivery(number - self.first);
        if let Some(rack) = &mut self.rack {
            rack.note_delivery(
                deliveries.now(),
                number,
                &record,
                deliveries.minimum_rtt_s(),
            );
        }
    }

    /// Marks the segments as lost that were overtaken (RFC 8985 section 6.2, step 5), if losses are
    /// detected by time. Returns the time at which the next one may count as lost.
    pub(super) fn detect_losses(
        &mut self,
        now: Time,
        is_recovery: bool,
        average_rtt_s: f64,
    ) -> Option<Time> {
        let minimum_rtt_s = self.deliveries.as_ref()?.minimum_rtt_s();
        let is_urgent = is_recovery || self.sacked >= DUPLICATE_THRESHOLD;
        let window = self
            .rack
            .as_ref()?
            .reordering_window(is_urgent, average_rtt_s, minimum_rtt_s);
        loop {
            self.forget_settled_transmissions();
            let (number, lost_at) = self.rack.as_ref()?.first_overtaken(window)?;
            if lost_at > now {
                return Some(lost_at);
            }
            self.lose(number);
        }
    }

    /// Removes the first transmissions as long as they are those of segments that were delivered,
    /// lost, or sent again.
    fn forget_settled_transmissions(&mut self) {
        while let Some(first) = self.rack.as_ref().and_then(Rack::first) {
            let in_flight = first.number >= self.first && in_network(self.mark(first.number));
            let deliveries = self.deliveries.as_ref();
            let order = |place| deliveries.map(|all| all.record(place).order);
            if in_flight && order(first.number - self.first) == Some(first.order) {
                return;
            }
            if let Some(rack) = &mut self.rack {
                rack.pop();
            }
        }
    }

    fn lose(&mut self, number: u32) {
        self.set_mark(number, LOST);
        self.lost_from = self.lost_from.min(number);
        let place = number - self.first;
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.note_loss(place);
        }
    }

    fn sack_one(&mut self, number: u32) {
        if self.mark(number) == SACKED {
            return;
        }
        self.delivered += 1;
        self.note_delivery(number);
        self.set_mark(number, SACKED);
        if number > self.highest_sacked[0] {
            self.highest_sacked[0] = number;
            self.highest_sacked.sort_unstable();
        }
    }

    /// Marks segments with three SACKed segments above them as lost. The third highest SACKed
    /// number never falls, so each segment is judged once.
    fn infer_losses(&mut self) {
        let below = self.highest_sacked[0];
        for number in self.judged.max(self.first)..below {
            if self.mark(number) == SENT {
                self.lose(number);
            }
        }
        self.judged = self.judged.max(below);
    }

    /// Counts a duplicate for NewReno: one more segment has left the network.
    pub(super) fn count_duplicate(&mut self) {
        self.duplicates += 1;
    }

    /// Handles a partial acknowledgement of `acknowledged` segments for NewReno: one of them was
    /// the retransmitted segment, the others had been counted as duplicates (RFC 6582 section 3.2,
    /// step 3: deflate the window).
    pub(super) fn deflate(&mut self, acknowledged: u32) {
        self.duplicates = self.duplicates.saturating_sub(acknowledged - 1);
    }

    /// Resets NewReno's count of duplicates, as they are all acknowledged.
    pub(super) fn forget_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// Marks the first segment as lost, for NewReno.
    pub(super) fn lose_first(&mut self) {
        if !self.marks.is_empty() {
            self.lose(self.first);
        }
    }

    /// Marks all segments as lost after a time-out, except SACKed ones: our receivers never discard
    /// what they have reported.
    pub(super) fn lose_all(&mut self) {
        for number in self.first..self.next() {
            match self.mark(number) {
                SACKED | LOST => {}
                _ => self.lose(number),
            }
        }
        self.lost_from = self.first;
        self.judged = self.next();
        self.duplicates = 0;
    }

    fn mark(&self, number: u32) -> u8 {
        self.marks[(number - self.first) as usize]
    }

    fn set_mark(&mut self, number: u32, mark: u8) {
        let place = &mut self.marks[(number - self.first) as usize];
        let old = core::mem::replace(place, mark);
        self.in_network =
            self.in_network + u32::from(in_network(mark)) - u32::from(in_network(old));
        self.lost = self.lost + u32::from(mark == LOST) - u32::from(old == LOST);
        self.sacked = self.sacked + u32::from(mark == SACKED) - u32::from(old == SACKED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: (u32, u32) = (0, 0);

    fn flight(segments: u32) -> Flight {
        let mut flight = Flight::default();
        (0..segments).for_each(|n| assert_eq!(flight.send_new(), n));
        flight
    }

    #[test]
    fn three_sacked_segments_above_make_a_loss() {
        let mut flight = flight(10);
        flight.sack(&[(2, 4), NONE, NONE]);
        assert!(!flight.first_was_lost());
        assert_eq!(flight.pipe(), 8);
        flight.sack(&[(7, 8), (2, 4), NONE]);
        // Segments 0 and 1 have 2, 3 and 7 above them; 4, 5 and 6 have only 7.
        assert!(flight.first_was_lost());
        assert_eq!(flight.pipe(), 5);
        assert_eq!(
            [flight.retransmit(), flight.retransmit()],
            [Some(0), Some(1)]
        );
        assert_eq!((flight.retransmit(), flight.pipe()), (None, 7));
    }

    #[test]
    fn an_acknowledgement_takes_away_what_was_sacked_lost_and_retransmitted() {
        let mut flight = flight(10);
        flight.sack(&[(6, 10), NONE, NONE]);
        flight.retransmit();
        assert_eq!(flight.acknowledge(3), 3);
        assert_eq!((flight.pipe(), flight.len()), (0, 7));
        assert_eq!(flight.retransmit(), Some(3));
        assert_eq!(flight.acknowledge(10), 7);
        assert_eq!((flight.pipe(), flight.has_lost()), (0, false));
    }

    #[test]
    fn after_a_time_out_all_goes_again_but_what_is_sacked() {
        let mut flight = flight(5);
        flight.sack(&[(1, 3), NONE, NONE]);
        flight.lose_all();
        assert_eq!(flight.pipe(), 0);
        let again: Vec<u32> = core::iter::from_fn(|| flight.retransmit()).collect();
        assert_eq!(again, [0, 3, 4]);
    }

    #[test]
    fn blocks_outside_the_flight_are_cut_to_it() {
        let mut flight = flight(5);
        flight.acknowledge(2);
        flight.sack(&[(0, 4), (3, u32::MAX), (9, 2)]);
        assert_eq!(flight.pipe(), 0);
    }

    #[test]
    fn duplicates_count_as_left_and_partial_acknowledgements_take_them_back() {
        let mut flight = flight(10);
        (0..6).for_each(|_| flight.count_duplicate());
        flight.lose_first();
        assert_eq!((flight.retransmit(), flight.pipe()), (Some(0), 4));
        // Segment 4 is lost as well: the retransmission of 0 fills the gap up to it, and 1 to 3
        // were three of the duplicates.
        flight.deflate(4);
        flight.acknowledge(4);
        assert_eq!((flight.duplicates(), flight.pipe()), (3, 3));
    }
}
