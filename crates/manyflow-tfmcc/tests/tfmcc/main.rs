//! TFMCC end to end: a sender, links and receivers, in simulated time.
#![allow(clippy::print_stdout, reason = "tests say what they measured")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod sessions;
mod suppression;
mod throughput;
#[path = "../../../manyflow-webrc/tests/world/mod.rs"]
#[allow(dead_code, reason = "the tests of manyflow-webrc use the rest")]
mod world;

use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_core::{EndpointId, Time};
use manyflow_tfmcc::{Event, Message, Receiver, ReceiverConfig, ReceiverId, Sender, SenderConfig};

type World = world::World<Message, Event, Sender, Receiver>;

/// Returns a link that only delays and loses.
fn lossy(delay: Duration, loss: f64) -> LinkConfig {
    LinkConfig {
        delay,
        loss: LossModel::Bernoulli(loss),
        ..LinkConfig::default()
    }
}

fn world_of(config: SenderConfig) -> World {
    World::new(Sender::new(config, 0, Time::ZERO, None).unwrap(), 1)
}

/// Returns a receiver of the session. Its number is also its seed.
fn receiver(number: u32, start: Duration, stop: Option<Duration>) -> Receiver {
    let (id, stop) = (ReceiverId(number), stop.map(|stop| Time::ZERO + stop));
    let (config, start) = (ReceiverConfig::default(), Time::ZERO + start);
    let (sender, seed) = (EndpointId(0), u64::from(number));
    Receiver::new(config, 0, id, sender, seed, start, stop).unwrap()
}
