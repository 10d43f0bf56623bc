//! Limits that end a run: time does not advance, or the links carry more packets than fit into
//! memory.
//!
//! Each event and each action of an endpoint is a step. If links have neither a rate nor a delay,
//! endpoints that answer each other take steps at one instant without end. A run that takes more
//! steps at one instant than a network of its size can need ends with an error, which names the
//! endpoints and links that take them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manyflow_core::{EndpointId, Header, Time};

use super::events::Due;
use super::{LinkId, Network, Observer};

/// The number of steps that a network of any size may take at one instant: four windows of TCP of
/// the maximum size, 2^20 segments.
const STEPS: u64 = 1 << 22;
/// The number of additional steps for each node, link and endpoint. When a million receivers start
/// at one instant, each joins a dozen channels hop by hop and receives a burst of packets. This
/// takes fewer than a hundred steps for each node and link on the path.
const STEPS_EACH: u64 = 1000;
/// The number of steps that are observed to find the endpoints and links in a loop. It covers a
/// whole round of TCP with its maximum window, so that both ends and both directions take some.
const WATCHED: u64 = STEPS;
/// The maximum number of endpoints, and of links, that an error names.
const NAMED: usize = 4;
/// The maximum depth of calls between endpoints at one node that answer each other by multicast.
/// Each level takes about a kilobyte of the thread's stack.
const NESTED_MAX: u32 = 1000;
/// The default of the maximum number of packets that all links carry together: up to 2 GB.
const CARRIED_MAX: u64 = 16_000_000;

/// The reason why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Halt {
    /// Endpoints answer each other, or a timer expires, without end while no time passes.
    #[error(
        "time stands still at {} s: these act without end while no time passes: {}; {}",
        .at.as_secs_f64(), listed(.endpoints, .links), remedy(.links)
    )]
    ZeroTimeLoop {
        /// The instant at which time does not advance.
        at: Time,
        /// The endpoints in the loop, with their names. The busiest one comes first.
        endpoints: Vec<(EndpointId, String)>,
        /// The names of the links in the loop. The busiest one comes first.
        links: Vec<String>,
    },
    /// All links together carry more packets than the limit allows.
    #[error(
        "the links carry more than {limit} packets, {packets} of them link {link}: limit its `queue`, shorten its `delay`, or set a higher limit"
    )]
    TooManyCarried {
        /// The maximum number of packets.
        limit: u64,
        /// The link that carries the most packets.
        link: String,
        /// The number of packets that this link carries.
        packets: u64,
    },
    /// The caller has [stopped](Stop) the run.
    #[error("the run was stopped")]
    Stopped,
    /// Several threads cannot finish the run, for this reason: one thread has to make it again from
    /// the beginning. See [`Network::set_threads`].
    #[error("this run needs one thread: {0}")]
    OneThread(&'static str),
    /// The world outside the network failed, or ended the run. The simulator has no such world.
    #[error("{0}")]
    Outside(String),
}

/// Stops runs from another thread. Clones stop the same runs.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the runs that were started with a clone of this value, and those that will be.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the runs have been stopped.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lists endpoints and links: `endpoint 0 at S, endpoint 1 at R, link S-R, link R-S`.
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

/// The resources that a run uses, and their limits.
#[derive(Debug)]
pub(super) struct Limits {
    /// The number of steps at the current instant.
    pub(super) steps: u64,
    pub(super) steps_max: u64,
    /// The depth of calls between endpoints at one node that answer each other by multicast.
    nested: u32,
    /// The endpoints whose actions were refused when the steps ran out.
    stuck: Vec<u32>,
    /// The number of packets that all links carry.
    pub(super) carried: u64,
    pub(super) carried_max: u64,
    pub(super) stop: Stop,
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
            stop: Stop::default(),
        }
    }
}

impl Limits {
    /// Returns whether the run is within its limits, and has not been stopped.
    #[inline]
    pub(super) fn hold(&self) -> bool {
        self.steps <= self.steps_max
            && self.carried <= self.carried_max
            && !self.stop.is_requested()
    }

    /// Counts an action of an endpoint. Returns false if the endpoint would never end, so that the
    /// action must not be done. If the steps have just run out, the action is done nevertheless:
    /// dropping a packet could break the loop that is to be reported.
    #[inline]
    pub(super) fn allow(&mut self, endpoint: u32) -> bool {
        self.steps += 1;
        let goes_on = self.steps <= 2 * self.steps_max;
        if !goes_on {
            self.note_stuck(endpoint);
        }
        goes_on
    }

    /// Counts a call that drains an endpoint as begun.
    #[inline]
    pub(super) fn nest(&mut self) {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            // The endpoints that wait for this one must not take any other action either.
            self.steps = u64::MAX / 2;
        }
    }

    /// Counts a call that drains an endpoint as ended.
    #[inline]
    pub(super) fn unnest(&mut self) {
        self.nested -= 1;
    }

    #[cold]
    fn note_stuck(&mut self, endpoint: u32) {
        if self.stuck.len() < NAMED && !self.stuck.contains(&endpoint) {
            self.stuck.push(endpoint);
        }
    }
}

impl<H: Header, E> Network<H, E> {
    /// Sets the maximum number of packets that all links together may carry. A run that exceeds it
    /// ends with [`Halt::TooManyCarried`]. The default is 16 million.
    pub fn set_carried_max(&mut self, packets: u64) {
        self.limits.carried_max = packets;
    }

    /// Ends the run with [`Halt::Stopped`] after the event at which `stop` is requested.
    pub fn set_stop(&mut self, stop: Stop) {
        self.limits.stop = stop;
    }

    /// Adapts the maximum number of steps to the size of the network.
    pub(super) fn allow_steps(&mut self) {
        let parts = self.nodes.len() + self.links.len() + self.endpoints.len();
        self.limits.steps_max = STEPS + STEPS_EACH * parts as u64;
    }

    /// Returns the reason why the run has to end.
    #[cold]
    pub(super) fn halt(&mut self, observer: &mut dyn Observer<H, E>) -> Halt {
        if self.limits.stop.is_requested() {
            Halt::Stopped
        } else if self.limits.carried > self.limits.carried_max {
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

    /// Takes further steps to find the endpoints and links in a loop.
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

    pub(super) fn delivered(&self) -> Vec<u64> {
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

/// Returns the indexes of the counters that have grown, with their growth.
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
