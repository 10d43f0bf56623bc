//! Tests of the rates of groups.

use super::*;

fn rates(groups: u8) -> Rates {
    Rates::new(&SenderConfig {
        groups,
        start_factor: 1.0,
        ..SenderConfig::default()
    })
}

fn reports(all: u32, congested: u32) -> Reports {
    let received = [1e9; 2];
    Reports {
        is_asked: true,
        all,
        congested,
        received,
        ..Reports::default()
    }
}

/// Returns the round-trip time of a session in which an increase adds this number of bytes per
/// second, as far as the limit of steps permits.
fn rtt_of_step(step: f64) -> Duration {
    Duration::from_secs_f64(2.0 * 1000.0 / step)
}

/// Returns whether a round with these reports about one group lowers its rate.
fn falls(rates: &Rates, group: usize, all: u32, congested: u32) -> bool {
    let mut rates = rates.clone();
    let mut round = vec![Reports::default(); rates.cumulative.len()];
    round[group] = reports(all, congested);
    let before = rates.cumulative(group);
    rates.on_round(0, &round, rtt_of_step(10.0));
    rates.cumulative(group) < before
}

#[test]
fn groups_follow_any_report_the_majority_or_all() {
    let mut rates = rates(3);
    assert!(falls(&rates, 0, 9, 1) && falls(&rates, 1, 9, 1));
    assert!(!falls(&rates, 2, 9, 8) && falls(&rates, 2, 9, 9));
    rates.menu.on_reports(1e3, 1e6);
    rates.menu.activate();
    assert!(falls(&rates, 0, 9, 1));
    assert!(!falls(&rates, 1, 8, 4) && falls(&rates, 1, 8, 5));
}

#[test]
fn a_congested_top_group_activates_the_menu() {
    let mut rates = rates(3);
    rates.menu.on_reports(1e3, 1e6);
    rates.on_round(
        0,
        &[reports(1, 1), reports(1, 1), reports(2, 1)],
        rtt_of_step(10.0),
    );
    assert!(!rates.menu.is_active());
    rates.on_round(
        0,
        &[reports(1, 0), reports(1, 0), reports(2, 2)],
        rtt_of_step(10.0),
    );
    assert!(rates.menu.is_active());
}

#[test]
fn a_group_at_its_bound_falls_back_and_rises_again() {
    let mut rates = rates(3);
    rates.menu.on_reports(1e3, 30e3);
    rates.menu.activate();
    let round = [reports(1, 0), reports(1, 0), reports(1, 0)];
    let mut fell = 0;
    for _ in 0..100 {
        let before = rates.cumulative(1);
        rates.on_round(0, &round, rtt_of_step(1e3));
        fell += u32::from(rates.cumulative(1) < before);
        // In the end, the lowest group pushes group 1 up.
        if rates.cumulative(0) + rates.minimum >= 29e3 {
            break;
        }
        assert!(rates.cumulative(1) <= 30e3 + 1.0);
    }
    assert!(fell > 0);
}

#[test]
fn a_group_grows_by_a_factor_until_it_is_congested() {
    let mut rates = Rates::new(&SenderConfig::default());
    let round = |all, congested| {
        let mut round = [Reports::default(); 5];
        round[4] = reports(all, congested);
        round
    };
    let mut grown = |round: [Reports; 5]| {
        let before = rates.cumulative(4);
        rates.on_round(0, &round, rtt_of_step(1.0));
        rates.cumulative(4) / before
    };
    assert!((grown(round(1, 0)) - 1.25).abs() < 1e-9);
    assert!((grown(round(1, 1)) - 0.9375).abs() < 1e-9);
    assert!(
        (grown(round(1, 1)) - 1.0).abs() < 1e-9,
        "it holds for a round"
    );
    assert!(grown(round(1, 0)) < 1.001);
}

#[test]
fn a_group_far_above_the_rate_of_its_last_congestion_starts_again() {
    let mut rates = Rates::new(&SenderConfig::default());
    let mut grown = |congested| {
        let before = rates.cumulative(4);
        let mut round = [Reports::default(); 5];
        round[4] = reports(1, congested);
        rates.on_round(0, &round, rtt_of_step(1e9));
        rates.cumulative(4) / before
    };
    let mut of_limit = grown(1) * grown(1);
    while of_limit < RESTART {
        let factor = grown(0);
        assert!(factor < 1.07, "{factor} at {of_limit}");
        of_limit *= factor;
    }
    assert!((grown(0) - 1.25).abs() < 1e-9);
    assert!(grown(1) < 1.0 && grown(1) <= 1.0 && grown(0) < 1.07);
}

#[test]
fn a_start_waits_for_receivers_that_get_less_than_the_rate() {
    let mut rates = Rates::new(&SenderConfig::default());
    let mut grown = |share: f64| {
        let before = rates.cumulative(4);
        let mut round = [Reports::default(); 5];
        round[4] = Reports {
            received: [share * before; 2],
            ..reports(1, 0)
        };
        rates.on_round(0, &round, rtt_of_step(1.0));
        rates.cumulative(4) / before
    };
    assert!(
        (grown(0.64) - 1.25).abs() < 1e-9,
        "the rate of two rounds before"
    );
    assert!(grown(0.5) < 1.001, "a full link without marks");
    assert!((grown(0.9) - 1.25).abs() < 1e-9);
}

#[test]
fn a_step_is_at_most_a_share_of_the_rate() {
    let mut rates = rates(1);
    let before = rates.cumulative(0);
    rates.on_round(0, &[reports(1, 0)], rtt_of_step(1e9));
    assert!((rates.cumulative(0) / before - 1.0625).abs() < 1e-9);
}

#[test]
fn a_rate_falls_to_the_received_rate_even_after_a_decrease() {
    let mut rates = rates(1);
    rates.cumulative[0] = 1e6;
    let mut factor = |received: f64| {
        let before = rates.cumulative(0);
        let received = [received * before; 2];
        let round = [Reports {
            received,
            ..reports(1, 1)
        }];
        rates.on_round(0, &round, rtt_of_step(1.0));
        rates.cumulative(0) / before
    };
    assert!((factor(0.9) - 0.9).abs() < 1e-9);
    assert!((factor(0.9) - 1.0).abs() < 1e-9, "it holds for a round");
    assert!((factor(0.5) - 0.5).abs() < 1e-9);
    assert!((factor(0.7) - 0.7).abs() < 1e-9, "it falls short");
}

#[test]
fn an_early_report_ends_the_start_of_the_lowest_group() {
    let mut rates = Rates::new(&SenderConfig {
        groups: 3,
        first_factor: 1.6,
        ..SenderConfig::default()
    });
    rates.cumulative = vec![100e3, 200e3, 400e3];
    assert!(!rates.on_early(90e3), "the end of the round is soon enough");
    assert!(rates.on_early(40e3));
    assert_eq!(rates.cumulative, [40e3, 200e3, 400e3]);
    assert_eq!(rates.growth(), 1.25, "a group has been congested");
    assert!(!rates.on_early(10e3), "from before the decrease");
    assert_eq!(rates.take_reason(0), Some(RateReason::Congested));
    let round = [reports(4, 0), Reports::default(), Reports::default()];
    rates.on_round(0, &round, rtt_of_step(10.0));
    assert_eq!(rates.cumulative(0), 40e3, "reports are from before it, too");
    rates.on_round(0, &round, rtt_of_step(10.0));
    assert_eq!(rates.cumulative(0), 40e3 + 10.0);
}

#[test]
fn the_rate_of_an_idle_group_falls_until_receivers_start_it_again() {
    let mut rates = rates(2);
    rates.start_factor = 1.25;
    rates.cumulative[1] = 1e6;
    rates.starting[1] = false;
    let idle = [reports(1, 1), reports(0, 0)];
    (1..IDLE_ROUNDS).for_each(|_| rates.on_round(0, &idle, rtt_of_step(1.0)));
    assert!((rates.cumulative(1) - 1e6).abs() < 1.0);
    rates.on_round(0, &idle, rtt_of_step(1.0));
    assert!((rates.cumulative(1) - 0.9375e6).abs() < 1.0);
    rates.on_round(0, &[reports(1, 1), reports(1, 0)], rtt_of_step(1.0));
    assert!((rates.cumulative(1) - 1.25 * 0.9375e6).abs() < 1.0);
}

#[test]
fn cumulative_rates_remain_in_order() {
    let mut rates = rates(3);
    for _ in 0..1000 {
        rates.on_round(
            0,
            &[reports(1, 0), reports(0, 0), reports(1, 1)],
            rtt_of_step(1e4),
        );
        assert!((0..3).all(|group| rates.own(group) >= rates.minimum - 1e-6));
        assert!(rates.cumulative(2) <= rates.maximum + 1e-6);
    }
}

#[test]
fn silence_lowers_all_rates_to_those_of_the_start() {
    let mut rates = rates(2);
    let initial = rates.cumulative.clone();
    rates.cumulative = vec![1e6, 2e6];
    rates.starting.fill(false);
    rates.on_silence();
    assert!((rates.cumulative(0) - 0.9375e6).abs() < 1.0);
    (0..200).for_each(|_| rates.on_silence());
    assert_eq!(rates.cumulative, initial);
    assert_eq!(rates.starting, [true, true]);
    // A rate that was found too high for all receivers is not raised.
    rates.cumulative[0] = rates.minimum;
    rates.on_silence();
    assert!(rates.cumulative(0) <= rates.minimum);
}

#[test]
fn a_group_is_idle_only_in_rounds_whose_request_it_carries() {
    let mut rates = rates(2);
    rates.cumulative[0] = 1e6;
    let unasked = [Reports::default(), reports(1, 1)];
    (0..100).for_each(|_| rates.on_round(0, &unasked, rtt_of_step(1.0)));
    assert!((rates.cumulative(0) - 1e6).abs() < 1.0);
    let asked = [reports(0, 0), reports(1, 1)];
    (0..100).for_each(|_| rates.on_round(0, &asked, rtt_of_step(1.0)));
    assert!(rates.cumulative(0) < 1e5);
}

/// The average logarithmic growth of a rate per round, with receivers behind this round-trip
/// time whose packets are marked with TCP's probability at a window.
fn drift(rates: &Rates, group: usize, rtt_s: f64, tcp_window: f64) -> f64 {
    const SESSION_RTT_S: f64 = 0.5;
    let Adjustment { step, decrease } = rates.tcp_adjustment(group, rtt_s, SESSION_RTT_S);
    let packets = 2.0 * SESSION_RTT_S * rates.own(group) / rates.packet_bytes;
    let calm = libm::exp(-packets * 1.5 / (tcp_window * tcp_window));
    let growth = libm::log1p(step / rates.cumulative(group));
    calm * growth + (1.0 - calm) * libm::log(decrease)
}

#[test]
fn a_fair_rate_rises_below_the_rate_of_tcp_and_falls_above_it() {
    let mut rates = rates(2);
    for (own, rtt_s) in [(0.5, 0.04), (0.5, 0.5), (0.9, 0.1), (0.1, 0.1)] {
        rates.cumulative = vec![1e6 * (1.0 - own), 1e6];
        let window = 1e6 * rtt_s / 1000.0;
        assert!(
            drift(&rates, 1, rtt_s, window).abs() < 1e-9,
            "{own} {rtt_s}"
        );
        assert!(drift(&rates, 1, rtt_s, 1.2 * window) > 0.0, "{own} {rtt_s}");
        assert!(drift(&rates, 1, rtt_s, 0.8 * window) < 0.0, "{own} {rtt_s}");
    }
}

#[test]
fn a_fair_rate_halves_at_most_and_falls_at_least_a_little() {
    let mut rates = rates(2);
    rates.cumulative = vec![999e3, 1e6];
    let decrease = rates.tcp_adjustment(1, 0.1, 0.1).decrease;
    assert!((decrease - TCP_DECREASE).abs() < 1e-9, "{decrease}");
    rates.cumulative = vec![1e3, 2e3];
    let decrease = rates.tcp_adjustment(1, 0.01, 1.0).decrease;
    assert!((0.99..0.998).contains(&decrease), "{decrease}");
}

#[test]
fn a_fair_rate_grows_by_the_round_trip_time_of_its_receivers() {
    let grown = |rtt_ms, tcp_fair| {
        let mut rates = rates(1);
        (rates.tcp_fair, rates.step_max) = (tcp_fair, 1000.0);
        let rtt = Duration::from_millis(rtt_ms);
        let before = rates.cumulative(0);
        rates.on_round(
            0,
            &[Reports {
                rtt,
                ..reports(1, 0)
            }],
            Duration::from_secs(1),
        );
        rates.cumulative(0) - before
    };
    assert!(
        (grown(100, true) - 20.0 * 10e3).abs() < 1e-6,
        "20 times 1 packet per 100 ms"
    );
    assert!((grown(1000, true) - 2e3).abs() < 1e-6);
    assert!((grown(100, false) - 2e3).abs() < 1e-6, "the paper's rule");
    assert!(
        (grown(0, true) - 2e3).abs() < 1e-6,
        "an unknown round-trip time"
    );
}

#[test]
fn a_rate_grows_to_a_step_above_what_is_used() {
    let grown = |used: Option<f64>| {
        let mut rates = rates(1);
        rates.cumulative = vec![10e3];
        rates.starting[0] = false;
        let round = Reports {
            used,
            ..reports(1, 0)
        };
        (0..20).for_each(|_| rates.on_round(0, &[round], rtt_of_step(100.0)));
        rates.cumulative(0)
    };
    assert_eq!(grown(None), 12e3, "20 steps");
    assert_eq!(grown(Some(4e3)), 10e3, "it does not fall");
    let limit = 9.9e3 / ALL_USED + 100.0;
    assert!((grown(Some(9.9e3)) - limit).abs() < 1e-6);
}

#[test]
fn a_rate_that_starts_grows_to_twice_what_is_used() {
    let mut rates = rates(1);
    rates.first_factor = 1.5;
    rates.cumulative = vec![10e3];
    let round = Reports {
        used: Some(9e3),
        ..reports(1, 0)
    };
    (0..20).for_each(|_| rates.on_round(0, &[round], rtt_of_step(1.0)));
    assert_eq!(rates.cumulative(0), 18e3);
}

/// Returns the reasons that the last rounds had for the rates of the groups.
fn reasons(rates: &mut Rates) -> Vec<Option<RateReason>> {
    (0..rates.cumulative.len())
        .map(|group| rates.take_reason(group))
        .collect()
}

#[test]
fn the_reports_of_a_round_are_the_reasons_for_its_rates() {
    let mut rates = Rates::new(&SenderConfig {
        groups: 3,
        ..SenderConfig::default()
    });
    rates.cumulative = vec![1e6, 2e6, 3e6];
    let round = [reports(1, 0), reports(1, 1), Reports::default()];
    rates.on_round(0, &round, rtt_of_step(1.0));
    let expected = [
        Some(RateReason::Starting),
        Some(RateReason::Congested),
        None,
    ];
    assert_eq!(reasons(&mut rates), expected);
    rates.on_round(0, &round, rtt_of_step(1.0));
    assert_eq!(reasons(&mut rates)[1], None, "it holds for a round");
    rates.starting.fill(false);
    rates.on_round(0, &[reports(1, 0)], rtt_of_step(1.0));
    assert_eq!(reasons(&mut rates)[0], Some(RateReason::Calm));
    assert_eq!(reasons(&mut rates)[0], None, "it was taken");
}

#[test]
fn groups_without_reports_have_other_reasons() {
    let mut rates = rates(2);
    rates.cumulative = vec![1e6, 2e6];
    let asked = [reports(0, 0), Reports::default()];
    (0..IDLE_ROUNDS).for_each(|_| rates.on_round(0, &asked, rtt_of_step(1.0)));
    assert_eq!(reasons(&mut rates), [Some(RateReason::Idle), None]);
    rates.on_silence();
    assert_eq!(reasons(&mut rates), [Some(RateReason::Silent); 2]);
}

#[test]
fn bounds_and_neighbours_are_reasons() {
    let mut rates = rates(3);
    rates.menu.on_reports(1e3, 30e3);
    rates.menu.activate();
    rates.cumulative = vec![1e3, 30e3, 60e3];
    let calm = [Reports::default(), reports(1, 0), Reports::default()];
    rates.on_round(0, &calm, rtt_of_step(1e3));
    assert_eq!(reasons(&mut rates)[1], Some(RateReason::Menu));
    rates.cumulative = vec![20e3, 20e3 + rates.minimum, 60e3];
    rates.on_round(0, &[reports(1, 0)], rtt_of_step(1e3));
    let pushed = [Some(RateReason::Calm), Some(RateReason::Order), None];
    assert_eq!(reasons(&mut rates), pushed);
    rates.cumulative = vec![rates.minimum, 30e3, 60e3];
    rates.held[0] = true;
    rates.on_round(0, &[reports(1, 0)], rtt_of_step(1e3));
    assert_eq!(reasons(&mut rates)[0], Some(RateReason::Raised));
}

/// A receiver states a tenth of the rate while nobody is congested, and then everybody is.
#[test]
fn a_low_rate_without_congestion_no_longer_counts() {
    let low = |congested| Reports {
        received: [1e3, 1e9],
        ..reports(4, congested)
    };
    let remains = |calm_rounds: u32| {
        let mut rates = rates(1);
        rates.set(0, 1e6, RateReason::Menu);
        for _ in 0..2 + calm_rounds {
            rates.on_round(0, &[low(0)], rtt_of_step(10.0));
        }
        let before = rates.cumulative(0);
        rates.on_round(0, &[low(4)], rtt_of_step(10.0));
        rates.cumulative(0) / before
    };
    assert_eq!(remains(DOUBT_ROUNDS - 1), 0.25, "it can be true");
    assert_eq!(remains(DOUBT_ROUNDS), 0.9375, "it has contradicted itself");
}
