//! A stream of SIM with the parameters of live sessions over hops that find their rates, beside
//! TCP, in the simulator.

mod chain;

use manyflow_streams::{live_hop_config, live_receiver_config, live_sender_config};

use chain::{Chain, ChainConfig};

const LINKS: [u64; 4] = [300_000, 1_000_000, 3_000_000, 10_000_000];
const SETTLE_S: f64 = 120.0;
const MEASURE_S: f64 = 120.0;

fn config(seed: u64) -> ChainConfig<'static> {
    ChainConfig {
        links: &LINKS,
        queue_bytes_min: 15_000,
        hop: live_hop_config(),
        sender: live_sender_config(),
        receiver: live_receiver_config(),
        tcp_start_s: 10.0,
        seed,
    }
}

/// Returns the rates of the stream, CUBIC and Reno on each link, as shares of the link.
fn shares(seed: u64) -> Vec<[f64; 3]> {
    let mut chain = Chain::new(&config(seed));
    chain.run_until(SETTLE_S);
    let before = chain.received();
    chain.run_until(SETTLE_S + MEASURE_S);
    let places = chain.received().into_iter().zip(before).zip(LINKS);
    places
        .map(|((after, before), link)| {
            let share = |which: usize| {
                (after[which] - before[which]) as f64 * 8.0 / MEASURE_S / link as f64
            };
            [0, 1, 2].map(share)
        })
        .collect()
}

/// One run says little about the slowest link, so the rates are those of several. Each of the two
/// TCPs alone is no measure in the simulator: CUBIC has twice the rate of Reno here.
#[test]
fn streams_behind_four_rates_get_half_to_twice_the_average_rate_of_tcp() {
    let seeds = 8;
    let mut sums = [[0.0; 3]; LINKS.len()];
    for seed in 1..=seeds {
        for (sum, shares) in sums.iter_mut().zip(shares(seed)) {
            (0..3).for_each(|which| sum[which] += shares[which] / seeds as f64);
        }
    }
    for ([stream, cubic, reno], link) in sums.into_iter().zip(LINKS) {
        let ratio = stream / ((cubic + reno) / 2.0);
        println!("{link}: {stream:.2}, CUBIC {cubic:.2}, Reno {reno:.2}, ratio {ratio:.2}");
        assert!((0.5..=2.0).contains(&ratio), "{link}: {ratio}");
        assert!(stream + cubic + reno > 0.9, "{link} is not in use");
    }
}

#[test]
fn a_fast_receiver_is_not_held_back_by_a_slow_one() {
    let mut chain = Chain::new(&config(1));
    chain.run_until(SETTLE_S + MEASURE_S);
    let subscribed = chain
        .leaves
        .iter()
        .map(|leaf| leaf.get().receiver.subscribed());
    let subscribed: Vec<u8> = subscribed.collect();
    assert!(
        subscribed.is_sorted() && subscribed[3] >= 3,
        "{subscribed:?}"
    );
    let rate = |place| {
        let status = chain.source.get().hop(place).expect("it has a hop");
        status.rate.bits_per_s()
    };
    assert!(
        rate(0) > 20_000 && rate(3) > 1_000_000,
        "{} {}",
        rate(0),
        rate(3)
    );
}
