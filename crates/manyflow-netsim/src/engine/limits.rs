//! Limits that end a run: time that stands still, and links that carry more than fits into memory.
//!
//! Each event, each packet that a link delivers and each action of an endpoint is a step. Where
//! links have neither a rate nor a delay, endpoints that answer each other take steps forever at
//! one instant. A run that takes more steps at one instant than a network of its size can need ends
//! with an error that names the endpoints and links that take them.

use std::collections::BTreeMap;

use manyflow_core::{EndpointId, Header, Time};

use super::events::Due;
use super::{LinkId, Network, Observer};

/// Steps that a network of any size may take at one instant: four windows of TCP of the maximum
/// size, 2^20 segments.
const STEPS: u64 = 1 << 22;
/// Further steps for each node, link and endpoint. When a million receivers start at one instant,
/// each joins a dozen channels hop by hop and receives a burst of packets: fewer than a hundred
/// steps for each node and link on the way.
const STEPS_EACH: u64 = 1000;
/// Steps that are watched to find the endpoints and links that take them: a whole round of TCP with
/// its maximum window, so that both ends and both directions take some.
const WATCHED: u64 = STEPS;
/// Endpoints and links that an error names at most.
const NAMED: usize = 4;
/// How deep endpoints at one node may answer each other before the first of them has been served. A
/// client that fills an overlay link's queue at one instant needs as many levels as the queue has
/// messages, 1000 by default. Each level takes about a kilobyte of the thread's stack.
const NESTED_MAX: u32 = 2500;
/// The default limit of packets that all links carry together: up to 2 GB.
const CARRIED_MAX: u64 = 16_000_000;

/// The reason why a run ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    /// Endpoints answer each other, or a timer expires, again and again while no time passes.
    #[error(
        "time stands still at {} s: these go on for ever without any time between: {}; {}",
        .at.as_secs_f64(), listed(.endpoints, .links), remedy(.links)
    )]
    ZeroTimeLoop {
        /// The instant at which time stands still.
        at: Time,
        /// The endpoints that take part and their names, the busiest first.
        endpoints: Vec<(EndpointId, String)>,
        /// The names of the links that take part, the busiest first.
        links: Vec<String>,
    },
    /// The links together carry more packets than the limit allows.
    #[error(
        "the links carry more than {limit} packets, {packets} of them link {link}: limit its `queue`, shorten its `delay`, or set a higher limit"
    )]
    TooManyCarried {
        /// The limit.
        limit: u64,
        /// The link that carries most packets.
        link: String,
        /// Packets that this link carries.
        packets: u64,
    },
}

/// `endpoint 0 at S, endpoint 1 at R, link S-R, link R-S`.
fn listed(endpoints: &[(EndpointId, String)], links: &[String]) -> String {
    let endpoints = endpoints.iter().map(|(_, name)| name.clone());
    let links = links.iter().map(|name| format!("link {name}"));
    endpoints.chain(links).collect::<Vec<_>>().join(", ")
}

fn remedy(links: &[String]) -> &'static str {
    match links {
        [] => "put them at different nodes, with a link between that has a `rate` or a `delay`",
        _ => "give one of the links a `rate` or a `delay`",
    }
}

/// The resources that a run has taken, and their limits.
#[derive(Debug)]
pub(super) struct Limits {
    /// Steps taken at the present instant.
    pub(super) steps: u64,
    steps_max: u64,
    /// Endpoints that wait for others at their node to answer.
    nested: u32,
    /// Endpoints whose actions were refused when the steps ran out.
    stuck: Vec<u32>,
    /// Packets that all links carry.
    pub(super) carried: u64,
    carried_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            steps: 0,
            steps_max: STEPS,
            nested: 0,
            stuck: Vec::new(),
            carried: 0,
            carried_max: CARRIED_MAX,
        }
    }
}

impl Limits {
    /// Returns whether the run is within its limits.
    #[inline]
    pub(super) fn hold(&self) -> bool {
        self.steps <= self.steps_max && self.carried <= self.carried_max
    }

    /// Counts an action of an endpoint as begun. Returns false if the endpoint would never end, so
    /// that the action must not be done. Where the steps have merely run out, it is done: to drop a
    /// packet could break the very loop that is to be reported.
    #[inline]
    pub(super) fn enter(&mut self, endpoint: u32) -> bool {
        self.steps += 1;
        self.nested += 1;
        if self.nested > NESTED_MAX {
            // The endpoints that wait for this one must not try anything else either.
            self.steps = u64::MAX / 2;
        }
        let goes_on = self.steps <= 2 * self.steps_max;
        if !goes_on {
            self.note_stuck(endpoint);
        }
        goes_on
    }

    #[cold]
    fn note_stuck(&mut self, endpoint: u32) {
        if self.stuck.len() < NAMED && !self.stuck.contains(&endpoint) {
            self.stuck.push(endpoint);
        }
    }

    /// Counts an action as ended, whether it was done or refused.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.nested -= 1;
    }
}

impl<H: Header, E> Network<H, E> {
    /// Sets how many packets all links together may carry before the run ends with
    /// [`Halt::TooManyCarried`]. The default is 16 million.
    pub fn set_carried_max(&mut self, packets: u64) {
        self.limits.carried_max = packets;
    }

    /// Adapts the limit of steps to the present size of the network.
    pub(super) fn allow_steps(&mut self) {
        let parts = self.nodes.len() + self.links.len() + self.endpoints.len();
        self.limits.steps_max = STEPS + STEPS_EACH * parts as u64;
    }

    /// Returns the reason why the run is over.
    #[cold]
    pub(super) fn halt(&mut self, observer: &mut dyn Observer<H, E>) -> Halt {
        if self.limits.carried > self.limits.carried_max {
            self.too_many_carried()
        } else {
            self.zero_time_loop(observer)
        }
    }

    fn too_many_carried(&self) -> Halt {
        let carried = self.links.iter().map(|entry| entry.link.carried());
        let most = (0..).zip(carried).max_by_key(|(_, carried)| *carried);
        let (link, packets) = most.unwrap_or_default();
        Halt::TooManyCarried {
            limit: self.limits.carried_max,
            link: self.link_name(LinkId(link)),
            packets,
        }
    }

    /// Takes further steps to find the endpoints and links that take them.
    fn zero_time_loop(&mut self, observer: &mut dyn Observer<H, E>) -> Halt {
        let before = (self.delivered(), self.received_packets());
        let mut timers = BTreeMap::new();
        (self.limits.steps, self.limits.steps_max) = (0, WATCHED);
        let stuck = core::mem::take(&mut self.limits.stuck);
        while self.limits.hold()
            && let Some((_, due)) = self.events.pop_until(self.now)
        {
            if let Due::Timer(endpoint) = due {
                *timers.entry(endpoint).or_insert(0) += 1;
            }
            self.handle(due, observer);
        }
        let mut served = since(&before.1, self.received_packets());
        for (endpoint, times) in timers {
            *served.entry(endpoint).or_insert(0) += times;
        }
        for endpoint in stuck {
            served.entry(endpoint).or_insert(1);
        }
        let named = |id: u32| (EndpointId(id), self.endpoint_name(id));
        let links = busiest(since(&before.0, self.delivered()));
        Halt::ZeroTimeLoop {
            at: self.now,
            endpoints: busiest(served).into_iter().map(named).collect(),
            links: links
                .into_iter()
                .map(|id| self.link_name(LinkId(id)))
                .collect(),
        }
    }

    fn delivered(&self) -> Vec<u64> {
        let links = self.links.iter();
        links.map(|entry| entry.link.counters().delivered).collect()
    }

    fn received_packets(&self) -> Vec<u64> {
        let entries = self.endpoints.iter();
        entries.map(|entry| entry.received.packets).collect()
    }

    fn endpoint_name(&self, id: u32) -> String {
        let node = self.endpoints[id as usize].node;
        format!("endpoint {id} at {}", self.name(node))
    }
}

/// Returns the numbers of the counters that have grown since, and by how much.
fn since(before: &[u64], now: Vec<u64>) -> BTreeMap<u32, u64> {
    let grown = before.iter().zip(now).map(|(before, now)| now - before);
    (0..).zip(grown).filter(|(_, by)| *by > 0).collect()
}

/// Returns the numbers with the largest counts.
fn busiest(counts: BTreeMap<u32, u64>) -> Vec<u32> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
    let numbers = counts.into_iter().map(|(number, _)| number);
    numbers.take(NAMED).collect()
}
