//! BBR alone on a path: it uses the link, keeps the queue short, and tolerates losses.

use crate::tcp_world::{World, delay};

use std::time::Duration;

use manyflow_core::Time;
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_tcp::{Event, TcpConfig, Variant};

const VERSIONS: [Variant; 2] = [Variant::Bbr, Variant::Bbr3];

/// Returns a link of 10 Mbit/s with a delay of 20 ms and a queue of `packets`.
pub(crate) fn bottleneck(packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(10_000_000)),
        queue: QueueLimit::Packets(packets),
        ..delay(20)
    }
}

/// Runs a connection over a link and a round-trip time of 40 ms from the sender's start. Returns
/// the world after `seconds`.
fn run(variant: Variant, link: LinkConfig, seconds: u64) -> World {
    let tcp = TcpConfig {
        initial_window: 10,
        ..TcpConfig::of(variant)
    };
    let mut world = World::new(tcp, link, delay(20), 3);
    world.run_until(Duration::from_secs(seconds));
    world
}

/// Returns the share of the link's rate that was delivered in `seconds`.
fn use_of(world: &World, seconds: u64) -> f64 {
    let bits = f64::from(world.receiver.get().delivered_segments()) * 8.0 * 1040.0;
    bits / (seconds as f64 * 1e7)
}

/// Returns the samples of the round-trip time after `from_s`, with their times, in seconds.
fn rtts(world: &World, from_s: f64) -> Vec<(f64, f64)> {
    let samples = world.sender.events().into_iter();
    let samples = samples.filter_map(|(time, event)| match event {
        Event::Rtt { sample_s, .. } => Some(((time - Time::ZERO).as_secs_f64(), sample_s)),
        _ => None,
    });
    samples.filter(|(time_s, _)| *time_s >= from_s).collect()
}

#[test]
fn alone_it_uses_the_link_and_keeps_its_queue_short() {
    for variant in VERSIONS {
        let world = run(variant, bottleneck(400), 40);
        let used = use_of(&world, 40);
        let samples = rtts(&world, 5.0);
        let mean_s = samples.iter().map(|(_, rtt_s)| rtt_s).sum::<f64>() / samples.len() as f64;
        println!("{variant:?}: use {used:.3}, mean round-trip time {mean_s:.4} s");
        assert!(used > 0.95, "{variant:?} {used}");
        // The path takes 40.8 ms without a queue; the queue could hold eight times that.
        assert!(mean_s < 0.050, "{variant:?} {mean_s}");
        assert_eq!(
            world.sender.get().counters().retransmitted,
            0,
            "{variant:?}"
        );
    }
}

#[test]
fn it_drains_the_queue_as_often_as_it_says() {
    for (variant, interval_s) in [(Variant::Bbr, 10.0), (Variant::Bbr3, 5.0)] {
        let world = run(variant, bottleneck(400), 60);
        let windows = world.sender.events().into_iter();
        let windows = windows.filter_map(|(time, event)| match event {
            Event::CongestionWindow { packets } => {
                Some(((time - Time::ZERO).as_secs_f64(), packets))
            }
            _ => None,
        });
        // ProbeRTT keeps four segments in flight, or half of the 49 of the bandwidth-delay product.
        let low: Vec<f64> = windows
            .filter(|(time_s, packets)| *time_s > 2.0 && *packets <= 26.0)
            .map(|(time_s, _)| time_s)
            .collect();
        let begins: Vec<f64> = low
            .iter()
            .enumerate()
            .filter(|(place, time_s)| *place == 0 || *time_s - low[*place - 1] > 1.0)
            .map(|(_, time_s)| *time_s)
            .collect();
        println!("{variant:?}: ProbeRTT at {begins:?}");
        assert!(begins.len() >= 4, "{variant:?} {begins:?}");
        for pair in begins.windows(2) {
            let gap_s = pair[1] - pair[0];
            // A lower sample between two probes postpones the next one, so gaps are never shorter.
            assert!(gap_s > interval_s - 0.3, "{variant:?} {begins:?}");
        }
    }
}

#[test]
fn startup_finds_the_bandwidth_in_a_logarithmic_number_of_round_trips() {
    for variant in VERSIONS {
        let world = run(variant, bottleneck(1000), 2);
        // From 10 segments to 49 in flight takes three doublings, and three rounds show that there
        // is no more: half a second of 40 ms rounds is 12.
        let delivered = world.receiver.get().delivered_segments();
        println!("{variant:?}: {delivered} segments in 2 s");
        assert!(
            f64::from(delivered) > 0.8 * 2.0 * 1e7 / 8320.0,
            "{variant:?} {delivered}"
        );
    }
}

#[test]
fn random_losses_cost_it_as_much_as_its_model_says() {
    // Version 3 slows down by the share of losses in each of the 60 round trips between two probes:
    // the average of 0.99^n is 0.76 (draft-ietf-ccwg-bbr section 5.3.3.8.3 has this model).
    for (variant, least) in [(Variant::Bbr, 0.9), (Variant::Bbr3, 0.7)] {
        // Of 245 segments in flight, 2 % are five. Of 49, one is more than that already.
        let lossy = LinkConfig {
            rate: Some(Rate::from_bits_per_s(50_000_000)),
            loss: LossModel::Bernoulli(0.01),
            ..bottleneck(250)
        };
        let world = run(variant, lossy, 30);
        let used = use_of(&world, 30) / 5.0;
        println!("{variant:?}: use {used:.3} with 1 % losses");
        assert!(used > least, "{variant:?} {used}");
    }
}
