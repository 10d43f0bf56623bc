//! The number of reports in a round of many receivers.

use std::time::Duration;

use crate::world::delay;
use crate::{World, receiver, world_of};
use manyflow_core::{Rate, Time};
use manyflow_tfmcc::{Event, SenderConfig};

const DELAY: Duration = Duration::from_millis(50);
/// N, and the number of receivers.
const RECEIVERS: u32 = 10_000;
/// The sending rate, in packets per second.
const PACKETS_PER_S: u32 = 20;

/// Returns the reports of each round that ended after `since`, without those of the limiting
/// receiver.
fn reports(crowd: &World, since: Time) -> Vec<u32> {
    let late = crowd.sender.events().into_iter();
    let late = late.filter(|(at, _)| *at > since);
    let reports = late.filter_map(|(_, event)| match event {
        Event::RoundEnded { reports, .. } => Some(reports),
        _ => None,
    });
    reports.collect()
}

/// The expected number of reports in a round of n = N receivers with the same state. A timer
/// expires by t with probability F(t) = N^(t/T - 1), and suppresses the others a time `tau` later.
/// So a receiver reports at t if no timer has expired before t - tau:
///
/// `E = n F(tau) + n * integral from tau to T of (1 - F(t - tau))^(n-1) dF(t)`
///
/// `  = n N^(tau/T - 1) + N^(tau/T) ((1 - 1/N)^n - (1 - N^(-tau/T))^n)`
///
/// The timers are those of Widmer and Fuhrmann, "Extremum Feedback for Very Large Multicast Groups"
/// (NGC 2001).
fn expected_reports(tau: Duration, round: Duration) -> f64 {
    let n = f64::from(RECEIVERS);
    let factor = libm::pow(n, tau.as_secs_f64() / round.as_secs_f64());
    let none = |share: f64| libm::pow(1.0 - share, n);
    factor + factor * (none(1.0 / n) - none(1.0 / factor))
}

#[test]
fn of_ten_thousand_receivers_in_the_same_state_a_handful_reports_in_a_round() {
    let rate = Rate::from_packets_per_s(f64::from(PACKETS_PER_S), 1000);
    let mut config = SenderConfig::default();
    config.maximum_rate = Some(rate);
    config.initial_rtt_max = 2 * DELAY;
    let mut crowd = world_of(config);
    let receivers = (0..RECEIVERS).map(|number| receiver(number, Duration::ZERO, None));
    // The receivers get the same packets at the same times, so their states are the same.
    crowd.branch(delay(DELAY), delay(DELAY), receivers);
    crowd.run_until(Duration::from_secs(30));
    let late = reports(&crowd, Time::from_secs_f64(5.0));
    let mean = f64::from(late.iter().sum::<u32>()) / late.len() as f64;
    let most = late.iter().copied().max().unwrap_or(0);
    // A report is answered after its way, half a packet spacing on average, and the way back.
    let tau = 2 * DELAY + Duration::from_secs(1) / (2 * PACKETS_PER_S);
    let expected = expected_reports(tau, 6 * Duration::from_millis(104));
    let members = crowd.branches[0].members.iter();
    let suppressed: usize = members.map(|m| m.count(&Event::FeedbackSuppressed)).sum();
    println!(
        "{} rounds: {mean:.1} reports on average, {most} at most, {expected:.1} expected; {} suppressed",
        late.len(),
        suppressed
    );
    assert!(late.len() >= 35);
    assert!(
        (0.6..1.6).contains(&(mean / expected)),
        "{mean}, {expected}"
    );
    assert!(f64::from(most) < 5.0 * expected, "{most}, {expected}");
    assert!(late.iter().all(|reports| *reports > 0), "{late:?}");
    let all = reports(&crowd, Time::ZERO);
    assert!(all.iter().all(|reports| *reports < 100), "{all:?}");
}
