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

    /// Removes all segments below `upto`, which have arrived. Returns how many of them were in
    /// flight.
    pub(super) fn acknowledge(&mut self, upto: u32) -> u32 {
        let acknowledged = upto.saturating_sub(self.first).min(self.len());
        for mark in self.marks.drain(..acknowledged as usize) {
            self.in_network -= u32::from(in_network(mark));
            self.lost -= u32::from(mark == LOST);
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
        self.infer_losses();
    }

    fn sack_one(&mut self, number: u32) {
        if self.mark(number) == SACKED {
            return;
        }
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
                self.set_mark(number, LOST);
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
            self.set_mark(self.first, LOST);
            self.lost_from = self.first;
        }
    }

    /// Marks all segments as lost after a time-out, except SACKed ones: our receivers never discard
    /// what they have reported.
    pub(super) fn lose_all(&mut self) {
        for number in self.first..self.next() {
            if self.mark(number) != SACKED {
                self.set_mark(number, LOST);
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
