//! A network that delays, loses and duplicates segments, between a switch and minimal ends: they do
//! only what the transport requires.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::Event;
use crate::Gap;

/// One end: sends a frame for each key, closes if asked to, and keeps the frames that it receives.
#[derive(Debug, Default)]
pub(super) struct Host {
    keys: Vec<u32>,
    pub(super) closes: bool,
    window: u32,
    next: u32,
    cumulative: u32,
    /// For each sent number, the next number when it was last sent.
    sent_before: BTreeMap<u32, u32>,
    arrived: BTreeMap<u32, Body>,
    expected: u32,
    /// The keys of the received frames, in order.
    pub(super) received: Vec<u32>,
    /// The other side has closed its direction.
    pub(super) closed: bool,
    pub(super) dead: bool,
}

impl Host {
    pub(super) fn new(keys: impl IntoIterator<Item = u32>, closes: bool) -> Host {
        Host {
            keys: keys.into_iter().collect(),
            closes,
            window: 8,
            ..Host::default()
        }
    }

    fn end(&self) -> u32 {
        self.keys.len() as u32 + u32::from(self.closes)
    }

    /// Returns whether everything that the end sends has been acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.cumulative == self.end()
    }

    fn body(&mut self, sequence: u32) -> Body {
        self.sent_before
            .insert(sequence, self.next.max(sequence + 1));
        match (self.keys.get(sequence as usize), data(sequence)) {
            (Some(&key), Body::Data(data)) => Body::Data(Data { key, ..data }),
            _ => Body::Close { sequence },
        }
    }

    /// Sends the new frames that the window allows.
    fn send(&mut self) -> Vec<Body> {
        let mut sent = Vec::new();
        while self.next < self.end().min(self.cumulative + self.window) {
            self.next += 1;
            sent.push(self.body(self.next - 1));
        }
        sent
    }

    /// Retransmits everything that is not acknowledged, after a time-out.
    fn send_again(&mut self) -> Vec<Body> {
        (self.cumulative..self.next).map(|n| self.body(n)).collect()
    }

    fn on_ack(&mut self, ack: &Ack) -> Vec<Body> {
        assert!(
            ack.cumulative <= self.next && ack.of < self.next,
            "{ack:?} beyond {}",
            self.next
        );
        self.cumulative = self.cumulative.max(ack.cumulative);
        let mut again = Vec::new();
        for Gap { offset, frames } in ack.missing {
            for number in (ack.cumulative + u32::from(offset)..).take(frames.into()) {
                assert!(
                    number < self.next,
                    "{ack:?} reports a frame that was not sent"
                );
                if ack.of >= self.sent_before[&number] && number >= self.cumulative {
                    again.push(self.body(number));
                }
            }
        }
        again
    }

    fn on_numbered(&mut self, sequence: u32, body: Body) -> Body {
        if sequence >= self.expected {
            self.arrived.insert(sequence, body);
        }
        while let Some(body) = self.arrived.remove(&self.expected) {
            assert!(!self.closed, "nothing follows a Close: {body:?}");
            self.expected += 1;
            match body {
                Body::Data(data) => self.received.push(data.key),
                _ => self.closed = true,
            }
        }
        let Body::Ack(ack) = ack(self.expected, sequence) else {
            unreachable!()
        };
        let missing = self.missing(sequence);
        Body::Ack(Ack { missing, ..ack })
    }

    /// Returns the gaps below `of` with three later frames.
    fn missing(&self, of: u32) -> [Gap; 3] {
        let above = |number: u32| self.arrived.range(number..).count();
        let mut numbers = (self.expected..of).filter(|n| !self.arrived.contains_key(n));
        core::array::from_fn(|_| match numbers.next() {
            Some(number) if above(number) >= 3 => Gap {
                offset: (number - self.expected) as u16,
                frames: 1,
            },
            _ => Gap::default(),
        })
    }

    pub(super) fn hear(&mut self, body: Body) -> Vec<Body> {
        match body {
            _ if self.dead => Vec::new(),
            Body::Open { .. } => vec![Body::Accept { credit: UNLIMITED }],
            Body::Accept { .. } => self.send(),
            Body::Data(Data { sequence, .. }) | Body::Close { sequence } => {
                vec![self.on_numbered(sequence, body)]
            }
            Body::Ack(ack) => {
                let mut sent = self.on_ack(&ack);
                sent.extend(self.send());
                sent
            }
            Body::Probe => vec![Body::Alive],
            Body::Alive => Vec::new(),
            Body::Reset(_) if self.is_done() => Vec::new(),
            Body::Reset(reason) => panic!("reset: {reason:?}"),
        }
    }
}

/// The faults of the network.
#[derive(Copy, Clone, Debug)]
pub(super) struct Faults {
    pub(super) loss: f64,
    pub(super) duplication: f64,
    /// A segment overtakes up to this many others on its leg.
    pub(super) reordering: usize,
}

pub(super) struct World {
    pub(super) switch: Switch<Length>,
    pub(super) peer: Host,
    pub(super) members: Vec<Host>,
    pub(super) events: Vec<Event>,
    pub(super) now_s: f64,
    /// The segments on their way to the switch, by leg (the peer's first).
    to_switch: Vec<Vec<Body>>,
    /// The segments on their way from the switch, by leg.
    from_switch: Vec<Vec<Body>>,
    faults: Faults,
    random: Pcg64Mcg,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults, peer: Host, members: Vec<Host>) -> World {
        // Losses alone must not make a member fail.
        let config = SwitchConfig {
            failure_timeout: Duration::from_secs(60),
            ..SwitchConfig::default()
        };
        let switch = opened(config, members.len(), UNLIMITED);
        let mut world = World {
            switch,
            peer,
            now_s: 0.0,
            to_switch: Vec::new(),
            from_switch: Vec::new(),
            events: Vec::new(),
            members,
            faults,
            random: Pcg64Mcg::new(seed.into()),
        };
        for leg in 0..=world.members.len() {
            world.add_leg(leg);
        }
        world
    }

    fn add_leg(&mut self, leg: usize) {
        self.to_switch.push(Vec::new());
        self.from_switch.push(Vec::new());
        let sent = self.host(leg).send();
        self.put(leg, sent);
    }

    fn host(&mut self, leg: usize) -> &mut Host {
        match leg {
            0 => &mut self.peer,
            member => &mut self.members[member - 1],
        }
    }

    fn put(&mut self, leg: usize, bodies: Vec<Body>) {
        self.to_switch[leg].extend(bodies);
    }

    fn collect(&mut self) {
        for (to, body) in sent(&mut self.switch) {
            let leg = match to {
                Leg::Peer => 0,
                Leg::Member(MemberId(number)) => usize::from(number) + 1,
            };
            self.from_switch[leg].push(body);
        }
        while let Some(event) = self.switch.poll_event() {
            self.events.push(event);
        }
    }

    /// Takes a segment from a queue. Returns `None` if it is lost.
    fn take(queue: &mut Vec<Body>, faults: Faults, random: &mut Pcg64Mcg) -> Option<Body> {
        let reach = queue.len().min(faults.reordering + 1);
        let place = random.random_range(0..reach);
        if random.random_bool(faults.duplication) {
            return Some(queue[place]);
        }
        let body = queue.remove(place);
        (!random.random_bool(faults.loss)).then_some(body)
    }

    /// Moves one segment. Returns false if none is on its way.
    pub(super) fn step(&mut self) -> bool {
        let legs = self.to_switch.len();
        let queues = 0..2 * legs;
        let length = |place: usize| match place < legs {
            true => self.to_switch[place].len(),
            false => self.from_switch[place - legs].len(),
        };
        let busy: Vec<usize> = queues.filter(|place| length(*place) > 0).collect();
        if busy.is_empty() {
            return false;
        }
        let place = busy[self.random.random_range(0..busy.len())];
        let (faults, random) = (self.faults, &mut self.random);
        self.now_s += 0.001;
        if place < legs {
            if let Some(body) = World::take(&mut self.to_switch[place], faults, random) {
                let from = if place == 0 {
                    PEER
                } else {
                    member(place as u16 - 1)
                };
                hear(&mut self.switch, self.now_s, from, body);
                self.collect();
            }
        } else {
            let leg = place - legs;
            if let Some(body) = World::take(&mut self.from_switch[leg], faults, random) {
                let answers = self.host(leg).hear(body);
                self.put(leg, answers);
            }
        }
        true
    }

    /// Advances half a second without a segment: ends retransmit, and the switch handles its timer.
    pub(super) fn time_out(&mut self) {
        self.now_s += 0.5;
        for leg in 0..self.to_switch.len() {
            let host = self.host(leg);
            if !host.dead {
                let again = host.send_again();
                self.put(leg, again);
            }
        }
        self.switch.handle_timeout(at(self.now_s));
        self.collect();
    }

    /// Runs until both directions are done, at most 200,000 steps.
    pub(super) fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                if self.is_done() {
                    return;
                }
                self.time_out();
            }
        }
        panic!("not done: {:?} {:?}", self.peer, self.members);
    }

    fn is_done(&self) -> bool {
        let alive = || self.members.iter().filter(|member| !member.dead);
        let ends = alive().all(|member| member.closes);
        let heard = |host: &Host, other_closes: bool| host.is_done() && host.closed == other_closes;
        heard(&self.peer, ends) && alive().all(|member| heard(member, self.peer.closes))
    }
}
