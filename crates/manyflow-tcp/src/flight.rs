//! The segments between the first unacknowledged one and the highest sent: RFC 6675's scoreboard, and its pipe.
//!
//! The pipe is the number of segments that are thought to be in the network. Each segment's mark says whether it counts:
//!
//! ```text
//!   sent: 1 --SACKed--> 0        sent: 1 --lost--> 0 --retransmitted--> 1 --SACKed--> 0
//! ```
//!
//! NewReno has no SACK and counts duplicate acknowledgements instead: each says that one segment, no matter which, has left
//! the network. RFC 6582 writes the same sum from the other side: it adds them to the window.

use std::collections::VecDeque;

const SENT: u8 = 0;
const SACKED: u8 = 1;
const LOST: u8 = 2;
const RETRANSMITTED: u8 = 3;

/// SACKed segments above one that are evidence of its loss (RFC 6675 section 2, DupThresh).
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;

/// The segments in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The first unacknowledged segment's number.
    first: u32,
    /// The mark of each segment from `first` on.
    marks: VecDeque<u8>,
    /// Segments whose mark says that they are in the network.
    in_network: u32,
    /// Lost segments that were not retransmitted, and a number that none of them is below.
    lost: u32,
    lost_from: u32,
    /// Segments that NewReno knows to have left the network.
    duplicates: u32,
    /// The three highest SACKed numbers, the lowest first: what is below the lowest and not SACKed is lost.
    highest_sacked: [u32; DUPLICATE_THRESHOLD as usize],
    /// Up to here losses were inferred.
    judged: u32,
    /// The blocks of the last acknowledgement that had any; most of the next one's is the same.
    last_blocks: [(u32, u32); 3],
}

/// Whether a segment with this mark is in the network.
fn in_network(mark: u8) -> bool {
    mark == SENT || mark == RETRANSMITTED
}

impl Flight {
    /// The first unacknowledged number (SND.UNA).
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The number of the next new segment (SND.NXT, HighData + 1).
    pub(super) fn next(&self) -> u32 {
        self.first + self.marks.len() as u32
    }

    /// FlightSize in segments (RFC 5681).
    pub(super) fn len(&self) -> u32 {
        self.marks.len() as u32
    }

    /// Segments in the network (RFC 6675 section 4).
    pub(super) fn pipe(&self) -> u32 {
        self.in_network.saturating_sub(self.duplicates)
    }

    /// Duplicate acknowledgements that count.
    pub(super) fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// Whether the first segment was lost; it may have been retransmitted since.
    pub(super) fn first_was_lost(&self) -> bool {
        matches!(self.marks.front(), Some(&(LOST | RETRANSMITTED)))
    }

    /// Whether a segment waits to be retransmitted.
    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// A new segment is sent; returns its number.
    pub(super) fn send_new(&mut self) -> u32 {
        let number = self.next();
        self.marks.push_back(SENT);
        self.in_network += 1;
        number
    }

    /// The first lost segment is retransmitted; returns its number.
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

    /// All below `upto` have arrived; returns how many of them are new.
    pub(super) fn acknowledge(&mut self, upto: u32) -> u32 {
        let acknowledged = upto.saturating_sub(self.first).min(self.len());
        for mark in self.marks.drain(..acknowledged as usize) {
            self.in_network -= u32::from(in_network(mark));
            self.lost -= u32::from(mark == LOST);
        }
        self.first += acknowledged;
        acknowledged
    }

    /// Takes in the blocks of an acknowledgement, and which segments are lost by them (RFC 6675 section 4, Update, IsLost).
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

    /// What has three SACKed segments above it is lost. The third highest never falls, so each segment is judged once.
    fn infer_losses(&mut self) {
        let below = self.highest_sacked[0];
        for number in self.judged.max(self.first)..below {
            if self.mark(number) == SENT {
                self.set_mark(number, LOST);
            }
        }
        self.judged = self.judged.max(below);
    }

    /// NewReno: one more segment has left the network.
    pub(super) fn count_duplicate(&mut self) {
        self.duplicates += 1;
    }

    /// NewReno: a partial acknowledgement of `acknowledged` segments: one was the retransmitted one, the others had been
    /// counted as duplicates (RFC 6582 section 3.2, step 3: deflate the window).
    pub(super) fn deflate(&mut self, acknowledged: u32) {
        self.duplicates = self.duplicates.saturating_sub(acknowledged - 1);
    }

    /// NewReno: all that was counted is acknowledged.
    pub(super) fn forget_duplicates(&mut self) {
        self.duplicates = 0;
    }

    /// NewReno: the first segment is lost.
    pub(super) fn lose_first(&mut self) {
        if !self.marks.is_empty() {
            self.set_mark(self.first, LOST);
            self.lost_from = self.first;
        }
    }

    /// After a time-out: nothing is in the network. What is SACKED stays so, since our receivers never take it back.
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
        // 0 and 1 have 2, 3 and 7 above them; 4, 5 and 6 have only 7.
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
        // Segment 4 is lost as well: 0 fills up to it, and 1 to 3 were three of the duplicates.
        flight.deflate(4);
        flight.acknowledge(4);
        assert_eq!((flight.duplicates(), flight.pipe()), (3, 3));
    }
}
