//! The rates of connections through switches, where the links of some members are the limit. All
//! links have XCP routers. `--nocapture` shows the rates.
use crate::world;

use std::time::Duration;

use manyflow_anypoint::AcpConfig;
use manyflow_anypoint::switch::SwitchConfig;
use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_core::xcp::XcpConfig;
use world::{World, frames};

/// Bits on the wire of a frame of 1024 bytes.
const PACKET_BITS: f64 = (1024.0 + 56.0) * 8.0;
/// A number of frames that lasts longer than any run.
const ENDLESS: u32 = 200_000;
/// The time in which windows open, and the time that is measured.
const BEGIN: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(20);

/// Returns a link of this rate in Mbit/s, with an XCP router before it.
fn router(rate: u32, delay: Duration) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(u64::from(rate) * 1_000_000)),
        delay,
        queue: QueueLimit::Packets(1000),
        xcp: Some(XcpConfig::default()),
        ..LinkConfig::default()
    }
}

/// Runs the world. Returns the rate at which each count of frames grows, in Mbit/s on the wire.
fn rates(world: &mut World, count: impl Fn(&World) -> Vec<usize>) -> Vec<f64> {
    world.run_until(BEGIN);
    let before = count(world);
    world.run_until(BEGIN + MEASURED);
    let after = count(world);
    let frames = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after - before);
    let rate = |frames| frames as f64 * PACKET_BITS / MEASURED.as_secs_f64() / 1e6;
    frames.map(rate).collect()
}

/// Prints the rates of members behind links of these rates, in Mbit/s.
fn show(links: &[u32], rates: &[f64]) {
    let share = rates.iter().sum::<f64>() / f64::from(links.iter().sum::<u32>());
    println!("links {links:?}: {rates:.2?}, {:.1} %", 100.0 * share);
}

/// Runs a service whose members send to the peer and have links of these rates. The link of the
/// peer is no limit. Returns the members' rates, in Mbit/s.
fn outbound(links: &[u32]) -> Vec<f64> {
    let delay = Duration::from_millis(5);
    let mut world = World::new(1);
    world.initiator(AcpConfig::default(), 1);
    world.switch(SwitchConfig::default(), 0, 2..2 + links.len() as u32);
    world.connect(0, 1, &router(1000, delay));
    for (place, rate) in (0..).zip(links) {
        let member = world.acceptor(AcpConfig::default(), 1);
        world.connect(1, member, &router(*rate, delay));
        let first = place * ENDLESS;
        world.give(member, frames(first..first + ENDLESS));
    }
    let members = links.len();
    rates(&mut world, |world| {
        let mut counts = vec![0; members];
        for key in world.read(0) {
            counts[(key / ENDLESS) as usize] += 1;
        }
        counts
    })
}

/// Runs a peer that sends to four members in turn. The link of the first has `slowest` Mbit/s; no
/// other link is a limit. Returns the sum of the rates as a share of what the first member's link
/// allows.
fn inbound(is_cascade: bool, slowest: u32, delay: Duration) -> f64 {
    let mut world = World::new(1);
    world.initiator(AcpConfig::default(), 1);
    let (leaves, switches) = match is_cascade {
        true => (4..8, 2..4),
        false => (2..6, 1..2),
    };
    if is_cascade {
        world.switch(SwitchConfig::default(), 0, switches.clone());
    }
    let fast = router(100, delay);
    for switch in switches.clone() {
        let (above, members) = match (is_cascade, switch) {
            (true, 2) => (1, 4..6),
            (true, _) => (1, 6..8),
            (false, _) => (0, leaves.clone()),
        };
        world.switch(SwitchConfig::default(), above, members);
    }
    world.connect(0, 1, &fast);
    if is_cascade {
        switches.for_each(|switch| world.connect(1, switch, &fast));
    }
    for leaf in leaves.clone() {
        // One switch is as far from its members as two.
        let (above, delay) = match is_cascade {
            true => (leaf / 2, delay),
            false => (1, 2 * delay),
        };
        world.acceptor(AcpConfig::default(), above);
        let rate = if leaf == leaves.start { slowest } else { 100 };
        world.connect(above, leaf, &router(rate, delay));
    }
    world.give(0, frames(0..ENDLESS));
    let rates = rates(&mut world, |world| {
        let read = leaves.clone().map(|leaf| world.read(leaf).len());
        read.collect()
    });
    rates.iter().sum::<f64>() / f64::from(4 * slowest)
}

#[test]
fn a_cascade_carries_as_much_as_one_switch_where_the_slowest_member_has_few_frames_in_flight() {
    // 5 to 10 frames are on their way to each member.
    for (slowest, delay_ms) in [(10, 1), (2, 5), (5, 5)] {
        let delay = Duration::from_millis(delay_ms);
        for is_cascade in [true, false] {
            let share = inbound(is_cascade, slowest, delay);
            println!(
                "slowest link {slowest} Mbit/s, {delay:?}, cascade {is_cascade}: {:.1} %",
                100.0 * share
            );
            assert!(
                (0.98..1.001).contains(&share),
                "{slowest} Mbit/s, {delay:?}, cascade {is_cascade}: {share}"
            );
        }
    }
}

#[test]
fn a_member_with_a_fast_link_uses_it_beside_members_with_slow_links() {
    let links = [50, 2, 2, 2, 2, 2, 2];
    let rates = outbound(&links);
    show(&links, &rates);
    assert!(rates[0] > 0.98 * 50.0, "{rates:?}");
    assert!(
        rates[1..].iter().all(|rate| *rate > 0.98 * 2.0),
        "{rates:?}"
    );
}

#[test]
fn members_with_different_links_use_all_of_them() {
    let links = [2, 4, 6, 8, 10, 12, 14];
    let rates = outbound(&links);
    show(&links, &rates);
    let sum: f64 = rates.iter().sum();
    assert!(sum > 0.99 * 56.0, "{rates:?}");
}
