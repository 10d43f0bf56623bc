//! Decides when a sender that cannot keep its schedule lowers the top of its session.
//!
//! A sender that was suspended, or waited for its processor, skips the packets of that time once. A
//! machine that is too slow for the session skips packets again and again, on all channels: every
//! receiver then loses packets, also a slow one. Without the highest layers, the lower ones are
//! whole again.

use std::time::Duration;

use manyflow_core::Time;

/// Time slots in a row that have to skip packets. A pause is over in one, or in two if it lasts
/// beyond the end of the first.
const SLOTS: u32 = 3;

/// The packets that a sender has skipped, slot by slot.
#[derive(Debug)]
pub(super) struct Overload {
    time_slot: Duration,
    slot_end: Time,
    skipped: u64,
    /// The number of slots in a row that skipped packets.
    slots: u32,
}

impl Overload {
    /// Begins to observe a session with time slots of this length.
    pub(super) fn new(time_slot: Duration) -> Overload {
        Overload {
            time_slot,
            slot_end: Time::ZERO + time_slot,
            skipped: 0,
            slots: 0,
        }
    }

    /// Registers that the sender has skipped this number of packets so far. Returns whether it
    /// should lower its top. It then has as many slots to show the effect, which begins with the
    /// next one.
    pub(super) fn lowers_top(&mut self, now: Time, skipped: u64) -> bool {
        if now < self.slot_end {
            return false;
        }
        self.slot_end = now + self.time_slot;
        self.slots = match skipped > self.skipped {
            true => self.slots + 1,
            false => 0,
        };
        self.skipped = skipped;
        if self.slots < SLOTS {
            return false;
        }
        self.slots = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reports, five in a slot of a second, after which the top is lowered. `skipped`
    /// gives the packets that were skipped before each report.
    fn lowered(reports: u64, mut skipped: impl FnMut(u64) -> u64) -> Vec<u64> {
        let mut overload = Overload::new(Duration::from_secs(1));
        let mut total = 0;
        let mut lowers = |report| {
            total += skipped(report);
            overload.lowers_top(
                Time::ZERO + Duration::from_millis(200) * report as u32,
                total,
            )
        };
        (1..=reports).filter(|report| lowers(*report)).collect()
    }

    #[test]
    fn a_machine_that_is_too_slow_lowers_the_top_until_it_keeps_pace() {
        assert_eq!(lowered(40, |_| 9), [15, 30]);
        assert_eq!(lowered(100, |report| u64::from(report < 17)), [15]);
    }

    #[test]
    fn single_pauses_do_not_lower_the_top() {
        // One on either side of a slot's end, again and again.
        let pauses = |report: u64| u64::from(report % 15 < 2) * 5_000;
        assert_eq!(lowered(600, pauses), [0; 0]);
    }
}
