//! Random early detection: drops or marks before the queue is full, the more the longer it is on average (Floyd and
//! Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993).

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{Carried, Marking, Overload, RedConfig};
use crate::units::Rate;

/// The state of a RED queue.
#[derive(Clone, Debug)]
pub(super) struct Red {
    config: RedConfig,
    /// avg, in packets.
    average: f64,
    /// count: packets since the last one dropped or marked; `None` while the average is below the minimum.
    since_last: Option<u32>,
}

/// What RED says of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Mark,
    Drop,
}

/// How a packet is told of congestion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// It does not know ECN, or RED does not mark.
    Drop,
    Mark,
    /// Not at all: another group of its session is.
    Spare,
}

/// The top subscribed rank of each session, in the order of the sessions.
///
/// A rank for each is enough, as groups are cumulative: whoever has one has all below it (section III-A2 of SIM's paper).
#[derive(Clone, Debug, Default)]
pub(super) struct TopGroups(Vec<(u32, u8)>);

impl TopGroups {
    pub(super) fn subscribe(&mut self, session: u32, rank: u8) {
        match self
            .0
            .binary_search_by_key(&session, |(session, _)| *session)
        {
            Ok(place) => self.0[place].1 = self.0[place].1.max(rank),
            Err(place) => self.0.insert(place, (session, rank)),
        }
    }

    /// The groups above the one that is left are of no more use: they are on their way out as well.
    pub(super) fn unsubscribe(&mut self, session: u32, rank: u8) {
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

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_top(&self, session: u32, rank: u8) -> bool {
        self.0.binary_search(&(session, rank)).is_ok()
    }
}

impl Red {
    pub(super) fn new(config: RedConfig) -> Red {
        Red {
            config,
            average: 0.0,
            since_last: None,
        }
    }

    /// How a packet is told of congestion.
    pub(super) fn notice(&self, item: &impl Carried, tops: &TopGroups) -> Notice {
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

    /// Judges a packet that finds `queued` packets before it; `idle` is for how long the queue has been empty.
    pub(super) fn judge(
        &mut self,
        queued: usize,
        idle: Option<Duration>,
        rate: Option<Rate>,
        notice: Notice,
        random: &mut Pcg64Mcg,
    ) -> Verdict {
        self.update(queued, idle, rate);
        let RedConfig {
            minimum_packets: low,
            maximum_packets: high,
            maximum_probability: most,
            ..
        } = self.config;
        if self.average < low {
            self.since_last = None;
            return Verdict::Accept;
        }
        let is_over = self.average >= high;
        let only_marks = self.config.overload == Overload::Mark && notice != Notice::Drop;
        if notice == Notice::Spare && (only_marks || !is_over) {
            return Verdict::Accept;
        }
        if is_over && (only_marks || self.average >= 2.0 * high) {
            self.since_last = Some(0);
            return if only_marks {
                Verdict::Mark
            } else {
                Verdict::Drop
            };
        }
        let count = self.since_last.map_or(0, |count| count + 1);
        let base = if !is_over {
            most * (self.average - low) / (high - low)
        } else {
            most + (1.0 - most) * (self.average - high) / high
        };
        // Spaced evenly, instead of at random (section 7 of the paper).
        let probability = base / (1.0 - f64::from(count) * base).max(base);
        let is_hit = random.random::<f64>() < probability;
        self.since_last = Some(if is_hit { 0 } else { count });
        match is_hit {
            true if notice == Notice::Mark && !is_over => Verdict::Mark,
            true => Verdict::Drop,
            false => Verdict::Accept,
        }
    }

    fn update(&mut self, queued: usize, idle: Option<Duration>, rate: Option<Rate>) {
        let weight = self.config.weight;
        match (idle, rate) {
            (Some(idle), Some(rate)) => {
                let packets =
                    idle.as_secs_f64() * rate.packets_per_s(self.config.mean_packet_bytes);
                self.average *= libm::pow(1.0 - weight, packets);
            }
            _ => self.average += weight * (queued as f64 - self.average),
        }
    }
}
