//! The search on paths that lose, shrink and grow.

use super::*;
use proptest::prelude::*;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Sends long datagrams over a path of this size every 50 ms, and answers the probes that pass.
/// Returns the limit after each.
fn send(path: &mut PathMtu, from_ms: u64, until_ms: u64, carries: usize) -> Vec<u16> {
    let is_lost = |path: &PathMtu| usize::from(path.limit()) > carries;
    let steps = (from_ms..until_ms).step_by(50);
    steps
        .map(|ms| {
            let is_repeated = is_lost(path);
            let probe = path.handle_long(at(ms), path.limit().into(), is_repeated);
            if let Some(PathProbe { id, bytes }) = probe
                && usize::from(bytes) <= carries
            {
                path.handle_answer(at(ms + 40), id, bytes);
            }
            path.limit()
        })
        .collect()
}

#[test]
fn the_first_answer_shows_a_path_of_ethernet() {
    let mut path = PathMtu::default();
    assert_eq!(path.limit(), 1200);
    let limits = send(&mut path, 0, 100, 1472);
    assert_eq!(limits, [1440, 1440]);
    send(&mut path, 100, 5_000, 1472);
    assert_eq!(path.handle_long(at(5_000), 1440, false), None, "it ends");
}

#[test]
fn jumbo_frames_are_tried_when_ethernet_is_known_to_pass() {
    let mut path = PathMtu::default();
    let limits = send(&mut path, 0, 200, 9_000);
    assert_eq!(limits, [1440, 8952, 8952, 8952]);

    let mut path = PathMtu::default();
    send(&mut path, 0, 20_000, 2_000);
    assert_eq!(path.limit(), 1440);
    send(&mut path, 621_000, 622_000, 9_000);
    assert_eq!(path.limit(), 8952, "after ten minutes");
}

#[test]
fn a_path_that_loses_its_jumbo_frames_keeps_those_of_ethernet() {
    let mut path = PathMtu::default();
    send(&mut path, 0, 1_000, 9_000);
    let limits = send(&mut path, 1_000, 20_000, 1_440);
    let first = limits.iter().position(|limit| *limit <= 1_440).unwrap();
    assert!(first * 50 <= 2_000, "after {} ms", first * 50);
    assert!(limits[first..].iter().all(|limit| *limit <= 1_440));
    assert_eq!(path.limit(), 1_440);
}

#[test]
fn the_search_ends_at_the_longest_size_that_passes() {
    for carries in [
        1200, 1232, 1252, 1300, 1372, 1392, 1422, 1432, 1500, 4_000, 9_000,
    ] {
        let mut path = PathMtu::default();
        send(&mut path, 0, 20_000, carries);
        let fits = |size: &&u16| usize::from(**size) <= carries;
        let longest = SIZES.iter().rev().find(fits).unwrap();
        assert_eq!(path.limit(), *longest, "{carries}");
        assert_eq!(path.handle_long(at(20_000), 1200, false), None, "it ends");
    }
}

#[test]
fn a_size_that_the_host_refuses_is_known_at_once() {
    let mut path = PathMtu::default();
    for _ in 0..6 {
        if let Some(probe) = path.handle_long(at(0), 1200, false) {
            match probe.bytes > 1392 {
                true => assert!(path.handle_too_long(at(0), probe.bytes.into())),
                false => path.handle_answer(at(0), probe.id, probe.bytes),
            }
        }
    }
    assert_eq!(path.limit(), 1392);
    assert!(!path.handle_too_long(at(0), 1440), "no news");
}

#[test]
fn a_black_hole_is_left_within_two_seconds() {
    let mut path = PathMtu::default();
    send(&mut path, 0, 1_000, 1440);
    let limits = send(&mut path, 1_000, 20_000, 1252);
    let first = limits.iter().position(|limit| *limit <= 1252).unwrap();
    assert!(first * 50 <= 2_000, "after {} ms", first * 50);
    assert!(limits[first..].iter().all(|limit| *limit <= 1252));
    assert_eq!(path.limit(), 1252);
}

#[test]
fn losses_on_a_path_that_carries_its_size_change_nothing() {
    let mut path = PathMtu::default();
    send(&mut path, 0, 100, 1440);
    for ms in (1_000..60_000).step_by(20) {
        if let Some(probe) = path.handle_long(at(ms), 1440, true)
            && probe.bytes <= 1440
        {
            path.handle_answer(at(ms + 5), probe.id, probe.bytes);
        }
        assert_eq!(path.limit(), 1440);
    }
}

#[test]
fn a_path_below_the_base_gets_the_smallest_size() {
    let mut path = PathMtu::default();
    let limits = send(&mut path, 0, 10_000, 1000);
    assert_eq!(limits.last(), Some(&548));
    assert!(path.handle_long(at(10_000), 548, false).is_none());
}

#[test]
fn a_path_that_grows_is_used_after_ten_minutes() {
    let mut path = PathMtu::default();
    send(&mut path, 0, 20_000, 1252);
    assert_eq!(path.limit(), 1252);
    send(&mut path, 621_000, 622_000, 1500);
    assert_eq!(path.limit(), 1440);
}

#[test]
fn answers_that_nobody_asked_for_are_ignored() {
    let mut path = PathMtu::default();
    let probe = path.handle_long(at(0), 1200, false).unwrap();
    path.handle_answer(at(1), probe.id.wrapping_add(1), probe.bytes);
    path.handle_answer(at(1), probe.id, 1200);
    path.handle_answer(at(1), probe.id, u16::MAX);
    assert_eq!(path.limit(), 1200);
    path.handle_answer(at(1), probe.id, probe.bytes);
    path.handle_answer(at(2), probe.id, probe.bytes);
    assert_eq!(path.limit(), 1440);
}

proptest! {
    #[test]
    fn no_order_of_calls_panics_and_the_limit_is_a_size(
        calls in prop::collection::vec((0_u8..4, 0_u64..1_000, 0_usize..10_000), 0..300),
    ) {
        let mut path = PathMtu::default();
        let mut last = None;
        let mut now = 0;
        for (call, wait, length) in calls {
            now += wait;
            match call {
                0 | 1 => last = path.handle_long(at(now), length, call == 1).or(last),
                2 => {
                    path.handle_too_long(at(now), length);
                }
                _ => if let Some(PathProbe { id, bytes }) = last {
                    path.handle_answer(at(now), id, bytes);
                }
            }
            prop_assert!(SIZES.contains(&path.limit()));
        }
    }

    #[test]
    fn the_limit_fits_the_path_in_the_end_whatever_is_lost(
        carries in prop::collection::vec(prop_oneof![1200_usize..1600, 1200_usize..10_000], 1..6), lost in any::<u64>(),
    ) {
        let mut path = PathMtu::default();
        let mut now = 0;
        let mut dice = lost;
        for carries in carries {
            for _ in 0..400 {
                now += 50;
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let is_repeated = usize::from(path.limit()) > carries || dice >> 60 == 0;
                if let Some(probe) = path.handle_long(at(now), path.limit().into(), is_repeated)
                    && usize::from(probe.bytes) <= carries && dice >> 61 != 1
                {
                    path.handle_answer(at(now + 20), probe.id, probe.bytes);
                }
            }
            prop_assert!(usize::from(path.limit()) <= carries, "{} on {carries}", path.limit());
        }
    }
}
