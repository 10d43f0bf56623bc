//! Messages to several groups at once.

use core::time::Duration;

use super::living_world::LivingWorld;
use super::*;
use crate::controller::{Open, Request, Site};
use crate::message::GroupSet;

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);
const C: GroupId = GroupId(3);

fn set(groups: &[GroupId]) -> GroupSet {
    GroupSet::of(groups).unwrap()
}

#[test]
fn a_link_carries_one_copy_for_all_groups_and_each_member_reads_it_once_for_each() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    let [at_3, at_4, both, here] = [(3, A), (4, B), (3, B), (0, C)].map(|(at, group)| {
        let client = world.member_of(at, group);
        (at, client)
    });
    world.say(both.0, both.1, ClientFrame::Join(A));
    let sender = world.connect(0);
    world.run();
    world.send(0, sender, set(&[A, B, C]));
    world.run();
    let links = [(0, 1), (1, 2), (1, 4), (2, 3)];
    assert!(
        world
            .carried
            .iter()
            .eq(links.map(|link| (link, 1)).iter().map(|(l, n)| (l, n))),
        "{:?}",
        world.carried
    );
    let read = |world: &World, (at, client)| world.from(at, client, 0);
    for member in [at_3, at_4, here] {
        assert_eq!(read(&world, member), [1]);
    }
    assert_eq!(read(&world, both), [1, 1], "one for each of its groups");
    assert_eq!(world.ready[&(0, sender)], 1);
    // Each group has numbers of its own.
    world.send(0, sender, B);
    world.send(0, sender, set(&[B, A]));
    world.run();
    assert_eq!(read(&world, at_3), [1, 2]);
    assert_eq!(read(&world, at_4), [1, 2, 3]);
    assert_eq!(read(&world, here), [1]);
    assert_eq!(world.ready[&(0, sender)], 3);
}

/// The messages of two senders mix at the daemon in the middle, and each keeps its payload.
#[test]
fn shares_of_several_senders_do_not_mix() {
    for seed in 0..50 {
        let mut world = LivingWorld::new(5, &OverlayConfig::default(), seed);
        for (a, b) in TREE {
            world.link(a.into(), b.into());
        }
        let members = [(3, A), (4, B), (3, B)].map(|(at, group)| (world.member(at, group), group));
        let senders = [0, 2, 4].map(|at| (at, world.connect(at)));
        world.pass(Duration::from_secs(1));
        for _ in 0..30 {
            for (place, from) in senders.into_iter().enumerate() {
                world.send_bytes(from, set(&[A, B]), 1000 + place as u32);
            }
            (0..7).for_each(|_| {
                world.step();
            });
        }
        world.pass(Duration::from_secs(1));
        for (member, group) in members {
            for (place, (at, _)) in senders.into_iter().enumerate() {
                let lengths = world.lengths(member, at, group);
                assert_eq!(
                    lengths,
                    [1000 + place; 30],
                    "seed {seed}, {group:?} of {at}"
                );
            }
        }
    }
}

/// A controller with a rate for each group, such as TFRC.
#[derive(Debug, Default)]
struct Apart {
    asked: Vec<GroupSet>,
}

impl Controller for Apart {
    fn shares_copies(&self) -> bool {
        false
    }
    fn try_admit(&mut self, _now: Time, request: &Request, _site: &Site) -> bool {
        self.asked.push(request.groups);
        request.groups.first() != C
    }
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64) {
        Open.add_client(now, client, priority);
    }
    fn remove_client(&mut self, _now: Time, _client: ClientId) {}
    fn handle_timeout(&mut self, _now: Time, _site: &Site) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_ready(&mut self) -> Option<ClientId> {
        None
    }
    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

#[test]
fn a_controller_with_a_rate_for_each_group_admits_a_message_to_one_after_the_other() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    world.daemons[0].controller = Box::new(Apart::default());
    let members = [(3, A), (3, B), (4, C)].map(|(at, group)| (at, world.member_of(at, group)));
    let sender = world.connect(0);
    world.run();
    world.send(0, sender, set(&[A, B, C]));
    world.run();
    let apart: &Apart = world.daemons[0].controller().unwrap();
    assert_eq!(apart.asked, [A, B, C].map(GroupSet::from));
    let read = members.map(|(at, client)| world.from(at, client, 0));
    assert_eq!(read, [vec![1], vec![1], vec![]]);
    assert_eq!(world.ready.get(&(0, sender)), None, "it waits for group C");
}

#[test]
fn a_message_waits_while_one_of_its_groups_has_a_slow_member() {
    let config = OverlayConfig {
        client_messages: 1,
        ..OverlayConfig::default()
    };
    let mut world = World::new(5, &TREE, &config, 1);
    let slow = world.member_of(3, A);
    let quick = world.member_of(4, B);
    world.asleep.push((3, slow));
    let sender = world.connect(0);
    world.run();
    for _ in 0..200 {
        if world.daemons[0].membership.is_paused(A) {
            break;
        }
        world.send(0, sender, A);
        world.run();
    }
    assert!(world.daemons[0].membership.is_paused(A));
    let other = world.connect(0);
    world.send(0, other, set(&[B, A]));
    world.run();
    assert_eq!(world.from(4, quick, 0), Vec::<u64>::new());
    assert_eq!(world.ready.get(&(0, other)), None);
    world.say(3, slow, ClientFrame::Leave(A));
    world.run();
    assert_eq!(world.from(4, quick, 0), [1]);
    assert_eq!(world.ready[&(0, other)], 1);
}

/// The copies on a link that goes down are lost for all groups, and each group repairs its own.
#[test]
fn copies_that_are_lost_with_a_link_are_sent_again_for_each_group() {
    for seed in 0..50 {
        let mut world = LivingWorld::new(4, &OverlayConfig::default(), seed);
        for at in 1..4 {
            world.link(at - 1, at);
        }
        world.link(0, 2);
        let members = [(3, A), (3, B), (1, C)].map(|(at, group)| (world.member(at, group), group));
        let from = (0, world.connect(0));
        world.pass(Duration::from_secs(1));
        for message in 0..20 {
            if message == 10 {
                let lag = world.random.random_range(0..10);
                world.cut(0, 2, lag);
            }
            world.send(from, set(&[A, B, C]));
        }
        world.pass(Duration::from_secs(2));
        for (member, group) in members {
            let numbers = world.numbers(member, 0, group);
            assert_eq!(numbers, Vec::from_iter(1..=20), "seed {seed}, {group:?}");
            let lengths = world.lengths(member, 0, group);
            assert_eq!(lengths, [1000; 20], "seed {seed}, {group:?}");
        }
    }
}
