//! The order in which a session in windows visits them.
//!
//! The first round visits all windows for their source symbols. After it, two kinds of receivers
//! lack something. Those that have lost packets lack a little of each window, and those that joined
//! late lack some windows as a whole. So short visits to all windows, each with a quarter of the
//! packets, alternate with full visits to half of the windows:
//!
//! ```text
//! windows   0 1 2 3 4 5 6 7   0 1 2 3 4 5 6 7   0 1 2 3   0 1 2 3 4 5 6 7   4 5 6 7   0 ...
//! visits    source symbols    short             full      short             full      short
//! ```

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

/// Returns visit number `visit` of a session of this number of windows.
pub(super) fn stop(visit: u64, windows: u64) -> Stop {
    let at = |place: u64, extent| Stop {
        place: place as usize,
        extent,
    };
    let Some(later) = visit.checked_sub(windows) else {
        return at(visit, Extent::Source);
    };
    let full = windows.div_ceil(2);
    let (cycle, within) = (later / (windows + full), later % (windows + full));
    match within.checked_sub(windows) {
        None => at(within, Extent::Short),
        // In turn the first half and the last one, which share a window if their number is odd.
        Some(number) => at(cycle % 2 * (windows - full) + number, Extent::Full),
    }
}

/// Returns the number of visits that may be announced before they begin: fewer than those between
/// two visits of one window, whose room for repair symbols they share.
pub(super) fn ahead_max(windows: u64) -> u64 {
    (windows / 2).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn extents(visits: std::ops::Range<u64>, windows: u64) -> Vec<(usize, Extent)> {
        let stops = visits.map(|visit| stop(visit, windows));
        stops.map(|stop| (stop.place, stop.extent)).collect()
    }

    #[test]
    fn short_visits_to_all_windows_alternate_with_full_visits_to_half_of_them() {
        use Extent::{Full, Short, Source};
        assert_eq!(
            extents(0..14, 4),
            [
                (0, Source),
                (1, Source),
                (2, Source),
                (3, Source),
                (0, Short),
                (1, Short),
                (2, Short),
                (3, Short),
                (0, Full),
                (1, Full),
                (0, Short),
                (1, Short),
                (2, Short),
                (3, Short),
            ]
        );
        assert_eq!(extents(14..16, 4), [(2, Full), (3, Full)]);
    }

    #[test]
    fn a_window_is_not_announced_again_before_its_visit_is_over() {
        for windows in 2..40 {
            let mut last = BTreeMap::new();
            for visit in 0..1_000 {
                let place = stop(visit, windows).place;
                if let Some(earlier) = last.insert(place, visit) {
                    assert!(
                        visit - earlier > ahead_max(windows),
                        "{windows} windows: {visit}"
                    );
                }
            }
        }
    }
}
