//! Which packets are lost, from the sequence numbers of those that arrive (RFC 4654 section 5.1).
//!
//! A packet is lost when three packets with higher numbers have arrived. So every number below the
//! third-highest received one is settled, and only two packets above it must be remembered:
//!
//! ```text
//!   received     1 2 3   5 6     9         When 9 arrives, 5 becomes the settled packet and 4 is
//!                        ^ ^     ^         lost. 7 and 8 may still arrive.
//!                  settled ahead ahead
//! ```

use manyflow_core::Time;

/// The packets remembered above the settled one: with it, three packets are above a lost one
/// (section 5.1).
const AHEAD: usize = 2;

/// A packet that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) sequence: u32,
    pub(super) at: Time,
}

/// Two settled packets. The packets between their numbers are lost.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) before: Arrived,
    pub(super) after: Arrived,
}

impl Gap {
    /// The difference of the two numbers, at least 1.
    pub(super) fn distance(&self) -> u32 {
        self.after.sequence.wrapping_sub(self.before.sequence)
    }
}

/// The received packets between which others may still arrive.
#[derive(Debug)]
pub(super) struct Order {
    settled: Arrived,
    /// The packets above the settled one, in the order of their numbers.
    ahead: [Option<Arrived>; AHEAD],
}

impl Order {
    /// Starts with the first packet. No packet before it counts as lost.
    pub(super) fn new(first: Arrived) -> Order {
        Order {
            settled: first,
            ahead: [None; AHEAD],
        }
    }

    /// The highest number received.
    pub(super) fn highest(&self) -> u32 {
        let highest = self.ahead.iter().flatten().last();
        highest.unwrap_or(&self.settled).sequence
    }

    /// Handles a packet; returns the gap that it settles. Duplicates and packets below the settled
    /// one change nothing.
    pub(super) fn on_packet(&mut self, arrived: Arrived) -> Option<Gap> {
        let ahead = |other: u32| arrived.sequence.wrapping_sub(other) as i32;
        if ahead(self.settled.sequence) <= 0 {
            return None;
        }
        let place = self
            .ahead
            .iter()
            .position(|other| other.is_none_or(|other| ahead(other.sequence) <= 0));
        let place = place.unwrap_or(AHEAD);
        if self.holds(arrived.sequence) {
            return None;
        }
        self.insert(place, arrived)
    }

    fn holds(&self, sequence: u32) -> bool {
        let mut ahead = self.ahead.iter().flatten();
        ahead.any(|other| other.sequence == sequence)
    }

    /// Inserts a packet among those ahead. The lowest of three becomes the settled one.
    fn insert(&mut self, place: usize, arrived: Arrived) -> Option<Gap> {
        let mut all = [self.ahead[0], self.ahead[1], None];
        all.copy_within(place..AHEAD, place + 1);
        all[place] = Some(arrived);
        let [lowest, middle, highest] = all;
        let (Some(lowest), Some(_)) = (lowest, highest) else {
            self.ahead = [lowest, middle];
            return None;
        };
        self.ahead = [middle, highest];
        let gap = Gap {
            before: core::mem::replace(&mut self.settled, lowest),
            after: lowest,
        };
        debug_assert!((gap.distance() as i32) > 0, "numbers settle in their order");
        Some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands over packets with these numbers; returns where which number was found lost.
    fn run(numbers: &[u32]) -> Vec<(usize, u32)> {
        let arrived = |place: usize| Arrived {
            sequence: numbers[place],
            at: Time::from_nanos(place as u64),
        };
        let mut order = Order::new(arrived(0));
        let mut lost = Vec::new();
        for place in 1..numbers.len() {
            if let Some(gap) = order.on_packet(arrived(place)) {
                let between = (1..gap.distance()).map(|k| gap.before.sequence.wrapping_add(k));
                lost.extend(between.map(|number| (place, number)));
            }
        }
        lost
    }

    #[test]
    fn a_packet_is_lost_after_three_with_higher_numbers() {
        assert_eq!(run(&[1, 2, 4, 5]), []);
        assert_eq!(run(&[1, 2, 4, 5, 6]), [(4, 3)]);
        assert_eq!(run(&[1, 4, 6, 8]), [(3, 2), (3, 3)]);
    }

    #[test]
    fn a_packet_that_is_late_by_two_places_is_not_lost() {
        assert_eq!(run(&[1, 3, 4, 2, 5, 6, 7]), []);
        assert_eq!(run(&[1, 3, 4, 5, 2, 6, 7]), [(3, 2)]);
    }

    #[test]
    fn copies_do_not_count_as_later_packets() {
        assert_eq!(run(&[1, 3, 3, 3, 4, 4]), []);
    }

    #[test]
    fn numbers_wrap() {
        let around = [u32::MAX - 1, 0, 1, 2];
        assert_eq!(run(&around), [(3, u32::MAX)]);
    }

    proptest! {
        /// Packets are lost, late by a few places, or duplicated.
        #[test]
        fn what_does_not_arrive_is_lost_once(
            faults in prop::collection::vec(0..12usize, 1..300), start: u32,
        ) {
            let number = |i: usize| start.wrapping_add(i as u32);
            let mut arrivals = vec![(0, 0)];
            let mut missing = Vec::new();
            for (i, fault) in faults.iter().enumerate().map(|(i, fault)| (i + 1, fault)) {
                match *fault {
                    0 => missing.push(number(i)),
                    1 => arrivals.push((10 * i + 15, i)),
                    2 => arrivals.extend([(10 * i, i), (10 * i + 25, i)]),
                    _ => arrivals.push((10 * i, i)),
                }
            }
            let last = faults.len() + 1;
            arrivals.extend((last..last + 3).map(|i| (10 * i + 100, i)));
            arrivals.sort();
            let numbers: Vec<u32> = arrivals.iter().map(|(_, i)| number(*i)).collect();
            let lost: Vec<u32> = run(&numbers).into_iter().map(|(_, number)| number).collect();
            prop_assert_eq!(lost, missing);
        }
    }
}
