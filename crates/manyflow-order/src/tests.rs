//! Daemons whose streams arrive at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::time::Time;
use manyflow_overlay::DaemonId;

use crate::wire::{Arrived, Record, State};
use crate::{Cause, ClientId, Event, OrderConfig, Orderer, Outgoing, Peer, Service, ViewId};

struct World {
    now: Time,
    daemons: Vec<Orderer>,
    sequences: Vec<u64>,
    /// Which daemons get the records of which: those of the same side.
    sides: Vec<u8>,
    wire: VecDeque<(usize, usize, u64, Bytes)>,
    seen: Vec<Vec<Event>>,
}

impl World {
    fn new(count: u16) -> World {
        World::with(count, &OrderConfig::default())
    }

    fn with(count: u16, config: &OrderConfig) -> World {
        let daemon = |id| Orderer::new(config.clone(), DaemonId(id), 1).unwrap();
        let count_all = usize::from(count);
        let mut world = World {
            now: Time::ZERO,
            daemons: (0..count).map(daemon).collect(),
            sequences: vec![0; count_all],
            sides: vec![0; count_all],
            wire: VecDeque::new(),
            seen: vec![Vec::new(); count_all],
        };
        world.split(&vec![0; count_all]);
        world
    }

    fn split(&mut self, sides: &[u8]) {
        self.sides = sides.to_vec();
        for index in 0..self.daemons.len() {
            let same = (0..sides.len()).filter(|other| sides[*other] == sides[index]);
            let peers: Vec<Peer> = same
                .map(|other| Peer {
                    daemon: DaemonId(other as u16),
                    incarnation: 1,
                })
                .collect();
            self.daemons[index].handle_peers(self.now, &peers);
            self.drain(index);
        }
    }

    fn drain(&mut self, index: usize) {
        while let Some(record) = self.daemons[index].poll_transmit() {
            self.enter(index, record);
        }
        while let Some(event) = self.daemons[index].poll_event() {
            self.seen[index].push(event);
        }
    }

    fn enter(&mut self, from: usize, record: Bytes) {
        self.sequences[from] += 1;
        let sequence = self.sequences[from];
        for to in 0..self.daemons.len() {
            if to != from && self.sides[to] == self.sides[from] {
                self.wire.push_back((from, to, sequence, record.clone()));
            }
        }
        self.daemons[from].handle_message(self.now, DaemonId(from as u16), sequence, record);
        self.drain(from);
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_micros(100);
            for _ in 0..self.wire.len() {
                let Some((from, to, sequence, record)) = self.wire.pop_front() else {
                    break;
                };
                let origin = DaemonId(from as u16);
                self.daemons[to].handle_message(self.now, origin, sequence, record);
                self.drain(to);
            }
            for index in 0..self.daemons.len() {
                self.daemons[index].handle_timeout(self.now);
                self.drain(index);
            }
        }
    }

    fn send(&mut self, from: usize, client: ClientId, service: Service, payload: &[u8]) {
        let message = Outgoing {
            service,
            groups: &["g"],
            kind: 0,
            self_discard: false,
            payload,
        };
        assert!(self.daemons[from].is_open());
        let record = self.daemons[from].message(client, &message).unwrap();
        let parts: Vec<Bytes> = self.daemons[from].parts(client, &record).collect();
        parts.into_iter().for_each(|part| self.enter(from, part));
    }

    fn connect(&mut self, index: usize) -> ClientId {
        let daemon = &mut self.daemons[index];
        let client = daemon.connect(self.now, &format!("#c#{index}")).unwrap();
        daemon.join(self.now, client, "g").unwrap();
        self.drain(index);
        client
    }

    fn messages(&self, index: usize) -> Vec<&[u8]> {
        let events = self.seen[index].iter();
        let payloads = events.filter_map(|event| match event {
            Event::Delivered(delivery) => Some(&delivery.payload[..]),
            _ => None,
        });
        payloads.collect()
    }
}

#[test]
fn a_daemon_alone_delivers_at_once() {
    let mut world = World::new(1);
    let client = world.connect(0);
    for service in Service::ALL {
        world.send(0, client, service, service.to_string().as_bytes());
    }
    let names = Service::ALL.map(|service| service.to_string());
    assert!(
        world.messages(0).iter().eq(names
            .iter()
            .map(|name| name.as_bytes())
            .collect::<Vec<_>>()
            .iter())
    );
    assert!(matches!(world.seen[0][0], Event::View(_)));
    assert!(world.daemons[0].poll_timeout().is_none());
}

#[test]
fn three_daemons_deliver_agreed_and_safe_messages_in_one_order() {
    let mut world = World::new(3);
    world.run(Duration::from_millis(10));
    let clients: Vec<ClientId> = (0..3).map(|index| world.connect(index)).collect();
    world.run(Duration::from_millis(10));
    for round in 0..20_u8 {
        for (index, client) in clients.iter().enumerate() {
            let service = [Service::Agreed, Service::Safe][usize::from(round) % 2];
            world.send(index, *client, service, &[index as u8, round]);
        }
        world.run(Duration::from_micros(300));
    }
    world.run(Duration::from_millis(10));
    let first = world.messages(0);
    assert_eq!(first.len(), 60);
    assert_eq!(first, world.messages(1));
    assert_eq!(first, world.messages(2));
    world.run(Duration::from_secs(1));
    assert!(world.daemons.iter().all(|daemon| daemon.state_size() < 20));
    let timers = world.daemons.iter().filter_map(Orderer::poll_timeout);
    assert_eq!(
        timers.count(),
        0,
        "an overlay without messages has no marks"
    );
}

#[test]
fn both_sides_of_a_partition_see_the_signal_and_a_view() {
    let mut world = World::new(3);
    world.run(Duration::from_millis(10));
    let clients: Vec<ClientId> = (0..3).map(|index| world.connect(index)).collect();
    world.run(Duration::from_millis(10));
    world.seen.iter_mut().for_each(Vec::clear);
    world.send(0, clients[0], Service::Safe, b"lost for 2");
    world.split(&[0, 0, 1]);
    world.run(Duration::from_millis(10));
    let last = |world: &World, index: usize| match world.seen[index].last() {
        Some(Event::View(view)) => (view.members.len(), view.stayed.len(), view.cause.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(last(&world, 0), (2, 2, Cause::Network));
    assert_eq!(last(&world, 1), (2, 2, Cause::Network));
    assert_eq!(last(&world, 2), (1, 1, Cause::Network));
    assert!(matches!(world.seen[0][0], Event::Transitional { .. }));
    assert_eq!(world.messages(0), [b"lost for 2"]);
    assert_eq!(world.messages(1), [b"lost for 2"]);
    world.split(&[0, 0, 0]);
    world.run(Duration::from_millis(10));
    assert_eq!(last(&world, 0), (3, 2, Cause::Network));
    assert_eq!(last(&world, 2), (3, 1, Cause::Network));
    let view = |index: usize| match world.seen[index].last() {
        Some(Event::View(view)) => (view.id, Arc::clone(&view.members)),
        other => panic!("{other:?}"),
    };
    assert_eq!(view(0), view(1));
    assert_eq!(view(0), view(2));
}

#[test]
fn long_messages_and_states_are_sent_in_parts() {
    let config = OrderConfig {
        record_bytes: 256,
        ..OrderConfig::default()
    };
    let mut world = World::with(3, &config);
    let clients: Vec<ClientId> = (0..3).map(|index| world.connect(index)).collect();
    world.run(Duration::from_millis(10));
    for (index, client) in clients.iter().enumerate() {
        let payload = vec![index as u8; 1000 * index];
        world.send(index, *client, Service::Safe, &payload);
    }
    world.run(Duration::from_millis(10));
    let lengths: Vec<usize> = world.messages(0).iter().map(|m| m.len()).collect();
    assert_eq!(lengths, [0, 1000, 2000]);
    assert_eq!(world.messages(0), world.messages(1));
    assert_eq!(world.messages(0), world.messages(2));
}

#[test]
fn records_that_no_daemon_sends_stop_nobody() {
    let mut world = World::new(2);
    world.run(Duration::from_millis(10));
    let client = world.connect(0);
    world.run(Duration::from_millis(10));
    let arrived = Arrived {
        next: 0,
        sound: u64::MAX,
        is_cut: true,
        is_complete: true,
    };
    let state = |attempt, first| {
        Record::State(State {
            incarnation: 1,
            attempt,
            first,
            previous: world.daemons[0].view().0,
            peers: world.daemons[0].view().1.collect(),
            arrived: vec![arrived; 2],
            ..State::default()
        })
    };
    let lies = [
        Record::Mark {
            round: u64::MAX,
            received: u64::MAX,
        },
        state(u32::MAX, 0),
        state(9, 1),
        Record::Ready {
            view: ViewId::default(),
        },
    ];
    let lies = lies.map(|record| record.encode());
    for lie in lies {
        world.enter(1, lie);
        world.run(Duration::from_millis(10));
    }
    // Once the liar can no longer be reached, the other one goes on.
    world.split(&[0, 1]);
    world.run(Duration::from_millis(10));
    world.send(0, client, Service::Safe, b"goes on");
    assert_eq!(world.messages(0), [b"goes on"]);
}

impl World {
    /// Delivers records without letting time pass, until none is left. Those for which `holds`
    /// returns true, and all behind them on the same way, remain.
    fn deliver(&mut self, holds: impl Fn(usize, usize, &Record<'_>) -> bool) {
        let mut kept = VecDeque::new();
        while let Some((from, to, sequence, record)) = self.wire.pop_front() {
            let is_behind = kept.iter().any(|(a, b, _, _)| (*a, *b) == (from, to));
            if is_behind || Record::decode(&record).is_some_and(|record| holds(from, to, &record)) {
                kept.push_back((from, to, sequence, record));
                continue;
            }
            let origin = DaemonId(from as u16);
            self.daemons[to].handle_message(self.now, origin, sequence, record);
            self.drain(to);
        }
        self.wire = kept;
    }

    fn views(&self) -> Vec<ViewId> {
        self.daemons.iter().map(|daemon| daemon.view().0).collect()
    }
}

/// Returns a world with two views, of daemons 0 and 1 and of daemon 2, which can then merge.
fn two_views() -> World {
    let mut world = World::new(3);
    for index in 0..3 {
        world.connect(index);
    }
    world.split(&[0, 0, 1]);
    world.run(Duration::from_millis(300));
    world.split(&[0, 0, 0]);
    world
}

/// Daemon 2 enters a view that the others are ready for, but do not enter, because daemon 1 begins
/// again. Daemon 2 then needs a new state of daemon 0 as well.
#[test]
fn a_daemon_gives_a_state_again_to_one_that_has_entered_a_view_on_the_last() {
    let mut world = two_views();
    world.deliver(|_, _, _| false);
    let next = world.views()[2];
    let mut world = two_views();
    world.deliver(|_, to, record| {
        to != 2 && matches!(record, Record::Ready { view } if *view == next)
    });
    let entered: Vec<bool> = world.views().iter().map(|view| *view == next).collect();
    assert_eq!(entered, [false, false, true]);
    world.now += OrderConfig::default().retry * 2;
    world.daemons[1].handle_timeout(world.now);
    world.drain(1);
    world.deliver(|from, _, _| from != 1);
    world.deliver(|_, _, _| false);
    let views = world.views();
    assert!(views.iter().all(|view| *view == views[0]), "{views:?}");
    assert_eq!(world.daemons[0].view().1.count(), 3);
}
