use core::time::Duration;

use rand::RngExt;

use super::*;
use crate::config::{SlowPolicy, Verdict};
use crate::message::{Control, Data, LinkId, Message, Report};
use crate::sequence::{LinkSeq, OriginSeq};
use manyflow_core::Length;
use world::{G, World};

mod away;
mod hostile;
mod layered;
mod lies;
mod living;
mod living_world;
mod shared;
mod signed;
pub(super) mod world;

/// The links 0-1-2-3 and 1-4.
const TREE: [(u16, u16); 4] = [(0, 1), (1, 2), (2, 3), (1, 4)];

#[test]
fn every_member_receives_every_message_once_and_in_order() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    let members: Vec<_> = [0, 3, 3, 4].map(|at| (at, world.member(at))).into();
    let senders: Vec<_> = [0, 2, 2].map(|at| (at, world.connect(at))).into();
    world.run();
    for _ in 0..50 {
        for &(at, client) in &senders {
            world.send(at, client, G);
        }
        (0..5).for_each(|_| {
            world.step();
        });
    }
    world.run();
    for (at, member) in members {
        assert_eq!(world.from(at, member, 0), Vec::from_iter(1..=50));
        assert_eq!(world.from(at, member, 2), Vec::from_iter(1..=100));
    }
}

#[test]
fn messages_are_forwarded_only_towards_members() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    world.member(4);
    let sender = world.connect(0);
    world.run();
    world.send(0, sender, G);
    world.run();
    let queued = |event: &(usize, Event)| match event {
        (at, Event::Queue { link, .. }) => Some((*at, *link)),
        _ => None,
    };
    let queued: Vec<_> = world.events.iter().filter_map(queued).collect();
    let link = |from, to| LinkId {
        from: DaemonId(from),
        to: DaemonId(to),
    };
    assert_eq!(queued, [(0, link(0, 1)), (1, link(1, 4))]);
}

#[test]
fn a_router_keeps_no_state_of_flows() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    world.member(3);
    let senders: Vec<_> = (0..20).map(|_| world.connect(0)).collect();
    world.run();
    for client in senders {
        world.send(0, client, G);
    }
    world.run();
    let flows =
        |daemon: &Daemon<_>| daemon.delivery.flow_count() + daemon.membership.numbered_groups();
    let states: Vec<_> = world.daemons.iter().map(flows).collect();
    assert_eq!(states, [1, 0, 0, 1, 0]);
}

#[test]
fn messages_wait_at_the_client_while_a_queue_is_half_full() {
    let config = OverlayConfig {
        queue_messages: 10,
        ..OverlayConfig::default()
    };
    let mut world = World::new(5, &TREE, &config, 1);
    world.member(3);
    let sender = world.connect(0);
    world.run();
    // A welcome precedes the first message.
    world.send(0, sender, G);
    world.run();
    world.set_room(0, 1, 0);
    for _ in 0..100 {
        world.send(0, sender, G);
    }
    assert_eq!(world.ready.get(&(0, sender)), Some(&6));
    world.set_room(0, 1, 4);
    world.run();
    assert_eq!(world.ready.get(&(0, sender)), Some(&7));
}

fn slow_world(slow: SlowPolicy) -> (World, ClientId, ClientId, ClientId) {
    slow_world_with(slow, 10)
}

fn slow_world_with(
    slow: SlowPolicy,
    client_messages: usize,
) -> (World, ClientId, ClientId, ClientId) {
    let config = OverlayConfig {
        client_messages,
        slow,
        ..OverlayConfig::default()
    };
    let mut world = World::new(5, &TREE, &config, 1);
    let (slow, quick) = (world.member(3), world.member(4));
    world.asleep.push((3, slow));
    let sender = world.connect(0);
    world.run();
    for _ in 0..200 {
        world.send(0, sender, G);
        world.run();
    }
    (world, slow, quick, sender)
}

fn verdicts(world: &World) -> Vec<Verdict> {
    let verdict = |(_, event): &(usize, Event)| match event {
        Event::SlowMember { verdict, .. } => Some(*verdict),
        _ => None,
    };
    world.events.iter().filter_map(verdict).collect()
}

#[test]
fn senders_wait_for_a_slow_member_until_it_has_read() {
    let (mut world, slow, quick, sender) = slow_world(SlowPolicy::Block);
    // The window, the inbox, and the message that found the inbox full.
    let sent = CLIENT + 10 + 1;
    assert_eq!(world.ready[&(0, sender)], sent);
    assert_eq!(world.from(4, quick, 0).len() as u32, sent);
    assert_eq!(verdicts(&world), [Verdict::Blocked]);
    world.asleep.clear();
    world.say(3, slow, ClientFrame::Took { messages: CLIENT });
    world.run();
    assert_eq!(verdicts(&world), [Verdict::Blocked, Verdict::Resumed]);
    for _ in 0..100 {
        world.send(0, sender, G);
        world.run();
    }
    assert_eq!(world.from(3, slow, 0), world.from(4, quick, 0));
}

const CLIENT: u32 = crate::CLIENT_WINDOW;

#[test]
fn a_slow_member_misses_messages_under_the_drop_policy() {
    let (world, slow, quick, _) = slow_world(SlowPolicy::Drop);
    assert_eq!(world.from(4, quick, 0), Vec::from_iter(1..=200));
    assert_eq!(
        world.from(3, slow, 0),
        Vec::from_iter(1..=u64::from(CLIENT))
    );
    assert_eq!(verdicts(&world).len() as u32, 200 - CLIENT - 10);
}

#[test]
fn a_slow_member_is_evicted_when_its_time_is_over() {
    let patience = Duration::from_secs(5);
    let (mut world, _, quick, sender) = slow_world(SlowPolicy::Evict(patience));
    let waiting = world.ready[&(0, sender)];
    world.now = world.daemons[3].poll_timeout().unwrap();
    assert_eq!(world.now, Time::ZERO + patience);
    world.daemons[3].handle_timeout(world.now);
    world.drain(3);
    world.run();
    assert_eq!(verdicts(&world)[..2], [Verdict::Blocked, Verdict::Evicted]);
    assert_eq!(world.ready[&(0, sender)], waiting + 1);
    assert_eq!(world.from(4, quick, 0).len() as u32, waiting + 1);
}

/// The member reads now and then, so that the senders continue at its pace.
#[test]
fn a_slow_member_is_evicted_unless_it_catches_up() {
    let patience = Duration::from_secs(5);
    let (evict, stalled) = (
        SlowPolicy::Evict(patience),
        SlowPolicy::EvictStalled(patience),
    );
    for (policy, read, verdict) in [
        (evict, 8, Verdict::Evicted),
        (evict, CLIENT + 20, Verdict::Resumed),
        // One that reads slowly remains, and one that reads nothing does not.
        (stalled, 8, Verdict::Resumed),
        (stalled, 0, Verdict::Evicted),
    ] {
        let (mut world, slow, _, sender) = slow_world(policy);
        for _ in 0..60 {
            world.now += Duration::from_millis(100);
            if world.daemons[3]
                .poll_timeout()
                .is_some_and(|due| due <= world.now)
            {
                world.daemons[3].handle_timeout(world.now);
                world.drain(3);
            }
            world.say(3, slow, ClientFrame::Took { messages: read });
            world.run();
            for _ in 0..20 {
                world.send(0, sender, G);
                world.run();
            }
        }
        let is_evicted = verdicts(&world).contains(&Verdict::Evicted);
        assert_eq!(
            is_evicted,
            verdict == Verdict::Evicted,
            "{policy:?}, {read} messages read at a time"
        );
    }
}

#[test]
fn a_member_that_takes_a_message_now_and_then_stops_its_group_for_a_minute_at_most() {
    let patience = Duration::from_secs(10);
    let (mut world, slow, quick, sender) = slow_world_with(SlowPolicy::EvictStalled(patience), 100);
    let entered = world.ready[&(0, sender)];
    for _ in 0..29 {
        world.now += Duration::from_secs(2);
        world.daemons[3].handle_timeout(world.now);
        world.say(3, slow, ClientFrame::Took { messages: 1 });
        world.run();
    }
    assert_eq!(verdicts(&world), [Verdict::Blocked]);
    assert_eq!(world.ready[&(0, sender)], entered);
    world.now += Duration::from_secs(2);
    world.daemons[3].handle_timeout(world.now);
    world.drain(3);
    world.run();
    assert_eq!(verdicts(&world)[..2], [Verdict::Blocked, Verdict::Evicted]);
    assert_eq!(world.from(4, quick, 0).len() as u32, entered + 1);
}

/// Members join and leave while others send. Each member misses no message after its first.
#[test]
fn a_member_misses_no_message_after_its_first() {
    for seed in 0..200 {
        let ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)];
        let mut world = World::new(5, &ring, &OverlayConfig::default(), seed);
        let senders: Vec<_> = [0, 2, 4].map(|at| (at, world.connect(at))).into();
        let mut present: Vec<(usize, ClientId)> = Vec::new();
        for _ in 0..300 {
            match world.random.random_range(0..12) {
                0 => {
                    let at = world.random.random_range(0..5);
                    let client = world.member(at);
                    present.push((at, client));
                }
                1 if !present.is_empty() => {
                    let place = world.random.random_range(0..present.len());
                    let (at, client) = present.swap_remove(place);
                    world.say(at, client, ClientFrame::Leave(G));
                }
                2..6 => {
                    let (at, client) = senders[world.random.random_range(0..3)];
                    world.send(at, client, G);
                }
                _ => {
                    world.step();
                }
            }
        }
        world.run();
        for (&(at, client), read) in &world.read {
            for origin in [0, 2, 4] {
                let numbers = world.from(at, client, origin);
                let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
                assert!(
                    gap.is_none(),
                    "seed {seed}: {client:?} at {at} of {origin}: {gap:?} in {read:?}"
                );
                let last = world.daemons[origin].membership.last_sent(G).number();
                if present.contains(&(at, client)) && !numbers.is_empty() {
                    assert_eq!(
                        numbers.last(),
                        Some(&last),
                        "seed {seed}: {client:?} at {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn invalid_frames_from_daemons_are_ignored() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    world.member(0);
    let data = Data {
        group: G,
        version: 0,
        sequence: OriginSeq::MAX,
        sender: ClientId(9),
        sent_us: 0,
    };
    for origin in [0, 1, 9, u16::MAX] {
        let message = Message {
            origin: DaemonId(origin),
            copy: Default::default(),
            body: Body::Data(data),
        };
        for frame in [
            Frame::Direct(message),
            Frame::Datagram {
                number: LinkSeq(1),
                message,
            },
        ] {
            for from in [1, 3, 9] {
                world.daemons[0].handle_frame(
                    world.now,
                    DaemonId(from),
                    &frame,
                    Ecn::Marked,
                    Length(1),
                );
                world.drain(0);
            }
        }
    }
    assert!(world.read.is_empty());
}

/// A report concerns two daemons only: a third daemon would mistake it for a report on its own
/// messages.
#[test]
fn a_direct_message_is_not_forwarded() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    let report = Report {
        group: G,
        rate_bytes_per_s: 1,
        repaired: 0,
        acknowledged: Report::NONE,
        received_bytes: 0,
        held_us: 0,
    };
    let message = Message {
        origin: DaemonId(0),
        copy: Default::default(),
        body: Body::Control(Control::Report(report)),
    };
    let (now, direct) = (world.now, Frame::Direct(message));
    world.daemons[1].handle_frame(now, DaemonId(0), &direct, Ecn::NotCapable, Length(0));
    assert_eq!(world.daemons[1].poll_transmit(), None);
}

/// Models a socket buffer that was full and drains without a frame from the other end.
#[test]
fn waiting_messages_are_sent_when_a_socket_becomes_writable() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    let member = world.member(3);
    let sender = world.connect(0);
    world.run();
    world.set_room(0, 1, 0);
    (0..5).for_each(|_| world.send(0, sender, G));
    world.run();
    assert_eq!(world.from(3, member, 0), [0u64; 0]);
    world.set_room(0, 1, 4);
    world.daemons[0].handle_writable(world.now, DaemonId(4));
    world.run();
    assert_eq!(world.from(3, member, 0), [1, 2, 3, 4, 5]);
}

#[test]
fn clients_take_turns_when_there_is_room_for_one_message() {
    let config = OverlayConfig {
        queue_messages: 2,
        ..OverlayConfig::default()
    };
    let mut world = World::new(5, &TREE, &config, 1);
    world.member(3);
    let senders: Vec<_> = (0..5).map(|_| world.connect(0)).collect();
    world.run();
    world.set_room(0, 1, 0);
    for &client in &senders {
        world.send(0, client, G);
    }
    for _ in 0..50 {
        world.set_room(0, 1, 1);
        world.set_room(0, 1, 0);
        for &client in &senders {
            world.send(0, client, G);
        }
    }
    let taken: Vec<_> = senders.iter().map(|c| world.ready.get(&(0, *c))).collect();
    assert!(taken.iter().all(|n| n >= &Some(&8)), "{taken:?}");
}

#[test]
fn a_waiting_message_of_a_disconnected_client_never_enters() {
    let (mut world, slow, quick, sender) = slow_world(SlowPolicy::Block);
    let sent = world.ready[&(0, sender)];
    // The client is a slow member and also a sender. When it disconnects, other senders continue.
    world.send(3, slow, G);
    world.say(3, slow, ClientFrame::Disconnect);
    world.run();
    assert_eq!(world.ready.get(&(3, slow)), None);
    assert_eq!(world.from(4, quick, 3), [0u64; 0]);
    assert_eq!(world.ready[&(0, sender)], sent + 1);
}

#[test]
fn numbers_grow_after_a_group_without_members_is_forgotten() {
    let mut world = World::new(5, &TREE, &OverlayConfig::default(), 1);
    let sender = world.connect(0);
    let mut last = 0;
    for _ in 0..3 {
        let member = world.member(3);
        world.run();
        (0..10).for_each(|_| world.send(0, sender, G));
        world.run();
        let numbers = world.from(3, member, 0);
        assert_eq!(numbers, Vec::from_iter(last + 1..=last + 10));
        last += 10;
        world.say(3, member, ClientFrame::Disconnect);
        world.run();
        world.send(0, sender, G);
        let sizes: Vec<_> = world.daemons.iter().map(Daemon::state_size).collect();
        assert_eq!(sizes, [1, 0, 0, 0, 0], "only the sender's entry remains");
    }
}

#[test]
fn a_daemon_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Daemon<Length>>();
    is_send::<Daemon<Vec<u8>>>();
}
