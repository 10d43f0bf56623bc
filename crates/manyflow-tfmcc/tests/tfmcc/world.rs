//! A small world: one sender, and receivers with a link each way. The simulator runs larger ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig, LossModel};
use manyflow_core::{Action, Endpoint, EndpointId, Packet, Time};
use manyflow_tfmcc::{Event, Message, Receiver, ReceiverConfig, ReceiverId, Sender, SenderConfig};

/// Where receivers send their feedback.
pub(crate) const SENDER: EndpointId = EndpointId(0);

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) sender: Sender,
    pub(crate) members: Vec<Member>,
    /// The next time of each member. Entries that differ from the member's `due` are outdated.
    queue: BinaryHeap<Reverse<(Time, usize)>>,
    pub(crate) events: Vec<(Time, Event)>,
}

/// A receiver and its links.
pub(crate) struct Member {
    pub(crate) receiver: Receiver,
    pub(crate) down: Link<Packet<Message>>,
    pub(crate) up: Link<Packet<Message>>,
    pub(crate) is_joined: bool,
    pub(crate) received_bytes: u64,
    pub(crate) events: Vec<(Time, Event)>,
    due: Time,
}

/// A link that only delays and loses.
pub(crate) fn lossy(delay: Duration, loss: f64) -> LinkConfig {
    LinkConfig {
        delay,
        loss: LossModel::Bernoulli(loss),
        ..LinkConfig::default()
    }
}

pub(crate) fn sender(config: SenderConfig) -> Sender {
    Sender::new(config, 1, Time::ZERO, None).unwrap()
}

/// A receiver of the session. Its number is also its seed.
pub(crate) fn receiver(number: u32, start: Duration, stop: Option<Duration>) -> Receiver {
    let (id, stop) = (ReceiverId(number), stop.map(|stop| Time::ZERO + stop));
    let (config, start) = (ReceiverConfig::default(), Time::ZERO + start);
    Receiver::new(config, 1, id, SENDER, u64::from(number), start, stop).unwrap()
}

impl World {
    pub(crate) fn new(sender: Sender) -> World {
        World {
            now: Time::ZERO,
            sender,
            members: Vec::new(),
            queue: BinaryHeap::new(),
            events: Vec::new(),
        }
    }

    /// Adds a receiver and its links, whose seeds follow from its place among the members.
    pub(crate) fn add(&mut self, receiver: Receiver, down: LinkConfig, up: LinkConfig) {
        let seed = 2 * self.members.len() as u64;
        self.members.push(Member {
            receiver,
            down: Link::new(down, seed),
            up: Link::new(up, seed + 1),
            is_joined: false,
            received_bytes: 0,
            events: Vec::new(),
            due: Time::MAX,
        });
        self.schedule(self.members.len() - 1);
    }

    /// Runs until `end`, a time after the start.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            assert!(next >= self.now, "{next} is before {}", self.now);
            self.now = next;
            self.step();
        }
        self.now = end;
    }

    /// Runs for this long; returns a member's average rate in bits per second.
    pub(crate) fn measure(&mut self, member: usize, span: Duration) -> f64 {
        let before = self.members[member].received_bytes;
        self.run_until(self.now - Time::ZERO + span);
        (self.members[member].received_bytes - before) as f64 * 8.0 / span.as_secs_f64()
    }

    fn next_time(&self) -> Option<Time> {
        let member = self.queue.peek().map(|Reverse((due, _))| *due);
        member.into_iter().chain(self.sender.poll_timeout()).min()
    }

    fn step(&mut self) {
        while let Some(&Reverse((due, member))) = self.queue.peek()
            && due <= self.now
        {
            self.queue.pop();
            if due == self.members[member].due {
                self.members[member].due = Time::MAX;
                self.visit(member);
                self.schedule(member);
            }
        }
        self.sender.handle_timeout(self.now);
        self.drain_sender();
    }

    fn visit(&mut self, member: usize) {
        let (now, member) = (self.now, &mut self.members[member]);
        while let Some(packet) = member.down.pop_ready(now) {
            if member.is_joined {
                member.received_bytes += u64::from(packet.wire_bytes());
                member.receiver.handle_packet(now, &packet);
            }
        }
        member.receiver.handle_timeout(now);
        member.drain(now);
        let mut heard = false;
        while let Some(packet) = member.up.pop_ready(now) {
            self.sender.handle_packet(now, &packet);
            heard = true;
        }
        if heard {
            self.drain_sender();
        }
    }

    fn drain_sender(&mut self) {
        while let Some(Action::Send(packet)) = self.sender.poll_action(self.now) {
            for number in 0..self.members.len() {
                let member = &mut self.members[number];
                if member.is_joined {
                    let _ = member.down.push(self.now, &packet, packet.wire_bytes());
                    self.schedule(number);
                }
            }
        }
        while let Some(event) = self.sender.poll_event() {
            self.events.push((self.now, event));
        }
    }

    fn schedule(&mut self, number: usize) {
        let member = &mut self.members[number];
        let times = [
            member.receiver.poll_timeout(),
            member.down.next_time(),
            member.up.next_time(),
        ];
        let next = times.into_iter().flatten().min();
        if let Some(next) = next.map(|next| next.max(self.now))
            && next < member.due
        {
            member.due = next;
            self.queue.push(Reverse((next, number)));
        }
    }
}

impl Member {
    pub(crate) fn drain(&mut self, now: Time) {
        while let Some(action) = self.receiver.poll_action(now) {
            match action {
                Action::Send(packet) => {
                    let bytes = packet.wire_bytes();
                    let _ = self.up.push(now, &packet, bytes);
                }
                Action::Join(_) => self.is_joined = true,
                Action::Leave(_) => self.is_joined = false,
            }
        }
        while let Some(event) = self.receiver.poll_event() {
            self.events.push((now, event));
        }
    }
}
