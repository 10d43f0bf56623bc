//! Makes the parts of a network that has not run yet.

use core::mem::take;
use std::sync::Arc;

use core::time::Duration;
use manyflow_core::{Header, Time};

use super::border::{Arrivals, Border, Map};
use super::log::Log;
use super::partition::{Edge, Partition, partition};
use super::{Parallel, Part, Windows};
use crate::engine::events::Due;
use crate::engine::{Change, LinkEntry, LinkId, Network, Node, NodeId};

impl<H: Header, E> Network<H, E> {
    /// Divides the network into parts. Returns false if it has to stay whole.
    pub(super) fn divide(&mut self, count: usize) -> bool {
        let partition = match self.is_new() {
            true => self.find_partition(count),
            false => None,
        };
        let Some(partition) = partition else {
            return false;
        };
        self.allow_steps();
        let map = Arc::new(self.map(partition.parts, count));
        let graph = Arc::new(self.graph());
        let mut parts: Vec<_> = (0..count)
            .map(|part| self.part(part, count, &map))
            .collect();
        for (part, network) in parts.iter_mut().enumerate() {
            let border = Border::new(part, count, &map, &graph);
            network.routes = self.routes.clone();
            let computed = network.routes.iter_mut().filter(|to| !to.is_empty());
            computed.for_each(|routes| border.keep_own(routes));
            network.border = Some(Box::new(border));
        }
        self.move_endpoints(&mut parts, &map);
        self.move_links(&mut parts, &map);
        self.move_events(&mut parts, &map);
        self.nodes = Vec::new();
        self.parallel = Some(Box::new(Parallel {
            parts: parts.into_iter().map(Part::new).collect(),
            map,
            graph,
            lookahead: partition.lookahead,
            number: self.events.sequence(),
            counts: Windows {
                parts: count,
                lookahead: partition.lookahead,
                ..Windows::default()
            },
            events: 0,
        }));
        true
    }

    /// Returns whether nothing has happened in the network.
    fn is_new(&self) -> bool {
        self.now == Time::ZERO
            && self.packets.references() == 0
            && self.messages.is_empty()
            && self.nodes.iter().all(|node| node.groups.is_empty())
    }

    fn find_partition(&self, count: usize) -> Option<Partition> {
        let changing = self.changes.iter();
        let changing: Vec<_> = changing
            .map(|(Change::Configure(link, _) | Change::Cut(link, _))| *link)
            .collect();
        // Each packet is an event at each node to which a link brings it, and at endpoints it takes
        // about as long again.
        let mut weights = vec![0; self.nodes.len()];
        for entry in &self.endpoints {
            weights[entry.node.0 as usize] = 1;
        }
        let links = (0..).map(LinkId).zip(&self.links);
        let edges: Vec<_> = links
            .map(|(link, entry)| {
                weights[entry.to.0 as usize] += 1;
                let is_whole = self.whole.contains(&link) || changing.contains(&link);
                Edge {
                    from: entry.from.0,
                    to: entry.to.0,
                    lookahead: entry.lookahead().filter(|_| !is_whole),
                }
            })
            .collect();
        partition(&weights, &edges, count)
    }

    fn map(&self, part_of_node: Vec<u16>, count: usize) -> Map {
        let part = |node: NodeId| usize::from(part_of_node[node.0 as usize]);
        let mut sizes = vec![0; count];
        let place = |at: usize, sizes: &mut [u32]| {
            sizes[at] += 1;
            sizes[at] - 1
        };
        let nodes = self.endpoints.iter().map(|entry| entry.node);
        let endpoints = nodes.map(|node| place(part(node), &mut sizes)).collect();
        let mut sizes = vec![0; count];
        let mut links = vec![0; self.links.len()];
        // Links that leave their part come last.
        for leaves in [false, true] {
            for (link, entry) in links.iter_mut().zip(&self.links) {
                let from = part(entry.from);
                if leaves == (from != part(entry.to)) {
                    *link = place(from, &mut sizes);
                }
            }
        }
        Map {
            endpoints,
            links,
            node_of_endpoint: self.endpoints.iter().map(|entry| entry.node).collect(),
            ends: self
                .links
                .iter()
                .map(|entry| (entry.from, entry.to))
                .collect(),
            part_of_node,
        }
    }

    /// Returns a part without links and endpoints.
    fn part(&self, part: usize, count: usize, map: &Map) -> Network<H, E> {
        let mut network = Network::new(self.seed);
        let own = |node: NodeId| map.part(node) == part;
        let endpoints = map.node_of_endpoint.iter().filter(|node| own(**node));
        network.endpoints.reserve_exact(endpoints.count());
        let links = map.ends.iter().filter(|(from, _)| own(*from));
        network.links.reserve_exact(links.count());
        network.nodes.resize_with(self.nodes.len(), Node::default);
        network.sources = self.sources.clone();
        network.leave_latency = self.leave_latency;
        network.traced = self.traced;
        network.limits.stop = self.limits.stop.clone();
        network.limits.steps_max = self.limits.steps_max / count as u64;
        network
    }

    fn move_endpoints(&mut self, parts: &mut [Network<H, E>], map: &Map) {
        for entry in take(&mut self.endpoints) {
            parts[map.part(entry.node)].endpoints.push(entry);
        }
    }

    fn move_links(&mut self, parts: &mut [Network<H, E>], map: &Map) {
        let mut exits: Vec<Vec<LinkEntry>> = parts.iter().map(|_| Vec::new()).collect();
        for (link, mut entry) in (0..).map(LinkId).zip(take(&mut self.links)) {
            entry.reverse = entry.reverse.map(|link| LinkId(map.link(link).1));
            let (from, to) = (map.part(entry.from), map.part(entry.to));
            if from == to {
                parts[from].links.push(entry);
                continue;
            }
            let border = parts[to].border.as_mut().expect("parts have borders");
            let place = border.arrivals.len() as u32;
            border.links.push(link.0);
            border.arrivals.push(Arrivals::new(&entry));
            let border = parts[from].border.as_mut().expect("parts have borders");
            border.exits.push((to as u32, place));
            exits[from].push(entry);
        }
        for (part, mut exits) in parts.iter_mut().zip(exits) {
            part.exits_from = part.links.len() as u32;
            part.links.append(&mut exits);
        }
    }

    /// Gives each part the timers of its endpoints. Changes stay in the whole network.
    fn move_events(&mut self, parts: &mut [Network<H, E>], map: &Map) {
        for key in self.events.drain() {
            match key.due() {
                Due::Timer(endpoint) => {
                    let node = map.node_of_endpoint[endpoint as usize];
                    let due = Due::Timer(map.endpoints[endpoint as usize]);
                    let events = &mut parts[map.part(node)].events;
                    events.push_numbered(key.time(), key.number(), due);
                }
                due => self.events.push_numbered(key.time(), key.number(), due),
            }
        }
    }
}

impl LinkEntry {
    /// Returns the delay if the ends of the link can be in two parts.
    fn lookahead(&self) -> Option<Duration> {
        let config = self.link.config();
        let is_certain = config.aqm.is_none() && config.jitter.is_zero();
        (is_certain && !config.delay.is_zero()).then_some(config.delay)
    }
}

impl<H> Arrivals<H> {
    fn new(entry: &LinkEntry) -> Arrivals<H> {
        Arrivals {
            to: entry.to,
            tapped: entry.tapped,
            packets: Default::default(),
            last: 0,
        }
    }
}

impl<H> Border<H> {
    fn new(part: usize, count: usize, map: &Arc<Map>, graph: &Arc<super::Graph>) -> Border<H> {
        let own = |node: NodeId| map.part(node) == part;
        let endpoints = (0..).zip(&map.node_of_endpoint);
        let endpoints = endpoints.filter(|(_, node)| own(**node));
        let links = (0..).zip(&map.ends);
        let inner = links
            .clone()
            .filter(|(_, (from, to))| own(*from) && own(*to));
        let exits = links.filter(|(_, (from, to))| own(*from) && !own(*to));
        Border {
            part,
            endpoints: endpoints.map(|(endpoint, _)| endpoint).collect(),
            links: inner.chain(exits).map(|(link, _)| link).collect(),
            exits: Vec::new(),
            arrivals: Vec::new(),
            reserved: Vec::new(),
            outboxes: (0..count).map(|_| Vec::new()).collect(),
            map: Arc::clone(map),
            graph: Arc::clone(graph),
        }
    }
}

impl<H, E> Part<H, E> {
    fn new(network: Network<H, E>) -> Part<H, E> {
        Part {
            network,
            log: Log::default(),
            numbers: Vec::new(),
            base: super::FINAL,
            window: (Time::ZERO, 0),
            inbox: Vec::new(),
            inbox_from: Time::MAX,
            is_over: false,
        }
    }
}
