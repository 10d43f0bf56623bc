//! Daemons that announce the states of others, which those have not signed.

use core::time::Duration;

use super::super::*;
use super::living::linked;
use super::living_world::{IDS, LivingWorld};
use super::world::G;
use crate::event::Misconduct;
use crate::message::{Change, Item, Part, Summary};
use crate::sequence::ChangeSeq;

const VICTIM: usize = 0;
const LIAR: usize = 3;
const NEXT: usize = 2;

fn settled(config: &OverlayConfig, seed: u64) -> LivingWorld {
    let mut world = linked(LivingWorld::with(4, config, seed, true));
    world.pass(Duration::from_secs(1));
    assert_eq!(sees(&mut world), [4; 4]);
    world
}

/// Returns the number of daemons that each daemon reaches.
fn sees(world: &mut LivingWorld) -> Vec<usize> {
    (0..4).map(|at| world.daemon(at).topology().len()).collect()
}

/// Returns which daemons have found a false signature, of which neighbour, about whom.
fn found(world: &LivingWorld) -> Vec<(usize, DaemonId, DaemonId)> {
    let found = world.events.iter().filter_map(|(at, event)| match event {
        Event::Misconduct {
            neighbour,
            origin,
            misconduct: Misconduct::Signature,
        } => Some((*at, *neighbour, *origin)),
        _ => None,
    });
    found.collect()
}

fn summary_of(world: &mut LivingWorld, later: u32) -> Summary {
    let database = &world.daemon(VICTIM).database;
    let mut summary = database.summary(IDS[VICTIM]).unwrap();
    summary.change.0 += later;
    summary
}

/// The next change of the victim, as the liar invents it: its only link is down.
fn invented(world: &mut LivingWorld) -> Change {
    let Summary {
        incarnation,
        change,
    } = summary_of(world, 1);
    let item = Item::Link {
        to: IDS[1],
        weight: 0,
        since: change,
    };
    Change {
        incarnation,
        change,
        item,
    }
}

#[test]
fn a_whole_state_without_a_signature_ends_its_link_and_harms_nobody() {
    for seed in 0..20 {
        let mut world = settled(&OverlayConfig::default(), seed);
        let summary = summary_of(&mut world, 9);
        let Summary {
            incarnation,
            change,
        } = summary;
        world.forge(LIAR, NEXT, VICTIM, Body::Summary(summary));
        let count = 0;
        let item = Item::Count { count, incarnation };
        let index = 0;
        let part = Part {
            change,
            index,
            item,
        };
        world.forge(LIAR, NEXT, VICTIM, Body::Part(part));
        assert_eq!(found(&world), [(NEXT, IDS[LIAR], IDS[VICTIM])]);
        world.run();
        assert_eq!(sees(&mut world)[..3], [3; 3], "seed {seed}");
        assert_eq!(world.daemon(VICTIM).incarnation(), incarnation);
    }
}

#[test]
fn a_change_counts_only_with_a_seal_and_a_false_seal_ends_its_link() {
    let mut world = settled(&OverlayConfig::default(), 1);
    let change = invented(&mut world);
    world.forge(LIAR, NEXT, VICTIM, Body::Change(change));
    world.pass(Duration::from_secs(1));
    assert_eq!((sees(&mut world), found(&world)), (vec![4; 4], vec![]));
    let seal = Body::Seal(summary_of(&mut world, 1));
    world.forge_with(LIAR, NEXT, VICTIM, seal, vec![7; 200]);
    assert_eq!(found(&world), [(NEXT, IDS[LIAR], IDS[VICTIM])]);
    world.run();
    assert_eq!(sees(&mut world)[..3], [3; 3]);
}

/// The first member of a group at the victim: the change that it makes, and its seal.
fn join(world: &mut LivingWorld) -> (Change, Body, Vec<u8>) {
    world.member(VICTIM, G);
    let summary = summary_of(world, 0);
    let Summary {
        incarnation,
        change,
    } = summary;
    let (group, members, since) = (G, 1, change);
    let item = Item::Members {
        group,
        members,
        since,
    };
    let change = Change {
        incarnation,
        change,
        item,
    };
    let seal = world.daemon(VICTIM).database.encoded_seal(IDS[VICTIM]);
    (change, Body::Seal(summary), seal)
}

#[test]
fn a_seal_covers_no_other_changes_and_needs_its_signature() {
    for case in 0..4 {
        let mut world = settled(&OverlayConfig::default(), 1);
        let other = invented(&mut world);
        let (change, about, mut seal) = join(&mut world);
        let (change, name) = match case {
            0 | 1 => (other, Vec::new()),
            _ => (change, vec![0; G.0 as usize]),
        };
        if case == 2 {
            *seal.last_mut().unwrap() ^= 1;
        }
        if case != 0 {
            world.forge_with(LIAR, NEXT, VICTIM, about, seal.clone());
        }
        world.forge_with(LIAR, NEXT, VICTIM, Body::Change(change), name);
        if case == 0 {
            world.forge_with(LIAR, NEXT, VICTIM, about, seal);
        }
        let is_true = case == 3;
        assert_eq!(found(&world).is_empty(), is_true, "case {case}");
        assert_eq!(world.daemon(NEXT).members(G).count(), usize::from(is_true));
        world.run();
        assert_eq!(world.daemon(1).members(G).count(), 1);
        assert_eq!(world.daemon(NEXT).members(G).count(), 1);
    }
}

#[test]
fn a_state_from_which_a_neighbour_leaves_out_or_changes_a_part_is_refused() {
    for case in 0..4 {
        let mut world = settled(&OverlayConfig::default(), 1);
        world.member(VICTIM, G);
        world.pass(Duration::from_secs(1));
        world.crash(NEXT);
        world.start(NEXT, 1);
        let summary = summary_of(&mut world, 0);
        let mut parts = world.daemon(LIAR).database.parts(IDS[VICTIM]);
        let group = parts
            .iter()
            .position(|(part, _)| matches!(part.item, Item::Members { .. }));
        let group = group.unwrap();
        match case {
            0 => {
                parts.remove(group);
                let Item::Count { count, .. } = &mut parts[0].0.item else {
                    panic!("the first part is the count");
                };
                *count -= 1;
            }
            1 => parts[group].1.push(0),
            // The last byte of the victim's identity.
            2 => *parts[1].1.last_mut().unwrap() ^= 1,
            _ => {}
        }
        world.link(LIAR, NEXT);
        world.forge(LIAR, NEXT, VICTIM, Body::Summary(summary));
        for (part, payload) in parts {
            world.forge_with(LIAR, NEXT, VICTIM, Body::Part(part), payload);
        }
        let is_true = case == 3;
        assert_eq!(found(&world).is_empty(), is_true);
        let known = world.daemon(NEXT).database.incarnation(IDS[VICTIM]);
        assert_eq!(known.is_some(), is_true);
    }
}

#[test]
fn a_daemon_begins_a_later_incarnation_only_if_its_own_signature_proves_that_it_had_one() {
    let mut world = settled(&OverlayConfig::default(), 1);
    let incarnation = world.daemon(VICTIM).incarnation();
    let summary = summary_of(&mut world, 5);
    let later = Summary {
        incarnation: incarnation + 1,
        ..summary
    };
    for summary in [summary, later] {
        world.forge(1, VICTIM, VICTIM, Body::Summary(summary));
        world.pass(Duration::from_secs(1));
        assert_eq!(world.daemon(VICTIM).incarnation(), incarnation);
    }
    // `a_stale_incarnation_is_outbid` has the other case.
    assert_eq!((sees(&mut world), found(&world)), (vec![4; 4], vec![]));
}

#[test]
fn changes_at_about_the_same_time_have_one_signature() {
    let mut world = settled(&OverlayConfig::default(), 1);
    let client = world.connect(VICTIM);
    let before = world.seals;
    for group in 0..3000 {
        world.say((VICTIM, client), ClientFrame::Join(GroupId(group)), 8);
    }
    world.pass(Duration::from_secs(1));
    // The first change, two seals that are full, and the rest; over three links.
    assert_eq!(world.seals - before, 3 * 4);
    let known = |at: usize, world: &mut LivingWorld| {
        let daemon = world.daemon(at);
        (0..3000)
            .map(|group| daemon.members(GroupId(group)).count())
            .sum::<usize>()
    };
    assert_eq!(known(LIAR, &mut world), 3000);
    world.say((VICTIM, client), ClientFrame::Disconnect, 0);
    world.pass(Duration::from_secs(1));
    assert_eq!(known(LIAR, &mut world), 0);
    assert_eq!(found(&world), []);
}

#[test]
fn a_daemon_without_memory_for_a_signed_state_has_its_links_and_passes_none_on() {
    let config = OverlayConfig {
        state_bytes: 40_000,
        ..OverlayConfig::default()
    };
    let mut world = settled(&config, 1);
    for at in [0, 1, 2] {
        for group in 0..13 {
            world.member(at, GroupId(100 * at as u32 + group));
        }
    }
    world.pass(Duration::from_secs(1));
    world.crash(LIAR);
    world.start(LIAR, 1);
    world.link(NEXT, LIAR);
    world.pass(Duration::from_secs(2));
    assert_eq!((sees(&mut world), found(&world)), (vec![4; 4], vec![]));
    let database = &mut world.daemon(LIAR).database;
    let sent = [0, 1, 2].map(|at| !database.parts(IDS[at]).is_empty());
    assert_eq!(
        sent.iter().filter(|is_sent| **is_sent).count(),
        2,
        "{sent:?}"
    );
}

#[test]
fn a_neighbour_that_offers_a_state_and_sends_none_delays_it_only() {
    let mut world = settled(&OverlayConfig::default(), 1);
    world.link(1, LIAR);
    world.pass(Duration::from_secs(1));
    // It offers the state after the next restart of the daemon, before that.
    let mut summary = summary_of(&mut world, 0);
    summary.incarnation += 2;
    world.forge(LIAR, NEXT, VICTIM, Body::Summary(summary));
    world.crash(VICTIM);
    world.start(VICTIM, 1);
    world.link(VICTIM, 1);
    let member = world.member(VICTIM, G);
    world.pass(Duration::from_secs(7));
    assert_eq!(world.daemon(NEXT).members(G).count(), 1, "{member:?}");
}

#[test]
fn a_false_proof_of_a_later_incarnation_is_ignored() {
    let mut world = settled(&OverlayConfig::default(), 1);
    let present = summary_of(&mut world, 0).incarnation;
    let mut seal = world.daemon(VICTIM).database.encoded_seal(IDS[VICTIM]);
    for (incarnation, lie) in [(present, 0), (present + 1, 0), (present + 1, 1)] {
        // The second word of a statement is the incarnation.
        let claimed = present + lie;
        seal[2..6].copy_from_slice(&claimed.to_be_bytes());
        let summary = Summary {
            incarnation,
            change: ChangeSeq(0),
        };
        world.forge_with(1, VICTIM, VICTIM, Body::Seal(summary), seal.clone());
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(sees(&mut world), [4; 4]);
    assert_eq!(summary_of(&mut world, 0).incarnation, present);
}
