//! TCP's throughput under random loss against the full model of Padhye, Firoiu, Towsley and Kurose,
//! "Modeling TCP Throughput: A Simple Model and its Empirical Validation" (SIGCOMM 1998), Eq. (32),
//! without a window limit.

use crate::tcp_world;

use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_tcp::{TcpConfig, Variant};
use tcp_world::{World, delay};

const LOSSES: [f64; 5] = [0.002, 0.005, 0.01, 0.02, 0.05];
const RTTS_MS: [u64; 4] = [40, 100, 200, 400];

/// The results of a run, per second and per packet.
#[derive(Copy, Clone, Debug)]
struct Measured {
    packets_per_s: f64,
    /// Loss indications per packet sent, where a series of time-outs counts once: the model's p.
    p: f64,
    timeout_s: f64,
}

/// Returns the model's packets per second with b = 1, an acknowledgement for each packet.
fn model(p: f64, rtt_s: f64, timeout_s: f64) -> f64 {
    let arrives = 1.0 - p;
    let all_arrive = |packets: f64| libm::pow(arrives, packets);
    let window = 1.0 + (8.0 * arrives / (3.0 * p) + 1.0).sqrt();
    // Q is the share of loss indications that are time-outs.
    let three = all_arrive(3.0);
    let q = (1.0 - three) * (1.0 + three * (1.0 - all_arrive(window - 3.0)));
    let q = (q / (1.0 - all_arrive(window))).min(1.0);
    // f(p): 1 + p + 2p^2 + 4p^3 + 8p^4 + 16p^5 + 32p^6.
    let f = 1.0
        + (0..6)
            .rev()
            .fold(0.0, |sum, k| p * (f64::from(1 << k) + sum));
    (arrives / p + window + q / arrives)
        / (rtt_s * (window / 2.0 + 1.0) + q * timeout_s * f / arrives)
}

/// Runs until about 2000 packets are lost, and samples the time-out once a second.
fn measure(variant: Variant, loss: f64, rtt_ms: u64) -> Measured {
    let tcp = TcpConfig {
        variant,
        ..TcpConfig::default()
    };
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(loss),
        ..delay(rtt_ms / 2)
    };
    let mut world = World::new(tcp, lossy, delay(rtt_ms / 2), 0);
    let (mut timeouts, mut second) = (Vec::new(), 0);
    while (world.sender.get().counters().sent as f64) < 2000.0 / loss {
        second += 1;
        world.run_until(Duration::from_secs(second));
        timeouts.push(world.sender.get().retransmission_timeout());
    }
    timeouts.sort_unstable();
    let counters = world.sender.get().counters();
    let indications = counters.fast_recoveries + counters.timeout_series;
    Measured {
        packets_per_s: counters.sent as f64 / second as f64,
        p: indications as f64 / counters.sent as f64,
        timeout_s: timeouts[timeouts.len() / 2].as_secs_f64(),
    }
}

fn median(mut errors: Vec<f64>) -> f64 {
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

#[test]
fn throughput_is_what_padhyes_model_says() {
    for variant in [Variant::NewReno, Variant::Sack] {
        println!("{variant:?}\n  loss    RTT     T0       p   TCP pkt/s   model(p)   model(loss)");
        let mut errors = [Vec::new(), Vec::new()];
        for (loss, rtt_ms) in LOSSES.iter().flat_map(|l| RTTS_MS.map(|r| (*l, r))) {
            let tcp = measure(variant, loss, rtt_ms);
            let says = [tcp.p, loss].map(|p| model(p, rtt_ms as f64 / 1e3, tcp.timeout_s));
            println!(
                "{loss:6.3} {rtt_ms:4} ms {:5.3} s {:7.4} {:10.2} {:10.2} {:10.2}",
                tcp.timeout_s, tcp.p, tcp.packets_per_s, says[0], says[1]
            );
            for (errors, says) in errors.iter_mut().zip(says) {
                errors.push((tcp.packets_per_s / says - 1.0).abs());
            }
        }
        let [at_p, at_loss] = errors.map(median);
        println!("median error: {at_p:.3} at the measured p, {at_loss:.3} at the link's loss\n");
        assert!(at_p < 0.1 && at_loss < 0.1);
    }
}
