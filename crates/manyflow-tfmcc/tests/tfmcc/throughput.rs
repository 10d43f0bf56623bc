//! The rate of one receiver behind a lossy link, against the TCP equation.

use std::time::Duration;

use crate::{lossy, receiver, world_of};
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_tfmcc::SenderConfig;

/// Loss events over which a rate is averaged, about.
const EVENTS: f64 = 1000.0;

/// The sending rate over the equation's, for a round-trip time and a packet loss rate.
fn ratio(rtt_ms: u64, loss: f64, feedback_loss: f64) -> f64 {
    let equation = TcpEquation::RENO.rate_packets_per_s(rtt_ms as f64 / 1000.0, loss);
    let delay = Duration::from_millis(rtt_ms) / 2;
    let mut world = world_of(SenderConfig::default());
    let back = lossy(delay, feedback_loss);
    world.branch(
        lossy(delay, loss),
        back,
        [receiver(1, Duration::ZERO, None)],
    );
    world.run_until(Duration::from_secs(100));
    let span_s = (EVENTS / (equation * loss)).clamp(200.0, 3000.0);
    let received = world.measure(0, Duration::from_secs_f64(span_s)) / 8000.0;
    let ratio = received / (1.0 - loss) / equation;
    println!("{rtt_ms} ms, {loss}: equation {equation:.1} packets/s, ratio {ratio:.2}");
    ratio
}

#[test]
fn one_receiver_gets_what_the_equation_says() {
    for rtt_ms in [20, 50, 100, 200, 400] {
        for loss in [0.001, 0.01, 0.05] {
            let ratio = ratio(rtt_ms, loss, 0.0);
            assert!(
                (0.75..1.25).contains(&ratio),
                "{rtt_ms} ms, {loss}: {ratio}"
            );
        }
    }
}

#[test]
fn lost_feedback_costs_little() {
    for (rtt_ms, loss) in [(20, 0.01), (100, 0.01)] {
        let ratio = ratio(rtt_ms, loss, 0.2);
        assert!((0.6..1.25).contains(&ratio), "{rtt_ms} ms, {loss}: {ratio}");
    }
}
