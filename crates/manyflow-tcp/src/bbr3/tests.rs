//! The example test cases of the draft's appendix A, as far as they are about one connection's
//! states.

use super::*;
use crate::delivery::rounds::Path;

/// A path of 50 ms, and the control of a connection on it that has found 1000 segments/s.
fn in_drain() -> (Bbr3, Path) {
    let mut bbr = Bbr3::new(10.0, 1);
    let mut path = Path {
        rtt_s: 0.05,
        in_flight: 500,
        ..Path::default()
    };
    for rate in [250.0, 500.0, 1000.0, 1000.0, 1000.0] {
        path.round(&mut bbr, rate);
        assert_eq!(bbr.state, State::Startup);
    }
    path.round(&mut bbr, 1000.0);
    (bbr, path)
}

fn in_probe_bw() -> (Bbr3, Path) {
    let (mut bbr, mut path) = in_drain();
    path.in_flight = 49;
    path.round(&mut bbr, 1000.0);
    (bbr, path)
}

/// Runs rounds until the control is in `state`.
fn run_to(bbr: &mut Bbr3, path: &mut Path, state: State) {
    for _ in 0..1000 {
        if bbr.state == state {
            return;
        }
        path.round(bbr, 1000.0);
    }
    panic!("{state:?} is never reached: {bbr:?}");
}

#[test]
fn startup_ends_on_a_plateau_and_drain_when_the_queue_is_drained() {
    let (mut bbr, mut path) = in_drain();
    assert_eq!((bbr.state, bbr.pacing_gain()), (State::Drain, 0.5));
    assert!(bbr.is_full_now && bbr.is_full_reached);
    assert_eq!(bbr.max_bw(), 1000.0);
    path.in_flight = 49;
    path.round(&mut bbr, 1000.0);
    assert!(bbr.is_in_probe_bw());
}

#[test]
fn drain_ends_after_three_rounds_even_if_the_queue_stands() {
    let (mut bbr, mut path) = in_drain();
    for _ in 0..3 {
        path.round(&mut bbr, 900.0);
        assert_eq!(bbr.state, State::Drain);
    }
    path.round(&mut bbr, 900.0);
    assert_eq!(bbr.state, State::Down);
}

#[test]
fn probe_bw_goes_down_cruises_refills_and_goes_up() {
    let (mut bbr, mut path) = in_probe_bw();
    let mut seen = vec![(bbr.state, bbr.pacing_gain())];
    for _ in 0..200 {
        path.round(&mut bbr, 1000.0);
        if seen.last().unwrap().0 != bbr.state {
            seen.push((bbr.state, bbr.pacing_gain()));
        }
    }
    use State::{Cruise, Down, Refill, Up};
    // The queue is drained when ProbeBW begins, so Down ends with the same acknowledgement.
    let cycle = [(Cruise, 1.0), (Refill, 1.0), (Up, 1.25), (Down, 0.9)];
    let expected = cycle.into_iter().cycle();
    let expected: Vec<_> = expected.take(seen.len()).collect();
    assert!(seen.len() > 8, "{seen:?}");
    assert_eq!(seen, expected);
}

#[test]
fn a_probe_ends_when_the_bandwidth_does_not_grow_and_finds_more_when_it_does() {
    let (mut bbr, mut path) = in_probe_bw();
    run_to(&mut bbr, &mut path, State::Up);
    let began_s = path.now_s;
    run_to(&mut bbr, &mut path, State::Down);
    let rounds = (path.now_s - began_s) / path.rtt_s;
    assert!((2.5..=4.5).contains(&rounds), "{rounds}");
    run_to(&mut bbr, &mut path, State::Up);
    for rate in [1250.0, 1562.0, 1953.0] {
        path.round(&mut bbr, rate);
        assert_eq!(bbr.state, State::Up);
    }
    assert_eq!(bbr.max_bw(), 1953.0);
}

#[test]
fn losses_in_a_probe_bound_what_is_in_flight_and_make_the_next_probe_cautious() {
    let (mut bbr, mut path) = in_probe_bw();
    run_to(&mut bbr, &mut path, State::Up);
    let lost = |losses, path: &Path| Lost {
        in_flight_at_send: 80,
        lost_since_send: losses,
        total: path.total,
        is_app_limited: false,
    };
    bbr.on_lost_segment(&path.moment(), &lost(1, &path));
    assert_eq!(bbr.state, State::Up, "one of 80 is less than 2 %");
    bbr.on_lost_segment(&path.moment(), &lost(2, &path));
    assert_eq!(bbr.state, State::Down);
    assert!((79.0..=80.0).contains(&bbr.inflight_longterm), "{bbr:?}");
    let headroom = bbr.inflight_with_headroom() / bbr.inflight_longterm;
    assert!((headroom - 0.85).abs() < 1e-9, "{headroom}");
    run_to(&mut bbr, &mut path, State::Up);
    path.in_flight = 80;
    path.round(&mut bbr, 1000.0);
    assert_eq!(bbr.state, State::Down, "as soon as the bound is reached");
    path.in_flight = 49;
    path.round(&mut bbr, 1000.0);
    assert_eq!(
        bbr.state,
        State::Refill,
        "without losses it probes again at once"
    );
}

#[test]
fn losses_beside_a_probe_lower_the_bounds_until_the_next_one() {
    let (mut bbr, mut path) = in_probe_bw();
    run_to(&mut bbr, &mut path, State::Cruise);
    // The first of these rounds is still that of a higher rate, so it lowers nothing.
    for bw in [1000.0, 700.0, 600.0] {
        let lost = Lost {
            in_flight_at_send: 50,
            lost_since_send: 1,
            total: path.total,
            is_app_limited: false,
        };
        bbr.on_lost_segment(&path.moment(), &lost);
        path.round(&mut bbr, 600.0);
        assert_eq!(bbr.bw(), bw);
    }
    run_to(&mut bbr, &mut path, State::Refill);
    assert!(bbr.bw_shortterm.is_infinite() && bbr.inflight_shortterm.is_infinite());
    assert_eq!(bbr.bw(), bbr.max_bw());
}

#[test]
fn probe_rtt_comes_after_five_seconds_and_halves_what_is_in_flight() {
    let (mut bbr, mut path) = in_probe_bw();
    path.rtt_s = 0.06;
    while bbr.state != State::ProbeRtt {
        path.round(&mut bbr, 1000.0);
        assert!(path.now_s < 6.0, "{bbr:?}");
    }
    assert!(path.now_s > 5.0, "{}", path.now_s);
    assert!(
        (bbr.window - 25.0).abs() < 1.0,
        "half of the product: {}",
        bbr.window
    );
    path.in_flight = 24;
    let began_s = path.now_s + path.rtt_s;
    while bbr.state == State::ProbeRtt {
        path.round(&mut bbr, 500.0);
    }
    let held_s = path.now_s - began_s;
    assert!((0.2..0.32).contains(&held_s), "{held_s}");
    assert_eq!(bbr.state, State::Cruise);
}

#[test]
fn probe_rtt_in_startup_returns_to_startup() {
    let mut bbr = Bbr3::new(10.0, 1);
    let mut path = Path {
        rtt_s: 0.9,
        in_flight: 10,
        ..Path::default()
    };
    let mut rate = 10.0;
    while bbr.state != State::ProbeRtt {
        path.round(&mut bbr, rate);
        rate *= 1.3;
        path.rtt_s = 1.0;
        assert!(path.now_s < 10.0, "{bbr:?}");
    }
    path.in_flight = 4;
    while bbr.state == State::ProbeRtt {
        path.round(&mut bbr, 4.0);
    }
    assert_eq!(bbr.state, State::Startup);
}

#[test]
fn a_restart_after_a_pause_paces_at_the_bandwidth_and_skips_probe_rtt() {
    let (mut bbr, mut path) = in_probe_bw();
    path.rtt_s = 0.06;
    path.now_s += 5.0;
    bbr.on_restart(&path.moment());
    assert!((bbr.rate - 990.0).abs() < 1e-9, "{}", bbr.rate);
    path.round(&mut bbr, 1000.0);
    assert!(bbr.is_in_probe_bw(), "{bbr:?}");
}
