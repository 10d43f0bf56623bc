//! The network of a run and the faults of each round, drawn from the seed.

use std::ops::Range;
use std::time::Duration;

use manyflow_rig::overlay_lab::LinkPlan;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::soak::overlay::plan::{border, links};

/// The time for which a round has faults. Those that last longer are repaired at its end.
const ROUND_MS: Range<u64> = 3_000..14_000;
/// The pause between two faults.
const PAUSE_MS: Range<u64> = 100..3_000;
/// The time for which a daemon is down. Its neighbours keep their links for 5 s.
const CRASH_MS: Range<u64> = 20..8_000;
/// The time for which a daemon is stopped: shorter and longer than that.
const STOP_MS: Range<u64> = 50..9_000;
const FLAP_MS: Range<u64> = 100..2_500;
/// Partitions shorter and longer than the time for which members count: 5 s until the links are
/// removed, and 5 s after that.
const PARTITION_MS: Range<u64> = 500..13_000;

/// A fault, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Links go down, once more than they have gone up.
    Down(Vec<usize>),
    /// Links go up, as often as they have gone down.
    Up(Vec<usize>),
    /// The connection of a link breaks.
    Break(usize),
    /// A daemon is killed (SIGKILL), unless it is down.
    Kill(usize),
    /// A daemon is started, unless it is running.
    Restart(usize),
    /// A daemon is stopped (SIGSTOP).
    Stop(usize),
    /// A daemon continues (SIGCONT).
    Continue(usize),
    /// A client's connection ends, and the client connects again.
    Disconnect(usize),
}

/// The changes of a round, and how long it has faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) duration: Duration,
    /// With the times since the beginning of the round, in order.
    pub(super) changes: Vec<(Duration, Change)>,
}

/// Draws networks and rounds.
#[derive(Debug)]
pub(super) struct Plan {
    random: Pcg64Mcg,
    pub(super) daemons: usize,
    pub(super) links: Vec<LinkPlan>,
}

impl Plan {
    /// Draws the network of a seed: three or five daemons.
    pub(super) fn of(seed: u64) -> Plan {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let daemons = if random.random() { 3 } else { 5 };
        let links = links(daemons, &mut random);
        Plan {
            random,
            daemons,
            links,
        }
    }

    /// Draws the next round, with this number of clients.
    pub(super) fn round(&mut self, clients: usize) -> Round {
        let duration = self.millis(ROUND_MS);
        let mut changes = Vec::new();
        let mut now = self.millis(PAUSE_MS);
        while now < duration {
            let (begun, repaired) = self.fault(clients);
            changes.push((now, begun));
            if let Some((after, change)) = repaired {
                changes.push((now + after, change));
            }
            now += self.millis(PAUSE_MS);
        }
        changes.retain(|(at, _)| *at < duration);
        changes.sort_by_key(|(at, _)| *at);
        Round { duration, changes }
    }

    fn fault(&mut self, clients: usize) -> (Change, Option<(Duration, Change)>) {
        let link = self.random.random_range(0..self.links.len());
        let daemon = self.random.random_range(0..self.daemons);
        let (begun, repaired, time) = match self.random.random_range(0..10) {
            0..2 => (
                Change::Down(vec![link]),
                Change::Up(vec![link]),
                self.millis(FLAP_MS),
            ),
            2..4 => {
                let links = border(self.daemons, &self.links, &mut self.random);
                let time = self.millis(PARTITION_MS);
                (Change::Down(links.clone()), Change::Up(links), time)
            }
            4..6 => (
                Change::Kill(daemon),
                Change::Restart(daemon),
                self.millis(CRASH_MS),
            ),
            6..8 => (
                Change::Stop(daemon),
                Change::Continue(daemon),
                self.millis(STOP_MS),
            ),
            8 => return (Change::Break(link), None),
            _ => {
                let client = self.random.random_range(0..clients);
                return (Change::Disconnect(client), None);
            }
        };
        (begun, Some((time, repaired)))
    }

    fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_a_function_of_the_seed_and_have_all_kinds_of_faults() {
        for seed in 0..20 {
            let (mut plan, mut same) = (Plan::of(seed), Plan::of(seed));
            let mut changes = Vec::new();
            for _ in 0..30 {
                let round = plan.round(6);
                assert_eq!(round, same.round(6));
                assert!(round.changes.is_sorted_by_key(|(at, _)| *at));
                changes.extend(round.changes);
            }
            let has =
                |wanted: fn(&Change) -> bool| changes.iter().any(|(_, change)| wanted(change));
            assert!(has(|change| matches!(change, Change::Kill(_))), "{seed}");
            assert!(has(|change| matches!(change, Change::Stop(_))), "{seed}");
            assert!(
                has(|change| matches!(change, Change::Down(links) if links.len() > 1))
                    || plan.daemons == 3
            );
        }
    }
}
