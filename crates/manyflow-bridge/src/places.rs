//! Places of messages in a stream, and sets of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A message's place: its stream's time of creation in nanoseconds since 1970, and its sequence
/// number. A stream that is deleted and made again numbers from 1 again.
///
/// Its text is both, with a hyphen between them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The creation of the stream, in nanoseconds since 1970.
    pub created_ns: i64,
    /// The sequence number in the stream.
    pub sequence: u64,
}

impl Place {
    /// Returns the place behind this one in the same stream.
    pub fn next(self) -> Option<Place> {
        let sequence = self.sequence.checked_add(1)?;
        Some(Place { sequence, ..self })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.created_ns, self.sequence)
    }
}

/// A text is not a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a place is the creation of a stream and a sequence number, with a hyphen between them")]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Place, NoPlace> {
        // The time of creation may be before 1970.
        let (created_ns, sequence) = text.rsplit_once('-').ok_or(NoPlace)?;
        Ok(Place {
            created_ns: created_ns.parse().map_err(|_| NoPlace)?,
            sequence: sequence.parse().map_err(|_| NoPlace)?,
        })
    }
}

/// A set of places: ranges of consecutive ones, by their first place, with the last sequence
/// number.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<Place, u64>);

impl Places {
    pub(crate) fn contains(&self, place: Place) -> bool {
        self.range_before(place)
            .is_some_and(|(_, last)| place.sequence <= last)
    }

    pub(crate) fn insert(&mut self, place: Place) {
        let before = self.range_before(place);
        if before.is_some_and(|(_, last)| place.sequence <= last) {
            return;
        }
        let touches = |(_, last): &(Place, u64)| last + 1 == place.sequence;
        let first = before.filter(touches).map_or(place, |(first, _)| first);
        let after = place.next().and_then(|next| self.0.remove(&next));
        self.0.insert(first, after.unwrap_or(place.sequence));
        debug_assert!(self.contains(place));
    }

    /// Removes all places below one, also those of earlier streams.
    pub(crate) fn remove_below(&mut self, floor: Place) {
        while let Some(range) = self.0.first_entry()
            && *range.key() < floor
        {
            let (first, last) = range.remove_entry();
            if first.created_ns == floor.created_ns && last >= floor.sequence {
                self.0.insert(floor, last);
            }
        }
    }

    /// Removes the lowest range, and returns its last place.
    pub(crate) fn pop_first(&mut self) -> Option<Place> {
        let (first, sequence) = self.0.pop_first()?;
        Some(Place { sequence, ..first })
    }

    /// Returns the number of ranges.
    pub(crate) fn ranges(&self) -> usize {
        self.0.len()
    }

    /// Returns the last range of this stream that begins at the place or before.
    fn range_before(&self, place: Place) -> Option<(Place, u64)> {
        let (first, last) = self.0.range(..=place).next_back()?;
        (first.created_ns == place.created_ns).then_some((*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for (created_ns, sequence) in [(0, 1), (-5, 7), (i64::MAX, u64::MAX)] {
            let place = Place {
                created_ns,
                sequence,
            };
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "1", "1-", "-1", "a-1", "1-2x"] {
            assert_eq!(wrong.parse::<Place>(), Err(NoPlace), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set(
            acts in prop::collection::vec((0..4_u8, 1..3_i64, 1..20_u64), 0..100),
        ) {
            let (mut places, mut expected) = (Places::default(), BTreeSet::new());
            for (act, created_ns, sequence) in acts {
                let place = Place { created_ns, sequence };
                if act == 0 {
                    places.remove_below(place);
                    expected.retain(|other| *other >= place);
                } else {
                    places.insert(place);
                    expected.insert(place);
                }
                for created_ns in 1..3 {
                    for sequence in 1..20 {
                        let place = Place { created_ns, sequence };
                        prop_assert_eq!(places.contains(place), expected.contains(&place));
                    }
                }
                let begins = |place: &&Place| {
                    let before = Place { sequence: place.sequence - 1, ..**place };
                    !expected.contains(&before)
                };
                prop_assert_eq!(places.ranges(), expected.iter().filter(begins).count());
            }
        }
    }
}
