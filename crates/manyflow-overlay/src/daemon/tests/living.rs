//! Tests of a topology that changes.

use core::time::Duration;

use rand::RngExt;

use super::super::*;
use super::living_world::{At, IDS, LivingWorld};
use super::world::G;
use crate::message::{GroupSet, Summary};
use crate::sequence::ChangeSeq;

/// A line of four daemons, with the members and the sender of a test at its ends.
pub(super) fn line(config: &OverlayConfig, seed: u64) -> LivingWorld {
    linked(LivingWorld::new(4, config, seed))
}

/// Links four daemons to a line.
pub(super) fn linked(mut world: LivingWorld) -> LivingWorld {
    for (a, b) in [(0, 1), (1, 2), (2, 3)] {
        world.link(a, b);
    }
    world.pass(Duration::from_millis(100));
    world
}

fn send(world: &mut LivingWorld, from: At, messages: u32) {
    for _ in 0..messages {
        world.send(from, G);
        world.step();
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn linked_daemons_agree_on_the_topology_and_on_members() {
    let mut world = line(&OverlayConfig::default(), 1);
    world.member(3, G);
    world.member(3, G);
    world.member(1, G);
    world.pass(seconds(1));
    let versions = world.versions();
    assert!(
        versions.iter().all(|version| *version == versions[0]),
        "{versions:?}"
    );
    for at in 0..4 {
        let daemon = world.daemon(at);
        assert_eq!(daemon.topology().len(), 4);
        assert_eq!(daemon.topology().links().count(), 6);
        let members: Vec<_> = daemon.members(G).collect();
        assert_eq!(members, [(IDS[3], 2), (IDS[1], 1)]);
    }
    let after = world.interests.iter().filter(|(at, _)| *at == 0);
    let after: Vec<_> = after.map(|(_, interest)| interest.clone()).collect();
    let (group, name, has_members) = (G, vec![0; G.0 as usize], true);
    assert_eq!(
        after,
        [Interest {
            group,
            name,
            has_members
        }]
    );
}

#[test]
fn a_daemon_that_is_linked_late_learns_of_members_and_sends_to_them() {
    let mut world = LivingWorld::new(3, &OverlayConfig::default(), 1);
    world.link(0, 1);
    let member = world.member(0, G);
    world.pass(seconds(1));
    let from = (2, world.connect(2));
    world.send(from, G);
    world.link(1, 2);
    world.pass(seconds(1));
    // The first message was sent while nobody was known.
    send(&mut world, from, 5);
    world.pass(seconds(1));
    assert_eq!(world.numbers(member, 2, G).len(), 5);
}

#[test]
fn messages_on_a_link_that_goes_down_arrive_over_another_path() {
    for seed in 0..50 {
        let mut world = line(&OverlayConfig::default(), seed);
        world.link(0, 2);
        let member = world.member(3, G);
        let from = (0, world.connect(0));
        world.pass(seconds(1));
        send(&mut world, from, 20);
        let lag = world.random.random_range(0..10);
        world.cut(0, 2, lag);
        send(&mut world, from, 20);
        world.pass(seconds(2));
        assert_eq!(
            world.numbers(member, 0, G),
            Vec::from_iter(1..=40),
            "seed {seed}"
        );
    }
}

#[test]
fn a_partition_shorter_than_the_hold_time_loses_nothing() {
    for seed in 0..20 {
        let mut world = line(&OverlayConfig::default(), seed);
        let members = [world.member(0, G), world.member(3, G)];
        let senders = [0, 3].map(|at| (at, world.connect(at)));
        world.pass(seconds(1));
        for from in senders {
            send(&mut world, from, 10);
        }
        world.cut(1, 2, 3);
        for from in senders {
            send(&mut world, from, 10);
        }
        world.pass(seconds(4));
        world.link(1, 2);
        for from in senders {
            send(&mut world, from, 10);
        }
        world.pass(seconds(10));
        for (member, origin) in [(members[0], 3), (members[1], 0)] {
            let numbers = world.numbers(member, origin, G);
            assert_eq!(numbers, Vec::from_iter(1..=30), "seed {seed}");
        }
        let kept = world.daemon(0).retention.state_size();
        assert_eq!(kept, 2, "a group and a daemon, but no message");
        assert_eq!(gaps(&world), []);
    }
}

#[test]
fn both_sides_of_a_long_partition_go_on_and_meet_at_the_next_message() {
    let mut world = line(&OverlayConfig::default(), 3);
    let members = [world.member(0, G), world.member(3, G)];
    let senders = [0, 3].map(|at| (at, world.connect(at)));
    world.pass(seconds(1));
    for from in senders {
        send(&mut world, from, 10);
    }
    world.pass(seconds(1));
    world.cut(1, 2, 0);
    world.pass(seconds(6));
    assert_eq!(
        world.daemon(0).members(G).collect::<Vec<_>>(),
        [(IDS[0], 1)]
    );
    for from in senders {
        send(&mut world, from, 10);
    }
    world.pass(seconds(1));
    world.link(1, 2);
    world.pass(seconds(1));
    for from in senders {
        send(&mut world, from, 10);
    }
    world.pass(seconds(5));
    for (place, other) in [(0, 3), (1, 0)] {
        let own = [0, 3][place];
        let across = world.numbers(members[place], other, G);
        assert_eq!(across, Vec::from_iter((1..=10).chain(21..=30)));
        let near = world.numbers(members[place], own, G);
        assert_eq!(near, Vec::from_iter(1..=30));
    }
    let across = [(0, 2), (0, 3), (1, 2), (1, 3)];
    let back = across.map(|(here, there)| (there, here));
    let mut all = [across, back].concat();
    all.sort_unstable();
    assert_eq!(gaps(&world), all);
}

/// Returns, in ascending order, the daemons that reported a gap, each with the daemon whose
/// messages are missing.
fn gaps(world: &LivingWorld) -> Vec<(usize, usize)> {
    let place = |id| IDS.iter().position(|other| *other == id).unwrap();
    let gaps = world.events.iter().filter_map(|(at, event)| match event {
        Event::Gap { origin } => Some((*at, place(*origin))),
        _ => None,
    });
    let mut gaps: Vec<_> = gaps.collect();
    gaps.sort_unstable();
    gaps
}

#[test]
fn a_restarted_daemon_begins_again_without_old_messages() {
    for seed in 0..20 {
        let mut world = line(&OverlayConfig::default(), seed);
        let member = world.member(3, G);
        let from = (0, world.connect(0));
        world.pass(seconds(1));
        send(&mut world, from, 10);
        // The receiver's daemon restarts. Its clients see nothing that was sent before.
        world.crash(3);
        send(&mut world, from, 10);
        world.start(3, 1);
        let again = world.member(3, G);
        world.link(2, 3);
        world.pass(seconds(1));
        send(&mut world, from, 10);
        world.pass(seconds(5));
        assert_eq!(
            world.numbers(again, 0, G),
            Vec::from_iter(21..=30),
            "seed {seed}"
        );
        // The sender's daemon restarts. Its numbers begin again.
        world.crash(0);
        world.start(0, 1);
        world.link(0, 1);
        let from = (0, world.connect(0));
        world.pass(seconds(1));
        send(&mut world, from, 5);
        world.pass(seconds(5));
        let numbers = world.numbers(again, 0, G);
        assert_eq!(numbers[10..], [1, 2, 3, 4, 5], "seed {seed}");
        assert_eq!(member, again, "both clients have the same number");
        // A daemon that has restarted after the hold time begins again, too.
        world.crash(0);
        world.pass(seconds(6));
        world.start(0, 1);
        world.link(0, 1);
        world.pass(seconds(1));
        assert_eq!(world.daemon(3).topology().len(), 4);
        assert_eq!(gaps(&world), []);
    }
}

#[test]
fn a_stale_incarnation_is_outbid() {
    let mut world = line(&OverlayConfig::default(), 1);
    world.member(0, G);
    world.pass(seconds(1));
    world.crash(0);
    world.pass(seconds(1));
    world.start(0, -50);
    let member = world.member(0, G);
    world.link(0, 1);
    world.pass(seconds(2));
    assert_eq!(world.daemon(0).incarnation(), 102);
    assert_eq!(world.daemon(3).topology().incarnation(IDS[0]), Some(102));
    let from = (3, world.connect(3));
    send(&mut world, from, 5);
    world.pass(seconds(1));
    assert_eq!(world.numbers(member, 3, G), [1, 2, 3, 4, 5]);
}

/// A daemon whose clock was set back begins an earlier incarnation, and its neighbours know no
/// later one, because they have restarted, too. A daemon behind them does.
#[test]
fn a_stale_incarnation_is_outbid_although_only_distant_daemons_know_the_later_one() {
    for (daemons, is_signed) in [(3, false), (4, false), (3, true), (4, true)] {
        let mut world = LivingWorld::with(daemons, &OverlayConfig::default(), 1, is_signed);
        let last = daemons - 1;
        (1..daemons).for_each(|at| world.link(at - 1, at));
        let member = world.member(0, G);
        let from = (last, world.connect(last));
        world.pass(seconds(1));
        send(&mut world, from, 3);
        world.pass(seconds(1));
        (1..daemons).for_each(|at| world.crash(at));
        // The first daemon forgets the others' states, and keeps their incarnations.
        world.pass(seconds(15));
        (1..last).for_each(|at| world.start(at, 1));
        world.start(last, -50);
        (2..daemons).for_each(|at| world.link(at - 1, at));
        world.pass(seconds(1));
        world.link(0, 1);
        world.pass(seconds(10));
        let versions = world.versions();
        assert!(
            versions.iter().all(|other| *other == versions[0]),
            "{versions:?}"
        );
        let from = (last, world.connect(last));
        send(&mut world, from, 3);
        world.pass(seconds(2));
        assert_eq!(world.numbers(member, last, G), [1, 2, 3, 1, 2, 3]);
    }
}

/// Datagrams may be repaired behind later ones: a question for a state, which a neighbour sent
/// while it lacked the state, arrives behind the neighbour's offer of it.
#[test]
fn an_offer_counts_although_an_earlier_question_arrives_behind_it() {
    for seed in 0..20 {
        let mut world = LivingWorld::new(3, &OverlayConfig::default(), seed);
        world.link(0, 1);
        world.run();
        world.link(1, 2);
        while world.daemon(1).topology().len() < 3 {
            assert!(world.step(), "seed {seed}");
        }
        let question = Summary {
            change: ChangeSeq(0),
            ..world.daemon(1).database.summary(IDS[2]).unwrap()
        };
        world.delay(1, 0, 2, Body::Summary(question));
        world.run();
        assert_eq!(world.daemon(0).topology().len(), 3, "seed {seed}");
    }
}

#[test]
fn a_member_may_stand_for_several_until_it_leaves() {
    let mut world = line(&OverlayConfig::default(), 1);
    let member = world.member(3, G);
    world.member(3, G);
    let known = |world: &mut LivingWorld| {
        world.pass(seconds(1));
        world.daemon(0).members(G).collect::<Vec<_>>()
    };
    for count in [9, 2, 1, 9] {
        let now = world.now;
        world.daemon(3).set_represented(now, member.1, G, count);
        assert_eq!(known(&mut world), [(IDS[3], count + 1)]);
    }
    let (now, stranger) = (world.now, world.connect(3));
    world.daemon(3).set_represented(now, stranger, G, 100);
    assert_eq!(known(&mut world), [(IDS[3], 10)]);
    world.say(member, ClientFrame::Leave(G), 0);
    assert_eq!(known(&mut world), [(IDS[3], 1)]);
    world.member(3, G);
    assert_eq!(known(&mut world), [(IDS[3], 2)]);
}

#[test]
fn two_names_with_one_number_are_reported_and_the_first_stays() {
    let mut world = line(&OverlayConfig::default(), 1);
    world.member(0, G);
    world.pass(seconds(1));
    let client = world.connect(3);
    world.say((3, client), ClientFrame::Join(G), 99);
    world.pass(seconds(1));
    let clash = Event::NameClash {
        group: G,
        by: IDS[3],
    };
    assert!(world.events.contains(&(1, clash)));
    let names = world.interests.iter().map(|(_, interest)| &interest.name);
    assert!(names.filter(|name| name.len() == 99).count() == 0);
}

#[test]
fn clients_wait_while_no_more_messages_may_be_kept() {
    let config = OverlayConfig {
        retain_bytes: 20_000,
        ..OverlayConfig::default()
    };
    let mut world = line(&config, 1);
    let member = world.member(3, G);
    let from = (0, world.connect(0));
    world.pass(seconds(1));
    // The member's daemon can be reached, and acknowledges nothing yet.
    for _ in 0..100 {
        world.send(from, G);
    }
    // A message counts 64 bytes besides its payload.
    assert_eq!(world.ready[&from], 19);
    world.pass(seconds(3));
    assert_eq!(world.numbers(member, 0, G), Vec::from_iter(1..=20));
    assert_eq!(
        world.ready[&from], 20,
        "the message that waited has entered"
    );
}

#[test]
fn acknowledgements_take_less_than_one_percent() {
    let mut world = line(&OverlayConfig::default(), 1);
    for at in [1, 3] {
        world.member(at, G);
        world.member(at, GroupId(8));
    }
    let from = (0, world.connect(0));
    world.pass(seconds(1));
    for message in 0..20_000u32 {
        world.send(from, [G, GroupId(8)][message as usize % 2]);
        // 500 messages a second.
        if message % 25 == 0 {
            world.pass(Duration::from_millis(50));
        }
    }
    world.pass(seconds(1));
    let share = world.receipt_bytes as f64 / world.data_bytes as f64;
    assert!(share > 0.0 && share < 0.01, "{share}");
}

#[test]
fn nothing_remains_when_all_clients_have_gone() {
    let mut world = line(&OverlayConfig::default(), 1);
    let clients = [
        world.member(3, G),
        world.member(1, G),
        (0, world.connect(0)),
    ];
    world.pass(seconds(1));
    send(&mut world, clients[2], 20);
    world.cut(1, 2, 2);
    send(&mut world, clients[2], 20);
    world.pass(seconds(2));
    for client in clients {
        world.say(client, ClientFrame::Disconnect, 0);
    }
    world.pass(seconds(20));
    // Neither side knows the members that the other side had.
    assert_eq!(world.sizes(), [0; 4]);
    world.link(1, 2);
    world.pass(seconds(2));
    assert_eq!(world.sizes(), [0; 4]);
}

/// Links come and go, and daemons restart, while clients join, leave and send. Afterwards all
/// daemons agree, each member has read each origin's messages in order, none twice, and everything
/// that is sent then arrives.
#[test]
fn random_changes_of_the_topology_end_in_agreement() {
    for seed in 0..200 {
        let mut world = LivingWorld::new(5, &OverlayConfig::default(), seed);
        for at in 1..5 {
            world.link(0, at);
        }
        let mut members: Vec<(At, GroupId)> = Vec::new();
        let mut senders: Vec<At> = Vec::new();
        for _ in 0..world.random.random_range(50..400) {
            let (a, b) = (
                world.random.random_range(0..5),
                world.random.random_range(0..5),
            );
            let group = GroupId(world.random.random_range(0..3));
            match world.random.random_range(0..40) {
                0 if a != b && world.is_up(a) && world.is_up(b) => {
                    if world.is_linked(a, b) {
                        let lag = world.random.random_range(0..20);
                        world.cut(a, b, lag);
                    } else {
                        world.link(a, b);
                    }
                }
                1 if world.random.random_bool(0.2) => {
                    if world.is_up(a) {
                        world.crash(a);
                        members.retain(|((at, _), _)| *at != a);
                        senders.retain(|(at, _)| *at != a);
                    } else {
                        world.start(a, 1);
                    }
                }
                2 if world.is_up(a) => members.push((world.member(a, group), group)),
                3 if world.is_up(a) => {
                    let client = world.connect(a);
                    senders.push((a, client));
                }
                4 if !members.is_empty() => {
                    let place = world.random.random_range(0..members.len());
                    let (client, group) = members.swap_remove(place);
                    world.say(client, ClientFrame::Leave(group), 0);
                }
                5 => {
                    let ms = world.random.random_range(1..2000);
                    world.now += Duration::from_millis(ms);
                    world.tick();
                }
                6..20 if !senders.is_empty() => {
                    let place = world.random.random_range(0..senders.len());
                    world.send(senders[place], group);
                }
                20..25 if !senders.is_empty() => {
                    let place = world.random.random_range(0..senders.len());
                    let groups = [
                        group,
                        GroupId((group.0 + 1) % 3),
                        GroupId((group.0 + 2) % 3),
                    ];
                    let count = world.random.random_range(2..=3);
                    world.send(senders[place], GroupSet::of(&groups[..count]).unwrap());
                }
                _ => {
                    world.step();
                }
            }
        }
        check_end(&mut world, &members, seed);
    }
}

fn check_end(world: &mut LivingWorld, members: &[(At, GroupId)], seed: u64) {
    for at in 0..5 {
        if !world.is_up(at) {
            world.start(at, 1);
        }
    }
    for at in 1..5 {
        if !world.is_linked(0, at) {
            world.link(0, at);
        }
    }
    world.pass(seconds(20));
    let versions = world.versions();
    assert!(
        versions.iter().all(|version| *version == versions[0]),
        "seed {seed}: {versions:?}"
    );
    let kept: Vec<_> = (0..5)
        .map(|at| world.daemon(at).retention.messages())
        .collect();
    assert_eq!(
        kept, [0; 5],
        "seed {seed}: not all messages were acknowledged"
    );
    let last: Vec<_> = members
        .iter()
        .map(|(at, _)| world.read.get(at).map_or(0, Vec::len))
        .collect();
    let senders: Vec<_> = (0..5).map(|at| (at, world.connect(at))).collect();
    for group in [0, 1, 2].map(GroupId) {
        for from in &senders {
            world.send(*from, group);
        }
    }
    world.pass(seconds(5));
    for ((client, group), last) in members.iter().zip(last) {
        let read = &world.read[client];
        assert_eq!(read.len(), last + 5, "seed {seed}: {client:?} of {group:?}");
        let mut flows = std::collections::BTreeMap::new();
        for ((origin, group, number), incarnation) in read {
            let before = flows.insert((*origin, *group, *incarnation), *number);
            assert!(
                before < Some(*number),
                "seed {seed}: {number} after {before:?} of {origin:?}"
            );
        }
    }
}
