//! The plan of a run, drawn from its seed.

use core::time::Duration;
use std::collections::BTreeSet;

use bytes::Bytes;
use manyflow_anypoint::switch::SwitchConfig;
use manyflow_anypoint::{AcpConfig, Control, FlowControl};
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Rate, Time};
use manyflow_store::StoreConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The bytes of a frame of the store besides those of its chunk, at most.
const HEADER_BYTES: u32 = 128;

/// The plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) config: AcpConfig,
    pub(crate) switch: SwitchConfig,
    pub(crate) store: StoreConfig,
    /// The number of members at the start.
    pub(crate) members: usize,
    pub(crate) chunk_bytes: u32,
    /// The client's steps, each with the time before which it does not begin.
    pub(crate) steps: Vec<(Time, Step)>,
    pub(crate) transit: LinkConfig,
    /// The link of each member, including members that join later.
    pub(crate) spokes: Vec<LinkConfig>,
    pub(crate) faults: Vec<(Time, Fault)>,
}

/// A transfer of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Stores a file of this length under the only name. The number makes its bytes.
    Put(u8, usize),
    /// Reads the file.
    Get,
}

/// A fault, or a change of the members. Members have the places of their links.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A member crashes.
    Crash(usize),
    /// A crashed member starts again and joins, with its disk or with an empty one.
    Return { place: usize, keeps_disk: bool },
    /// A member leaves.
    Leave(usize),
    /// Another member joins.
    Join(usize),
    /// The switch loses its state.
    Restart,
}

impl Plan {
    /// Draws the plan of a seed.
    pub(crate) fn of(seed: u64) -> Plan {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let members = random.random_range(3..=6);
        let copies = random.random_range(1..=3);
        let faults = faults(members, random);
        let joins = faults
            .iter()
            .filter(|(_, fault)| matches!(fault, Fault::Join(_)));
        let places = members + joins.count();
        let chunk_bytes = random.random_range(50..=1000);
        let config = config(chunk_bytes, places as u32, random);
        Plan {
            seed,
            switch: SwitchConfig {
                fallback: true,
                // Lost packets alone do not make a member appear to have failed.
                failure_timeout: Duration::from_secs(5),
                suspect_timeout: Some(Duration::from_millis(100)),
                keep_alive: Duration::from_millis(500),
                frame_bytes_max: config.frame_bytes_max,
                ..SwitchConfig::default()
            },
            config,
            store: StoreConfig {
                copies,
                window_bytes: chunk_bytes * random.random_range(1..=20),
                silence_max: Duration::from_secs(300),
                ..StoreConfig::default()
            },
            members,
            chunk_bytes,
            steps: steps(chunk_bytes as usize, random),
            transit: link(random),
            spokes: (0..places).map(|_| link(random)).collect(),
            faults,
        }
    }

    /// Returns the members that have lost a chunk that they had, or cannot be asked, at some time.
    pub(crate) fn gone(&self) -> BTreeSet<usize> {
        let place = |(_, fault): &(Time, Fault)| match *fault {
            Fault::Crash(place) | Fault::Leave(place) => Some(place),
            Fault::Return { .. } | Fault::Join(_) | Fault::Restart => None,
        };
        self.faults.iter().filter_map(place).collect()
    }

    /// Returns the members that are there from the beginning to the end.
    pub(crate) fn constant(&self) -> Vec<usize> {
        let gone = self.gone();
        (0..self.members)
            .filter(|place| !gone.contains(place))
            .collect()
    }
}

/// Returns the bytes of a file.
pub(crate) fn contents(number: u8, length: usize) -> Bytes {
    let random = &mut Pcg64Mcg::seed_from_u64(number.into());
    (0..length).map(|_| random.random::<u8>()).collect()
}

/// Draws up to three faults, each of another member. At least one member remains.
fn faults(members: usize, random: &mut Pcg64Mcg) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    let mut next_place = members;
    let at = |random: &mut Pcg64Mcg, from: u64, to: u64| {
        Time::ZERO + Duration::from_millis(random.random_range(from..to))
    };
    for place in 0..random.random_range(0..=3usize.min(members - 1)) {
        let time = at(random, 0, 15_000);
        match random.random_range(0..6) {
            0 => faults.push((time, Fault::Restart)),
            1 => {
                faults.push((time, Fault::Join(next_place)));
                next_place += 1;
            }
            2 => faults.push((time, Fault::Leave(place))),
            3 => faults.push((time, Fault::Crash(place))),
            _ => {
                let keeps_disk = random.random_bool(0.5);
                let back = at(random, 15_000, 30_000);
                faults.push((time, Fault::Crash(place)));
                faults.push((back, Fault::Return { place, keeps_disk }));
            }
        }
    }
    faults.sort_by_key(|(time, _)| *time);
    faults
}

/// Draws the steps: a put, a second put or none, and two gets, the last one after all faults.
fn steps(chunk_bytes: usize, random: &mut Pcg64Mcg) -> Vec<(Time, Step)> {
    let at = |seconds: f64| Time::from_secs_f64(seconds);
    let length = |random: &mut Pcg64Mcg| random.random_range(0..=20 * chunk_bytes);
    let mut steps = vec![(at(0.0), Step::Put(1, length(random)))];
    if random.random_bool(0.5) {
        let length = length(random);
        steps.push((at(random.random_range(0.0..12.0)), Step::Put(2, length)));
    }
    steps.push((at(random.random_range(0.0..15.0)), Step::Get));
    steps.push((at(45.0), Step::Get));
    steps
}

/// Draws the parameters of ACP. The peer's receive buffer has two frames for each member: see
/// `anypoint_faults`. A manifest must fit a frame too.
fn config(chunk_bytes: u32, members: u32, random: &mut Pcg64Mcg) -> AcpConfig {
    let frame_bytes_max = HEADER_BYTES + chunk_bytes.max(1600);
    let control = match random.random_bool(0.7) {
        true => Control::Auto,
        false => Control::Reno,
    };
    let buffer = |random: &mut Pcg64Mcg, least| frame_bytes_max * random.random_range(least..=50);
    AcpConfig {
        control,
        flow: FlowControl::Credit,
        frame_bytes_max,
        send_buffer: buffer(random, 4),
        receive_buffer: buffer(random, 4.max(2 * members)),
        initial_window: random.random_range(1..=4),
        minimum_rto: Duration::from_millis(random.random_range(100..=400)),
        keep_alive: Duration::from_millis(random.random_range(500..=5_000)),
        attempts: 12,
    }
}

fn link(random: &mut Pcg64Mcg) -> LinkConfig {
    let some = |random: &mut Pcg64Mcg, value| match random.random_bool(0.5) {
        true => value,
        false => 0.0,
    };
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(
            random.random_range(2_000_000..50_000_000),
        )),
        delay: Duration::from_micros(random.random_range(100..20_000)),
        queue: QueueLimit::Packets(random.random_range(10..200)),
        loss: LossModel::Bernoulli(some(random, 0.05)),
        duplication: some(random, 0.05),
        jitter: Duration::from_secs_f64(some(random, 0.005)),
        ..LinkConfig::default()
    }
}
