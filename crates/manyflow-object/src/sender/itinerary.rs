//! The order in which a session in windows visits them.
//!
//! The first round visits all windows for their source symbols. After it, two kinds of receivers
//! lack something. Those that have lost packets, or are below the session's rate, lack a part of
//! each window, and those that joined late lack the first windows as a whole. So short visits,
//! each with a quarter of the packets, alternate with full visits to the first half of the windows,
//! a quarter of them at a time. A window with a full visit has no short ones until the others have
//! had theirs. Then all receivers lack a part of each window, so all visits are short:
//!
//! ```text
//! windows   0 1 2 3 4 5 6 7   0 1 2 3 4 5 6 7   0 1    2 3 4 5 6 7   2 3    4 5 6 7   0 1 2 ...
//! visits    source symbols    short             full   short         full   short     short
//! ```
//!
//! The symbols of short visits add up in windows that are all incomplete. The bookkeeping of a long
//! session would not fit into the memory of receivers, which then drop what they have of the last
//! windows. So a long session goes on with full visits, to half of the windows in turn:
//!
//! ```text
//! windows   0 1 2 3 4 5 6 7   0 1 2 3 4 5 6 7   0 1 2 3   0 1 2 3 4 5 6 7   4 5 6 7   0 ...
//! visits    source symbols    short             full      short             full      short
//! ```

use std::ops::Range;

/// The part of a window's packets in a short visit: one of this number.
pub(super) const SHORT_VISITS: u64 = 4;

/// The packets of a window that a visit sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The source symbols, once.
    Source,
    /// A quarter of the packets that a receiver of all packets needs.
    Short,
    /// All packets that such a receiver needs.
    Full,
}

/// A visit to the window in this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) place: usize,
    pub(super) extent: Extent,
}

/// The visits of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Itinerary {
    windows: u64,
    is_long: bool,
}

impl Itinerary {
    /// Returns the visits of a session of this number of windows, which `is_long` if receivers may
    /// not have the memory for parts of all windows.
    pub(super) fn new(windows: u64, is_long: bool) -> Itinerary {
        Itinerary { windows, is_long }
    }

    /// Returns visit number `visit`.
    pub(super) fn stop(&self, visit: u64) -> Stop {
        match visit.checked_sub(self.windows) {
            None => stop_at(visit, Extent::Source),
            Some(later) if self.is_long => self.long_stop(later),
            Some(later) => self.short_stop(later),
        }
    }

    /// Returns a visit of a long session after the first round.
    fn long_stop(&self, later: u64) -> Stop {
        let full = self.windows.div_ceil(2);
        let (cycle, within) = (later / (self.windows + full), later % (self.windows + full));
        match within.checked_sub(self.windows) {
            None => stop_at(within, Extent::Short),
            // In turn the first half and the last one, which share a window if their number is odd.
            Some(number) => stop_at(cycle % 2 * (self.windows - full) + number, Extent::Full),
        }
    }

    /// Returns a visit of another session after the first round.
    fn short_stop(&self, mut later: u64) -> Stop {
        let (all, quarter) = (self.windows, self.windows.div_ceil(4));
        let parts: [(Range<u64>, Extent); 5] = [
            (0..all, Extent::Short),
            (0..quarter, Extent::Full),
            (quarter..all, Extent::Short),
            (quarter..2 * quarter, Extent::Full),
            (2 * quarter..all, Extent::Short),
        ];
        for (places, extent) in parts {
            let length = places.end.saturating_sub(places.start);
            match later.checked_sub(length) {
                None => return stop_at(places.start + later, extent),
                Some(rest) => later = rest,
            }
        }
        stop_at(later % all, Extent::Short)
    }

    /// Returns the number of visits that may be announced before they begin: fewer than those
    /// between two visits of one window, whose room for repair symbols they share.
    pub(super) fn ahead_max(&self) -> u64 {
        (self.windows / 2).saturating_sub(1)
    }
}

fn stop_at(place: u64, extent: Extent) -> Stop {
    Stop {
        place: place as usize,
        extent,
    }
}

#[cfg(test)]
mod tests {
    use super::Extent::{Full, Short, Source};
    use super::*;
    use std::collections::BTreeMap;

    fn extents(visits: Range<u64>, itinerary: Itinerary) -> Vec<(usize, Extent)> {
        let stops = visits.map(|visit| itinerary.stop(visit));
        stops.map(|stop| (stop.place, stop.extent)).collect()
    }

    fn visits(places: Range<usize>, extent: Extent) -> impl Iterator<Item = (usize, Extent)> {
        places.map(move |place| (place, extent))
    }

    #[test]
    fn full_visits_to_half_of_the_windows_are_between_short_ones_of_the_others() {
        let expected: Vec<_> = visits(0..8, Source)
            .chain(visits(0..8, Short))
            .chain(visits(0..2, Full))
            .chain(visits(2..8, Short))
            .chain(visits(2..4, Full))
            .chain(visits(4..8, Short))
            .chain(visits(0..8, Short))
            .chain(visits(0..8, Short))
            .collect();
        let found = extents(0..expected.len() as u64, Itinerary::new(8, false));
        assert_eq!(found, expected);
    }

    #[test]
    fn short_visits_to_all_windows_of_long_sessions_alternate_with_full_visits_to_half_of_them() {
        let expected: Vec<_> = visits(0..4, Source)
            .chain(visits(0..4, Short))
            .chain(visits(0..2, Full))
            .chain(visits(0..4, Short))
            .chain(visits(2..4, Full))
            .chain(visits(0..4, Short))
            .collect();
        let found = extents(0..expected.len() as u64, Itinerary::new(4, true));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_window_is_not_announced_again_before_its_visit_is_over() {
        for (windows, is_long) in (2..40).flat_map(|windows| [(windows, false), (windows, true)]) {
            let itinerary = Itinerary::new(windows, is_long);
            let mut last = BTreeMap::new();
            for visit in 0..1_000 {
                let place = itinerary.stop(visit).place;
                if let Some(earlier) = last.insert(place, visit) {
                    assert!(
                        visit - earlier > itinerary.ahead_max(),
                        "{windows} windows: {visit}"
                    );
                }
            }
            assert_eq!(last.len() as u64, windows);
        }
    }
}
