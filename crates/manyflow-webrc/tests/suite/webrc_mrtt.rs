//! The multicast round-trip time on random trees (sections 4.4 to 4.8 of the paper): what receivers
//! of one wave measure, by the times of their joins.

use std::convert::Infallible;
use std::time::Duration;

use manyflow_core::{Action, Channel, Endpoint, Packet, Rate, Time};
use manyflow_netsim::{Network, NodeId, Probe};
use manyflow_webrc::{Cci, Event, Sender, Session, SessionConfig};
use proptest::prelude::*;

use crate::world::delay;

manyflow_netsim::protocols! {
    enum Packets;
    enum Events;
    /// WEBRC, whose sender receives nothing and whose receivers send nothing.
    Webrc: Cci, Event;
}

/// The maximum spacing of the wave's packets while receivers join, in seconds. A measurement
/// contains a wait for the next packet.
const SPACING_S: f64 = 0.003;

/// Joins a channel at a time, and keeps the time of its first packet.
#[derive(Debug)]
struct Joiner {
    channel: Channel,
    at: Time,
    has_joined: bool,
    first: Option<Time>,
}

impl Endpoint for Joiner {
    type Rx = Cci;
    type Tx = Infallible;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, _packet: &Packet<Cci>) {
        self.first.get_or_insert(now);
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, now: Time) -> Option<Action<Infallible>> {
        if self.has_joined || now < self.at {
            return None;
        }
        self.has_joined = true;
        Some(Action::Join(self.channel))
    }

    fn poll_timeout(&self) -> Option<Time> {
        (!self.has_joined).then_some(self.at)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// A node below the sender, which is node 0.
#[derive(Clone, Debug)]
struct Edge {
    /// The node above, by its number.
    parent: usize,
    down_ms: u64,
    up_ms: u64,
}

impl Edge {
    fn cycle_s(&self) -> f64 {
        (self.down_ms + self.up_ms) as f64 / 1e3
    }
}

/// A tree of `edges`, where edge k leads to node k + 1. Receivers have nodes and join times.
#[derive(Clone, Debug)]
struct Tree {
    edges: Vec<Edge>,
    receivers: Vec<(usize, u64)>,
}

/// Random trees, with one to six receivers that join within `span_ms`.
fn trees(span_ms: u64) -> impl Strategy<Value = Tree> {
    let edge = (any::<prop::sample::Index>(), 0u64..60, 1u64..60);
    let receiver = (any::<prop::sample::Index>(), 0..=span_ms);
    let edges = prop::collection::vec(edge, 1..8);
    (edges, prop::collection::vec(receiver, 1..7)).prop_map(|(edges, receivers)| {
        let edges: Vec<Edge> = (1..)
            .zip(edges)
            .map(|(nodes, (parent, down_ms, up_ms))| Edge {
                parent: parent.index(nodes),
                down_ms,
                up_ms,
            })
            .collect();
        let nodes = edges.len();
        let receivers = receivers.into_iter();
        Tree {
            receivers: receivers
                .map(|(node, at)| (1 + node.index(nodes), at))
                .collect(),
            edges,
        }
    })
}

impl Tree {
    /// Returns the edges from a node up to the sender.
    fn path(&self, node: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = node;
        while at > 0 {
            path.push(at - 1);
            at = self.edges[at - 1].parent;
        }
        path
    }

    /// Returns the round-trip time of a receiver that is alone, in seconds.
    fn alone_s(&self, node: usize) -> f64 {
        let path = self.path(node).into_iter();
        path.map(|edge| self.edges[edge].cycle_s()).sum()
    }

    /// Returns the delays of all links that lead to a receiver, both ways, in seconds.
    fn all_links_s(&self) -> f64 {
        let nodes = self.receivers.iter();
        let mut used: Vec<usize> = nodes.flat_map(|(node, _)| self.path(*node)).collect();
        used.sort_unstable();
        used.dedup();
        used.into_iter()
            .map(|edge| self.edges[edge].cycle_s())
            .sum()
    }

    /// Returns the same tree whose receivers join this much later.
    fn later(&self, by_ms: u64) -> Tree {
        let receivers = self.receivers.iter();
        Tree {
            receivers: receivers.map(|(node, at)| (*node, at + by_ms)).collect(),
            ..self.clone()
        }
    }

    /// Runs the session, in which the receivers join its highest steady wave. Returns what each
    /// measures, in seconds.
    fn measure(&self) -> Vec<f64> {
        let config = SessionConfig::lan(Rate::from_bits_per_s(40_000_000));
        let session = Session::new(config).unwrap();
        // The third wave from the top falls evenly from the beginning of the session on.
        let number = session.active_slots() as u16 - 3;
        let mut network = Network::<Packets, Events>::new(1);
        let nodes: Vec<NodeId> = (0..=self.edges.len())
            .map(|node| network.add_node(&format!("n{node}")))
            .collect();
        for (edge, node) in self.edges.iter().zip(&nodes[1..]) {
            let parent = nodes[edge.parent];
            network.add_link(parent, *node, delay(Duration::from_millis(edge.down_ms)));
            network.add_link(*node, parent, delay(Duration::from_millis(edge.up_ms)));
        }
        assert_eq!(network.open_session(nodes[0]), 0);
        network.add(nodes[0], Sender::new(session, 0, Time::ZERO));
        // The wave is on its way everywhere before the first join.
        let joined = self.receivers.iter().map(|(_, at)| Joiner {
            channel: Channel { session: 0, number },
            at: Time::ZERO + Duration::from_millis(100 + at),
            has_joined: false,
            first: None,
        });
        let joined: Vec<Joiner> = joined.collect();
        let probes: Vec<Probe<Joiner>> = joined
            .into_iter()
            .zip(&self.receivers)
            .map(|(joiner, (node, _))| Probe::add(&mut network, nodes[*node], joiner))
            .collect();
        let last = self.receivers.iter().map(|(_, at)| *at).max().unwrap_or(0);
        let end = Time::ZERO + Duration::from_millis(100 + last + 1_000);
        network.run_until(end, &mut ()).unwrap();
        let measured = probes.iter().map(|probe| {
            let joiner = probe.get();
            let first = joiner.first.expect("a packet within a second");
            (first - joiner.at).as_secs_f64()
        });
        measured.collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Section 4.4: the measurements of all receivers add up to the delays of all links or more.
    /// Section 4.7: a receiver among others never measures more than it would alone.
    #[test]
    fn measurements_share_the_delays_of_the_tree(tree in trees(150)) {
        let measured = tree.measure();
        let sum: f64 = measured.iter().sum();
        prop_assert!(sum >= tree.all_links_s() - 1e-9, "{sum} of {}", tree.all_links_s());
        for (mrtt, (node, _)) in measured.iter().zip(&tree.receivers) {
            prop_assert!(*mrtt <= tree.alone_s(*node) + SPACING_S, "{mrtt} of {}", tree.alone_s(*node));
        }
    }

    /// Section 4.4: if each joins after the packets of the one before have come, all cycles are
    /// taut, and the measurements add up to the delays of all links.
    #[test]
    fn distant_joins_have_taut_cycles(tree in trees(0)) {
        let apart = (0..).map(|place| place * 1_000);
        let receivers = tree.receivers.iter().zip(apart).map(|((node, _), at)| (*node, at));
        let tree = Tree { receivers: receivers.take(3).collect(), ..tree.clone() };
        let sum: f64 = tree.measure().iter().sum();
        let waits = tree.receivers.len() as f64 * SPACING_S;
        let links = tree.all_links_s();
        prop_assert!((links - 1e-9..links + waits).contains(&sum), "{sum} of {links}");
    }

    /// Section 4.6: only the differences of the join times matter.
    #[test]
    fn later_joins_of_all_change_nothing(tree in trees(150), by_ms in 1u64..400) {
        for (early, late) in tree.measure().iter().zip(tree.later(by_ms).measure()) {
            prop_assert!((early - late).abs() < SPACING_S, "{early}, {late}");
        }
    }

    /// Section 4.5: of two receivers behind a router, the one that joins first measures the way to
    /// the sender and back, the other its own way to the router. So the one with the higher target
    /// rate, which joins earlier, measures more. If they join at about the same time, both measure
    /// between these two.
    #[test]
    fn the_first_of_two_measures_the_long_way(
        shared_ms in 40u64..100,
        own_ms in 1u64..20,
        apart_ms in 200u64..400,
    ) {
        let edge = |parent, ms| Edge { parent, down_ms: ms, up_ms: ms };
        let tree = Tree {
            edges: vec![edge(0, shared_ms), edge(1, own_ms), edge(1, own_ms)],
            receivers: vec![(2, 0), (3, apart_ms)],
        };
        let measured = tree.measure();
        let (long_s, short_s) = (tree.alone_s(2), 2.0 * own_ms as f64 / 1e3);
        prop_assert!((measured[0] - long_s).abs() < SPACING_S, "{measured:?}");
        prop_assert!((measured[1] - short_s).abs() < SPACING_S, "{measured:?}");
        prop_assert!(measured[0] > measured[1]);
    }
}
