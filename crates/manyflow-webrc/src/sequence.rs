//! Finds the missing packets of a channel by its sequence numbers (RFC 3738 section 3.2.3.4).
//!
//! A gap does not count as loss immediately. It remains pending until the receiver gives it up, and
//! a late packet closes its part of the gap. That is the RFC's "simple misordering".

use super::missing::{FEW, Missing};

/// The sequence numbers of one channel.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// The channel's number.
    channel: u16,
    /// Whether number 0 follows the highest, as on the base channel. A wave ends with the highest.
    wraps: bool,
    /// Whether a packet has come. It stands apart from `next`, because a receiver has a dozen of
    /// these.
    has_begun: bool,
    /// The highest sequence number: a format has at most 2^32 of them.
    last: u32,
    /// The number after the highest seen, which is 0 after the highest of all.
    next: u32,
    /// The number of the first packet since the channel was joined, or the one that
    /// [`skip_to`](Sequence::skip_to) named.
    begin: u32,
    /// The numbers before the expected one that are missing, and not yet given up. Numbers farther
    /// back than the ring holds count as lost.
    missing: Missing,
}

/// The place of a packet's number in the sequence.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The first packet since the channel was joined.
    First,
    /// The number that was expected.
    InOrder,
    /// Numbers before this packet's are missing. They are pending, or given up as too far back.
    Gap {
        /// The count of numbers that were given up.
        lost: u64,
    },
    /// A late packet that closes a pending gap.
    Late,
    /// A number that was seen before, or was given up.
    Duplicate,
}

impl Sequence {
    /// The sequence of the base channel, whose numbers run from 0 to `numbers - 1`, at most 2^32 of
    /// them.
    pub(super) fn base(channel: u32, numbers: u64) -> Sequence {
        Sequence::new(channel, numbers, true, FEW)
    }

    /// The sequence of a wave, whose numbers run up to `numbers - 1`. It keeps gaps of
    /// `longest_gap` pending, or of [`MANY`](crate::missing::MANY) if that is less.
    pub(super) fn wave(channel: u32, numbers: u64, longest_gap: u64) -> Sequence {
        Sequence::new(channel, numbers, false, longest_gap)
    }

    fn new(channel: u32, numbers: u64, wraps: bool, longest_gap: u64) -> Sequence {
        Sequence {
            channel: channel as u16,
            wraps,
            last: (numbers - 1) as u32,
            has_begun: false,
            next: 0,
            begin: 0,
            missing: Missing::new(longest_gap),
        }
    }

    pub(super) fn channel(&self) -> u32 {
        self.channel.into()
    }

    /// Whether a packet has come since the channel was joined.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// How many sequence numbers there are.
    fn modulus(&self) -> u64 {
        u64::from(self.last) + 1
    }

    /// Expects no number below `unsent`, of which none is missing.
    pub(super) fn skip_to(&mut self, unsent: u64) {
        debug_assert!(
            self.missing.is_empty(),
            "only a channel that has just begun skips"
        );
        debug_assert!(
            !self.wraps,
            "the base channel is never joined after its first packet"
        );
        let is_behind = self.has_begun && self.next != 0 && u64::from(self.next) < unsent;
        if is_behind {
            self.expect(unsent);
            self.begin = unsent.min(self.last.into()) as u32;
        }
    }

    /// Returns the number with which the channel began for this receiver; `None` before its first
    /// packet.
    pub(super) fn begin(&self) -> Option<u64> {
        self.has_begun().then_some(self.begin.into())
    }

    /// Whether a number is the expected one, or at most `ahead` numbers after it.
    pub(super) fn follows(&self, psn: u64, ahead: u64) -> bool {
        self.expected().is_some_and(|expected| {
            let after = (psn + self.modulus() - u64::from(expected)) % self.modulus();
            after <= ahead
        })
    }

    /// Takes a packet's number, which the caller has checked to be one of the channel's.
    pub(super) fn on_packet(&mut self, psn: u64) -> Arrival {
        debug_assert!(psn <= self.last.into(), "the caller checks numbers");
        let Some(expected) = self.expected() else {
            self.expect(psn + 1);
            self.begin = psn as u32;
            return Arrival::First;
        };
        let expected = u64::from(expected);
        let ahead = (psn + self.modulus() - expected) % self.modulus();
        let is_ahead = if self.wraps {
            ahead < self.modulus() / 2
        } else {
            expected != 0 && psn >= expected
        };
        if is_ahead {
            self.expect(psn + 1);
            let lost = self.missing.push_gap(ahead) + u64::from(self.missing.push(false));
            let in_order = ahead == 0 && lost == 0;
            return if in_order {
                Arrival::InOrder
            } else {
                Arrival::Gap { lost }
            };
        }
        let back = self.modulus() - ahead - 1;
        match self.missing.take(back) {
            true => Arrival::Late,
            false => Arrival::Duplicate,
        }
    }

    /// Marks the numbers between the last packet and the end of the wave as missing. A wave's last
    /// packet has the highest number, so losses at its end can be seen (section 3.1.2). Returns the
    /// count of numbers that are too far back to remain pending.
    pub(super) fn on_end_of_wave(&mut self) -> u64 {
        let expected = self.expected();
        self.expect(0);
        match expected {
            // The number after the last packet of a wave is 0.
            None | Some(0) => 0,
            Some(expected) => {
                let gap = self.modulus() - u64::from(expected);
                self.missing.push_gap(gap)
            }
        }
    }

    /// Gives up the pending numbers below `unsent`, the lowest number that is not due. Returns the
    /// count of numbers that were given up.
    pub(super) fn give_up(&mut self, unsent: u64) -> u64 {
        let expected = u64::from(self.next);
        let ahead = (expected + self.modulus() - unsent) % self.modulus();
        let is_ahead = if self.wraps {
            ahead < self.modulus() / 2
        } else {
            expected == 0 || expected > unsent
        };
        self.missing.keep_last(if is_ahead { ahead } else { 0 })
    }

    /// Gives up all pending numbers, and returns their count.
    pub(super) fn give_all_up(&mut self) -> u64 {
        self.missing.clear()
    }

    /// Whether a missing number is pending.
    pub(super) fn has_gap(&self) -> bool {
        !self.missing.is_empty()
    }

    fn expected(&self) -> Option<u32> {
        self.has_begun.then_some(self.next)
    }

    /// Expects this number, or 0 if it is beyond the highest.
    fn expect(&mut self, psn: u64) {
        self.has_begun = true;
        self.next = (psn % self.modulus()) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_is_pending_until_given_up() {
        let mut sequence = Sequence::base(0, 1 << 16);
        assert_eq!(sequence.on_packet(65_530), Arrival::First);
        assert_eq!(sequence.on_packet(65_533), Arrival::Gap { lost: 0 });
        assert_eq!(sequence.on_packet(65_531), Arrival::Late);
        assert_eq!(sequence.on_packet(65_531), Arrival::Duplicate);
        assert_eq!(sequence.give_all_up(), 1);
        assert_eq!(sequence.on_packet(65_532), Arrival::Duplicate);
    }

    #[test]
    fn numbers_that_are_not_due_remain_pending() {
        let mut sequence = Sequence::base(0, 1 << 16);
        sequence.on_packet(10);
        assert_eq!(sequence.on_packet(21), Arrival::Gap { lost: 0 });
        assert_eq!(sequence.give_up(13), 2);
        assert_eq!(sequence.on_packet(12), Arrival::Duplicate);
        assert_eq!(sequence.on_packet(13), Arrival::Late);
        assert_eq!(sequence.give_up(22), 7);
        assert!(!sequence.has_gap());
    }

    #[test]
    fn packets_lost_at_the_end_of_a_wave_are_missed() {
        let mut sequence = Sequence::wave(0, 1 << 16, FEW);
        sequence.on_packet(65_530);
        assert_eq!(sequence.on_end_of_wave(), 0);
        assert_eq!(sequence.on_packet(65_535), Arrival::Late);
        assert_eq!(sequence.give_all_up(), 4);
        let mut whole = Sequence::wave(0, 1 << 16, FEW);
        whole.on_packet(65_535);
        assert_eq!(whole.on_end_of_wave() + whole.give_all_up(), 0);
    }

    #[test]
    fn a_wave_does_not_begin_again_after_its_end() {
        let mut wave = Sequence::wave(0, 1 << 16, FEW);
        wave.on_packet(65_000);
        assert_eq!(wave.on_packet(100), Arrival::Duplicate);
        wave.on_packet(65_535);
        assert_eq!(wave.on_packet(0), Arrival::Duplicate);
        assert_eq!(wave.on_packet(65_534), Arrival::Late);
    }

    #[test]
    fn a_wave_begins_with_its_first_packet_or_where_it_skips_to() {
        let mut wave = Sequence::wave(0, 1 << 16, FEW);
        assert_eq!(wave.begin(), None);
        wave.on_packet(500);
        assert_eq!(wave.begin(), Some(500));
        wave.skip_to(1_000);
        wave.on_packet(3_000);
        wave.on_end_of_wave();
        assert_eq!(wave.begin(), Some(1_000));
    }

    proptest! {
        /// Each sent number is lost, delayed by a few places, or repeated. Then every number counts
        /// once, as received or lost.
        #[test]
        fn each_number_is_received_or_lost_once(faults in prop::collection::vec(0..12usize, 1..400), start in 0u64..1000) {
            let modulus = 1000;
            // The first packet arrives, and before all others: the receiver does not know of
            // earlier ones.
            let mut arrivals: Vec<(usize, u64)> = vec![(0, start)];
            for (i, fault) in faults.iter().enumerate().skip(1) {
                let psn = (start + i as u64) % modulus;
                match *fault {
                    0 => {}
                    late @ 1..=5 => arrivals.push((i * 10 + late * 15, psn)),
                    6 => arrivals.extend([(i * 10, psn), (i * 10 + 25, psn)]),
                    _ => arrivals.push((i * 10, psn)),
                }
            }
            arrivals.sort();
            let mut sequence = Sequence::base(0, modulus);
            let (mut received, mut lost) = (0, 0);
            for (_, psn) in &arrivals {
                match sequence.on_packet(*psn) {
                    Arrival::Gap { lost: n } => { lost += n; received += 1; }
                    Arrival::Duplicate => {}
                    _ => received += 1,
                }
            }
            lost += sequence.give_all_up();
            let span = sequence.expected().map_or(0, |expected| (u64::from(expected) + modulus - start) % modulus);
            prop_assert_eq!(received + lost, span);
        }
    }
}
