//! The capacity of the path, which pairs of packets show. This is not in RFC 3738, and part of the
//! capacity check.
//!
//! A bottleneck spreads two packets that reach it close together to the time in which it can carry
//! one (Keshav 1991). The packets of a session's channels often leave the sender close together,
//! and their numbers give the times at which they left. The shortest time between two arrivals
//! shows a rate that the path carries, and that is its capacity if many pairs were spread. Packets
//! of others between the two make the time longer, so the capacity is not seen too high. Hosts that
//! take packets in batches make it too short to be resolved, and then nothing is known.
//!
//! Without the pairs, start-up finds the capacity by exceeding it, and has to leave a wave. With
//! IGMP a leave takes seconds, in which the queue overflows. After start-up, no join takes the rate
//! above the peak whose average over a slot is the capacity.

use super::dispersion::RESOLUTION_S;
use manyflow_core::time::Time;

/// The number of pairs from which the capacity is believed.
const PAIRS_MIN: u32 = 8;
/// The factor by which the time between the arrivals must exceed that between the departures.
const SPREAD_MIN: f64 = 1.1;

/// Pairs of packets that arrived one after the other.
#[derive(Debug)]
pub(super) struct Pairs {
    /// The arrival of the last packet, and its departure in seconds by the sender's schedule.
    last: Option<(Time, f64)>,
    /// The shortest time between two arrivals, in seconds.
    shortest_s: f64,
    /// The number of pairs that arrived farther apart than they left.
    spread: u32,
}

impl Pairs {
    pub(super) fn new() -> Pairs {
        Pairs {
            last: None,
            shortest_s: f64::INFINITY,
            spread: 0,
        }
    }

    /// Registers a packet that is in order on its channel.
    pub(super) fn on_packet(&mut self, arrived: Time, sent_s: f64) {
        let Some((last, last_sent_s)) = self.last.replace((arrived, sent_s)) else {
            return;
        };
        let (gap_s, sent_gap_s) = ((arrived - last).as_secs_f64(), sent_s - last_sent_s);
        self.shortest_s = self.shortest_s.min(gap_s);
        self.spread += u32::from(sent_gap_s >= 0.0 && gap_s > SPREAD_MIN * sent_gap_s);
    }

    /// Returns the capacity in packets per second; `None` if there are too few pairs, or if hosts
    /// cannot resolve the times between their packets.
    pub(super) fn capacity(&self) -> Option<f64> {
        let is_known = self.spread >= PAIRS_MIN && self.shortest_s > RESOLUTION_S;
        is_known.then(|| 1.0 / self.shortest_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    /// Sends packets at these times in microseconds over a link that takes `each_us` for one.
    fn over_a_link(sent_us: impl IntoIterator<Item = u64>, each_us: u64) -> Pairs {
        let (mut pairs, mut free_us) = (Pairs::new(), 0);
        for sent in sent_us {
            free_us = free_us.max(sent) + each_us;
            let arrived = Time::ZERO + Duration::from_micros(10_000 + free_us);
            pairs.on_packet(arrived, sent as f64 / 1e6);
        }
        pairs
    }

    #[test]
    fn packets_that_leave_close_together_show_the_capacity() {
        let sent = (0..40).map(|place| place / 2 * 10_000 + place % 2 * 1_000);
        let shown = over_a_link(sent, 2_500).capacity().unwrap();
        assert!((shown - 400.0).abs() < 1e-6, "{shown}");
    }

    #[test]
    fn packets_that_leave_farther_apart_show_nothing() {
        let sent = (0..100).map(|place| place * 5_000);
        assert_eq!(over_a_link(sent, 2_500).capacity(), None);
    }

    #[test]
    fn few_pairs_and_fast_paths_show_nothing() {
        let few = (0..14).map(|place| place / 2 * 10_000);
        assert_eq!(over_a_link(few, 2_500).capacity(), None);
        let many = (0..100).map(|place| place / 2 * 10_000);
        assert_eq!(over_a_link(many, 50).capacity(), None);
    }

    #[test]
    fn hosts_that_take_packets_in_batches_show_nothing() {
        let mut pairs = Pairs::new();
        for place in 0..100 {
            let sent_us = place * 300;
            let tick = Time::ZERO + Duration::from_millis(sent_us / 1_000);
            pairs.on_packet(tick, sent_us as f64 / 1e6);
        }
        assert_eq!(pairs.capacity(), None);
    }
}
