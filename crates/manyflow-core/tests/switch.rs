//! ACP connections through a switch, over links that lose, repeat and delay.

mod switch_world;

use std::time::Duration;

use manyflow_core::Event;
use manyflow_core::anypoint::switch::{MemberId, SwitchConfig};
use manyflow_core::anypoint::{AcpConfig, FlowControl, Reason};
use manyflow_core::link::{LinkConfig, LossModel};
use switch_world::World;

fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: LossModel::Bernoulli(0.03),
        duplication: 0.03,
        jitter: Duration::from_millis(4),
        ..delay(5)
    }
}

fn credit() -> AcpConfig {
    AcpConfig {
        flow: FlowControl::Credit,
        ..AcpConfig::default()
    }
}

const PEER: usize = 0;
const SWITCH: usize = 1;

/// A peer (0), a switch (1) and its members (from 2), with as many frames in each direction: keys of member m are 10,000 m and
/// more, m from 2.
fn ensemble(
    config: &AcpConfig,
    link: &LinkConfig,
    seed: u64,
    members: usize,
    frames: u32,
) -> World {
    // Losses alone let no member fail.
    let patient = SwitchConfig {
        failure_timeout: Duration::from_secs(20),
        ..SwitchConfig::default()
    };
    let mut world = World::new(1000 * seed);
    world.initiator(config.clone());
    world.switch(patient, members);
    world.connect(PEER, SWITCH, link);
    for _ in 0..members {
        let member = world.acceptor(config.clone());
        world.connect(SWITCH, member, link);
    }
    for node in std::iter::once(0).chain(2..2 + members) {
        give(&mut world, node, frames);
    }
    world
}

fn keys(node: usize, frames: u32) -> impl DoubleEndedIterator<Item = u32> {
    (0..frames).map(move |frame| 10_000 * node as u32 + frame)
}

/// Something to say, and then to close.
fn give(world: &mut World, node: usize, frames: u32) {
    world.end(node).to_send = keys(node, frames).rev().collect();
    world.end(node).closes = true;
}

fn is_rising(keys: &[u32]) -> bool {
    keys.is_sorted_by(|a, b| a < b)
}

/// What the peer read of a member.
fn read_of(world: &mut World, node: usize) -> Vec<u32> {
    let read = world.end(PEER).read.iter().copied();
    read.filter(|key| *key / 10_000 == node as u32).collect()
}

#[test]
fn both_directions_arrive_once_and_in_order_through_losses_and_jitter() {
    for config in [credit(), AcpConfig::default()] {
        for seed in 0..20 {
            let mut world = ensemble(&config, &lossy(), seed, 3, 300);
            world.run_until(Duration::from_secs(1000));
            let mut all = Vec::new();
            for member in 2..5 {
                let read = world.end(member).read.clone();
                assert!(
                    is_rising(&read),
                    "seed {seed}: member {member} got {read:?}"
                );
                assert!(!read.is_empty(), "seed {seed}");
                all.extend(read);
                assert!(
                    read_of(&mut world, member)
                        .into_iter()
                        .eq(keys(member, 300)),
                    "seed {seed}"
                );
                assert_eq!(world.count(member, Event::Finished), 1, "seed {seed}");
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(keys(0, 300)), "seed {seed}");
            assert_eq!(world.count(PEER, Event::Finished), 1, "seed {seed}");
            assert!(world.end(PEER).connection.is_over(), "seed {seed}");
        }
    }
}

#[test]
fn without_losses_nothing_is_sent_twice() {
    let mut world = ensemble(&AcpConfig::default(), &delay(5), 1, 3, 2000);
    world.run_until(Duration::from_secs(60));
    for node in [0, 2, 3, 4] {
        assert_eq!(world.count(node, Event::Finished), 1, "node {node}");
        assert_eq!(world.count(node, Event::LossEvent), 0, "node {node}");
        assert_eq!(
            world.count(node, Event::RetransmissionTimeout),
            0,
            "node {node}"
        );
    }
}
#[test]
fn zz_debug() {
    let mut world = ensemble(&AcpConfig::default(), &delay(5), 1, 3, 2000);
    world.run_until(Duration::from_secs(60));
    for node in 0..5 {
        let interesting: Vec<_> = world.nodes[node]
            .events
            .iter()
            .filter(|(_, e)| !matches!(e, Event::Rtt { .. } | Event::CongestionWindow { .. }))
            .collect();
        println!("{node}: {interesting:?}");
    }
    let mut world = ensemble(&AcpConfig::default(), &lossy(), 3, 3, 300);
    world.run_until(Duration::from_secs(1000));
    for node in 0..5 {
        let interesting: Vec<_> = world.nodes[node]
            .events
            .iter()
            .filter(|(_, e)| !matches!(e, Event::Rtt { .. } | Event::CongestionWindow { .. }))
            .collect();
        println!("{node}: {interesting:?}");
        if node != 1 {
            println!("{:?}", world.end(node).read.len());
        }
    }
}

#[test]
fn zz_dump() {
    let mut world = ensemble(&AcpConfig::default(), &lossy(), 3, 3, 300);
    world.run_until(Duration::from_secs(400));
    println!("{}", world.switch_at(1).debug());
}
