//! Daemons that announce the states of others, or more than one daemon can have, while states are
//! not signed.

use core::time::Duration;

use super::super::*;
use super::living::linked;
use super::living_world::{IDS, LivingWorld};
use super::world::G;
use crate::event::Misconduct;
use crate::message::{Change, Item, Part, Summary};
use crate::sequence::ChangeSeq;

/// The daemon that lies is at one end of the line, and the one about which it lies at the other.
const LIAR: usize = 3;
const NEXT: usize = 2;

fn settled(config: &OverlayConfig, seed: u64) -> LivingWorld {
    let mut world = linked(LivingWorld::with(4, config, seed, false));
    world.pass(Duration::from_secs(1));
    assert_eq!(sees(&mut world), [4; 4]);
    world
}

/// Returns the number of daemons that each daemon reaches.
fn sees(world: &mut LivingWorld) -> Vec<usize> {
    (0..4).map(|at| world.daemon(at).topology().len()).collect()
}

fn misconduct(world: &LivingWorld) -> Vec<(usize, Event)> {
    let events = world.events.iter().copied();
    events
        .filter(|(_, event)| matches!(event, Event::Misconduct { .. }))
        .collect()
}

/// Announces a state of daemon 0 without links.
fn forge_empty_state(world: &mut LivingWorld, incarnation: u32) {
    let change = ChangeSeq(9);
    let summary = Summary {
        incarnation,
        change,
    };
    world.forge(LIAR, NEXT, 0, Body::Summary(summary));
    let count = 0;
    let item = Item::Count { count, incarnation };
    let part = Part {
        change,
        index: 0,
        item,
    };
    world.forge(LIAR, NEXT, 0, Body::Part(part));
}

#[test]
fn a_daemon_whose_state_is_forged_is_back_at_once() {
    for seed in 0..20 {
        let mut world = settled(&OverlayConfig::default(), seed);
        forge_empty_state(&mut world, 50_000);
        assert_eq!(world.daemon(NEXT).topology().len(), 3, "it is believed");
        world.run();
        assert_eq!(sees(&mut world), [4; 4], "seed {seed}");
        assert_eq!(world.daemon(0).incarnation(), 50_001);
    }
}

#[test]
fn a_daemon_whose_next_change_is_forged_is_back_at_once() {
    for seed in 0..20 {
        let mut world = settled(&OverlayConfig::default(), seed);
        let incarnation = world.daemon(0).incarnation();
        let change = world.daemon(0).database.next_change();
        let item = Item::Link {
            to: IDS[1],
            weight: 0,
            since: change,
        };
        let change = Change {
            incarnation,
            change,
            item,
        };
        world.forge(LIAR, NEXT, 0, Body::Change(change));
        assert_eq!(world.daemon(NEXT).topology().len(), 3, "it is believed");
        world.run();
        assert_eq!(sees(&mut world), [4; 4], "seed {seed}");
    }
}

#[test]
fn a_forged_change_that_contradicts_a_true_one_is_outbid() {
    let mut world = settled(&OverlayConfig::default(), 1);
    let change = world.daemon(0).database.next_change();
    world.member(0, G);
    let incarnation = world.daemon(0).incarnation();
    let item = Item::Alive;
    let change = Change {
        incarnation,
        change,
        item,
    };
    world.forge(1, 0, 0, Body::Change(change));
    assert_eq!(world.daemon(0).incarnation(), incarnation + 1);
    world.run();
    assert_eq!(world.daemon(LIAR).members(G).count(), 1);
}

#[test]
fn a_daemon_that_announces_the_last_incarnation_of_another_loses_its_link() {
    let mut world = settled(&OverlayConfig::default(), 1);
    forge_empty_state(&mut world, u32::MAX);
    world.run();
    let expected = Event::Misconduct {
        neighbour: IDS[LIAR],
        origin: IDS[0],
        misconduct: Misconduct::Incarnation(u32::MAX),
    };
    assert_eq!(misconduct(&world), [(NEXT, expected)]);
    assert_eq!(sees(&mut world)[..3], [3; 3]);
}

#[test]
fn an_incarnation_that_some_clocks_allow_is_outbid_by_a_daemon_whose_clock_is_behind() {
    let config = OverlayConfig {
        incarnation_ahead_max: 1000,
        ..OverlayConfig::default()
    };
    let mut world = linked(LivingWorld::with(4, &config, 1, false));
    world.crash(0);
    world.start(0, -90);
    world.link(0, 1);
    world.pass(Duration::from_secs(1));
    // The others started at 101, and daemon 0 at 11.
    forge_empty_state(&mut world, 1101);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.daemon(0).incarnation(), 1102);
    assert_eq!(sees(&mut world), [4; 4]);
    assert_eq!(misconduct(&world), []);
}

#[test]
fn a_neighbour_with_too_many_groups_loses_its_link_and_its_groups_are_forgotten() {
    let config = OverlayConfig {
        state_bytes: 40_000,
        ..OverlayConfig::default()
    };
    let mut world = settled(&config, 1);
    for group in 0..100 {
        world.member(LIAR, GroupId(group));
    }
    world.run();
    let expected = Event::Misconduct {
        neighbour: IDS[LIAR],
        origin: IDS[LIAR],
        misconduct: Misconduct::Groups,
    };
    assert_eq!(misconduct(&world), [(NEXT, expected)]);
    let group = GroupId(1000);
    world.member(0, group);
    world.pass(Duration::from_secs(6));
    assert_eq!(sees(&mut world)[..3], [3; 3]);
    for at in 0..3 {
        assert_eq!(world.daemon(at).members(group).count(), 1);
        let known = world.daemon(at).database.state_size();
        assert_eq!(known, 1, "only the group of daemon 0");
    }
}

#[test]
fn daemons_find_each_other_when_a_partition_ends_while_states_are_being_dropped() {
    for seed in 0..40 {
        let mut world = settled(&OverlayConfig::default(), seed);
        world.member(LIAR, G);
        world.run();
        world.cut(1, 2, 3);
        world.pass(Duration::from_millis(4500 + 25 * seed));
        world.link(1, 2);
        world.pass(Duration::from_secs(2));
        assert_eq!(sees(&mut world), [4; 4], "seed {seed}");
        for at in 0..4 {
            assert_eq!(world.daemon(at).members(G).count(), 1, "seed {seed}");
        }
    }
}

/// Offers are not signed: a daemon may offer the states of daemons that do not exist.
fn offer_states_that_are_never_sent(is_signed: bool) {
    let config = OverlayConfig {
        daemons_max: 8,
        ..OverlayConfig::default()
    };
    let mut world = LivingWorld::with(5, &config, 1, is_signed);
    for (a, b) in [(0, 1), (1, 2), (2, 3)] {
        world.link(a, b);
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(world.daemon(NEXT).topology().len(), 4);
    for origin in 100..100 + 3 * config.daemons_max {
        let change = ChangeSeq(9);
        let incarnation = 101;
        let summary = Summary {
            incarnation,
            change,
        };
        world.forge_about(LIAR, NEXT, DaemonId(origin as u16), Body::Summary(summary));
    }
    world.pass(Duration::from_secs(1));
    // A new daemon appears behind the neighbours that tell the truth.
    world.link(0, 4);
    world.member(4, G);
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.daemon(NEXT).topology().len(),
        5,
        "signed: {is_signed}"
    );
    assert_eq!(world.daemon(NEXT).members(G).count(), 1);
    assert_eq!(misconduct(&world), []);
    // The offers of the liar end with its link.
    let size = world.daemon(NEXT).state_size();
    world.cut(NEXT, LIAR, 0);
    world.pass(Duration::from_secs(1));
    assert!(world.daemon(NEXT).state_size() + config.daemons_max <= size);
}

#[test]
fn states_that_a_neighbour_offers_and_never_sends_keep_no_new_daemon_away() {
    offer_states_that_are_never_sent(false);
    offer_states_that_are_never_sent(true);
}
