//! The core of CAKE: hosts share a link equally, and so do the flows of each host
//! (Høiland-Jørgensen, Täht and Morton, "Piece of CAKE", 2018; Linux's `sch_cake`).
//!
//! | CAKE | here |
//! |---|---|
//! | a set-associative hash with eight ways: flows collide only if eight share a set | `find` |
//! | host isolation: the quantum of a flow is divided by the number of old flows of its source or destination, whichever has more | [`Isolation`], `Shares` |
//! | DRR++ and an AQM for each flow | `fair.rs`, with CoDel |
//! | a full queue drops packets of the longest flow | `FairQueue::shed` |
//!
//! Not included: the shaper (the link's rate takes its place), tins for DiffServ classes, the
//! filter of acknowledgements, and BLUE, by which `sch_cake` extends CoDel for flows that do not
//! respond.

use super::codel::CoDelConfig;
use super::fair::{FairQueue, Shares, mix};
use super::waiting::{Store, Waiting};
use super::{Flow, Item};
use crate::time::Time;

/// The number of queues, and of hosts on each side.
const SLOTS: usize = 1024;
/// The number of slots in which a flow can be.
const WAYS: usize = 8;

/// The configuration of CAKE.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CakeConfig {
    /// CoDel's parameters for each flow.
    pub codel: CoDelConfig,
    /// The hosts that share the link equally. Default: `Triple`.
    pub isolation: Isolation,
    /// The bytes that a flow may send in each round if its hosts have no other flow, at least 1.
    /// Default: 1514.
    pub quantum_bytes: u32,
}

impl Default for CakeConfig {
    fn default() -> CakeConfig {
        CakeConfig {
            codel: CoDelConfig::default(),
            isolation: Isolation::Triple,
            quantum_bytes: 1514,
        }
    }
}

/// The hosts that share a link equally.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Flows share the link equally, whatever their hosts.
    Flows,
    /// Sources share the link equally: `dual-srchost`.
    Sources,
    /// Destinations share the link equally: `dual-dsthost`.
    Destinations,
    /// Sources and destinations: a flow's quantum is divided by the larger number of flows of its
    /// two hosts: `triple-isolate`.
    #[default]
    Triple,
}

/// The hosts on one side.
#[derive(Debug)]
struct Hosts {
    tags: Vec<u64>,
    /// The number of flows of each host.
    flows: Vec<u32>,
    /// The number of old flows of each host.
    old: Vec<u32>,
}

impl Hosts {
    fn new() -> Hosts {
        Hosts {
            tags: vec![0; SLOTS],
            flows: vec![0; SLOTS],
            old: vec![0; SLOTS],
        }
    }

    fn find(&mut self, tag: u64) -> usize {
        find(&mut self.tags, tag, |slot| self.flows[slot] == 0)
    }
}

/// Returns the slot of a tag: the one that has it, a free one of its set, or the first of its set.
fn find(tags: &mut [u64], tag: u64, is_free: impl Fn(usize) -> bool) -> usize {
    let set = (tag as usize % (SLOTS / WAYS)) * WAYS;
    let mut slots = set..set + WAYS;
    if let Some(known) = slots.clone().find(|&slot| tags[slot] == tag) {
        return known;
    }
    match slots.find(|&slot| is_free(slot)) {
        Some(free) => {
            tags[free] = tag;
            free
        }
        None => set,
    }
}

/// The shares of flows by their hosts.
#[derive(Debug)]
struct ByHost {
    config: CakeConfig,
    sources: Hosts,
    destinations: Hosts,
    /// The source and the destination of each flow.
    ends: Vec<(u32, u32)>,
}

impl ByHost {
    fn load(&self, flow: usize) -> u32 {
        let (source, destination) = self.ends[flow];
        let source = self.sources.old[source as usize];
        let destination = self.destinations.old[destination as usize];
        let load = match self.config.isolation {
            Isolation::Flows => 1,
            Isolation::Sources => source,
            Isolation::Destinations => destination,
            Isolation::Triple => source.max(destination),
        };
        load.max(1)
    }

    fn hosts(&mut self, flow: usize) -> [(&mut Hosts, usize); 2] {
        let (source, destination) = self.ends[flow];
        [
            (&mut self.sources, source as usize),
            (&mut self.destinations, destination as usize),
        ]
    }
}

impl Shares for ByHost {
    fn quantum(&self, flow: usize) -> u32 {
        (self.config.quantum_bytes / self.load(flow)).max(1)
    }

    fn begin(&mut self, flow: usize) {
        for (hosts, host) in self.hosts(flow) {
            hosts.flows[host] += 1;
        }
    }

    fn age(&mut self, flow: usize) {
        for (hosts, host) in self.hosts(flow) {
            hosts.old[host] += 1;
            debug_assert!(hosts.old[host] <= hosts.flows[host]);
        }
    }

    fn end(&mut self, flow: usize, is_old: bool) {
        for (hosts, host) in self.hosts(flow) {
            debug_assert!(hosts.flows[host] > 0);
            hosts.flows[host] -= 1;
            hosts.old[host] -= u32::from(is_old);
        }
    }
}

/// The state of CAKE.
#[derive(Debug)]
pub(super) struct Cake {
    salt: u64,
    tags: Vec<u64>,
    queues: FairQueue,
    shares: ByHost,
}

impl Cake {
    pub(super) fn new(config: CakeConfig, salt: u64) -> Cake {
        Cake {
            salt,
            tags: vec![0; SLOTS],
            queues: FairQueue::new(SLOTS),
            shares: ByHost {
                config,
                sources: Hosts::new(),
                destinations: Hosts::new(),
                ends: vec![(0, 0); SLOTS],
            },
        }
    }

    /// Returns a tag of a flow or host, which is never 0.
    fn tag(&self, key: u64) -> u64 {
        mix(key ^ self.salt) | 1 << 63
    }

    /// Returns the queue of a flow. A flow without packets gets the slots of its hosts.
    fn queue_of(&mut self, flow: &Flow) -> usize {
        let tag = self.tag(flow.channel_key());
        let queue = find(&mut self.tags, tag, |slot| self.queues.is_idle(slot));
        if self.queues.is_idle(queue) {
            let [source, destination] =
                [flow.source, flow.destination].map(|host| self.tag(host.into()));
            self.shares.ends[queue] = (
                self.shares.sources.find(source) as u32,
                self.shares.destinations.find(destination) as u32,
            );
        }
        queue
    }

    pub(super) fn enqueue<T: Item>(&mut self, packet: Waiting<T>, store: &mut Store<T>) {
        let flow = self.queue_of(&packet.flow);
        self.queues.enqueue(flow, packet, store, &mut self.shares);
    }

    pub(super) fn dequeue<T: Item>(
        &mut self,
        now: Time,
        store: &mut Store<T>,
    ) -> Option<Waiting<T>> {
        let codel = self.shares.config.codel;
        self.queues.dequeue(&codel, now, store, &mut self.shares)
    }

    /// Removes and returns any packet that no other of its flow precedes.
    pub(super) fn take<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        self.queues.take(now, store)
    }

    /// Drops packets of the longest flow.
    pub(super) fn shed<T: Item>(&mut self, now: Time, store: &mut Store<T>) {
        self.queues.shed(now, store);
    }
}
