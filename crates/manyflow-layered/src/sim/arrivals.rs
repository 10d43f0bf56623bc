//! The packets of one joined group that did not arrive: the losses that count as congestion.
//!
//! Where a relay repairs losses ([`repair`](crate::repair)), packets arrive late that the path has
//! lost by itself. They are no congestion: the relay's hop answers for the rate of the path, and
//! its queue drops what is too much, which nobody repairs. So a packet counts as lost there only if
//! it is still missing a round after the one in which it was missed.

/// The number of packets from which a jump in the sequence counts as a restart of the sender, not
/// as loss.
const RESTART: u32 = 1 << 20;

/// Finds gaps in the sequence of one group, from the first packet after the join on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// The number after the highest that has arrived; `None` before the first packet.
    expected: Option<u32>,
    /// The missing packets of the present round.
    missing: u32,
    /// The missing packets of the round before, and the number at which it ended, while they can
    /// still be repaired.
    repairable: Option<(u32, u32)>,
}

impl Arrivals {
    /// Handles the number of a packet. A late packet is no longer missing, unless
    /// [`take_missing`](Arrivals::take_missing) has returned it before.
    pub(crate) fn on_packet(&mut self, sequence: u32) {
        let expected = self.expected.unwrap_or(sequence);
        let ahead = sequence.wrapping_sub(expected);
        let behind = expected.wrapping_sub(sequence);
        if behind != 0 && behind < RESTART {
            match &mut self.repairable {
                Some((missing, end)) if end.wrapping_sub(sequence).wrapping_sub(1) < RESTART => {
                    *missing = missing.saturating_sub(1);
                }
                _ => self.missing = self.missing.saturating_sub(1),
            }
            return;
        }
        if ahead < RESTART {
            self.missing = self.missing.saturating_add(ahead);
        }
        self.expected = Some(sequence.wrapping_add(1));
    }

    /// Returns the number of packets that are missing since the last
    /// [`take_missing`](Arrivals::take_missing).
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    /// Returns the number of packets that are missing since the last call.
    pub(crate) fn take_missing(&mut self) -> u32 {
        let (before, _) = self.repairable.take().unwrap_or_default();
        before + core::mem::take(&mut self.missing)
    }

    /// Ends a round of a group whose losses are repaired. Returns the number of packets that were
    /// missed in the round before and are still missing.
    pub(super) fn take_unrepaired(&mut self) -> u32 {
        let end = self.expected.unwrap_or_default();
        let present = (core::mem::take(&mut self.missing), end);
        self.repairable
            .replace(present)
            .map_or(0, |(missing, _)| missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(sequence: &[u32]) -> u32 {
        let mut arrivals = Arrivals::default();
        sequence.iter().for_each(|&n| arrivals.on_packet(n));
        arrivals.take_missing()
    }

    #[test]
    fn gaps_after_the_first_packet_are_missing() {
        assert_eq!(missing(&[]), 0);
        assert_eq!(missing(&[70, 71, 72]), 0);
        assert_eq!(missing(&[70, 72, 75]), 3);
        assert_eq!(missing(&[u32::MAX - 1, 1]), 2, "numbers wrap around");
    }

    #[test]
    fn a_late_packet_is_not_missing() {
        assert_eq!(missing(&[1, 4, 2, 5]), 1);
        assert_eq!(missing(&[1, 1, 1]), 0, "duplicates");
    }

    #[test]
    fn a_missing_packet_counts_once() {
        let mut arrivals = Arrivals::default();
        [1, 3].iter().for_each(|&n| arrivals.on_packet(n));
        assert_eq!(arrivals.take_missing(), 1);
        [2, 4].iter().for_each(|&n| arrivals.on_packet(n));
        assert_eq!(arrivals.take_missing(), 0);
    }

    #[test]
    fn a_packet_that_is_repaired_a_round_later_is_not_lost() {
        let mut arrivals = Arrivals::default();
        [1, 2, 5].iter().for_each(|&n| arrivals.on_packet(n));
        assert_eq!(arrivals.take_unrepaired(), 0);
        [7, 3, 6, 9].iter().for_each(|&n| arrivals.on_packet(n));
        assert_eq!(arrivals.take_unrepaired(), 1, "the packet 4");
        assert_eq!(arrivals.take_unrepaired(), 1, "the packet 8");
        assert_eq!(arrivals.take_unrepaired(), 0);
        arrivals.on_packet(11);
        arrivals.take_unrepaired();
        arrivals.on_packet(13);
        assert_eq!(arrivals.take_missing(), 2, "all of them at the end");
    }

    #[test]
    fn a_restarted_sender_loses_nothing() {
        assert_eq!(missing(&[RESTART * 2, 0, 1, 3]), 1);
        assert_eq!(missing(&[0, RESTART * 2, RESTART * 2 + 2]), 1);
    }
}
