//! Tests of selection by measured rate.

use super::*;

const INTERVAL: Duration = Duration::from_millis(800);

/// Returns the rate that a receiver of the lowest group reports. The group announces
/// `announced` bytes/s, and pairs arrive in turn at the rates of two paths.
fn carried(announced: u32, paths: [f64; 2]) -> f64 {
    let mut measured = Measured::new(&ReceiverConfig::default());
    let (mut pair, mut now) = (Time::ZERO, Time::ZERO);
    for n in 0..40 {
        let is_pair = n % 2 == 1;
        now = match is_pair {
            true => pair + Duration::from_secs_f64(1000.0 / paths[n / 2 % 2]),
            false => pair,
        };
        let data = Data {
            group: 0,
            sequence: n as u32,
            request: 1,
            is_for_group: false,
            rate: announced,
            rtt_us: 40_000,
            next_rate: 0,
            is_pair,
        };
        measured.on_packet(now, &data, 1000, 0, 1, INTERVAL);
        if is_pair {
            pair += Duration::from_secs_f64(2000.0 / f64::from(announced));
        }
    }
    measured.carried(now, 1, INTERVAL).round()
}

#[test]
fn a_path_carries_what_pairs_show() {
    assert_eq!(carried(60_000, [500_000.0; 2]), 500_000.0);
}

/// A group that grew to the highest rate would be left at each change.
#[test]
fn a_path_whose_rate_varies_carries_the_lowest_and_beyond_it_the_announced_rate() {
    let varying = [500_000.0, 125_000.0];
    assert_eq!(carried(60_000, varying), 125_000.0);
    assert_eq!(carried(130_000, varying), 130_000.0);
}

/// Passes packets of the second group, which announces 125 kB/s, one each `spacing`. A round
/// has this number of packets. Returns whether the group is left, and the rate that is reported
/// at the end.
fn receive(spacing: Duration, of_round: u32) -> (bool, f64) {
    let mut measured = Measured::new(&ReceiverConfig::default());
    let (mut is_left, mut now) = (false, Time::ZERO);
    for n in 0..48 {
        if n % of_round == 0 {
            measured.on_round();
        }
        let data = Data {
            group: 1,
            sequence: n,
            request: 1,
            is_for_group: false,
            rate: 125_000,
            rtt_us: 40_000,
            next_rate: 0,
            is_pair: false,
        };
        is_left |= measured
            .on_packet(now, &data, 1000, 0, 2, INTERVAL)
            .is_some();
        now += spacing;
    }
    (is_left, measured.carried(now, 2, INTERVAL))
}

/// A window is 100 ms long. The sender lowers a rate once in a round.
#[test]
fn an_overloaded_group_is_left_after_some_rounds_however_many_windows_they_have() {
    let spacing = Duration::from_micros(12_500);
    assert!(receive(spacing, 8).0, "a window in each round");
    assert!(!receive(spacing, 48).0, "all in one round");
}

#[test]
fn a_small_shortfall_is_not_reported() {
    let (is_left, carried) = receive(Duration::from_millis(10), 8);
    assert_eq!((is_left, carried), (false, 125_000.0), "80 %");
    let (_, carried) = receive(Duration::from_micros(12_500), 48);
    assert!(carried < 0.75 * 125_000.0, "{carried}: 64 %");
}

/// The rate falls to a third. The queue has packets of the former rate for 160 ms, and what
/// arrives beside them is half of the present one.
#[test]
fn what_arrives_while_the_queue_of_a_far_higher_rate_drains_says_nothing() {
    let mut measured = Measured::new(&ReceiverConfig::default());
    let mut reported = Vec::new();
    for n in 0..60u32 {
        let rate = if n < 20 { 375_000 } else { 125_000 };
        let micros = u64::from(n.min(20)) * 2667 + u64::from(n.saturating_sub(20)) * 16_000;
        let now = Time::ZERO + Duration::from_micros(micros);
        let data = Data {
            group: 0,
            sequence: n,
            request: 1,
            is_for_group: false,
            rate,
            rtt_us: 40_000,
            next_rate: 0,
            is_pair: false,
        };
        measured.on_packet(now, &data, 1000, 0, 1, INTERVAL);
        if measured.carried(now, 1, INTERVAL) < f64::from(rate) {
            reported.push(micros);
        }
    }
    let fall = 20 * 2667;
    assert!(reported[0] > fall + 160_000, "{reported:?}");
}

/// The link becomes ten times slower than the lowest group, and its queue drops most packets.
#[test]
fn a_path_that_falls_is_reported_at_once_by_those_who_keep_the_lowest_group_alone() {
    let mut measured = Measured::new(&ReceiverConfig::default());
    let mut early = Vec::new();
    for n in 0..6u32 {
        let data = Data {
            group: 0,
            sequence: 10 * (n / 2) + n % 2,
            request: 1,
            is_for_group: false,
            rate: 125_000,
            rtt_us: 40_000,
            next_rate: 0,
            is_pair: n % 2 == 1,
        };
        let (now, lost) = (u64::from(n) * 80, if n % 2 == 0 { 14 } else { 0 });
        let now = Time::ZERO + Duration::from_millis(now);
        measured.on_packet(now, &data, 1000, lost, 1, INTERVAL);
        let shown = measured.shown;
        assert_eq!(measured.take_early(2), None, "it keeps another group");
        measured.shown = shown;
        early.extend(measured.take_early(1));
    }
    assert_eq!(early, [12_500.0], "once in a round, the rate of the link");
    let mut rest = Measured::new(&ReceiverConfig::default());
    rest.shown = Some(1.0);
    assert_eq!(rest.take_early(1), None, "no rate was announced");
}

/// Passes packets of the only group for some seconds, in pairs, at 200 kB/s on a link of
/// `link` bytes/s. The one at `marked` seconds is marked.
fn share(measured: &mut Measured, link: f64, from_s: u32, to_s: u32, marked: f64) -> Time {
    let mut now = Time::ZERO;
    for n in 200 * from_s..200 * to_s {
        let is_pair = n % 2 == 1;
        let pair = f64::from(n / 2 * 2) / 200.0;
        let spacing = if is_pair { 1000.0 / link } else { 0.0 };
        now = Time::ZERO + Duration::from_secs_f64(pair + spacing);
        if (pair - marked).abs() < 1e-6 && !is_pair {
            measured.on_mark(now);
        }
        let data = Data {
            group: 0,
            sequence: n,
            request: 1,
            is_for_group: false,
            rate: 200_000,
            rtt_us: 40_000,
            next_rate: 300_000,
            is_pair,
        };
        measured.on_packet(now, &data, 1000, 0, 1, INTERVAL);
    }
    now
}

/// The interval is 0.8 s long.
#[test]
fn pairs_show_nothing_on_a_path_with_other_traffic() {
    let mut measured = Measured::new(&ReceiverConfig::default());
    let report = |measured: &Measured, now| measured.carried(now, 1, INTERVAL).round();
    let now = share(&mut measured, 500e3, 0, 2, 9.0);
    assert_eq!(report(&measured, now), 500e3);
    assert_eq!(measured.allows(Some(300e3)), Some(true));
    let now = share(&mut measured, 500e3, 2, 8, 3.0);
    assert_eq!(report(&measured, now), 200e3, "others caused a mark");
    assert_eq!(measured.allows(Some(300e3)), None);
    let now = share(&mut measured, 500e3, 8, 12, 0.0);
    assert_eq!(report(&measured, now), 500e3, "it is forgotten");
    assert_eq!(measured.allows(Some(300e3)), Some(true));
}

#[test]
fn a_mark_that_the_session_itself_can_have_caused_is_not_due_to_others() {
    for (link, marked) in [(202e3, 3.0), (215e3, 3.0), (500e3, 0.5)] {
        let mut measured = Measured::new(&ReceiverConfig::default());
        measured.on_change(Time::ZERO, Duration::ZERO, true);
        share(&mut measured, link, 0, 5, marked);
        assert!(!measured.is_shared, "{link} {marked}");
    }
}

#[test]
fn a_group_with_next_to_nothing_is_thin_on_a_path_with_other_traffic() {
    for (rate, is_shared, is_thin) in [
        (205_000, true, true),
        (205_000, false, false),
        (300_000, true, false),
    ] {
        let mut measured = Measured::new(&ReceiverConfig::default());
        share(&mut measured, 500e3, 0, 1, 9.0);
        let top = Data {
            group: 1,
            sequence: 0,
            request: 1,
            is_for_group: false,
            rate,
            rtt_us: 40_000,
            next_rate: 0,
            is_pair: false,
        };
        let now = Time::ZERO + Duration::from_secs(1);
        measured.on_packet(now, &top, 1000, 0, 2, INTERVAL);
        measured.is_shared = is_shared;
        assert_eq!(measured.is_thin(2), is_thin, "{rate} {is_shared}");
        assert!(!measured.is_thin(1), "there is no group below");
    }
}
