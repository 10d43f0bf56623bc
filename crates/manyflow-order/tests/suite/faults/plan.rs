//! The plan of a run, which follows from its seed.

use std::time::Duration;

use manyflow_order::OrderConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Everything that is chosen before a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) daemons: usize,
    pub(super) config: OrderConfig,
    /// The time that a record takes from one daemon to another, in microseconds, at most. If ways
    /// differ, an answer to a message can arrive long before the message.
    pub(super) delays_us: Vec<Vec<u64>>,
    /// The time after which the overlay gives up a daemon that cannot be reached, in microseconds.
    pub(super) hold_us: u64,
    /// The time after which a daemon notices a change, in microseconds, at most.
    pub(super) notice_us: u64,
    /// The time between two actions of a client, in microseconds, at most.
    pub(super) pause_us: u64,
    /// How long the faults and the clients' messages go on, in microseconds.
    pub(super) end_us: u64,
    /// Faults, in the order of their times.
    pub(super) faults: Vec<(u64, Fault)>,
}

/// A fault.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Daemons can reach those of the same side only.
    Split(Vec<u8>),
    /// A daemon crashes, and restarts after this time in microseconds.
    Crash(usize, u64),
    /// A daemon handles nothing for this time in microseconds.
    Slow(usize, u64),
    /// A daemon believes for a while that it cannot reach another.
    Doubt(usize),
}

impl Plan {
    pub(super) fn of(seed: u64) -> Plan {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let daemons = random.random_range(1..=6);
        let end_us = random.random_range(50_000..600_000);
        let mut faults: Vec<(u64, Fault)> = (0..random.random_range(0..10))
            .map(|_| (random.random_range(0..end_us), fault(daemons, random)))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        let delay_us = [300, 5_000, 40_000][random.random_range(0..3)];
        let slow_share = [0.2, 1.0][random.random_range(0..2)];
        let mut delays = |_| match random.random_bool(slow_share) {
            true => delay_us,
            false => delay_us / 50,
        };
        let delays_us = (0..daemons)
            .map(|_| (0..daemons).map(&mut delays).collect())
            .collect();
        let config = OrderConfig {
            record_bytes: [256, 48 << 10][random.random_range(0..2)],
            pace_max: Duration::from_millis([1, 20][random.random_range(0..2)]),
            backlog_bytes: [64 << 10, 32 << 20][random.random_range(0..2)],
            ..OrderConfig::default()
        };
        Plan {
            seed,
            daemons,
            config,
            delays_us,
            hold_us: [20_000, 200_000][random.random_range(0..2)],
            notice_us: [1_000, 30_000, 200_000][random.random_range(0..3)],
            pause_us: [3_000, 30_000][random.random_range(0..2)],
            end_us,
            faults,
        }
    }
}

fn fault(daemons: usize, random: &mut Pcg64Mcg) -> Fault {
    let daemon = random.random_range(0..daemons);
    match random.random_range(0..10) {
        0..5 => Fault::Split((0..daemons).map(|_| random.random_range(0..2)).collect()),
        5..7 => Fault::Crash(daemon, random.random_range(100..200_000)),
        7 => Fault::Slow(daemon, random.random_range(1_000..300_000)),
        _ => Fault::Doubt(daemon),
    }
}
