//! Packets that the sender did not send. A receiver refuses those that the sender cannot have sent
//! yet, and its rate control goes on as without them.

mod fast;

use crate::world;

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::time::seconds;
use manyflow_core::{Channel, Destination, Endpoint, Packet, Rate, Time};
use manyflow_netsim::Probe;
use manyflow_webrc::{
    Cci, CciFormat, Event, Receiver, ReceiverConfig, Refusals, Sender, Session, SessionConfig,
};
use proptest::prelude::*;
use world::delay;

manyflow_netsim::protocols! {
    enum Packets;
    enum Events;
    /// WEBRC, whose sender receives nothing and whose receivers send nothing.
    Webrc: Cci, Event;
}

type World = world::World<Packets, Events, Sender, Receiver>;

const FORMATS: [CciFormat; 2] = [CciFormat::Short, CciFormat::Long];

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// The session of the tests, for local networks.
fn session(format: CciFormat) -> Session {
    let config = SessionConfig::lan(rate("20 Mbit/s"));
    let cci_format = Some(format);
    Session::new(SessionConfig {
        cci_format,
        ..config
    })
    .expect("a valid session")
}

/// A session with one receiver behind a link, which joins after 1.4 s.
fn world_of(session: &Session, link: LinkConfig) -> World {
    world_with(session, link, ReceiverConfig::default())
}

/// A session with one receiver at 4 Mbit/s, on a path that loses nothing.
fn lossless(session: &Session) -> World {
    let limited = ReceiverConfig {
        maximum_rate: Some(rate("4 Mbit/s")),
        ..ReceiverConfig::default()
    };
    world_with(session, delay(Duration::from_millis(10)), limited)
}

fn world_with(session: &Session, link: LinkConfig, config: ReceiverConfig) -> World {
    let mut world = World::new(Sender::new(session.clone(), 0, Time::ZERO), 1);
    let start = Time::ZERO + seconds(1.4);
    let receiver = Receiver::new(Arc::new(session.clone()), Arc::new(config), 0, start);
    let up = delay(link.delay);
    world.branch(link, up, [receiver.expect("a valid receiver")]);
    world
}

fn bottleneck() -> LinkConfig {
    LinkConfig {
        rate: Some(rate("4 Mbit/s")),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Packets(40),
        ..LinkConfig::default()
    }
}

fn only(world: &World) -> &Probe<Receiver> {
    world.member(0)
}

fn refused(world: &World) -> Refusals {
    only(world).get().refused()
}

/// Returns a packet with another header, which comes by the header's channel.
fn with_header(packet: &Packet<Cci>, header: Cci) -> Packet<Cci> {
    let channel = Channel {
        session: 0,
        number: header.channel,
    };
    let mut forged = packet.clone();
    (forged.header, forged.destination) = (header, Destination::Channel(channel));
    forged
}

/// Adds one forged packet per `interval` from second 10 on. `forge` makes it from a genuine packet,
/// which arrives just after the forged one.
fn forge(
    world: &World,
    interval: Duration,
    mut forge: impl FnMut(&Packet<Cci>) -> Option<Packet<Cci>> + Send + 'static,
) {
    let mut next = Time::ZERO + secs(10);
    only(world).on_packet(move |receiver, now, packet| {
        if now >= next
            && let Some(forged) = forge(packet)
        {
            next = now + interval;
            receiver.handle_packet(now, &forged);
        }
        receiver.handle_packet(now, packet);
    });
}

/// The state of a receiver that an attack could change.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    events: Vec<(Time, Event)>,
    received: u64,
    lost: u64,
}

fn outcome(world: &World) -> Outcome {
    let status = only(world).get().status().expect("the receiver runs");
    Outcome {
        events: only(world).events(),
        received: status.packets_received,
        lost: status.packets_lost,
    }
}

/// Returns the outcome of fifty seconds without an attack.
fn undisturbed(format: CciFormat) -> Outcome {
    let mut world = world_of(&session(format), bottleneck());
    world.run_until(secs(50));
    assert_eq!(refused(&world), Refusals::default());
    outcome(&world)
}

#[test]
fn time_slots_ahead_of_the_clock_are_refused() {
    for format in FORMATS {
        let session = session(format);
        let t = session.wave_channels() as u16;
        let alone = undisturbed(format);
        // An index that is behind by up to ten slots can be that of a late packet.
        for slots in 2..t - 12 {
            let mut world = world_of(&session, bottleneck());
            forge(&world, secs(1), move |packet| {
                let ctsi = (packet.header.ctsi + slots) % t;
                Some(with_header(
                    packet,
                    Cci {
                        ctsi,
                        ..packet.header
                    },
                ))
            });
            world.run_until(secs(50));
            assert_eq!(outcome(&world), alone, "{slots} slots");
            let refused = refused(&world);
            assert_eq!(refused.total(), refused.time_slot);
            assert!((38..=40).contains(&refused.time_slot), "{refused:?}");
        }
    }
}

/// The index of the next slot, sent early, does not begin the slot: waves would be left too early,
/// and their last packets would count as lost.
#[test]
fn the_next_time_slot_does_not_begin_early() {
    for format in FORMATS {
        let session = session(format);
        let t = session.wave_channels() as u16;
        let mut world = lossless(&session);
        forge(&world, Duration::from_millis(50), move |packet| {
            let ctsi = (packet.header.ctsi + 1) % t;
            Some(with_header(
                packet,
                Cci {
                    ctsi,
                    ..packet.header
                },
            ))
        });
        world.run_until(secs(50));
        assert_eq!(outcome(&world).lost, 0);
        assert!(refused(&world).time_slot > 300, "{:?}", refused(&world));
    }
}

#[test]
fn packets_that_came_by_another_channel_are_refused() {
    for format in FORMATS {
        let mut world = world_of(&session(format), bottleneck());
        forge(&world, secs(1), |packet| {
            let mut forged = packet.clone();
            forged.header.channel = (forged.header.channel + 1) % 20;
            Some(forged)
        });
        world.run_until(secs(50));
        assert_eq!(outcome(&world), undisturbed(format));
        assert!((38..=40).contains(&refused(&world).channel));
    }
}

/// Forges sequence numbers that leave a gap of `gap` packets, on the base channel or on waves.
fn forge_gaps(world: &World, session: &Session, gap: u64, of_base: bool) {
    let base = session.wave_channels() as u16;
    let numbers = if of_base {
        session.base_sequence_numbers()
    } else {
        session.cci_format().sequence_numbers()
    };
    forge(world, secs(1), move |packet| {
        let psn = ((u64::from(packet.header.psn) + gap) % numbers) as u32;
        let header = Cci {
            psn,
            ..packet.header
        };
        let is_base = packet.header.channel == base;
        (is_base == of_base).then(|| with_header(packet, header))
    });
}

const GAPS: [(u64, bool); 10] = [
    (1, true),
    (3, true),
    (40, true),
    (30_000, true),
    (1, false),
    (5, false),
    (40, false),
    (63, false),
    (200, false),
    (30_000, false),
];

#[test]
fn forty_forged_gaps_in_forty_seconds_count_as_no_loss() {
    for format in FORMATS {
        let session = session(format);
        let mut alone = lossless(&session);
        alone.run_until(secs(50));
        let alone = outcome(&alone);
        assert_eq!(alone.lost, 0);
        for (gap, of_base) in GAPS {
            let mut world = lossless(&session);
            forge_gaps(&world, &session, gap, of_base);
            world.run_until(secs(50));
            let outcome = outcome(&world);
            assert_eq!(outcome.lost, 0, "{gap} {of_base}");
            assert!(
                alone.received.abs_diff(outcome.received) <= 40,
                "{gap} {of_base}: {} of {}",
                outcome.received,
                alone.received
            );
        }
    }
}

#[test]
fn gaps_that_time_does_not_allow_are_refused() {
    for format in FORMATS {
        let session = session(format);
        let alone = undisturbed(format);
        for (gap, of_base) in [(40, true), (30_000, true), (200, false), (30_000, false)] {
            let mut world = world_of(&session, bottleneck());
            forge_gaps(&world, &session, gap, of_base);
            world.run_until(secs(50));
            assert_eq!(outcome(&world), alone, "{gap} {of_base}");
            let refused = refused(&world);
            assert_eq!(refused.total(), refused.time_slot + refused.sequence_number);
            assert!((35..=40).contains(&refused.total()), "{refused:?}");
        }
    }
}

/// Returns the rate in bits per second, averaged over 20 s from `start` on.
fn rate_from(world: &mut World, start: Duration) -> f64 {
    world.run_until(start);
    world.measure(0, secs(20))
}

#[test]
fn a_forged_first_packet_does_not_lock_the_receiver_out() {
    for format in FORMATS {
        let session = session(format);
        let (t, per_slot) = (
            session.wave_channels() as u16,
            session.base_packets_per_slot(),
        );
        for (slots, packets) in [
            (0, 1_000),
            (5, 0),
            (3, 3 * per_slot),
            (9, 9 * per_slot),
            (t - 3, 0),
            (t - 3, 60_000),
            (12, 12 * per_slot),
        ] {
            let mut world = world_of(&session, bottleneck());
            let numbers = session.base_sequence_numbers();
            let mut is_first = true;
            only(&world).on_packet(move |receiver, now, packet| {
                if is_first {
                    is_first = false;
                    let header = packet.header;
                    let ctsi = (header.ctsi + slots) % t;
                    let psn = (u64::from(header.psn + packets) % numbers) as u32;
                    receiver.handle_packet(
                        now,
                        &with_header(
                            packet,
                            Cci {
                                ctsi,
                                psn,
                                ..header
                            },
                        ),
                    );
                }
                receiver.handle_packet(now, packet);
            });
            world.run_until(secs(5));
            assert_eq!(
                only(&world).count(&Event::StartedOver),
                1,
                "{slots} {packets}"
            );
            let before = refused(&world).total();
            let used = rate_from(&mut world, secs(15)) / 4e6;
            assert!(used > 0.8, "{slots} {packets}: {used}");
            assert_eq!(refused(&world).total(), before);
            assert_eq!(only(&world).count(&Event::StartedOver), 1);
        }
    }
}

/// An attacker that goes on with the timeline of its forged first packet, at less than the base
/// channel's rate.
#[test]
fn a_minority_of_forged_packets_cannot_keep_its_timeline() {
    let session = session(CciFormat::Short);
    let t = session.wave_channels() as u16;
    let per_slot = session.base_packets_per_slot();
    let mut world = world_of(&session, bottleneck());
    let mut count = 0;
    only(&world).on_packet(move |receiver, now, packet| {
        if packet.header.channel == t {
            count += 1;
            if count % 2 == 1 {
                let header = packet.header;
                let ctsi = (header.ctsi + 5) % t;
                let psn = header.psn + 5 * per_slot;
                receiver.handle_packet(
                    now,
                    &with_header(
                        packet,
                        Cci {
                            ctsi,
                            psn,
                            ..header
                        },
                    ),
                );
            }
        }
        receiver.handle_packet(now, packet);
    });
    let used = rate_from(&mut world, secs(20)) / 4e6;
    assert!(used > 0.8, "{used}");
    assert_eq!(only(&world).count(&Event::StartedOver), 1);
}

/// How an attacker chooses the number and the time slot index of a forged packet: from those of the
/// next packet of the base channel, and the count of forged packets.
type Forgery = fn(&Session, Cci, u64) -> (u64, u16);

/// Attackers that send five times the rate of the base channel, from before its first packet on.
const FLOODS: [(&str, Forgery); 6] = [
    ("one packet again and again", |_, _, _| (0, 0)),
    ("numbers at random", |_, _, count| {
        (count * 7_919 % 60_000, (count * 31 % 17) as u16)
    }),
    ("the sender's packets, 3 slots ahead", |session, cci, _| {
        let psn = cci.psn + 3 * session.base_packets_per_slot();
        (psn.into(), cci.ctsi + 3)
    }),
    ("the sender's packets, 9 slots behind", |session, cci, _| {
        let numbers = session.base_sequence_numbers();
        let behind = u64::from(9 * session.base_packets_per_slot());
        let t = session.wave_channels() as u16;
        (u64::from(cci.psn) + numbers - behind, cci.ctsi + t - 9)
    }),
    (
        "the sender's packets with old numbers",
        |session, cci, _| {
            (
                u64::from(cci.psn) + session.base_sequence_numbers() - 40,
                cci.ctsi,
            )
        },
    ),
    ("the packet before", |session, cci, _| {
        (
            u64::from(cci.psn) + session.base_sequence_numbers() - 1,
            cci.ctsi,
        )
    }),
];

#[test]
fn forged_packets_before_the_first_do_not_delay_a_receiver_by_more_than_seconds() {
    for format in FORMATS {
        let session = session(format);
        let t = session.wave_channels() as u16;
        let numbers = session.base_sequence_numbers();
        let alone = {
            let mut world = world_of(&session, bottleneck());
            world.run_until(secs(15));
            outcome(&world).received
        };
        for (label, forgery) in FLOODS {
            let mut world = world_of(&session, bottleneck());
            let session = session.clone();
            let mut count = 0;
            only(&world).on_packet(move |receiver, now, packet| {
                let header = packet.header;
                for _ in 0..5 * u64::from(header.channel == t) {
                    let (psn, ctsi) = forgery(&session, header, count);
                    count += 1;
                    let forged = Cci {
                        psn: (psn % numbers) as u32,
                        ctsi: ctsi % t,
                        ..header
                    };
                    receiver.handle_packet(now, &with_header(packet, forged));
                }
                receiver.handle_packet(now, packet);
            });
            world.run_until(secs(15));
            let Outcome { received, .. } = outcome(&world);
            println!(
                "{label}: {received} of {alone}, {:?}",
                only(&world).get().status()
            );
            assert!(received * 10 > alone * 6, "{label}: {received} of {alone}");
        }
    }
}

/// An attacker that sends ten times the base channel's rate in a timeline of its own.
#[test]
fn an_established_timeline_remains_while_its_packets_arrive() {
    let session = session(CciFormat::Short);
    let t = session.wave_channels() as u16;
    let per_slot = session.base_packets_per_slot();
    let mut world = world_of(&session, bottleneck());
    let mut first = None;
    only(&world).on_packet(move |receiver, now, packet| {
        if packet.header.channel == t && now > Time::ZERO + secs(10) {
            let header = packet.header;
            first.get_or_insert(now);
            let ctsi = (header.ctsi + 5) % t;
            let psn = header.psn + 5 * per_slot;
            for _ in 0..10 {
                receiver.handle_packet(
                    now,
                    &with_header(
                        packet,
                        Cci {
                            ctsi,
                            psn,
                            ..header
                        },
                    ),
                );
            }
        }
        receiver.handle_packet(now, packet);
    });
    world.run_until(secs(50));
    assert_eq!(outcome(&world), undisturbed(CciFormat::Short));
    assert!(refused(&world).total() > 1_000, "{:?}", refused(&world));
}

#[test]
fn a_receiver_follows_a_restarted_sender() {
    for format in FORMATS {
        let session = session(format);
        let mut instants: Vec<f64> = (0..10).map(|i| 15.0 + 3.3 * f64::from(i)).collect();
        instants.push(100.0);
        for instant in instants {
            let mut world = world_of(&session, bottleneck());
            world.run_until(seconds(instant));
            let now = world.network.now();
            *world.sender.get() = Sender::new(session.clone(), 0, now);
            world.network.wake(world.sender.id(), &mut ());
            // If the new time slots look like late ones, the old waves overload the bottleneck, and
            // packets of the base channel are rare.
            world.run_until(seconds(instant + 10.0));
            assert_eq!(only(&world).count(&Event::StartedOver), 1, "{instant}");
            let used = rate_from(&mut world, seconds(instant + 20.0)) / 4e6;
            assert!(used > 0.8, "{instant}: {used}");
            let ended = |(_, event): &(Time, Event)| matches!(event, Event::Ended(_));
            assert!(!only(&world).events().iter().any(ended));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// No packet of the sender is refused, on any path.
    #[test]
    fn genuine_packets_are_never_refused(
        kbit in 100u64..20_000,
        queue in 2u32..400,
        delay_ms in 0u64..500,
        jitter_ms in 0u64..100,
        loss in 0.0..0.2,
        wan: bool,
        long: bool,
        outage in prop::option::of(0u64..9_000),
        pause in 0u64..5_000,
        seed: u64,
    ) {
        let link = LinkConfig {
            rate: Some(Rate::from_bits_per_s(kbit * 1000)),
            queue: QueueLimit::Packets(queue),
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::from_millis(jitter_ms),
            loss: LossModel::Bernoulli(loss),
            ..LinkConfig::default()
        };
        let config = SessionConfig::lan(rate("20 Mbit/s"));
        let config = if wan { SessionConfig::wan(config.session_rate) } else { config };
        let cci_format = long.then_some(CciFormat::Long);
        let session = Session::new(SessionConfig { cci_format, ..config }).unwrap();
        let mut world = World::new(Sender::new(session.clone(), 0, Time::ZERO), seed);
        let start = Time::ZERO + Duration::from_millis(seed % 20_000);
        let receiver = Receiver::new(Arc::new(session), Arc::default(), 0, start).unwrap();
        world.branch(link.clone(), delay(link.delay), [receiver]);
        if let Some(outage) = outage {
            world.run_until(secs(40));
            world.set_cut(0, true);
            world.run_until(secs(40) + Duration::from_millis(outage));
            world.set_cut(0, false);
        }
        world.run_until(secs(60) + Duration::from_millis(pause));
        prop_assert_eq!(refused(&world), Refusals::default());
        prop_assert_eq!(only(&world).count(&Event::StartedOver), 0);
    }
}
