//! Messages of another site's stream that have arrived, as a state machine.

use std::collections::BTreeSet;

use crate::places::{Place, Places};

/// The maximum number of ranges of messages that are remembered. A stream whose messages all cross
/// is one range for each place at which one is missing.
const RANGES_MAX: usize = 200_000;

/// The decision about a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Store it, with the highest place that was stored here or is being stored.
    Store {
        /// The highest place, this message's included.
        highest: Place,
    },
    /// It is being stored; the report follows.
    Wait,
    /// It is stored: report it again.
    Report,
    /// It may be stored: read the stream back to it, and ask again after
    /// [`Arrivals::handle_read`].
    ReadBack,
}

/// The messages of another site's stream that are stored here, or being stored.
///
/// JetStream itself refuses a message that it has, but only for the time of its window for
/// duplicates. This remembers messages for as long as the other site may send them again. After a
/// start, a lost connection or a failure, it does not know all of them, and has them
/// [read](crate::read_back::ReadBack) from the stream itself.
#[derive(Debug, Default)]
pub struct Arrivals {
    storing: BTreeSet<Place>,
    stored: Places,
    /// All stored messages from this place on are in `stored`. Nothing is known without it.
    known_from: Option<Place>,
    /// The highest place that was stored or is being stored.
    highest: Option<Place>,
}

impl Arrivals {
    /// Handles a message from the other site. It sends none below `floor` again.
    pub fn handle(&mut self, place: Place, floor: u64) -> Verdict {
        self.forget_below(place.created_ns, floor);
        if self.stored.contains(place) {
            return Verdict::Report;
        }
        if self.storing.contains(&place) {
            return Verdict::Wait;
        }
        if self.known_from.is_none_or(|known| place < known) {
            return Verdict::ReadBack;
        }
        self.storing.insert(place);
        let highest = self.highest.map_or(place, |highest| highest.max(place));
        self.highest = Some(highest);
        debug_assert!(self.storing.iter().all(|storing| *storing <= highest));
        Verdict::Store { highest }
    }

    /// Handles all messages that the stream has from the place `from` on, and the highest place
    /// that it shows.
    pub fn handle_read(
        &mut self,
        from: Place,
        stored: impl IntoIterator<Item = Place>,
        highest: Option<Place>,
    ) {
        for place in stored {
            debug_assert!(place >= from, "lower ones are not complete");
            self.stored.insert(place);
        }
        self.highest = self.highest.max(highest);
        self.known_from = Some(self.known_from.map_or(from, |known| known.min(from)));
    }

    /// Handles the end of storing a message. One that failed may be stored nevertheless: its
    /// acknowledgement can be late or lost.
    pub fn handle_end(&mut self, place: Place, is_stored: bool) {
        // After a disconnect, a message may end that is no longer being stored.
        self.storing.remove(&place);
        if is_stored {
            self.stored.insert(place);
        } else {
            self.known_from = None;
        }
        while self.stored.ranges() > RANGES_MAX {
            let forgotten = self.stored.pop_first();
            let next = forgotten.and_then(Place::next);
            self.known_from = self.known_from.and_then(|known| Some(known.max(next?)));
        }
        debug_assert!(!self.storing.contains(&place));
        debug_assert!(self.stored.ranges() <= RANGES_MAX);
    }

    /// Handles the end of a connection: nobody stores messages any longer, and those that were
    /// being stored may have been.
    pub fn handle_disconnect(&mut self) {
        self.storing.clear();
        self.known_from = None;
    }

    fn forget_below(&mut self, created_ns: i64, sequence: u64) {
        let floor = Place {
            created_ns,
            sequence,
        };
        // Also those of earlier streams, which are created before.
        self.stored.remove_below(floor);
        self.known_from = self.known_from.map(|known| known.max(floor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(created_ns: i64, sequence: u64) -> Place {
        Place {
            created_ns,
            sequence,
        }
    }

    /// Returns arrivals of which all from the place on are known: none.
    fn known(from: Place) -> Arrivals {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.handle(from, from.sequence), Verdict::ReadBack);
        arrivals.handle_read(from, [], None);
        arrivals
    }

    fn store(highest: Place) -> Verdict {
        Verdict::Store { highest }
    }

    #[test]
    fn a_message_is_stored_once_and_reported_each_time() {
        let one = place(1, 1);
        let mut arrivals = known(one);
        assert_eq!(arrivals.handle(one, 1), store(one));
        assert_eq!(arrivals.handle(one, 1), Verdict::Wait);
        arrivals.handle_end(one, true);
        assert_eq!(arrivals.handle(one, 1), Verdict::Report);
    }

    #[test]
    fn after_a_failure_the_stream_says_what_it_has() {
        let (one, two) = (place(1, 1), place(1, 2));
        for fail in [
            |arrivals: &mut Arrivals| arrivals.handle_end(place(1, 1), false),
            Arrivals::handle_disconnect,
        ] {
            let mut arrivals = known(one);
            arrivals.handle(one, 1);
            fail(&mut arrivals);
            assert_eq!(arrivals.handle(one, 1), Verdict::ReadBack);
            arrivals.handle_read(one, [one], Some(one));
            assert_eq!(arrivals.handle(one, 1), Verdict::Report);
            assert_eq!(arrivals.handle(two, 1), store(two));
        }
    }

    #[test]
    fn messages_below_those_that_are_known_are_looked_for() {
        let mut arrivals = known(place(1, 5));
        assert_eq!(arrivals.handle(place(1, 4), 1), Verdict::ReadBack);
        arrivals.handle_read(place(1, 4), [place(1, 6)], Some(place(1, 9)));
        assert_eq!(arrivals.handle(place(1, 4), 1), store(place(1, 9)));
        assert_eq!(arrivals.handle(place(1, 6), 1), Verdict::Report);
        assert_eq!(arrivals.handle(place(1, 5), 1), store(place(1, 9)));
    }

    #[test]
    fn messages_below_the_floor_are_forgotten() {
        let mut arrivals = known(place(1, 1));
        for sequence in 1..=10 {
            arrivals.handle(place(1, sequence), 1);
            arrivals.handle_end(place(1, sequence), true);
        }
        assert_eq!(arrivals.handle(place(1, 10), 8), Verdict::Report);
        // A message that was still under way when the floor rose is not taken for a new one.
        assert_eq!(arrivals.handle(place(1, 7), 7), Verdict::ReadBack);
    }

    #[test]
    fn a_stream_that_is_made_again_has_other_messages() {
        let mut arrivals = known(place(1, 1));
        arrivals.handle(place(1, 1), 1);
        arrivals.handle_end(place(1, 1), true);
        assert_eq!(arrivals.handle(place(2, 1), 1), store(place(2, 1)));
        assert_eq!(arrivals.stored.ranges(), 0, "the old stream is forgotten");
    }

    #[test]
    fn the_messages_that_are_remembered_are_limited() {
        let mut arrivals = known(place(1, 1));
        for sequence in (1..).step_by(2).take(RANGES_MAX + 1) {
            arrivals.handle(place(1, sequence), 1);
            arrivals.handle_end(place(1, sequence), true);
        }
        assert_eq!(arrivals.stored.ranges(), RANGES_MAX);
        assert_eq!(arrivals.handle(place(1, 1), 1), Verdict::ReadBack);
        assert_eq!(arrivals.handle(place(1, 3), 1), Verdict::Report);
    }
}
