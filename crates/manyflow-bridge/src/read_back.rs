//! Which messages of another site's stream are stored here: read from the end of this site's
//! stream, as a state machine.
//!
//! Each message that a bridge stores has its [place](Place) in the other stream, and the highest
//! place that was stored when it was. Messages arrive in another order than that of their places if
//! some are sent again, but the highest place only rises. So a message whose highest place is
//! lower than the one that is wanted proves that all before it are lower, too, and the stream need
//! not be read further back. No clock is involved, and no message of other programs matters.

use std::ops::Range;

use crate::places::Place;

/// The number of messages in the part that is read first. Each further part is larger.
const PART: u64 = 1000;
/// The ratio of the sizes of two parts.
const GROWTH: u64 = 4;

/// A message that a bridge has stored here for the stream of the other site.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bridged {
    /// Its place in the other stream.
    pub place: Place,
    /// The highest place that was stored here when it was, if its bridge has written one.
    pub highest: Option<Place>,
}

/// Reads a stream back until all messages from a place of the other stream on are known.
#[derive(Debug)]
pub struct ReadBack {
    from: Place,
    /// The first sequence number of this site's stream.
    first: u64,
    /// The sequence numbers of the next part; empty at the end.
    part: Range<u64>,
    /// Whether a message of another site was in this part.
    has_begun: bool,
    /// Whether all messages before this part have lower places.
    is_last: bool,
    stored: Vec<Place>,
    highest: Option<Place>,
}

impl ReadBack {
    /// Begins to read a stream with messages numbered `first` to `last`, for those of the other
    /// stream from the place `from` on.
    pub fn new(from: Place, first: u64, last: u64) -> ReadBack {
        // A stream without a message begins at 0.
        let (first, end) = (first.max(1), last.saturating_add(1));
        ReadBack {
            from,
            first,
            part: end.saturating_sub(PART).max(first)..end,
            has_begun: false,
            is_last: false,
            stored: Vec::new(),
            highest: None,
        }
    }

    /// Returns the sequence numbers of the part to be read next, or `None` when enough is known.
    pub fn part(&self) -> Option<Range<u64>> {
        (!self.part.is_empty()).then(|| self.part.clone())
    }

    /// Handles a message that a bridge has stored in the part, in their order.
    pub fn handle(&mut self, message: Bridged) {
        debug_assert!(!self.part.is_empty(), "nothing is being read");
        let Bridged { place, highest } = message;
        if !self.has_begun {
            self.has_begun = true;
            self.is_last = highest.is_some_and(|highest| highest < self.from);
        }
        if place >= self.from {
            self.stored.push(place);
        }
        self.highest = self.highest.max(highest).max(Some(place));
    }

    /// Handles the end of the part.
    pub fn handle_end(&mut self) {
        let Range { start, end } = self.part;
        let size = (end - start).saturating_mul(GROWTH);
        self.part = match self.is_last {
            true => start..start,
            false => start.saturating_sub(size).max(self.first)..start,
        };
        self.has_begun = false;
    }

    /// Returns the messages that are stored here from the wanted place on, and the highest place.
    pub fn finish(self) -> (Vec<Place>, Option<Place>) {
        debug_assert!(self.part.is_empty(), "a part is not read");
        (self.stored, self.highest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arrivals::{Arrivals, Verdict};

    fn place(sequence: u64) -> Place {
        Place {
            created_ns: 1,
            sequence,
        }
    }

    /// The stream of this site: messages of bridges, and of other programs.
    #[derive(Debug, Default)]
    struct Stored(Vec<Option<Bridged>>);

    impl Stored {
        fn others(&mut self, count: usize) {
            self.0.extend(std::iter::repeat_n(None, count));
        }

        /// Reads it back. Also returns how many messages were read.
        fn read(&self, from: Place) -> (Vec<Place>, Option<Place>, u64) {
            let mut read = ReadBack::new(from, 1, self.0.len() as u64);
            let mut count = 0;
            while let Some(part) = read.part() {
                count += part.end - part.start;
                for sequence in part {
                    if let Some(message) = self.0[sequence as usize - 1] {
                        read.handle(message);
                    }
                }
                read.handle_end();
            }
            let (stored, highest) = read.finish();
            (stored, highest, count)
        }

        /// Lets a message arrive at a bridge with these messages known. It is stored if the bridge
        /// wants to.
        fn arrive(&mut self, arrivals: &mut Arrivals, place: Place, floor: u64) -> bool {
            let mut verdict = arrivals.handle(place, floor);
            if verdict == Verdict::ReadBack {
                let (stored, highest, _) = self.read(place);
                arrivals.handle_read(place, stored, highest);
                verdict = arrivals.handle(place, floor);
            }
            match verdict {
                Verdict::Store { highest } => {
                    let highest = Some(highest);
                    self.0.push(Some(Bridged { place, highest }));
                    true
                }
                Verdict::Report | Verdict::Wait => false,
                Verdict::ReadBack => panic!("it was read"),
            }
        }
    }

    #[test]
    fn only_the_end_of_a_long_stream_is_read() {
        let (mut stored, mut arrivals) = (Stored::default(), Arrivals::default());
        for sequence in 1..=10_000 {
            assert!(stored.arrive(&mut arrivals, place(sequence), sequence));
            arrivals.handle_end(place(sequence), true);
        }
        let (found, highest, read) = stored.read(place(9_990));
        assert_eq!(found, (9_990..=10_000).map(place).collect::<Vec<_>>());
        assert_eq!((highest, read), (Some(place(10_000)), PART));
        assert_eq!(stored.read(place(10_001)).0, []);
    }

    #[test]
    fn messages_of_other_programs_are_passed_over() {
        let (mut stored, mut arrivals) = (Stored::default(), Arrivals::default());
        stored.arrive(&mut arrivals, place(1), 1);
        stored.others(20_000);
        let (found, _, read) = stored.read(place(1));
        assert_eq!((found, read), (vec![place(1)], 20_001));
        assert_eq!(stored.read(place(2)).0, []);
    }

    #[test]
    fn messages_without_a_highest_place_prove_nothing() {
        let mut stored = Stored::default();
        let old = |sequence| Bridged {
            place: place(sequence),
            highest: None,
        };
        stored.0.push(Some(old(7)));
        stored.others(2_000);
        stored.0.push(Some(old(3)));
        let (found, highest, _) = stored.read(place(7));
        assert_eq!((found, highest), (vec![place(7)], Some(place(7))));
    }

    #[test]
    fn an_empty_stream_has_no_part() {
        assert_eq!(ReadBack::new(place(1), 1, 0).part(), None);
        assert_eq!(ReadBack::new(place(1), 0, 0).part(), None);
        assert_eq!(ReadBack::new(place(1), 5, 4).part(), None);
    }

    /// An act of a run with failures.
    #[derive(Clone, Debug)]
    enum Act {
        /// A message arrives, which may have arrived before.
        Arrive(u64),
        /// The acknowledgement of a message comes, or does not.
        End(u64, bool),
        /// The bridge ends, and another one begins; or only the connection is lost.
        Restart(bool),
        /// Other programs store messages.
        Others(usize),
        /// The other site sends none below this one again.
        Raise(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            8 => (1..40_u64).prop_map(Act::Arrive),
            4 => (1..40_u64, any::<bool>()).prop_map(|(sequence, ok)| Act::End(sequence, ok)),
            1 => any::<bool>().prop_map(Act::Restart),
            1 => (0..1500_usize).prop_map(Act::Others),
            1 => (1..40_u64).prop_map(Act::Raise),
        ]
    }

    proptest! {
        #[test]
        fn nothing_is_stored_twice_whatever_fails(acts in prop::collection::vec(act(), 0..80)) {
            let (mut stored, mut arrivals) = (Stored::default(), Arrivals::default());
            let mut floor = 1;
            for act in acts {
                match act {
                    Act::Arrive(sequence) => {
                        let floor = floor.min(sequence);
                        stored.arrive(&mut arrivals, place(sequence), floor);
                    }
                    Act::End(sequence, is_stored) => {
                        let bridged = stored.0.iter().flatten();
                        let mut places = bridged.map(|message| message.place);
                        // The message is in the stream, and its acknowledgement may be lost.
                        if places.any(|stored| stored == place(sequence)) {
                            arrivals.handle_end(place(sequence), is_stored);
                        }
                    }
                    Act::Restart(true) => arrivals = Arrivals::default(),
                    Act::Restart(false) => arrivals.handle_disconnect(),
                    Act::Others(count) => stored.others(count),
                    Act::Raise(sequence) => floor = floor.max(sequence),
                }
            }
            let bridged = stored.0.iter().flatten();
            let mut places: Vec<_> = bridged.map(|message| message.place).collect();
            let count = places.len();
            places.sort();
            places.dedup();
            prop_assert_eq!(places.len(), count);
        }
    }
}
