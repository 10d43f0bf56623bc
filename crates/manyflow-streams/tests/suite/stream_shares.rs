//! The shares of links that streams of SIM and RLM use, in simulated time and with the parameters
//! of live streams. These are the measurements of `manyflow-rig bench stream` without sockets, for
//! many seeds. The second test restarts a relay, as `manyflow-rig bench stream --faults` does. The
//! third has a receiver that lies, as `manyflow-rig bench stream --liars` has.
//!
//! `MANYFLOW_SEEDS=250 cargo test -p manyflow-streams --test suite stream_shares:: -- --nocapture`
//! runs more seeds, prints a line for each, and checks how many hold the bounds instead of which.

use std::time::Duration;

mod ends;
mod leaf;
mod tree;

use leaf::Leaf;
use manyflow_netsim::models::Lie;
use manyflow_streams::{SendControl, live_rlm_sender_config, live_sender_config};
use tree::Tree;

const LINKS: [u64; 4] = [300_000, 1_000_000, 3_000_000, 10_000_000];
/// The receiver whose link changes, and the rate of the slow link.
const CHANGED: usize = 2;
const SLOW: u64 = 1_000_000;
/// The bounds of `manyflow-rig bench stream`: useful bytes and missing units in percent, and
/// seconds until a receiver follows its link.
const USEFUL: f64 = 85.0;
const MISSING: f64 = 1.0;
const SLOWER_S: f64 = 5.0;
const FASTER_S: f64 = 20.0;

/// The seeds of every run. The parameters of live streams were chosen with seeds 0 to 129.
const SEEDS: [u8; 4] = [0, 1, 200, 201];
/// The minimum share of many seeds that hold all bounds.
const HELD: f64 = 0.6;

fn sim(seed: u8) -> Tree {
    Tree::new(&SendControl::Sim(live_sender_config()), &LINKS, seed)
}

/// Runs 120 s with a seed. Prints the measurements, and returns what misses its bound.
fn missed(seed: u8) -> Vec<&'static str> {
    let mut tree = sim(seed);
    tree.run_until(60.0);
    let of_link =
        |(leaf, link): (&Leaf, u64)| 100.0 * leaf.useful_bits_per_s(30.0, 60.0) / link as f64;
    let useful: Vec<f64> = tree.leaves.iter().zip(LINKS).map(of_link).collect();
    let leaves = tree.leaves.iter();
    let missing: Vec<f64> = leaves.map(|leaf| 100.0 * leaf.missing(60.0)).collect();
    tree.set_rate(CHANGED, SLOW);
    tree.run_until(90.0);
    let slower = tree.leaves[CHANGED].followed(60.0, SLOW);
    tree.set_rate(CHANGED, LINKS[CHANGED]);
    tree.run_until(120.0);
    let faster = tree.leaves[CHANGED].followed(90.0, LINKS[CHANGED]);
    println!("seed {seed}: useful {useful:.1?} %, missing {missing:.2?} %, {slower} s, {faster} s");
    let within = |values: &[f64], bound: fn(f64) -> bool| values.iter().copied().all(bound);
    [
        ("useful", within(&useful, |share| share >= USEFUL)),
        ("missing", within(&missing, |share| share < MISSING)),
        ("slower", slower <= SLOWER_S),
        ("faster", faster <= FASTER_S),
    ]
    .into_iter()
    .filter_map(|(name, holds)| (!holds).then_some(name))
    .collect()
}

#[test]
fn a_stream_holds_its_shares_behind_four_links_and_follows_one_that_changes() {
    if let Ok(seeds) = std::env::var("MANYFLOW_SEEDS") {
        let seeds: u8 = seeds.parse().expect("MANYFLOW_SEEDS is a number up to 255");
        let held = (0..seeds).filter(|seed| missed(*seed).is_empty()).count();
        println!("{held} of {seeds} seeds hold all bounds");
        assert!(held as f64 >= HELD * f64::from(seeds));
        return;
    }
    let seen = SEEDS.into_iter().flat_map(|seed| {
        let missed = missed(seed).into_iter();
        missed.map(move |name| (seed, name))
    });
    assert_eq!(seen.collect::<Vec<_>>(), []);
}

/// Two thirds of what was sent to the receiver no longer arrive. Its rounds would tell it after two
/// seconds or more.
#[test]
fn a_receiver_whose_link_becomes_far_slower_leaves_groups_at_once() {
    let has_left = |seed: &u8| {
        let mut tree = sim(*seed);
        tree.run_until(60.0);
        let before = tree.leaves[CHANGED].receiver.joined();
        tree.set_rate(CHANGED, SLOW);
        tree.run_until(60.6);
        tree.leaves[CHANGED].receiver.joined() < before
    };
    let left = SEEDS.iter().filter(|seed| has_left(seed)).count();
    println!("{left} of {} have left within 0.6 s", SEEDS.len());
    assert!(left >= 3);
}

/// The first start exceeds the slowest link. Its hop then drops packets of the lowest group, and
/// their relay does not wait for the end of the round. The bound was chosen between the values with
/// early reports, 3 %, and without, 18 %, after both were seen.
#[test]
fn the_slowest_receiver_misses_few_units_of_the_start() {
    let missing = |seed: u8| {
        let mut tree = sim(seed);
        tree.run_until(5.0);
        tree.leaves[0].missing(5.0)
    };
    let shares: Vec<f64> = (200..208).map(missing).collect();
    println!("missing in the first 5 s: {shares:.3?}");
    assert!(shares.iter().sum::<f64>() / 8.0 < 0.05);
}

/// Runs 70 s with a seed, in which the relay is restarted after 40 s. Returns whether all receivers
/// are back within two selection intervals, as `manyflow-rig bench stream --faults` demands.
fn is_back_after_restart(seed: u8) -> bool {
    let mut tree = sim(seed);
    tree.run_until(40.0);
    let bound = tree.two_selections_s();
    tree.restart_relay(1.0);
    tree.run_until(70.0);
    let leaves = tree.leaves.iter();
    let back: Vec<f64> = leaves.map(|leaf| leaf.back(20.0, 40.0, 41.0)).collect();
    println!("seed {seed}: back in {back:.1?} s ({bound:.1})");
    back.iter().all(|seconds| *seconds <= bound)
}

#[test]
fn receivers_are_back_within_two_selection_intervals_of_a_restart_of_their_relay() {
    let many = std::env::var("MANYFLOW_SEEDS").ok();
    let seeds = many.as_deref().unwrap_or("6");
    let seeds: u8 = seeds.parse().expect("MANYFLOW_SEEDS is a number up to 255");
    let is_late = |seed: &u8| !is_back_after_restart(*seed);
    let late: Vec<u8> = (0..seeds).filter(is_late).collect();
    println!("late with seeds {late:?} of {seeds}");
    // 4 of the first 200 seeds are late: 72, 85, 86 and 88.
    let allowed: usize = if many.is_some() { seeds.into() } else { 0 };
    assert!(late.len() <= allowed / 20, "late with seeds {late:?}");
}

/// The link of a receiver that lies.
const LIAR_LINK: u64 = 3_000_000;

/// Returns the useful rate of the four receivers beside a fifth one with this lie.
fn rates_beside(lie: Option<Lie>, seed: u8) -> Vec<f64> {
    let links = [&LINKS[..], &[LIAR_LINK]].concat();
    let mut tree = Tree::new(&SendControl::Sim(live_sender_config()), &links, seed);
    tree.leaves[LINKS.len()].lie = lie;
    tree.run_until(120.0);
    let honest = tree.leaves.iter().take(LINKS.len());
    honest
        .map(|leaf| leaf.useful_bits_per_s(60.0, 120.0))
        .collect()
}

/// The minimum share of their rates that honest receivers keep, in percent.
const KEPT: f64 = 90.0;
/// The seeds of every run. When relays believed a receiver that it is congested, one of the others
/// kept 81 % beside a receiver that always says so, with seed 1.
const LIE_SEEDS: [u8; 2] = [1, 3];

/// Returns the seeds and lies with which an honest receiver keeps less than the bound.
fn not_kept(seeds: impl Iterator<Item = u8>) -> Vec<(u8, Lie)> {
    let mut not_kept = Vec::new();
    for seed in seeds {
        let honest = rates_beside(None, seed);
        for lie in [Lie::AlwaysCongested, Lie::NeverCongested] {
            let beside = rates_beside(Some(lie), seed);
            let shares = beside.iter().zip(&honest);
            let kept: Vec<f64> = shares.map(|(now, before)| 100.0 * now / before).collect();
            println!("seed {seed}, {lie:?}: {kept:.0?} %");
            if kept.iter().any(|share| *share < KEPT) {
                not_kept.push((seed, lie));
            }
        }
    }
    not_kept
}

#[test]
fn receivers_keep_their_rates_beside_one_that_lies() {
    if let Ok(seeds) = std::env::var("MANYFLOW_SEEDS") {
        let seeds: u8 = seeds.parse().expect("MANYFLOW_SEEDS is a number up to 255");
        let not_kept = not_kept(0..seeds);
        println!("less than {KEPT} % with {not_kept:?}");
        assert!(not_kept.len() <= usize::from(seeds) / 20);
        return;
    }
    assert_eq!(not_kept(LIE_SEEDS.into_iter()), []);
}

/// A stream of 4 Mbit/s in units of a second, as those of video are, over slower links and a faster
/// one. Not all of the groups' rates is used, and they must not grow without end: a group of 50
/// Mbit/s that sends 4 leaves no room for receivers behind 2 and 3.
#[test]
fn long_units_that_use_no_rate_above_theirs_serve_each_link() {
    const LINKS: [u64; 4] = [1_000_000, 2_000_000, 3_000_000, 6_000_000];
    const STREAM: f64 = 4e6;
    for seed in SEEDS {
        let control = SendControl::Sim(live_sender_config());
        let mut tree =
            Tree::new(&control, &LINKS, seed).with_units(500_000, Duration::from_secs(1));
        tree.run_until(80.0);
        let of_link = |(leaf, link): (&Leaf, u64)| {
            let carried = STREAM.min(link as f64);
            100.0 * leaf.useful_bits_per_s(30.0, 80.0) / carried
        };
        let useful: Vec<f64> = tree.leaves.iter().zip(LINKS).map(of_link).collect();
        println!("seed {seed}: useful {useful:.1?} %");
        assert!(useful.iter().all(|share| *share >= 70.0), "seed {seed}");
        // A path with room for all of it: no gap is amid a unit when rates decrease.
        assert!(useful[3] >= 95.0, "seed {seed}");
    }
}

/// Units of 12,500 B, 20 in each second, over 4 Mbit/s and 20 ms with random losses, both ways. The
/// latency is that of SRT, 120 ms after the transit of the fastest packet.
#[test]
fn random_losses_take_less_than_a_twentieth_of_a_stream() {
    for share in [0.01, 0.03, 0.05] {
        for seed in [0, 1] {
            let control = SendControl::Sim(live_sender_config());
            let interval = Duration::from_millis(50);
            let mut tree = Tree::new(&control, &[4_000_000], seed).with_units(12_500, interval);
            tree.leaves[0].set_losses(share, Duration::from_millis(120));
            tree.run_until(20.0);
            let before = tree.leaves[0].whole();
            tree.run_until(80.0);
            let whole = tree.leaves[0].whole() - before;
            let bytes = tree.leaves[0].useful_bits_per_s(20.0, 80.0) / 2e6;
            println!("{share}, seed {seed}: {bytes:.4} of the bytes, {whole} of 1200 whole");
            assert!(bytes >= 0.95, "{share}, seed {seed}: {bytes}");
        }
    }
}

/// The number of groups of RLM that each link carries.
const CARRIED: [u8; 4] = [1, 2, 3, 5];

#[test]
fn receivers_of_rlm_keep_the_groups_that_their_links_carry() {
    for seed in 0..4 {
        let control = SendControl::Rlm(live_rlm_sender_config());
        let mut tree = Tree::new(&control, &LINKS, seed);
        tree.run_until(240.0);
        let rates = control.initial_rates();
        for ((leaf, link), carried) in tree.leaves.iter().zip(LINKS).zip(CARRIED) {
            let useful = leaf.useful_bits_per_s(120.0, 240.0);
            let rate = rates[usize::from(carried) - 1].bits_per_s() as f64;
            println!(
                "seed {seed}, {link}: {:.2} of the groups' rate",
                useful / rate
            );
            assert!(useful >= 0.75 * rate, "seed {seed}, {link}: {useful}");
        }
    }
}

/// A link that carries a stream of 2 Mbit/s.
const EMPTY: [u64; 1] = [4_000_000];

fn stream_of(bytes: usize, interval: Duration, seed: u8) -> Tree {
    let control = SendControl::Sim(live_sender_config());
    let mut tree = Tree::new(&control, &EMPTY, seed).with_units(bytes, interval);
    tree.run_until(10.0);
    tree
}

#[test]
fn small_units_are_whole_where_the_path_carries_them() {
    // Telemetry: 1,000 lines of 40 bytes per second.
    for seed in 0..2 {
        let tree = stream_of(40, Duration::from_millis(1), seed);
        let whole = tree.leaves[0].whole_units(2.0, 8.0);
        println!("seed {seed}: {whole} of 6000 lines");
        assert_eq!(whole, 6_000, "seed {seed}");
    }
}

/// The time after which a stream of 2 Mbit/s is whole.
const WHOLE_AFTER_S: f64 = 1.5;

#[test]
fn a_stream_on_an_empty_path_is_soon_whole() {
    for seed in 0..6 {
        let tree = stream_of(12_500, Duration::from_millis(50), seed);
        let (from, whole) = (
            tree.leaves[0].whole_from(),
            tree.leaves[0].whole_units(2.0, 8.0),
        );
        println!("seed {seed}: whole from {from:.2} s, then {whole} of 120 units");
        assert!(from <= WHOLE_AFTER_S, "seed {seed}: {from} s");
        assert!(whole >= 119, "seed {seed}: {whole} units");
    }
}
