//! The child's end of a hop: counts the packets that arrive, and answers soundings.

use super::wire::{Echo, Sounding, Stamp};

/// The number of other hops that a child remembers.
const OTHERS_MAX: usize = 4;
/// The number of soundings of other hops in a row after which one of them is the child's parent.
/// Until then both get reports, so that a high number costs a restarted parent nothing.
const UNHEARD_MAX: u32 = 64;

/// A hop of which soundings have come.
#[derive(Copy, Clone, Debug, Default)]
struct Heard {
    /// The nonce; 0 for none.
    nonce: u64,
    /// The number of the last sounding.
    number: u32,
}

/// The child's end of a hop.
///
/// A new nonce means that the parent has started again, or that somebody else has sent a sounding
/// under its address. Each is answered, because a parent ignores answers to others. Reports go to
/// the parent and to the latest of the others, until only one of them is heard.
#[derive(Clone, Debug)]
pub struct HopEnd {
    child: u32,
    packets: u64,
    bytes: u64,
    counter: u32,
    parent: Heard,
    /// Other hops, the latest first. A sounding of theirs is a replay unless its number is higher.
    others: [Heard; OTHERS_MAX],
    /// The soundings of others since the last one of the parent.
    unheard: u32,
}

impl HopEnd {
    /// Creates an end that has received nothing. `seed` is a random number.
    pub fn new(seed: u32) -> HopEnd {
        HopEnd {
            child: seed,
            packets: 0,
            bytes: 0,
            counter: 0,
            parent: Heard::default(),
            others: [Heard::default(); OTHERS_MAX],
            unheard: 0,
        }
    }

    /// Counts a data packet of `bytes`, including the headers of IP and UDP.
    #[inline]
    pub fn handle_data(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// Handles a sounding. Returns the answer, unless the sounding is an old one.
    pub fn handle_sounding(&mut self, sounding: &Sounding) -> Option<Echo> {
        let heard = Heard {
            nonce: sounding.nonce,
            number: sounding.number,
        };
        if self.parent.nonce == 0 {
            self.parent.nonce = heard.nonce;
        }
        if heard.nonce == self.parent.nonce {
            if heard.nonce == 0 || heard.number <= self.parent.number {
                return None;
            }
            self.parent = heard;
            self.unheard = 0;
        } else {
            self.hear_other(heard)?;
        }
        Some(Echo {
            nonce: heard.nonce,
            number: heard.number,
            child: self.child,
            packets: self.packets,
            bytes: self.bytes,
        })
    }

    /// Notes the sounding of another hop, unless it is a replay. After some of them without one of
    /// the parent, the other hop is the parent.
    fn hear_other(&mut self, heard: Heard) -> Option<()> {
        let mut others = self.others.iter();
        let known = others.position(|other| other.nonce == heard.nonce);
        if heard.nonce == 0 || known.is_some_and(|place| heard.number <= self.others[place].number)
        {
            return None;
        }
        self.others[..=known.unwrap_or(OTHERS_MAX - 1)].rotate_right(1);
        self.others[0] = heard;
        self.unheard += 1;
        if self.unheard >= UNHEARD_MAX {
            core::mem::swap(&mut self.parent, &mut self.others[0]);
            self.unheard = 0;
        }
        Some(())
    }

    /// Returns the stamps of the next report or experiment: that for the parent, and that for the
    /// latest other hop if it has been heard since.
    pub fn next_stamps(&mut self) -> impl Iterator<Item = Stamp> + use<> {
        self.counter = self.counter.wrapping_add(1);
        let counter = self.counter;
        let other = (self.unheard > 0).then_some(self.others[0]);
        let hops = [Some(self.parent), other];
        hops.into_iter().flatten().map(move |hop| Stamp {
            nonce: hop.nonce,
            number: hop.number,
            counter,
        })
    }

    /// Returns the nonce of the parent; 0 before the first sounding.
    pub fn nonce(&self) -> u64 {
        self.parent.nonce
    }

    /// Returns the data packets that have arrived, and their bytes.
    pub fn received(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sounding(nonce: u64, number: u32) -> Sounding {
        Sounding {
            nonce,
            number,
            packets: 0,
            bytes: 0,
        }
    }

    #[test]
    fn a_restarted_parent_is_answered_at_its_first_sounding_and_gets_the_next_report() {
        let mut end = HopEnd::new(5);
        assert!(end.handle_sounding(&sounding(7, 1000)).is_some());
        end.handle_data(1028);
        let echo = end.handle_sounding(&sounding(7, 1001)).unwrap();
        assert_eq!((echo.packets, echo.bytes), (1, 1028));
        let restarted = end.handle_sounding(&sounding(8, 1)).unwrap();
        assert_eq!((restarted.nonce, restarted.number), (8, 1));
        // The parent measures by differences, so the count goes on.
        assert_eq!((restarted.child, restarted.packets), (echo.child, 1));
        assert_eq!(nonces(&mut end), [7, 8]);
        for number in 2..=UNHEARD_MAX {
            assert!(end.handle_sounding(&sounding(8, number)).is_some());
        }
        assert_eq!(nonces(&mut end), [8]);
    }

    #[test]
    fn replayed_soundings_change_nothing() {
        let mut end = HopEnd::new(5);
        end.handle_sounding(&sounding(7, 3));
        assert_eq!(end.handle_sounding(&sounding(7, 3)), None);
        assert_eq!(end.handle_sounding(&sounding(7, 2)), None);
        end.handle_sounding(&sounding(8, 1));
        assert_eq!(end.handle_sounding(&sounding(8, 1)), None);
        assert_eq!(end.handle_sounding(&sounding(7, 3)), None);
        // The parent with the earlier nonce still runs: the other one was forged.
        assert!(end.handle_sounding(&sounding(7, 4)).is_some());
        assert_eq!(end.handle_sounding(&sounding(8, 1)), None);
        assert_eq!(nonces(&mut end), [7]);
    }

    #[test]
    fn forged_soundings_take_neither_counts_nor_reports_from_the_parent() {
        let mut end = HopEnd::new(5);
        let mut forged = 1 << 40;
        for number in 1..100 {
            end.handle_data(1000);
            let echo = end.handle_sounding(&sounding(7, number)).unwrap();
            assert_eq!(echo.packets, u64::from(number));
            for _ in 1..UNHEARD_MAX {
                forged += 1;
                end.handle_sounding(&sounding(forged, u32::MAX));
                assert_eq!(nonces(&mut end)[0], 7);
            }
        }
    }

    /// Returns the nonces of the parents that get the next report.
    fn nonces(end: &mut HopEnd) -> Vec<u64> {
        end.next_stamps().map(|stamp| stamp.nonce).collect()
    }

    #[test]
    fn stamps_of_one_end_follow_each_other() {
        let mut end = HopEnd::new(5);
        let next = |end: &mut HopEnd| end.next_stamps().next().unwrap();
        let first = next(&mut end);
        let second = next(&mut end);
        end.handle_sounding(&sounding(7, 1));
        let third = next(&mut end);
        assert!(second.follows(&first) && third.follows(&second));
        assert!(!first.follows(&first) && !second.follows(&third));
    }
}
