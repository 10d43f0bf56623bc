//! The things that the overlay promises to the order, and nothing else: streams, and views of the
//! topology.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_order::check::{End, Trace};
use manyflow_order::{Orderer, Peer};
use manyflow_overlay::DaemonId;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::channel::{Channel, UnderWay};
use super::client::Client;
use super::plan::{Fault, Plan};

/// The time that the world has to become quiet after the last fault.
const QUIET_US: u64 = 200_000_000;
/// Entries that a daemon may keep of each stream when all is quiet: the last marks.
const REST_MAX: usize = 64;

/// The outcome of a run.
pub(super) struct Outcome {
    pub(super) traces: Vec<Trace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Arrive(usize, usize),
    Timer(usize),
    Notice(usize),
    GiveUp(usize, usize, u32),
    Fault(usize),
    Restart(usize),
    Act(usize, u32),
    Enter(usize, u32),
    Heal,
}

pub(super) struct Daemon {
    pub(super) orderer: Option<Orderer>,
    pub(super) incarnation: u32,
    /// The number of the last record in its stream.
    pub(super) sequence: u64,
    pub(super) side: u8,
    pub(super) slow_until_us: u64,
    pub(super) peers: Vec<Peer>,
    pub(super) armed_us: Option<u64>,
    pub(super) clients: Vec<Client>,
}

pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) random: Pcg64Mcg,
    pub(super) now_us: u64,
    pub(super) count: u64,
    pub(super) heap: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    pub(super) daemons: Vec<Daemon>,
    /// By sender, then by receiver.
    pub(super) channels: Vec<Vec<Channel>>,
    pub(super) traces: Vec<Trace>,
    pub(super) clients: u32,
    pub(super) messages: u64,
    pub(super) has_ended: bool,
}

impl<'a> World<'a> {
    /// Runs a plan. Returns an error if the world does not become quiet, with one view.
    pub(super) fn run(plan: &Plan) -> Result<Outcome, String> {
        let mut world = World::new(plan);
        let limit_us = plan.end_us + QUIET_US;
        while let Some(Reverse((at, _, happening))) = world.heap.pop() {
            world.now_us = at;
            if at > limit_us {
                return Err(format!("not quiet after {limit_us} us: {happening:?}"));
            }
            world.handle(happening);
        }
        world.check_end()?;
        for daemon in &mut world.daemons {
            let clients = daemon.clients.drain(..);
            world
                .traces
                .extend(clients.map(|client| client.trace(End::Quiet)));
        }
        Ok(Outcome {
            traces: world.traces,
        })
    }

    fn new(plan: &'a Plan) -> World<'a> {
        let daemon = |_| Daemon {
            orderer: None,
            incarnation: 0,
            sequence: 0,
            side: 0,
            slow_until_us: 0,
            peers: Vec::new(),
            armed_us: None,
            clients: Vec::new(),
        };
        let channels = |_| (0..plan.daemons).map(|_| Channel::default()).collect();
        let mut world = World {
            plan,
            random: Pcg64Mcg::seed_from_u64(plan.seed ^ 1 << 63),
            now_us: 0,
            count: 0,
            heap: BinaryHeap::new(),
            daemons: (0..plan.daemons).map(daemon).collect(),
            channels: (0..plan.daemons).map(channels).collect(),
            traces: Vec::new(),
            clients: 0,
            messages: 0,
            has_ended: false,
        };
        for daemon in 0..plan.daemons {
            let at = world.within(plan.end_us / 4);
            world.schedule(at, Happening::Restart(daemon));
        }
        for (index, (at, _)) in plan.faults.iter().enumerate() {
            world.schedule(*at, Happening::Fault(index));
        }
        world.schedule(plan.end_us, Happening::Heal);
        world
    }

    pub(super) fn schedule(&mut self, at_us: u64, happening: Happening) {
        self.count += 1;
        let at_us = at_us.max(self.now_us);
        self.heap.push(Reverse((at_us, self.count, happening)));
    }

    /// Returns a random time from now on.
    pub(super) fn within(&mut self, most_us: u64) -> u64 {
        self.now_us + self.random.random_range(0..=most_us)
    }

    pub(super) fn now(&self) -> Time {
        Time::from_nanos(self.now_us * 1000)
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive(from, to) => self.arrive(from, to),
            Happening::Timer(at) => self.fire(at),
            Happening::Notice(at) => self.notice(at, None),
            Happening::GiveUp(from, to, doubts) => self.give_up(from, to, doubts),
            Happening::Fault(index) if !self.has_ended => self.fail(index),
            Happening::Fault(_) => {}
            Happening::Restart(at) => self.restart(at),
            Happening::Act(at, client) => self.act(at, client),
            Happening::Enter(at, client) => self.enter_next(at, client),
            Happening::Heal => self.heal(),
        }
    }
}

/// Faults.
impl World<'_> {
    fn are_connected(&self, one: usize, two: usize) -> bool {
        let (one, two) = (&self.daemons[one], &self.daemons[two]);
        one.orderer.is_some() && two.orderer.is_some() && one.side == two.side
    }

    fn fail(&mut self, index: usize) {
        let plan = self.plan;
        match &plan.faults[index].1 {
            Fault::Split(sides) => self.split(sides),
            Fault::Crash(at, pause_us) => {
                self.crash(*at);
                self.schedule(self.now_us + pause_us, Happening::Restart(*at));
            }
            Fault::Slow(at, pause_us) => {
                self.daemons[*at].slow_until_us = self.now_us + pause_us;
            }
            Fault::Doubt(at) => {
                let doubted = self.random.random_range(0..plan.daemons);
                self.notice(*at, Some(doubted));
                self.notice_later(*at);
            }
        }
    }

    fn split(&mut self, sides: &[u8]) {
        let count = self.daemons.len();
        let mut before = vec![false; count * count];
        for (place, known) in before.iter_mut().enumerate() {
            *known = self.are_connected(place / count, place % count);
        }
        for (daemon, side) in self.daemons.iter_mut().zip(sides) {
            daemon.side = *side;
        }
        for from in 0..count {
            for to in 0..count {
                let now = self.are_connected(from, to);
                if before[from * count + to] != now && from != to {
                    self.change_channel(from, to, now);
                }
            }
            self.notice_later(from);
        }
    }

    fn change_channel(&mut self, from: usize, to: usize, connected: bool) {
        let until = self.within(self.plan.delays_us[from][to]);
        let channel = &mut self.channels[from][to];
        if connected {
            channel.delay(until);
            for _ in 0..channel.queue.len() {
                self.schedule(until, Happening::Arrive(from, to));
            }
        }
    }

    fn give_up(&mut self, from: usize, to: usize, doubts: u32) {
        let channel = &mut self.channels[from][to];
        if channel.doubts == doubts {
            channel.lose_from(0);
        }
    }

    fn crash(&mut self, at: usize) {
        let daemon = &mut self.daemons[at];
        if daemon.orderer.take().is_none() {
            return;
        }
        daemon.peers.clear();
        let gone = daemon.clients.drain(..);
        self.traces
            .extend(gone.map(|client| client.trace(End::Gone)));
        for other in 0..self.daemons.len() {
            let lost = self.channels[at][other].queue.len();
            let first = self.random.random_range(0..=lost);
            self.channels[at][other].lose_from(first);
            self.channels[other][at].lose_from(0);
            self.notice_later(other);
        }
    }

    fn restart(&mut self, at: usize) {
        if self.daemons[at].orderer.is_some() {
            return;
        }
        let (now, config) = (self.now(), self.plan.config.clone());
        let daemon = &mut self.daemons[at];
        daemon.incarnation += 1;
        daemon.sequence = 0;
        daemon.armed_us = None;
        let orderer = Orderer::new(config, DaemonId(at as u16), daemon.incarnation);
        daemon.orderer = Some(orderer.unwrap());
        for other in 0..self.daemons.len() {
            self.channels[at][other].queue.clear();
            self.notice_later(other);
        }
        let own = vec![self.peer(at)];
        let daemon = &mut self.daemons[at];
        daemon.orderer.as_mut().unwrap().handle_peers(now, &own);
        daemon.peers = own;
        self.drain(at);
        if !self.has_ended {
            for _ in 0..self.random.random_range(0..=3) {
                self.connect(at);
            }
        }
    }

    fn heal(&mut self) {
        self.has_ended = true;
        let sides = vec![0; self.daemons.len()];
        self.split(&sides);
        for at in 0..self.daemons.len() {
            self.daemons[at].slow_until_us = 0;
            self.restart(at);
            self.schedule_late_notice(at);
        }
    }

    /// The last view of the topology is right.
    fn schedule_late_notice(&mut self, at: usize) {
        let late = self.within(self.plan.notice_us) + self.plan.notice_us + self.plan.hold_us;
        self.schedule(late, Happening::Notice(at));
    }

    fn notice_later(&mut self, at: usize) {
        let at_us = self.within(self.plan.notice_us);
        self.schedule(at_us, Happening::Notice(at));
    }

    fn peer(&self, at: usize) -> Peer {
        Peer {
            daemon: DaemonId(at as u16),
            incarnation: self.daemons[at].incarnation,
        }
    }

    /// Lets a daemon see the topology, except for a daemon that it doubts.
    fn notice(&mut self, at: usize, doubted: Option<usize>) {
        let reached = (0..self.daemons.len()).filter(|other| {
            let is_seen = self.are_connected(at, *other) && Some(*other) != doubted;
            is_seen || *other == at
        });
        let reached: Vec<usize> = reached.collect();
        let peers: Vec<Peer> = reached.iter().map(|other| self.peer(*other)).collect();
        let now = self.now();
        let daemon = &mut self.daemons[at];
        let Some(orderer) = &mut daemon.orderer else {
            return;
        };
        for (other, channel) in self.channels[at].iter_mut().enumerate() {
            channel.doubts += 1;
            channel.is_open |= reached.contains(&other);
        }
        orderer.handle_peers(now, &peers);
        daemon.peers = peers;
        for other in (0..self.daemons.len()).filter(|other| !reached.contains(other)) {
            let give_up = Happening::GiveUp(at, other, self.channels[at][other].doubts);
            self.schedule(self.now_us + self.plan.hold_us, give_up);
        }
        self.drain(at);
    }
}

/// Streams.
impl World<'_> {
    fn arrive(&mut self, from: usize, to: usize) {
        if !self.are_reachable(from, to) {
            return;
        }
        let slow_until = self.daemons[to].slow_until_us;
        let Some(next) = self.channels[from][to].queue.front() else {
            return;
        };
        let later = next.due_us.max(slow_until);
        if later > self.now_us {
            return self.schedule(later, Happening::Arrive(from, to));
        }
        let known = self.daemons[to].peers.iter();
        let known = known.filter(|peer| usize::from(peer.daemon.0) == from);
        let known = known.map(|peer| peer.incarnation).next();
        // A daemon learns of another incarnation before its messages arrive.
        if next.incarnation > 1 && known.is_none_or(|known| known < next.incarnation) {
            return self.schedule(self.now_us + 1_000, Happening::Arrive(from, to));
        }
        if known.is_some_and(|known| known > next.incarnation) {
            self.channels[from][to].queue.pop_front();
            return;
        }
        let Some(next) = self.channels[from][to].queue.pop_front() else {
            return;
        };
        let now = self.now();
        if let Some(orderer) = &mut self.daemons[to].orderer {
            let origin = DaemonId(from as u16);
            orderer.handle_message(now, origin, next.sequence, next.record);
            self.drain(to);
        }
    }

    /// Returns whether records that are under way arrive: also those of a daemon that has crashed.
    fn are_reachable(&self, from: usize, to: usize) -> bool {
        let is_there = self.daemons[to].orderer.is_some();
        is_there && self.daemons[from].side == self.daemons[to].side
    }

    fn fire(&mut self, at: usize) {
        let now = self.now();
        let daemon = &mut self.daemons[at];
        daemon.armed_us = None;
        if daemon.slow_until_us > self.now_us {
            daemon.armed_us = Some(daemon.slow_until_us);
            return self.schedule(self.daemons[at].slow_until_us, Happening::Timer(at));
        }
        if let Some(orderer) = &mut daemon.orderer {
            orderer.handle_timeout(now);
            self.drain(at);
        }
    }

    /// Puts a record into a daemon's stream.
    pub(super) fn enter(&mut self, at: usize, record: &Bytes) {
        let daemon = &mut self.daemons[at];
        daemon.sequence += 1;
        let (sequence, incarnation) = (daemon.sequence, daemon.incarnation);
        for to in 0..self.daemons.len() {
            if to == at || !self.channels[at][to].is_open {
                continue;
            }
            let due_us = self.within(self.plan.delays_us[at][to]) + 50;
            self.channels[at][to].push(UnderWay {
                due_us,
                incarnation,
                sequence,
                record: record.clone(),
            });
            self.schedule(due_us, Happening::Arrive(at, to));
        }
        let (now, origin) = (self.now(), DaemonId(at as u16));
        if let Some(orderer) = &mut self.daemons[at].orderer {
            orderer.handle_message(now, origin, sequence, record.clone());
        }
    }

    /// Does what a driver does after each call.
    pub(super) fn drain(&mut self, at: usize) {
        loop {
            let daemon = &mut self.daemons[at];
            let Some(orderer) = &mut daemon.orderer else {
                return;
            };
            while let Some(event) = orderer.poll_event() {
                let mut clients = daemon.clients.iter_mut();
                if let Some(client) = clients.find(|client| client.id == event.to()) {
                    client.see(event);
                }
            }
            if !orderer.is_open() {
                let mut clients = daemon.clients.iter_mut();
                if let Some(client) = clients.find(|client| client.is_amid)
                    && let Some(part) = client.pop_part()
                {
                    self.enter(at, &part);
                    continue;
                }
            }
            let Some(record) = orderer.poll_transmit() else {
                break;
            };
            self.enter(at, &record);
        }
        let daemon = &mut self.daemons[at];
        let timeout = daemon.orderer.as_ref().and_then(Orderer::poll_timeout);
        if let Some(timeout) = timeout {
            let due_us = timeout.as_nanos().div_ceil(1000);
            if daemon.armed_us.is_none_or(|armed| armed > due_us) {
                daemon.armed_us = Some(due_us);
                self.schedule(due_us, Happening::Timer(at));
            }
        }
    }
}

/// The end.
impl World<'_> {
    fn check_end(&self) -> Result<(), String> {
        let all: Vec<Peer> = (0..self.daemons.len()).map(|at| self.peer(at)).collect();
        let mut ids = Vec::new();
        for (at, daemon) in self.daemons.iter().enumerate() {
            let Some(orderer) = &daemon.orderer else {
                return Err(format!("daemon {at} is not there"));
            };
            let (id, members) = orderer.view();
            let members: Vec<Peer> = members.collect();
            ids.push(id);
            if members != all || !orderer.is_open() || ids[0] != id {
                return Err(format!(
                    "daemon {at} ends in the view {id} of {members:?}, open: {}",
                    orderer.is_open()
                ));
            }
            let clients: usize = self.daemons.iter().map(|daemon| daemon.clients.len()).sum();
            let rest = orderer.state_size();
            if rest > REST_MAX * all.len() + 8 * clients {
                return Err(format!(
                    "daemon {at} keeps {rest} entries with {clients} clients"
                ));
            }
            if daemon
                .clients
                .iter()
                .any(|client| !client.pending.is_empty())
            {
                return Err(format!("daemon {at} has messages that did not enter"));
            }
        }
        Ok(())
    }
}
