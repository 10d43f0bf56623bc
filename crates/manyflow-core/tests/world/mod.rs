//! A world of one sender and one receiver: joins travel up with the link's delay, packets of joined channels come down
//! through a [`Link`]. Small enough to read at a glance; the simulator is for everything larger.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::webrc::{Receiver, ReceiverConfig, Sender, Session, SessionConfig};
use manyflow_core::{Action, Destination, Endpoint, Event, Header, Packet, Time};

pub(crate) struct World {
    pub(crate) now: Time,
    sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) link: Link<Packet>,
    joined: BTreeSet<u16>,
    /// Joins and leaves on their way up, with the time at which they take effect.
    upstream: VecDeque<(Time, Action)>,
    pub(crate) events: Vec<(Time, Event)>,
    /// Payload bytes that arrived, header included.
    pub(crate) received_bytes: u64,
    /// Joins of waves get lost on their way.
    pub(crate) lose_wave_joins: bool,
    /// All packets claim the first time slot.
    pub(crate) hold_time_slot: bool,
}

impl World {
    pub(crate) fn new(
        session: SessionConfig,
        config: ReceiverConfig,
        link: LinkConfig,
        seed: u64,
    ) -> World {
        let session = Session::new(session).expect("a valid session");
        // The receiver comes at a point of the slot that the seed decides.
        let start = Time::ZERO
            + session
                .config()
                .time_slot
                .mul_f64((seed * 37 % 100) as f64 / 100.0);
        World {
            now: Time::ZERO,
            sender: Sender::new(session.clone(), 1, Time::ZERO),
            receiver: Receiver::new(Arc::new(session), Arc::new(config), 1, start)
                .expect("a valid receiver"),
            link: Link::new(link, seed),
            joined: BTreeSet::new(),
            upstream: VecDeque::new(),
            events: Vec::new(),
            received_bytes: 0,
            lose_wave_joins: false,
            hold_time_slot: false,
        }
    }

    pub(crate) fn base_channel(&self) -> u16 {
        self.sender.session().wave_channels() as u16
    }

    pub(crate) fn joined_channels(&self) -> usize {
        self.joined.len()
    }

    /// Runs until `end`.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Time> {
        let upstream = self.upstream.front().map(|(time, _)| *time);
        let ends = [
            self.sender.poll_timeout(),
            self.receiver.poll_timeout(),
            self.link.next_time(),
            upstream,
        ];
        ends.into_iter().flatten().min()
    }

    fn step(&mut self) {
        let now = self.now;
        while self.upstream.front().is_some_and(|(time, _)| *time <= now) {
            match self.upstream.pop_front().expect("there is a front").1 {
                Action::Join(channel)
                    if self.lose_wave_joins && channel.number != self.base_channel() =>
                {
                    false
                }
                Action::Join(channel) => self.joined.insert(channel.number),
                Action::Leave(channel) => self.joined.remove(&channel.number),
                Action::Send(_) => unreachable!("receivers send no packets"),
            };
        }
        self.sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = self.sender.poll_action(now) {
            if matches!(packet.destination, Destination::Channel(channel) if self.joined.contains(&channel.number))
            {
                let _ = self.link.push(now, packet, packet.wire_bytes());
            }
        }
        while let Some(mut packet) = self.link.pop_ready(now) {
            if let Header::Webrc(cci) = &mut packet.header
                && self.hold_time_slot
            {
                cci.ctsi = 0;
            }
            self.received_bytes += u64::from(packet.wire_bytes());
            self.receiver.handle_packet(now, &packet);
            self.drain_receiver();
        }
        self.receiver.handle_timeout(now);
        self.drain_receiver();
    }

    fn drain_receiver(&mut self) {
        let delay = self.link.config().delay;
        while let Some(action) = self.receiver.poll_action(self.now) {
            self.upstream.push_back((self.now + delay, action));
        }
        while let Some(event) = self.receiver.poll_event() {
            self.events.push((self.now, event));
        }
    }
}
