//! Signs, earlier than marks and losses of rounds, that the path no longer carries a group. For
//! groups with rounds of their own, whose packets a hop queues.
//!
//! The packets of the top group, which carry its requests, are the first to be dropped, and what a
//! relay can repair counts as lost only a round later. Announced rates show no shortfall where the
//! driver has less to send. Gaps do: nearly every packet that has passed a full queue comes behind
//! one.

use core::time::Duration;

use crate::{Data, GROUPS_MAX};
use manyflow_core::time::Time;

/// The smallest number of packets behind a gap in an overloaded window. An interruption has one
/// such packet, and a burst of losses has few.
const GAPS_MIN: u32 = 6;

/// The share of a group's rate that has to arrive so that the group is kept.
const WORTH: f64 = 0.9;

/// The arrivals since a gap.
#[derive(Copy, Clone, Debug)]
struct Window {
    since: Time,
    packets: u32,
    bytes: f64,
    /// The packets behind a gap.
    gaps: u32,
    /// The packets that are missing in them.
    missing: u32,
}

/// The announced rates of the groups, and the gaps in what arrives.
#[derive(Clone, Debug)]
pub(super) struct Overload {
    /// The last announced cumulative rate of each group, in bytes per second.
    announced: [u32; GROUPS_MAX as usize],
    window: Option<Window>,
}

impl Overload {
    pub(super) fn new() -> Overload {
        Overload {
            announced: [0; GROUPS_MAX as usize],
            window: None,
        }
    }

    /// Handles a change of the groups.
    pub(super) fn on_change(&mut self) {
        self.window = None;
    }

    /// Handles a packet of one of `groups`, in front of which packets are missing. Returns how many
    /// groups to keep if fewer packets have arrived than were missing, for a round-trip time: those
    /// below the top group that what arrived is enough for, and at least one.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        data: &Data,
        bytes: u32,
        missing: u32,
        groups: u8,
        rtt: Duration,
    ) -> Option<u8> {
        self.announced[usize::from(data.group)] = data.rate;
        if self.window.is_none() && missing == 0 {
            return None;
        }
        let window = self.window.get_or_insert(Window {
            since: now,
            packets: 0,
            bytes: 0.0,
            gaps: 0,
            missing: 0,
        });
        window.packets += 1;
        window.bytes += f64::from(bytes);
        window.gaps += u32::from(missing > 0);
        window.missing = window.missing.saturating_add(missing);
        let span = now - window.since;
        if span < rtt {
            return None;
        }
        let seen = self.window.take()?;
        let is_overloaded = seen.gaps >= GAPS_MIN && seen.missing > seen.packets;
        let rate = seen.bytes / span.as_secs_f64();
        let fits =
            |groups: &u8| WORTH * f64::from(self.announced[usize::from(*groups) - 1]) <= rate;
        let keep = (1..groups).rev().find(fits).unwrap_or(1);
        (is_overloaded && groups > 1).then_some(keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Announces 30, 100 and 300 kB/s. Then a packet of 1000 bytes arrives in each 10 ms, behind as
    /// many missing ones as `gaps` says. Returns what is kept of three groups, if it is said.
    fn keep(gaps: impl IntoIterator<Item = u32>) -> Option<u8> {
        let mut overload = Overload::new();
        let mut now = Time::ZERO;
        let mut arrive = |group, missing| {
            now += Duration::from_millis(10);
            let data = Data {
                group,
                sequence: 0,
                request: 1,
                is_for_group: true,
                rate: [30_000, 100_000, 300_000][usize::from(group)],
                rtt_us: 0,
                next_rate: 0,
                is_pair: false,
            };
            overload.on_packet(now, &data, 1000, missing, 3, RTT)
        };
        (0..3).for_each(|group| assert_eq!(arrive(group, 0), None));
        gaps.into_iter().find_map(|missing| arrive(2, missing))
    }

    #[test]
    fn groups_are_left_if_most_packets_are_missing_for_a_round_trip_time() {
        assert_eq!(keep([2; 10]), None, "90 ms");
        assert_eq!(keep([2; 11]), Some(2), "110 kB/s arrive");
        assert_eq!(keep([1, 0].repeat(20)), None, "half as many");
        assert_eq!(keep([0; 40]), None);
    }

    #[test]
    fn an_interruption_is_no_overload() {
        let burst = [40, 10, 5].into_iter();
        assert_eq!(keep(burst.chain([0; 40])), None);
    }
}
