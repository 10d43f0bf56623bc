//! Messages of another site's stream that have arrived, as a state machine.

use std::collections::BTreeSet;

/// The maximum number of messages that are remembered: those that the other site has sent in 10 s
/// at 10,000 messages/s, twice.
const REMEMBERED_MAX: usize = 200_000;

/// A message's place: its stream's time of creation in nanoseconds since 1970, and its sequence
/// number. A stream that is deleted and made again numbers from 1 again.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The creation of the stream, in nanoseconds since 1970.
    pub created_ns: i64,
    /// The sequence number in the stream.
    pub sequence: u64,
}

/// The decision about a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Store it.
    Store,
    /// It is being stored; the report follows.
    Wait,
    /// It is stored: report it again.
    Report,
}

/// The messages of another site's stream that are stored here, or being stored.
///
/// JetStream itself refuses a message that it has, but only for the time of its window. This
/// remembers messages for as long as the other site may send them again, unless the process ends.
#[derive(Debug, Default)]
pub struct Arrivals {
    storing: BTreeSet<Place>,
    stored: BTreeSet<Place>,
}

impl Arrivals {
    /// Handles a message from the other site. It sends none below `floor` again.
    pub fn handle(&mut self, place: Place, floor: u64) -> Verdict {
        self.forget_below(place.created_ns, floor);
        if self.stored.contains(&place) {
            return Verdict::Report;
        }
        match self.storing.insert(place) {
            true => Verdict::Store,
            false => Verdict::Wait,
        }
    }

    /// Handles the end of storing a message. One that failed is stored when it arrives again.
    pub fn handle_end(&mut self, place: Place, is_stored: bool) {
        // After a disconnect, a message may end that is no longer being stored.
        self.storing.remove(&place);
        if is_stored {
            self.stored.insert(place);
        }
        while self.stored.len() > REMEMBERED_MAX {
            self.stored.pop_first();
        }
        debug_assert!(!self.storing.contains(&place));
        debug_assert!(self.stored.len() <= REMEMBERED_MAX);
    }

    /// Handles the end of a connection: nobody stores messages any longer.
    pub fn handle_disconnect(&mut self) {
        self.storing.clear();
    }

    fn forget_below(&mut self, created_ns: i64, sequence: u64) {
        let floor = Place {
            created_ns,
            sequence,
        };
        // Also those of earlier streams, which are created before.
        while self.stored.first().is_some_and(|first| *first < floor) {
            self.stored.pop_first();
        }
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

    #[test]
    fn a_message_is_stored_once_and_reported_each_time() {
        let mut arrivals = Arrivals::default();
        let one = place(1, 1);
        assert_eq!(arrivals.handle(one, 1), Verdict::Store);
        assert_eq!(arrivals.handle(one, 1), Verdict::Wait);
        arrivals.handle_end(one, true);
        assert_eq!(arrivals.handle(one, 1), Verdict::Report);
    }

    #[test]
    fn a_message_that_could_not_be_stored_is_stored_when_it_comes_again() {
        let mut arrivals = Arrivals::default();
        let one = place(1, 1);
        arrivals.handle(one, 1);
        arrivals.handle_end(one, false);
        assert_eq!(arrivals.handle(one, 1), Verdict::Store);
        arrivals.handle_disconnect();
        assert_eq!(arrivals.handle(one, 1), Verdict::Store);
    }

    #[test]
    fn messages_below_the_floor_are_forgotten() {
        let mut arrivals = Arrivals::default();
        for sequence in 1..=10 {
            arrivals.handle(place(1, sequence), 1);
            arrivals.handle_end(place(1, sequence), true);
        }
        assert_eq!(arrivals.handle(place(1, 10), 8), Verdict::Report);
        assert_eq!(arrivals.stored.len(), 3);
    }

    #[test]
    fn a_stream_that_is_made_again_has_other_messages() {
        let mut arrivals = Arrivals::default();
        arrivals.handle(place(1, 1), 1);
        arrivals.handle_end(place(1, 1), true);
        assert_eq!(arrivals.handle(place(2, 1), 1), Verdict::Store);
        assert!(arrivals.stored.is_empty(), "the old stream is forgotten");
    }
}
