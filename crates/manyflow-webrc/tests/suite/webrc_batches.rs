//! Sender and receiver without a network between them, driven as on real computers: packets leave
//! and arrive in batches, channel by channel, and processes wait for a processor.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Destination, Endpoint, Packet};
use manyflow_webrc::{Cci, Event, Receiver, ReceiverConfig, Sender, Session, SessionConfig};

const TICK: Duration = Duration::from_millis(1);

struct World {
    now: Time,
    sender: Sender,
    receiver: Receiver,
    joined: BTreeSet<u16>,
    /// Packets on joined channels that the receiver has not taken.
    waiting: Vec<Packet<Cci>>,
    sent: u64,
    is_starting_up: bool,
}

impl World {
    fn new(rate: Rate) -> World {
        let session = Session::new(SessionConfig::lan(rate)).unwrap();
        let config = Arc::new(ReceiverConfig::live());
        let receiver = Receiver::new(Arc::new(session.clone()), config, 0, Time::ZERO).unwrap();
        World {
            now: Time::ZERO,
            sender: Sender::new(session, 0, Time::ZERO),
            receiver,
            joined: BTreeSet::new(),
            waiting: Vec::new(),
            sent: 0,
            is_starting_up: true,
        }
    }

    /// Passes a millisecond. Without `receives`, the receiver waits for its processor.
    fn tick(&mut self, sends: bool, receives: bool) {
        self.now += TICK;
        if sends {
            self.send();
        }
        if !receives {
            return;
        }
        self.act();
        // As sockets return them: those of one channel after those of another.
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|packet| packet.header.channel);
        for packet in &waiting {
            self.receiver.handle_packet(self.now, packet);
        }
        self.act();
    }

    fn send(&mut self) {
        self.sender.handle_timeout(self.now);
        while let Some(Action::Send(packet)) = self.sender.poll_action(self.now) {
            self.sent += 1;
            let Destination::Channel(channel) = packet.destination else {
                panic!("sessions are multicast")
            };
            if self.joined.contains(&channel.number) {
                self.waiting.push(packet);
            }
        }
    }

    fn act(&mut self) {
        if self
            .receiver
            .poll_timeout()
            .is_some_and(|due| due <= self.now)
        {
            self.receiver.handle_timeout(self.now);
        }
        while let Some(action) = self.receiver.poll_action(self.now) {
            match action {
                Action::Join(channel) => self.joined.insert(channel.number),
                Action::Leave(channel) => self.joined.remove(&channel.number),
                Action::Send(never) => match never.header {},
            };
        }
        while let Some(event) = self.receiver.poll_event() {
            self.is_starting_up &= !matches!(event, Event::SlowStartEnded(_));
        }
    }

    fn received(&self) -> u64 {
        self.receiver.status().unwrap().packets_received
    }

    fn run(&mut self, ticks: u32) {
        (0..ticks).for_each(|_| self.tick(true, true));
    }

    /// Runs until start-up is over.
    fn start_up(&mut self) {
        let ended = (0..10_000).any(|_| {
            self.tick(true, true);
            !self.is_starting_up
        });
        assert!(ended, "start-up does not end: {:?}", self.receiver.status());
    }
}

fn gigabit() -> World {
    World::new(Rate::from_bits_per_s(1_000_000_000))
}

#[test]
fn packets_that_have_waited_are_neither_refused_nor_lost() {
    let mut world = gigabit();
    world.start_up();
    for pause in [5, 20, 80] {
        for is_sender in [false, true] {
            (0..pause).for_each(|_| world.tick(!is_sender, is_sender));
            world.run(300);
            let status = world.receiver.status().unwrap();
            assert_eq!(status.refused.total(), 0, "a pause of {pause} ms");
            assert_eq!(status.packets_lost, 0, "a pause of {pause} ms");
        }
    }
}

#[test]
fn a_receiver_of_the_whole_session_misses_no_packet() {
    let mut world = gigabit();
    world.start_up();
    // Up to the next time slot, whose wave is the first to be joined early.
    world.run(1_200);
    let (sent, received) = (world.sent, world.received());
    world.run(5_000);
    let (sent, received) = (world.sent - sent, world.received() - received);
    assert!(sent > 5 * 85_000, "{sent} packets in 5 s");
    assert_eq!(received, sent);
}
