//! ACP connections over links: order, losses, flow control, windows, endings.

mod acp_world;

use std::sync::Arc;
use std::time::Duration;

use acp_world::World;
use manyflow_core::anypoint::{AcpConfig, Connection, Control, FlowControl, Length, Reason};
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Event, Time};

const FRAME: u32 = 1024;
const WIRE: f64 = 1024.0 + 56.0;

fn credit() -> AcpConfig {
    AcpConfig {
        flow: FlowControl::Credit,
        ..AcpConfig::default()
    }
}

fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: LossModel::Bernoulli(0.05),
        duplication: 0.05,
        jitter: Duration::from_millis(5),
        ..delay(10)
    }
}

fn frames(count: u32) -> Vec<(u32, Length)> {
    (0..count).rev().map(|key| (key, Length(FRAME))).collect()
}

fn world(config: AcpConfig, link: &LinkConfig, seed: u64) -> World<Length> {
    World::new([config.clone(), config], link, seed, Length(0))
}

#[test]
fn a_transfer_arrives_complete_and_in_order() {
    for config in [AcpConfig::default(), credit()] {
        let mut world = world(config, &delay(10), 1);
        world.ends[0].to_send = frames(5_000);
        world.ends[0].closes = true;
        world.run_until(Duration::from_secs(20));
        assert_eq!(world.ends[1].keys(), (0..5_000).collect::<Vec<_>>());
        assert_eq!(world.ends[0].count(Event::Finished), 1);
        assert!(world.ends[1].connection.is_remote_closed());
        assert_eq!(world.ends[0].count(Event::LossEvent), 0);
        assert_eq!(world.ends[0].count(Event::RetransmissionTimeout), 0);
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_by_a_network_that_does_all_three() {
    let reno = AcpConfig {
        control: Control::Reno,
        ..credit()
    };
    for config in [AcpConfig::default(), credit(), reno] {
        for seed in 0..50 {
            let mut world = world(config.clone(), &lossy(), seed);
            for (end, count) in [(0, 400), (1, 300)] {
                world.ends[end].to_send = frames(count);
                world.ends[end].closes = true;
            }
            world.run_until(Duration::from_secs(600));
            for (end, count) in [(1, 400), (0, 300)] {
                let expected = (0..count).collect::<Vec<_>>();
                assert_eq!(world.ends[end].keys(), expected, "seed {seed}, {config:?}");
                assert_eq!(world.ends[end].count(Event::Finished), 1, "seed {seed}");
                assert!(world.ends[end].connection.is_over(), "seed {seed}");
            }
        }
    }
}
