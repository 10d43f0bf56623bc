//! The network of a cell, for pictures: nodes, links, sessions and overlays.

use manyflow_core::link::QueueLimit;
use manyflow_overlay::DaemonId;
use serde::Serialize;

use crate::file::Scenario;
use crate::plan::Plan;
use crate::plan::overlays::Overlay;
use crate::plan::routing::Paths;
use crate::plan::sessions::PlannedSession;
use manyflow_model::error::ScenarioError;

/// The maximum number of directions of links for each node that a picture may have.
const LINKS_PER_NODE: usize = 5;

/// The network of a cell. Nodes and links are referred to by their place in these lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Map {
    /// The names of the nodes.
    pub nodes: Vec<String>,
    /// Every direction of every link, in the order of a [`Sample`](crate::Sample)'s links.
    pub links: Vec<MapLink>,
    /// The sessions.
    pub sessions: Vec<MapSession>,
    /// The overlays.
    pub overlays: Vec<MapOverlay>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapLink {
    /// The node at which the direction begins.
    pub from: u32,
    /// The node at which the direction ends.
    pub to: u32,
    /// The rate in bit/s at the beginning of the run; `None` without a limit.
    pub rate: Option<u64>,
    /// The propagation delay in seconds.
    pub delay_s: f64,
    /// The limit of the queue in packets, if it counts packets.
    pub queue_packets: Option<u32>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapSession {
    /// The name.
    pub name: String,
    /// The name of the protocol in scenario files.
    pub protocol: String,
    /// The node of the sender.
    pub sender: u32,
    /// The nodes of the receivers.
    pub receivers: Vec<u32>,
    /// The links that carry packets from the sender to receivers: the tree of a multicast session,
    /// the paths of others. Empty for a session over an overlay.
    pub links: Vec<u32>,
    /// The overlay, and the places in its links of those that carry messages from the sender's
    /// daemon to those of the receivers.
    pub overlay: Option<(usize, Vec<u32>)>,
}

/// An overlay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapOverlay {
    /// The name.
    pub name: String,
    /// The nodes with daemons.
    pub daemons: Vec<u32>,
    /// The nodes at the ends of each link, in the order of a [`Sample`](crate::Sample)'s links of
    /// this overlay.
    pub links: Vec<(u32, u32)>,
    /// Whether links have prices.
    pub has_prices: bool,
}

impl Scenario {
    /// Returns the network of a cell, or `None` if it has more than `nodes_max` nodes, or more than
    /// five times as many directions of links.
    ///
    /// # Errors
    /// Returns the error in the cell's values. A file that [`parse`](Scenario::parse) has accepted
    /// has no such error.
    pub fn map(&self, cell: usize, nodes_max: usize) -> Result<Option<Map>, ScenarioError> {
        let planned = Plan::new(self.cell(cell)?);
        let plan = planned.map_err(|fault| self.place(fault))?;
        let (nodes, links) = (plan.topology.nodes.len(), plan.topology.links.len());
        let is_small = nodes <= nodes_max && links <= LINKS_PER_NODE * nodes_max;
        Ok(is_small.then(|| map(&plan)))
    }
}

fn map(plan: &Plan) -> Map {
    let mut paths = Paths::new(&plan.topology);
    let link = |direction: &crate::Direction| MapLink {
        from: direction.from,
        to: direction.to,
        rate: direction.config.rate.map(|rate| rate.bits_per_s()),
        delay_s: direction.config.delay.as_secs_f64(),
        queue_packets: match direction.config.queue {
            QueueLimit::Packets(packets) => Some(packets),
            _ => None,
        },
    };
    let sessions = plan.sessions.0.iter();
    Map {
        nodes: plan.topology.nodes.iter().map(str::to_owned).collect(),
        links: plan.topology.links.iter().map(link).collect(),
        sessions: sessions.map(|of| session(of, plan, &mut paths)).collect(),
        overlays: (0..plan.overlays.0.len())
            .map(|number| overlay(number, plan))
            .collect(),
    }
}

fn session(session: &PlannedSession, plan: &Plan, paths: &mut Paths<'_>) -> MapSession {
    let receivers: Vec<u32> = session.receivers.iter().map(|r| r.node).collect();
    let mut links: Vec<u32> = match session.affiliation {
        Some(_) => Vec::new(),
        None => {
            let ends = receivers.iter();
            ends.flat_map(|&node| paths.find_links(session.sender, node))
                .collect()
        }
    };
    links.sort_unstable();
    links.dedup();
    MapSession {
        name: session.name.clone(),
        protocol: session.protocol.name().to_owned(),
        sender: session.sender,
        links,
        overlay: session.affiliation.map(|own| {
            let overlay = &plan.overlays.0[own.overlay];
            (own.overlay, tree(overlay, own.sender, &receivers))
        }),
        receivers,
    }
}

/// Returns the places of the overlay links that lead from a daemon to those of the receivers.
fn tree(overlay: &Overlay, root: DaemonId, receivers: &[u32]) -> Vec<u32> {
    let mut used = vec![false; overlay.topology.links().count()];
    for daemon in receivers.iter().filter_map(|&node| overlay.daemon_at(node)) {
        for link in overlay.topology.path(root, daemon) {
            if let Some(place) = overlay.topology.links().position(|known| known == link) {
                used[place] = true;
            }
        }
    }
    let places = (0u32..).zip(used).filter(|(_, is_used)| *is_used);
    places.map(|(place, _)| place).collect()
}

fn overlay(number: usize, plan: &Plan) -> MapOverlay {
    let overlay = &plan.overlays.0[number];
    let node = |daemon: DaemonId| overlay.nodes[usize::from(daemon.0)];
    MapOverlay {
        name: overlay.name.clone(),
        daemons: overlay.nodes.clone(),
        links: overlay
            .topology
            .links()
            .map(|link| (node(link.from), node(link.to)))
            .collect(),
        has_prices: plan.cell.schema.overlays[number].prices().is_some(),
    }
}
