//! Random early detection: drops or marks packets before the queue is full, more often the longer
//! the average queue is (Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", 1993).
//!
//! A packet that is dropped or marked is called a hit. Hits are spaced evenly, in one of two ways
//! ([`RedVariant`]); p is the probability that follows from the average queue:
//!
//! ```text
//!   paper   the gap between hits is uniform from 1 to 1/p packets      p / (1 - count p)
//!   ns-2    it is uniform from 1/p to 2/p packets                      0 below 1/p, then p / (2 - count p)
//! ```

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{Carried, Marking, Overload, RedConfig, RedVariant};
use crate::units::Rate;

/// The state of a RED queue, which [`Link`](super::Link) keeps for itself. A queue outside a link
/// can use it, too.
#[derive(Clone, Debug)]
pub struct Red {
    config: RedConfig,
    /// avg: the average queue in packets.
    average: f64,
    /// The gap since the last hit; `None` while no packet can be hit.
    since_last: Option<Gap>,
}

/// The packets that have arrived since the last hit.
#[derive(Copy, Clone, Debug, Default)]
struct Gap {
    /// count: the number of packets.
    packets: u32,
    /// ns-2's `count_bytes`: the sum of the packets' lengths.
    bytes: u64,
}

impl Gap {
    fn with(self, bytes: u32) -> Gap {
        Gap {
            packets: self.packets.saturating_add(1),
            bytes: self.bytes + u64::from(bytes),
        }
    }
}

/// The arrival of a packet, and the state of the link that it finds.
#[derive(Copy, Clone, Debug)]
pub struct Arrival {
    /// The packet's length.
    pub bytes: u32,
    /// The number of packets that wait for the transmitter.
    pub waiting: usize,
    /// How long the transmitter has been idle; `None` while it sends.
    pub idle: Option<Duration>,
    /// The transmitter's rate.
    pub rate: Option<Rate>,
}

/// RED's decision about a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is queued as it is.
    Accept,
    /// The packet is marked and queued.
    Mark,
    /// The packet is dropped.
    Drop,
}

/// How a packet's receiver learns of congestion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The packet is dropped: it does not support ECN, or RED does not mark.
    Drop,
    /// The packet is marked.
    Mark,
    /// The packet is neither dropped nor marked: another group of its session is.
    Spare,
}

/// The top subscribed rank of each session, sorted by session.
///
/// One rank is enough for each session because groups are cumulative: a receiver of one group
/// receives all groups below it (section III-A2 of SIM's paper).
#[derive(Clone, Debug, Default)]
pub struct TopGroups(Vec<(u32, u8)>);

impl TopGroups {
    /// Notes that a group is forwarded from now on.
    pub fn subscribe(&mut self, session: u32, rank: u8) {
        match self
            .0
            .binary_search_by_key(&session, |(session, _)| *session)
        {
            Ok(place) => self.0[place].1 = self.0[place].1.max(rank),
            Err(place) => self.0.insert(place, (session, rank)),
        }
    }

    /// Removes a group and the groups above it, which are about to be left as well.
    pub fn unsubscribe(&mut self, session: u32, rank: u8) {
        let Ok(place) = self
            .0
            .binary_search_by_key(&session, |(session, _)| *session)
        else {
            return;
        };
        match rank.checked_sub(1) {
            Some(below) => self.0[place].1 = self.0[place].1.min(below),
            None => {
                self.0.remove(place);
            }
        }
    }

    /// Sets the top subscribed rank of a session; `None` if no group of it is subscribed.
    pub fn set(&mut self, session: u32, top: Option<u8>) {
        self.unsubscribe(session, 0);
        if let Some(rank) = top {
            self.subscribe(session, rank);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `rank` is the top subscribed rank of the session.
    pub fn is_top(&self, session: u32, rank: u8) -> bool {
        self.0.binary_search(&(session, rank)).is_ok()
    }
}

impl Red {
    /// Creates the state of an empty queue.
    pub fn new(config: RedConfig) -> Red {
        Red {
            config,
            average: 0.0,
            since_last: None,
        }
    }

    /// Returns how the packet's receiver learns of congestion.
    pub fn notice(&self, item: &impl Carried, tops: &TopGroups) -> Notice {
        if !self.config.ecn || !item.is_ecn_capable() {
            return Notice::Drop;
        }
        let group = match self.config.marking {
            Marking::All => None,
            Marking::TopGroup => item.group(),
        };
        match group {
            Some((session, rank)) if !tops.is_top(session, rank) => Notice::Spare,
            _ => Notice::Mark,
        }
    }

    /// Decides about a packet that the queue has room for.
    pub fn judge(&mut self, arrival: Arrival, notice: Notice, random: &mut Pcg64Mcg) -> Verdict {
        self.update(arrival);
        let high = self.config.maximum_packets;
        if self.average < self.config.minimum_packets || self.spares_queue(arrival) {
            self.since_last = None;
            return Verdict::Accept;
        }
        let is_over = self.average >= high;
        let only_marks = self.config.overload == Overload::Mark && notice != Notice::Drop;
        if notice == Notice::Spare && (only_marks || !is_over) {
            return Verdict::Accept;
        }
        if is_over && (only_marks || self.average >= 2.0 * high) {
            self.since_last = Some(Gap::default());
            return if only_marks {
                Verdict::Mark
            } else {
                Verdict::Drop
            };
        }
        match self.hits(arrival.bytes, random) {
            true if notice == Notice::Mark && !is_over => Verdict::Mark,
            true => Verdict::Drop,
            false => Verdict::Accept,
        }
    }

    /// Notes a packet that a full queue drops. ns-2 takes it into the average and treats it as a
    /// hit. In the other variant the average covers only packets that the queue has room for.
    pub fn refuse(&mut self, arrival: Arrival) {
        if self.config.variant == RedVariant::Ns2 {
            self.update(arrival);
            self.since_last = self.since_last.map(|_| Gap::default());
        }
    }

    /// Returns whether the queue is too short for any hit, whatever the average: ns-2 hits no
    /// packet that finds fewer than two waiting.
    fn spares_queue(&self, arrival: Arrival) -> bool {
        self.config.variant == RedVariant::Ns2 && arrival.waiting <= 1
    }

    /// Draws whether a packet is hit. Hits are spaced evenly instead of at random (section 7 of the
    /// paper).
    fn hits(&mut self, bytes: u32, random: &mut Pcg64Mcg) -> bool {
        let gap = self.since_last.map(|gap| gap.with(bytes));
        let probability = match (self.config.variant, gap) {
            (RedVariant::Paper, gap) => self.evenly(gap.unwrap_or_default()),
            (RedVariant::Ns2, Some(gap)) => self.after_waiting(gap, bytes),
            (RedVariant::Ns2, None) => {
                self.since_last = Some(Gap::default().with(bytes));
                return false;
            }
        };
        let is_hit = random.random::<f64>() < probability;
        let gap = gap.unwrap_or_default();
        self.since_last = Some(if is_hit { Gap::default() } else { gap });
        is_hit
    }

    /// Returns p_b, the probability that follows from the average.
    fn base_probability(&self) -> f64 {
        let RedConfig {
            minimum_packets: low,
            maximum_packets: high,
            maximum_probability: most,
            ..
        } = self.config;
        if self.average < high {
            most * (self.average - low) / (high - low)
        } else {
            most + (1.0 - most) * (self.average - high) / high
        }
    }

    /// Returns p_a, the probability after `gap` (section 4 of the paper).
    fn evenly(&self, gap: Gap) -> f64 {
        let base = self.base_probability();
        base / (1.0 - f64::from(gap.packets) * base).max(base)
    }

    /// Returns the probability of ns-2's `modify_p` with its defaults. With `wait_` no packet is
    /// hit before the gap reaches 1/p; with `bytes_` the gap is measured in packets of typical
    /// length, and long packets are hit more often.
    fn after_waiting(&self, gap: Gap, bytes: u32) -> f64 {
        let base = self.base_probability();
        let typical = self.config.mean_packet_bytes.max(1);
        let expected = (gap.bytes / u64::from(typical)) as f64 * base;
        let probability = match expected {
            ..1.0 => 0.0,
            ..2.0 => base / (2.0 - expected),
            _ => 1.0,
        };
        if probability < 1.0 {
            probability * f64::from(bytes) / f64::from(typical)
        } else {
            1.0
        }
    }

    fn update(&mut self, arrival: Arrival) {
        let weight = self.config.weight;
        // Typical packets that could have been sent while the queue was empty.
        let missed = arrival.idle.zip(arrival.rate).map(|(idle, rate)| {
            idle.as_secs_f64() * rate.packets_per_s(self.config.mean_packet_bytes)
        });
        match (self.config.variant, missed) {
            (RedVariant::Paper, Some(missed)) => self.average *= libm::pow(1.0 - weight, missed),
            (RedVariant::Paper, None) => {
                let queued = arrival.waiting + usize::from(arrival.idle.is_none());
                self.average += weight * (queued as f64 - self.average);
            }
            (RedVariant::Ns2, missed) => {
                if let Some(missed) = missed.filter(|missed| *missed >= 1.0) {
                    self.average *= libm::pow(1.0 - weight, missed.floor());
                }
                self.average += weight * (arrival.waiting as f64 - self.average);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Returns the gaps between hits, in packets. All packets have `bytes` and find ten packets
    /// waiting and one in transmission.
    fn gaps(variant: RedVariant, bytes: u32) -> Vec<u32> {
        let mut red = Red::new(RedConfig {
            // Only the paper's variant counts the packet in transmission. So p is 0.05 in both.
            minimum_packets: if variant == RedVariant::Paper {
                6.0
            } else {
                5.0
            },
            maximum_packets: if variant == RedVariant::Paper {
                16.0
            } else {
                15.0
            },
            weight: 1.0,
            variant,
            ..RedConfig::default()
        });
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let arrival = Arrival {
            bytes,
            waiting: 10,
            idle: None,
            rate: None,
        };
        let mut gaps = vec![0];
        for _ in 0..200_000 {
            let last = gaps.len() - 1;
            gaps[last] += 1;
            if red.judge(arrival, Notice::Drop, &mut random) == Verdict::Drop {
                gaps.push(0);
            }
        }
        // The first gap begins with the test, and the last gap is not over.
        gaps[1..gaps.len() - 1].to_vec()
    }

    fn mean(gaps: &[u32]) -> f64 {
        gaps.iter().sum::<u32>() as f64 / gaps.len() as f64
    }

    #[test]
    fn the_papers_gaps_are_uniform_up_to_the_inverse_probability() {
        let gaps = gaps(RedVariant::Paper, 1000);
        // The pseudocode counts the arriving packet before it computes p_a = p / (1 - count p), so
        // with p = 1/20 the first packet after a hit is hit with 1/19: gaps are uniform on 1 to 19.
        assert!(gaps.iter().all(|gap| (1..=19).contains(gap)));
        assert!((mean(&gaps) - 10.0).abs() < 0.3, "{}", mean(&gaps));
    }

    #[test]
    fn ns2s_gaps_are_uniform_from_the_inverse_probability_to_twice_that() {
        let typical = gaps(RedVariant::Ns2, 1000);
        assert!(typical.iter().all(|gap| (20..=41).contains(gap)));
        assert!((mean(&typical) - 30.0).abs() < 1.0, "{}", mean(&typical));
        // Twice as many packets make the same number of bytes, and each is hit half as often.
        let short = gaps(RedVariant::Ns2, 500);
        assert!(short.iter().all(|gap| (40..=82).contains(gap)));
        assert!(mean(&short) > 2.0 * mean(&typical), "{}", mean(&short));
    }

    #[test]
    fn ns2_spares_a_packet_that_finds_at_most_one_waiting() {
        let judge = |variant, waiting| {
            let mut red = Red::new(RedConfig {
                weight: 0.0,
                variant,
                ..RedConfig::default()
            });
            red.average = 40.0;
            let arrival = Arrival {
                bytes: 1000,
                waiting,
                idle: None,
                rate: None,
            };
            red.judge(arrival, Notice::Drop, &mut Pcg64Mcg::seed_from_u64(1))
        };
        assert_eq!(judge(RedVariant::Paper, 0), Verdict::Drop);
        assert_eq!(judge(RedVariant::Ns2, 1), Verdict::Accept);
        assert_eq!(judge(RedVariant::Ns2, 2), Verdict::Drop);
    }

    #[test]
    fn ns2_takes_packets_that_a_full_queue_drops_into_the_average() {
        let average = |variant| {
            let mut red = Red::new(RedConfig {
                weight: 0.5,
                variant,
                ..RedConfig::default()
            });
            red.refuse(Arrival {
                bytes: 1000,
                waiting: 20,
                idle: None,
                rate: None,
            });
            red.average
        };
        assert_eq!(average(RedVariant::Paper), 0.0);
        assert_eq!(average(RedVariant::Ns2), 10.0);
    }
}
