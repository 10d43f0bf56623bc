//! Daemons that cannot be reached must not delay the members at others.

use core::time::Duration;

use super::super::*;
use super::living::line;
use super::living_world::{At, LivingWorld};
use super::world::G;

const STEP: Duration = Duration::from_millis(50);

/// Returns parameters of daemons whose memory is full after 95 messages.
fn short_of_memory() -> OverlayConfig {
    OverlayConfig {
        retain_bytes: 100_000,
        ..OverlayConfig::default()
    }
}

/// Returns a line of daemons after a second, a client of the first, and a member at the second. The
/// last daemon has a member as well.
fn two_members(config: &OverlayConfig) -> (LivingWorld, At, At) {
    let mut world = line(config, 1);
    let near = world.member(1, G);
    world.member(3, G);
    let from = (0, world.connect(0));
    world.pass(Duration::from_secs(1));
    (world, from, near)
}

/// Sends as many messages as may enter, for this time, after each of which the daemons run. Returns
/// the longest time between two messages that a member read.
fn longest_gap(world: &mut LivingWorld, from: At, member: At, span: Duration) -> Duration {
    let end = world.now + span;
    let (mut last, mut longest) = (world.now, Duration::ZERO);
    let mut read = world.numbers(member, from.0, G).len();
    while world.now < end {
        for _ in 0..20 {
            world.send(from, G);
        }
        world.pass(STEP);
        let now_read = world.numbers(member, from.0, G).len();
        if now_read > read {
            (read, last) = (now_read, world.now);
        }
        longest = longest.max(world.now - last);
    }
    longest
}

#[test]
fn members_go_on_at_once_when_another_daemon_dies_and_it_misses_nothing_if_it_comes_back() {
    for seed in 0..10 {
        let mut world = line(&short_of_memory(), seed);
        let [near, far] = [1, 3].map(|at| world.member(at, G));
        let from = (0, world.connect(0));
        world.pass(Duration::from_secs(1));
        longest_gap(&mut world, from, near, Duration::from_secs(1));
        world.cut(2, 3, 3);
        let gap = longest_gap(&mut world, from, near, Duration::from_millis(4500));
        assert!(gap <= Duration::from_millis(500), "seed {seed}: {gap:?}");
        let sent = world.ready[&from];
        world.link(2, 3);
        let gap = longest_gap(&mut world, from, near, Duration::from_secs(2));
        assert!(gap <= Duration::from_millis(500), "seed {seed}: {gap:?}");
        world.pass(Duration::from_secs(5));
        let all = world.ready[&from];
        assert!(all > sent + 50, "seed {seed}: {sent} of {all} before");
        let numbers = world.numbers(far, 0, G);
        assert_eq!(numbers, Vec::from_iter(1..=all.into()), "seed {seed}");
    }
}

#[test]
fn members_go_on_at_once_when_another_daemon_dies_and_when_its_members_no_longer_count() {
    let (mut world, from, near) = two_members(&short_of_memory());
    world.crash(3);
    let gap = longest_gap(&mut world, from, near, Duration::from_secs(8));
    assert!(gap <= Duration::from_millis(500), "{gap:?}");
    assert_eq!(world.daemon(0).members(G).count(), 1);
}

#[test]
fn the_memory_for_a_daemon_that_is_away_lasts_for_the_hold_time() {
    let (mut world, from, near) = two_members(&short_of_memory());
    world.cut(2, 3, 0);
    // A quarter at once, and the rest over the hold time.
    for (ms, share) in [(50, 0.25), (2500, 0.6), (4950, 0.98)] {
        let left =
            Duration::from_millis(ms) - (world.now - Time::ZERO - Duration::from_millis(1100));
        longest_gap(&mut world, from, near, left);
        let bytes = world.daemon(0).unacknowledged_bytes() as f64 / 100_000.0;
        assert!((bytes - share).abs() < 0.05, "{bytes} after {ms} ms");
    }
}

/// A slow member at a daemon that dies would hold its group up for the hold time.
#[test]
fn a_pause_of_a_daemon_that_cannot_be_reached_ends_and_counts_again_when_it_is_back() {
    let (mut world, from, near) = two_members(&OverlayConfig::default());
    let now = world.now;
    for at in [1, 3] {
        world.daemon(at).announce_pause(now, G, true);
        world.member(at, GroupId(9));
    }
    world.pass(STEP);
    world.send(from, G);
    world.cut(2, 3, 0);
    world.pass(STEP);
    assert!(!world.ready.contains_key(&from), "the group is paused");
    let now = world.now;
    world.daemon(1).announce_pause(now, G, false);
    world.member(1, GroupId(8));
    world.pass(STEP);
    assert_eq!(world.ready[&from], 1);
    let now = world.now;
    world.daemon(1).announce_pause(now, G, true);
    world.daemon(1).announce_pause(now, G, false);
    let gap = longest_gap(&mut world, from, near, Duration::from_secs(1));
    assert!(gap <= Duration::from_millis(500), "{gap:?}");
    world.link(2, 3);
    world.pass(STEP);
    let sent = world.ready[&from];
    world.send(from, G);
    world.pass(STEP);
    assert_eq!(world.ready[&from], sent, "the group is paused again");
}
