//! The child's end of a hop: counts the packets that arrive, and answers soundings.

use super::wire::{Echo, Sounding, Stamp};

/// The number of earlier hops of the same parent that a child remembers.
const EARLIER_MAX: usize = 4;

/// The child's end of a hop.
///
/// A new nonce means that the parent has started again. Counts then begin again at once.
#[derive(Clone, Debug)]
pub struct HopEnd {
    child: u32,
    nonce: u64,
    /// The number of the last sounding; 0 before the first.
    number: u32,
    packets: u64,
    bytes: u64,
    counter: u32,
    /// Nonces before the present one, and the numbers of their last soundings. An earlier nonce is
    /// accepted again only with a higher number, so a replay of old soundings changes nothing.
    earlier: [(u64, u32); EARLIER_MAX],
}

impl HopEnd {
    /// Creates an end that has received nothing. `seed` is a random number.
    pub fn new(seed: u32) -> HopEnd {
        HopEnd {
            child: seed,
            nonce: 0,
            number: 0,
            packets: 0,
            bytes: 0,
            counter: 0,
            earlier: [(0, 0); EARLIER_MAX],
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
        if sounding.nonce != self.nonce {
            self.begin(sounding)?;
        }
        if sounding.number <= self.number {
            return None;
        }
        self.number = sounding.number;
        Some(Echo {
            nonce: self.nonce,
            number: self.number,
            child: self.child,
            packets: self.packets,
            bytes: self.bytes,
        })
    }

    /// Begins to count for another instance of the parent, unless the sounding is a replay.
    fn begin(&mut self, sounding: &Sounding) -> Option<()> {
        let known = self.earlier.iter();
        let mut same = known.filter(|(nonce, _)| *nonce == sounding.nonce);
        let last = same.next().map_or(0, |(_, number)| *number);
        if sounding.number <= last || sounding.nonce == 0 {
            return None;
        }
        self.earlier.rotate_right(1);
        self.earlier[0] = (self.nonce, self.number);
        (self.nonce, self.number) = (sounding.nonce, last);
        (self.packets, self.bytes) = (0, 0);
        self.child = self.child.wrapping_add(1);
        debug_assert!(self.number < sounding.number);
        Some(())
    }

    /// Returns the stamp of the next report or experiment.
    pub fn next_stamp(&mut self) -> Stamp {
        self.counter = self.counter.wrapping_add(1);
        Stamp {
            nonce: self.nonce,
            number: self.number,
            counter: self.counter,
        }
    }

    /// Returns the nonce of the parent; 0 before the first sounding.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Returns the data packets that have arrived since the parent started, and their bytes.
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
    fn a_restarted_parent_is_answered_at_its_first_sounding() {
        let mut end = HopEnd::new(5);
        assert!(end.handle_sounding(&sounding(7, 1000)).is_some());
        end.handle_data(1028);
        let echo = end.handle_sounding(&sounding(7, 1001)).unwrap();
        assert_eq!((echo.packets, echo.bytes), (1, 1028));
        let restarted = end.handle_sounding(&sounding(8, 1)).unwrap();
        assert_eq!((restarted.number, restarted.packets), (1, 0));
        assert_ne!(restarted.child, echo.child);
        assert_eq!(end.next_stamp().nonce, 8);
    }

    #[test]
    fn replayed_soundings_change_nothing() {
        let mut end = HopEnd::new(5);
        end.handle_sounding(&sounding(7, 3));
        assert_eq!(end.handle_sounding(&sounding(7, 3)), None);
        assert_eq!(end.handle_sounding(&sounding(7, 2)), None);
        end.handle_sounding(&sounding(8, 1));
        assert_eq!(end.handle_sounding(&sounding(7, 3)), None);
        assert_eq!(end.nonce(), 8);
        // The parent with the earlier nonce still runs: the other one was forged.
        assert!(end.handle_sounding(&sounding(7, 4)).is_some());
        assert_eq!(end.handle_sounding(&sounding(8, 1)), None);
    }

    #[test]
    fn stamps_of_one_end_follow_each_other() {
        let mut end = HopEnd::new(5);
        let first = end.next_stamp();
        let second = end.next_stamp();
        end.handle_sounding(&sounding(7, 1));
        let third = end.next_stamp();
        assert!(second.follows(&first) && third.follows(&second));
        assert!(!first.follows(&first) && !second.follows(&third));
    }
}
