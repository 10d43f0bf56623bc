//! Receivers that leave a stream, with or without a word, and join it again.

use std::time::Duration;

use manyflow_core::link::RedConfig;
use manyflow_layered::hop::HopConfig;
use manyflow_layered::relay::RelayConfig;
use manyflow_layered::sim::{ReceiverConfig, SenderConfig};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::tree::{Tree, ms};

/// Returns a tree with the parameters of live streams (`manyflow-streams/src/config.rs`).
pub(crate) fn live_tree(links: &[(u64, Duration)]) -> Tree {
    let sender = SenderConfig {
        packet_bytes: 1400,
        increase: 3.0,
        decrease: 0.96,
        start_factor: 1.15,
        rtt_growth_max: 2.0,
        group_rounds: true,
        decrease_min: 0.5,
        ..SenderConfig::default()
    };
    let receiver = ReceiverConfig {
        selection_rtts: 15,
        loss_max: 0.04,
        ..ReceiverConfig::default()
    };
    let hop = HopConfig {
        packet_bytes: 1430,
        queue: ms(60),
        queue_packets: 6,
        red: RedConfig {
            minimum_packets: 1.0,
            maximum_packets: 3.0,
            weight: 0.3,
            ..HopConfig::default().red
        },
        red_slot: ms(2),
        ..HopConfig::default()
    };
    let relay = RelayConfig {
        hop,
        ..RelayConfig::default()
    };
    Tree::with(links, sender, &receiver, relay)
}

/// The share of its link that each receiver gets: those that stay while another one is away, and
/// those that have come back, from 15 s after their return on.
const SHARE: f64 = 0.85;
/// The number of leaves and returns with each seed.
const RETURNS: usize = 10;

/// Returns the value of a variable.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("the value is a number"))
}

/// Returns the seeds: as many as `MANYFLOW_SEEDS` says, or only `MANYFLOW_SEED`, which is traced.
fn seeds() -> std::ops::Range<u64> {
    match variable("MANYFLOW_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("MANYFLOW_SEEDS").unwrap_or(10),
    }
}

/// A stream whose receivers leave and join again.
struct Rejoins {
    tree: Tree,
    links: Vec<(u64, Duration)>,
    now_s: f64,
}

impl Rejoins {
    /// Begins a stream to these receivers, and waits until they have their rates.
    fn start(links: Vec<(u64, Duration)>) -> Rejoins {
        let mut tree = live_tree(&links);
        if variable("MANYFLOW_SEED").is_some() {
            println!("{links:?}");
            tree.trace();
        }
        tree.run_until(30.0);
        Rejoins {
            tree,
            links,
            now_s: 30.0,
        }
    }

    /// Lets the time pass. Returns the share of its link that each receiver gets meanwhile.
    fn pass(&mut self, seconds: f64) -> Vec<f64> {
        let before = self.tree.received();
        self.now_s += seconds;
        self.tree.run_until(self.now_s);
        let after = self.tree.received();
        let links = self.links.iter().zip(after.iter().zip(before));
        links
            .map(|((rate, _), (after, before))| {
                (after - before) as f64 * 8.0 / seconds / *rate as f64
            })
            .collect()
    }

    /// Lets a receiver leave for a time and join again. Returns the share of its link that it gets
    /// from 15 s after its return on, and the shares of those that stay, while it is away.
    fn rejoin(&mut self, place: usize, says_so: bool, away_s: f64) -> (f64, Vec<f64>) {
        if variable("MANYFLOW_SEED").is_some() {
            println!("receiver {place} is away for {away_s:.1} s, and says so: {says_so}");
        }
        self.tree.leave(place, says_so);
        let mut others = self.pass(away_s);
        others.remove(place);
        self.tree.join(place);
        self.pass(15.0);
        (self.pass(5.0)[place], others)
    }
}

/// Returns up to three receivers behind 0.5 to 8 Mbit/s and 2 to 100 ms.
fn draw_links(random: &mut Pcg64) -> Vec<(u64, Duration)> {
    let receivers = random.random_range(1..=3);
    let link = |_| {
        let rate = 500_000.0 * libm::exp2(random.random_range(0.0..4.0));
        (rate as u64, ms(random.random_range(1..=50)))
    };
    (0..receivers).map(link).collect()
}

/// Returns the share of its link that the receiver with the least gets.
fn least(shares: &[f64]) -> f64 {
    shares.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn receivers_that_join_again_have_their_rates_back_within_15_s_and_others_keep_theirs() {
    let (mut slow, mut disturbed) = (Vec::new(), Vec::new());
    let mut lowest: f64 = 1.0;
    for seed in seeds() {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut stream = Rejoins::start(draw_links(&mut random));
        for turn in 0..RETURNS {
            let place = random.random_range(0..stream.links.len());
            let says_so = random.random_bool(0.5);
            let away_s = random.random_range(0.5..40.0);
            let (share, others) = stream.rejoin(place, says_so, away_s);
            if share < SHARE {
                slow.push((seed, turn, share));
            }
            let stayed = least(&others);
            if stayed < SHARE {
                disturbed.push((seed, turn, stayed));
            }
            lowest = lowest.min(share).min(stayed);
        }
    }
    println!("The lowest share is {lowest:.3} (repeat a seed with MANYFLOW_SEED).");
    println!("slow (seed, turn, share): {slow:.3?}; disturbed: {disturbed:.3?}");
    assert!(slow.is_empty() && disturbed.is_empty());
}

#[test]
fn a_receiver_on_a_short_path_comes_back_ten_times() {
    // At the minimum rate, a packet is rarer than a hundred rounds of this path.
    let mut stream = Rejoins::start(vec![(4_000_000, ms(1))]);
    for turn in 0..10 {
        let (share, _) = stream.rejoin(0, turn % 2 == 0, 20.0);
        assert!(share > 0.85, "turn {turn}: {share:.2}");
    }
}

#[test]
fn a_far_receiver_joins_after_a_near_one() {
    for is_alone in [false, true] {
        let mut stream = Rejoins::start(vec![(8_000_000, ms(1)), (1_000_000, ms(1))]);
        stream.tree.leave(1, true);
        stream.pass(30.0);
        if is_alone {
            stream.tree.leave(0, true);
        }
        stream.tree.move_to(1, 1_000_000, ms(250));
        stream.tree.join(1);
        stream.pass(30.0);
        let shares = stream.pass(10.0);
        assert!(shares[1] > 0.7, "{shares:.2?}, alone: {is_alone}");
    }
}

#[test]
fn a_sender_that_was_alone_for_long_serves_its_first_receiver() {
    let mut tree = live_tree(&[(4_000_000, ms(20))]);
    tree.leave(0, true);
    tree.run_until(300.0);
    tree.join(0);
    tree.run_until(315.0);
    let before = tree.received()[0];
    tree.run_until(320.0);
    let bits = (tree.received()[0] - before) * 8;
    assert!(bits as f64 > 0.85 * 5.0 * 4e6, "{bits} bits in 5 s");
}
