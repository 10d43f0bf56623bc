//! ACP connections through a switch, over links that lose, repeat and delay.

use crate::{seeds, world};

use std::collections::BTreeSet;
use std::time::Duration;

use manyflow_anypoint::Event;
use manyflow_anypoint::switch::{MemberId, Scaling, SwitchConfig};
use manyflow_anypoint::{AcpConfig, Control, FlowControl, Reason};
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::xcp::XcpConfig;
use manyflow_core::{EndpointId, Time};
use manyflow_netsim::models::anypoint::MemberChange;
use world::{World, frames};

fn delay(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: LossModel::Bernoulli(0.03),
        duplication: 0.03,
        jitter: Duration::from_millis(4),
        ..delay(5)
    }
}

fn credit() -> AcpConfig {
    AcpConfig {
        flow: FlowControl::Credit,
        ..AcpConfig::default()
    }
}

fn reno() -> AcpConfig {
    AcpConfig {
        control: Control::Reno,
        ..credit()
    }
}

const PEER: u32 = 0;
const SWITCH: u32 = 1;

/// Builds a peer (0), a switch (1) and its members (from 2), and gives each end frames to send. The
/// keys of member m, from 2, are 10,000 m and more.
fn ensemble(config: &AcpConfig, link: &LinkConfig, seed: u64, members: u32, frames: u32) -> World {
    let mut world = World::new(1000 * seed);
    world.initiator(config.clone(), SWITCH);
    world.switch(SwitchConfig::default(), PEER, 2..2 + members);
    world.connect(PEER, SWITCH, link);
    for _ in 0..members {
        let member = world.acceptor(config.clone(), SWITCH);
        world.connect(SWITCH, member, link);
    }
    for node in std::iter::once(0).chain(2..2 + members) {
        give(&world, node, frames);
    }
    world
}

fn keys(node: u32, frames: u32) -> impl DoubleEndedIterator<Item = u32> {
    (0..frames).map(move |frame| 10_000 * node + frame)
}

/// Gives a node frames to send; it closes after them.
fn give(world: &World, node: u32, count: u32) {
    world.give(node, frames(keys(node, count)));
    world.close(node);
}

fn is_rising(keys: &[u32]) -> bool {
    keys.is_sorted_by(|a, b| a < b)
}

/// Returns the keys that the peer has read from a member.
fn read_of(world: &World, node: u32) -> Vec<u32> {
    let read = world.read(PEER).into_iter();
    read.filter(|key| *key / 10_000 == node).collect()
}

/// Asserts that strict credit never exceeded the room of a buffer.
fn assert_no_overflow(world: &World, seed: u64) {
    for node in 0..world.network.next_endpoint().0 {
        assert_eq!(world.count(node, Event::Overflow), 0, "seed {seed}: {node}");
    }
}

#[test]
fn both_directions_arrive_once_and_in_order_through_losses_and_jitter() {
    for config in [credit(), reno(), AcpConfig::default()] {
        for seed in 0..20 {
            let mut world = ensemble(&config, &lossy(), seed, 3, 300);
            world.run_until(Duration::from_secs(1000));
            if config.flow == FlowControl::Credit {
                assert_no_overflow(&world, seed);
            }
            let mut all = Vec::new();
            for member in 2..5 {
                let read = world.read(member);
                assert!(
                    is_rising(&read),
                    "seed {seed}: member {member} got {read:?}"
                );
                assert!(!read.is_empty(), "seed {seed}, {config:?}");
                all.extend(read);
                assert!(
                    read_of(&world, member).into_iter().eq(keys(member, 300)),
                    "seed {seed} {config:?}"
                );
                assert_eq!(
                    world.count(member, Event::Finished),
                    1,
                    "seed {seed} {config:?}"
                );
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(keys(0, 300)), "seed {seed} {config:?}");
            assert_eq!(
                world.count(PEER, Event::Finished),
                1,
                "seed {seed} {config:?}"
            );
            assert!(
                world.connection(PEER, |c| c.is_over()),
                "seed {seed} {config:?}"
            );
        }
    }
}

#[test]
fn without_losses_nothing_is_sent_twice() {
    let mut world = ensemble(&AcpConfig::default(), &delay(5), 1, 3, 2000);
    world.run_until(Duration::from_secs(60));
    for node in [0, 2, 3, 4] {
        assert_eq!(world.count(node, Event::Finished), 1, "node {node}");
        assert_eq!(world.count(node, Event::LossEvent), 0, "node {node}");
        assert_eq!(
            world.count(node, Event::RetransmissionTimeout),
            0,
            "node {node}"
        );
    }
}

/// Returns the keys that the members have read together.
fn read_by(world: &World, members: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    members.flat_map(|member| world.read(member)).collect()
}

#[test]
fn a_member_that_fails_loses_no_frame_in_either_direction() {
    let mut adopted = 0;
    for seed in 0..20 {
        let mut world = ensemble(&credit(), &lossy(), seed, 3, 1000);
        world.run_until_read(3, 50);
        world.stop(3);
        world.run_until(Duration::from_secs(1000));
        assert_no_overflow(&world, seed);
        let failed = Event::MemberFailed(MemberId(1));
        assert_eq!(world.count(SWITCH, failed), 1, "seed {seed}");
        assert_eq!(
            world.events(SWITCH).len(),
            1,
            "seed {seed}: no other member fails"
        );

        // Another member also reads the frames that the failed member had read and not
        // acknowledged.
        let all = read_by(&world, 2..5);
        assert!(all.into_iter().eq(keys(0, 1000)), "seed {seed}");
        for survivor in [2, 4] {
            let read: BTreeSet<u32> = world.read(survivor).into_iter().collect();
            assert_eq!(
                read.len(),
                world.read(survivor).len(),
                "seed {seed}: no frame is read twice"
            );
            assert!(
                read_of(&world, survivor)
                    .into_iter()
                    .eq(keys(survivor, 1000)),
                "seed {seed}"
            );
        }
        // The first frames of the failed member arrive without a gap.
        let last = read_of(&world, 3);
        assert!(
            last.iter().copied().eq(keys(3, last.len() as u32)),
            "seed {seed}: {last:?}"
        );
        adopted += last.len();
        assert_eq!(world.count(PEER, Event::Finished), 1, "seed {seed}");
        assert!(world.connection(PEER, |c| c.is_over()), "seed {seed}");
    }
    assert!(adopted > 0, "no run in which the switch adopted frames");
}

#[test]
fn the_peer_gets_a_reset_when_the_last_member_fails() {
    let mut world = ensemble(&credit(), &delay(5), 1, 2, 100_000);
    world.run_until(Duration::from_millis(100));
    world.stop(2);
    world.stop(3);
    world.run_until(Duration::from_secs(5));
    assert_eq!(world.count(PEER, Event::Failed(Reason::Aborted)), 1);
}

#[test]
fn a_service_opens_without_its_silent_members() {
    let mut world = ensemble(&credit(), &delay(5), 1, 3, 100);
    world.stop(4);
    world.run_until(Duration::from_secs(60));
    assert_eq!(world.count(SWITCH, Event::MemberFailed(MemberId(2))), 1);
    let all = read_by(&world, 2..4);
    assert!(all.into_iter().eq(keys(0, 100)));
    // A finished end answers late Closes for two minutes.
    world.run_until(Duration::from_secs(180));
    assert!(world.connection(PEER, |c| c.is_over()));
}

#[test]
fn members_join_and_leave_during_a_connection() {
    let run = |seed| {
        join_and_leave(seed);
        Ok(())
    };
    seeds::run("suite", |_| {}, run);
}

/// In both seeds, the first frames of the only member are lost until the new member has waited for
/// the failure time-out. The only member was granted the peer's whole buffer, and fills it then.
#[test]
fn a_member_joins_beside_one_that_was_granted_the_whole_buffer_and_uses_it_later() {
    [1182, 2970].into_iter().for_each(join_and_leave);
}

/// The frames that the peer is given at a time.
const AT_ONCE: u32 = 20_000;

/// Gives the peer further frames until an end has read `count` of them, and then closes the peer's
/// direction. Returns the number of frames that the peer was given.
fn send_until_read(world: &mut World, end: u32, count: usize) -> u32 {
    let mut given = AT_ONCE;
    while world.read(end).len() < count {
        let now = world.network.now() - Time::ZERO;
        assert!(now < Duration::from_secs(1000), "{end} gets no frames");
        if world.end(PEER).application().to_send.is_empty() {
            given += AT_ONCE;
            world.give(PEER, frames(given - AT_ONCE..given));
        }
        world.run_until(now + Duration::from_micros(100));
    }
    world.close(PEER);
    given
}

/// Lets a member join one or two others, and then the first of these leave.
fn join_and_leave(seed: u64) {
    let members = 1 + (seed % 2) as u32;
    let mut world = ensemble(&credit(), &lossy(), seed, members, 3000);
    give(&world, PEER, AT_ONCE);
    world.end(PEER).application().closes = false;
    // A service that has closed its direction admits no member.
    world.end(2).application().closes = false;
    world.run_until_read(2, 100);
    let joined = world.acceptor(credit(), SWITCH);
    give(&world, joined, 500);
    world.connect(SWITCH, joined, &lossy());
    world.change(SWITCH, MemberChange::Join(EndpointId(joined)));
    let given = send_until_read(&mut world, joined, 50);
    world.close(2);
    let before = world.read(2).len();
    world.change(SWITCH, MemberChange::Leave(MemberId(0)));
    world.run_until(Duration::from_secs(2000));

    assert_no_overflow(&world, seed);
    let ends = 2..3 + members;
    let all = read_by(&world, ends.clone());
    assert!(all.into_iter().eq(keys(PEER, given)), "seed {seed}");
    let total: usize = ends.clone().map(|end| world.read(end).len()).sum();
    assert_eq!(total, given as usize, "seed {seed}: no frame is read twice");
    assert!(!world.read(joined).is_empty(), "seed {seed}");
    // Fewer frames than a window were on their way when the member left.
    assert!(world.read(2).len() <= before + 200, "seed {seed}");
    assert!(
        read_of(&world, joined).into_iter().eq(keys(joined, 500)),
        "seed {seed}"
    );
    assert!(
        read_of(&world, 2).into_iter().eq(keys(2, 3000)),
        "seed {seed}: the leaving member must continue to send"
    );
    for end in ends {
        assert!(is_rising(&world.read(end)), "seed {seed}");
        assert_eq!(
            world.count(end, Event::Finished),
            1,
            "seed {seed}: end {end}"
        );
    }
    assert_eq!(world.events(SWITCH), [], "seed {seed}: no member fails");
    assert!(world.connection(PEER, |c| c.is_over()), "seed {seed}");
}

#[test]
fn a_switch_that_restarts_without_its_state_ends_the_connection_on_both_sides() {
    let mut world = ensemble(&credit(), &delay(5), 1, 2, 100_000);
    world.run_until(Duration::from_millis(200));
    world.restart(SWITCH, PEER, 2..4);
    let read: Vec<usize> = [0, 2, 3].map(|end| world.read(end).len()).into();
    world.run_until(Duration::from_secs(1));
    for (end, read) in [0, 2, 3].into_iter().zip(read) {
        assert_eq!(
            world.count(end, Event::Failed(Reason::Unknown)),
            1,
            "end {end}"
        );
        // Frames on their way from the switch may still arrive: less than a window.
        assert!(world.read(end).len() <= read + 200, "end {end}");
    }
}

#[test]
fn a_member_of_a_switch_may_be_a_switch() {
    for seed in 0..20 {
        // 0 - 1 +- 2
        //       +- 3 +- 4
        //            +- 5
        let mut world = World::new(1000 * seed);
        world.initiator(credit(), 1);
        world.switch(SwitchConfig::default(), 0, 2..4);
        world.connect(0, 1, &lossy());
        world.acceptor(credit(), 1);
        world.connect(1, 2, &lossy());
        world.switch(SwitchConfig::default(), 1, 4..6);
        world.connect(1, 3, &lossy());
        for leaf in [4, 5] {
            world.acceptor(credit(), 3);
            world.connect(3, leaf, &lossy());
        }
        for end in [0, 2, 4, 5] {
            give(&world, end, 400);
        }
        world.run_until(Duration::from_secs(2000));
        assert_no_overflow(&world, seed);
        let leaves = [2, 4, 5];
        let mut all: Vec<u32> = Vec::new();
        for leaf in leaves {
            let read = world.read(leaf);
            assert!(is_rising(&read) && !read.is_empty(), "seed {seed}: {leaf}");
            all.extend(read);
            assert!(
                read_of(&world, leaf).into_iter().eq(keys(leaf, 400)),
                "seed {seed}: {leaf}"
            );
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(keys(0, 400)), "seed {seed}");
        assert!(world.connection(0, |c| c.is_over()), "seed {seed}");
        assert_eq!(world.events(1), [], "seed {seed}: no member fails");
    }
}

/// Returns a link of 1 ms with an XCP router before it.
fn router(rate: &str) -> LinkConfig {
    LinkConfig {
        rate: Some(rate.parse().expect("a rate")),
        xcp: Some(XcpConfig::default()),
        queue: QueueLimit::Packets(1000),
        ..delay(1)
    }
}

/// Runs a connection whose buffers do not limit it through XCP routers, for 10 s. Returns the bytes
/// that arrive inbound and outbound, as shares of 20 Mbit/s. Asserts that there is no loss.
fn shares_of_transit(scaling: Scaling, members: u32) -> [f64; 2] {
    let count = 60_000;
    let config = AcpConfig::default();
    [true, false].map(|inbound| {
        let mut world = World::new(1);
        world.initiator(config.clone(), SWITCH);
        let switch = SwitchConfig {
            scaling,
            ..SwitchConfig::default()
        };
        world.switch(switch, PEER, 2..2 + members);
        world.connect(PEER, SWITCH, &router("20 Mbit/s"));
        for _ in 0..members {
            let member = world.acceptor(config.clone(), SWITCH);
            world.connect(SWITCH, member, &router("100 Mbit/s"));
        }
        for node in std::iter::once(0).chain(2..2 + members) {
            if (node == 0) == inbound {
                world.give(node, frames(0..count));
            }
        }
        world.run_until(Duration::from_secs(10));
        let ends = std::iter::once(0).chain(2..2 + members);
        let read: usize = ends.map(|end| world.read(end).len()).sum();
        let nodes = 0..2 + members;
        let losses: usize = nodes.map(|n| world.count(n, Event::LossEvent)).sum();
        assert_eq!(losses, 0, "{scaling:?}, {members} members");
        read as f64 * (1024.0 + 56.0) * 8.0 / 10.0 / 20e6
    })
}

#[test]
fn a_connection_fills_a_link_of_xcp_routers_with_any_number_of_members() {
    for members in [1, 2, 4] {
        for scaling in [Scaling::Paper, Scaling::PerPacket] {
            let shares = shares_of_transit(scaling, members);
            let full = |share: &f64| (0.97..1.001).contains(share);
            assert!(
                shares.iter().all(full),
                "{members}, {scaling:?}: {shares:?}"
            );
        }
    }
}

#[test]
fn a_member_joins_under_strict_credit_while_others_fill_the_buffer_of_a_slow_peer() {
    for members in [1, 2, 3, 5] {
        let mut world = World::new(1);
        let config = credit();
        world.initiator(config.clone(), SWITCH);
        world.switch(SwitchConfig::default(), PEER, 2..2 + members);
        world.connect(PEER, SWITCH, &delay(1));
        for _ in 0..=members {
            let member = world.acceptor(config.clone(), SWITCH);
            world.connect(SWITCH, member, &delay(1));
            give(&world, member, 9_000);
        }
        world.end(PEER).application().service = Duration::from_millis(1);
        world.run_until(Duration::from_secs(2));
        let joining = 2 + members;
        world.change(SWITCH, MemberChange::Join(EndpointId(joining)));
        world.run_until(Duration::from_secs(5));
        let reads: Vec<usize> = (2..=joining)
            .map(|member| read_of(&world, member).len())
            .collect();
        // Three seconds of 1000 frames each; the share of the new member is within a third.
        let share = 3000.0 / f64::from(members + 1);
        let of_joining = *reads.last().expect("there are members") as f64;
        assert!(
            (of_joining / share - 1.0).abs() < 0.34,
            "{members}: {reads:?}"
        );
        assert!(
            reads.iter().sum::<usize>() > 4900,
            "the peer never waits: {reads:?}"
        );
    }
}
