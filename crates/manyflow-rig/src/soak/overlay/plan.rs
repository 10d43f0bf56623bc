//! The plan of a run, drawn from its seed: the network, the clients and the faults.

use std::ops::Range;
use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_net::thin_link::ThinLinkConfig;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use manyflow_rig::overlay_lab::{LinkPlan, Seat};

const CLIENTS_PER_DAEMON: usize = 2;
const GROUPS: usize = 3;
/// The time without faults at the beginning.
const QUIET: Duration = Duration::from_secs(2);
/// The pause between two faults.
const PAUSE_MS: Range<u64> = 200..4_000;
/// The time for which a link is down, if it is only one.
const FLAP_MS: Range<u64> = 100..2_500;
/// The time for which a daemon is down. Its neighbours keep their links for 5 s.
const CRASH_MS: Range<u64> = 50..9_000;
/// Partitions shorter and longer than the time for which members count: 5 s until the links are
/// removed, and 5 s after that.
const SHORT_PARTITION_MS: Range<u64> = 1_000..4_000;
const LONG_PARTITION_MS: Range<u64> = 15_000..20_000;
const SLOW_MS: Range<u64> = 1_000..3_000;
const AWAY_MS: Range<u64> = 50..5_000;

/// A network, its clients and the changes that they go through.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) daemons: usize,
    pub(super) links: Vec<LinkPlan>,
    pub(super) clients: Vec<ClientPlan>,
    /// The changes and their times since the start, in order.
    pub(super) changes: Vec<(Duration, Change)>,
}

/// A client's first seat, and the time between two of its messages.
#[derive(Copy, Clone, Debug)]
pub(super) struct ClientPlan {
    pub(super) seat: Seat,
    pub(super) send_us: u64,
}

/// A fault, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Links go down, once more than they have gone up.
    Down(Vec<usize>),
    /// Links go up, as often as they have gone down.
    Up(Vec<usize>),
    /// The connection of a link breaks.
    Break(usize),
    /// A link gets another rate.
    SetRate(usize, Rate),
    /// A daemon is killed, unless it is down.
    Kill(usize),
    /// A daemon is started, unless it is running.
    Restart(usize),
    /// A client begins to read slowly, or ends it.
    Slow(usize, bool),
    /// A client disconnects, and connects again at another seat after a while.
    Move(Seat, Duration),
}

impl Plan {
    /// Draws the plan of a seed for a run with faults of this duration.
    pub(super) fn of(seed: u64, duration: Duration) -> Plan {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let daemons = random.random_range(4..=6);
        let links = links(daemons, &mut random);
        let clients = (0..daemons * CLIENTS_PER_DAEMON).map(|client| ClientPlan {
            seat: Seat {
                client,
                daemon: client % daemons,
                group: random.random_range(0..GROUPS),
            },
            send_us: random.random_range(1_500..10_000),
        });
        let mut plan = Plan {
            daemons,
            links,
            clients: clients.collect(),
            changes: Vec::new(),
        };
        let mut now = QUIET;
        while now < duration {
            plan.add_fault(now, duration, &mut random);
            now += millis(PAUSE_MS, &mut random);
        }
        plan.changes.retain(|(at, _)| *at < duration);
        plan.changes.sort_by_key(|(at, _)| *at);
        plan
    }

    fn add_fault(&mut self, now: Duration, end: Duration, random: &mut Pcg64Mcg) {
        let link = random.random_range(0..self.links.len());
        let daemon = random.random_range(0..self.daemons);
        let client = random.random_range(0..self.clients.len());
        let group = random.random_range(0..GROUPS);
        let seat = Seat {
            client,
            daemon,
            group,
        };
        let kind = random.random_range(0..12);
        let (begun, repaired, time) = match kind {
            0..3 => (Change::Down(vec![link]), Change::Up(vec![link]), FLAP_MS),
            3..5 => (Change::Kill(daemon), Change::Restart(daemon), CRASH_MS),
            5 | 6 => {
                let links = border(self.daemons, &self.links, random);
                let time = [SHORT_PARTITION_MS, LONG_PARTITION_MS][kind - 5].clone();
                (Change::Down(links.clone()), Change::Up(links), time)
            }
            7 | 8 => (
                Change::Slow(client, true),
                Change::Slow(client, false),
                SLOW_MS,
            ),
            9 => return self.changes.push((now, Change::Break(link))),
            10 => {
                return self
                    .changes
                    .push((now, Change::SetRate(link, rate(random))));
            }
            _ => {
                let away = millis(AWAY_MS, random);
                return self.changes.push((now, Change::Move(seat, away)));
            }
        };
        let until = now + millis(time, random);
        // A long partition that the end of the run would cut short is neither short nor long.
        if kind != 6 || until < end {
            self.changes.push((now, begun));
            self.changes.push((until, repaired));
        }
    }
}

/// Returns the links between two random parts of a network.
pub(in crate::soak) fn border(
    daemons: usize,
    links: &[LinkPlan],
    random: &mut Pcg64Mcg,
) -> Vec<usize> {
    let side = random.random_range(1..(1u32 << daemons) - 1);
    let is_inside = |daemon: usize| side >> daemon & 1 == 1;
    let links = links.iter().enumerate();
    let border = links.filter(|(_, link)| is_inside(link.ends[0]) != is_inside(link.ends[1]));
    border.map(|(number, _)| number).collect()
}

/// Draws a tree with up to two more links.
pub(in crate::soak) fn links(daemons: usize, random: &mut Pcg64Mcg) -> Vec<LinkPlan> {
    let mut ends: Vec<[usize; 2]> = (1..daemons)
        .map(|daemon| [random.random_range(0..daemon), daemon])
        .collect();
    for _ in 0..random.random_range(0..=2) {
        let one = random.random_range(0..daemons - 1);
        let other = random.random_range(one + 1..daemons);
        if !ends.contains(&[one, other]) {
            ends.push([one, other]);
        }
    }
    let links = ends.into_iter().map(|ends| LinkPlan {
        ends,
        config: ThinLinkConfig {
            rate: rate(random),
            delay: Duration::from_millis(random.random_range(1..=30)),
            queue_packets: random.random_range(4..=16),
        },
    });
    links.collect()
}

fn rate(random: &mut Pcg64Mcg) -> Rate {
    Rate::from_bits_per_s(1_000_000 * random.random_range(2..=12))
}

fn millis(range: Range<u64>, random: &mut Pcg64Mcg) -> Duration {
    Duration::from_millis(random.random_range(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_function_of_its_seed_and_repairs_what_it_breaks() {
        let duration = Duration::from_secs(600);
        for seed in 0..50 {
            let plan = Plan::of(seed, duration);
            assert_eq!(plan.changes, Plan::of(seed, duration).changes);
            let count = |wanted: fn(&Change) -> bool| {
                let changes = plan.changes.iter();
                changes.filter(|(_, change)| wanted(change)).count()
            };
            let kills = count(|change| matches!(change, Change::Kill(_)));
            let restarts = count(|change| matches!(change, Change::Restart(_)));
            assert!(kills > 0 && kills - restarts <= 3, "seed {seed}");
            let mut reached = vec![0];
            for link in &plan.links[..plan.daemons - 1] {
                assert!(reached.contains(&link.ends[0]));
                reached.push(link.ends[1]);
            }
        }
    }
}
