//! Expands `[[overlays]]`: the nodes with daemons, and the links between daemons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use manyflow_core::EndpointId;
use manyflow_overlay::topology::{TopologyError, WEIGHT_MAX};
use manyflow_overlay::{self as overlay, DaemonId, GroupId};

use crate::plan::ids::Ids;
use crate::plan::topology::{Reach, Topology};
use crate::schema::Schema;
use crate::schema::protocols::{OverlayLinkEntry, OverlaySessionTable, OverlayTable};
use manyflow_model::error::{Fault, Problem};

/// All overlays of a scenario, in the order of their tables.
#[derive(Clone, Debug)]
pub struct Overlays(pub Vec<Overlay>);

/// An overlay.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// The name in the scenario.
    pub name: String,
    /// The node of each daemon.
    pub nodes: Vec<u32>,
    /// The endpoint of each daemon.
    pub endpoints: Ids,
    by_node: BTreeMap<u32, DaemonId>,
    /// The links between daemons.
    pub topology: Arc<overlay::Topology>,
}

/// The place of an overlay session: its overlay, its group and its sending clients.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Affiliation {
    /// The index of the overlay.
    pub overlay: usize,
    /// The number of the group.
    pub group: GroupId,
    /// The daemon of the sending clients.
    pub sender: DaemonId,
    /// The number of sending clients.
    pub clients: u32,
}

/// The groups of all overlays, numbered in the order in which sessions name them.
pub type GroupNumbers = BTreeMap<(usize, String), GroupId>;

impl Overlays {
    /// Expands all overlays of a scenario.
    pub fn new(schema: &Schema, topology: &Topology) -> Result<Overlays, Fault> {
        let mut overlays: Vec<Overlay> = Vec::with_capacity(schema.overlays.len());
        for table in &schema.overlays {
            let within = |fault: Fault| fault.within(&table.name).within("overlays");
            if overlays.iter().any(|other| other.name == table.name) {
                let message = format!("there are two overlays called `{}`", table.name);
                return Err(within(refuse("name", message)));
            }
            table.check().map_err(within)?;
            overlays.push(Overlay::new(table, topology).map_err(within)?);
        }
        Ok(Overlays(overlays))
    }

    /// Returns the index of a session's overlay.
    pub fn of_session(&self, table: &OverlaySessionTable) -> Result<usize, Problem> {
        let names = || self.0.iter().map(|overlay| overlay.name.as_str());
        let Some(name) = &table.overlay else {
            let message = match self.0.len() {
                1 => return Ok(0),
                0 => "there is no overlay: give one in `[[overlays]]`",
                _ => "there are several overlays: name one",
            };
            return Err(Problem::Value(message.to_owned()));
        };
        let found = names().position(|known| known == name);
        found.ok_or_else(|| Problem::unknown("overlay", name, names()))
    }

    /// Returns overlay and daemon, if `OVERLAY/NODE` names them.
    pub fn daemon_named(&self, name: &str, topology: &Topology) -> Option<(usize, DaemonId)> {
        let (overlay, node) = name.split_once('/')?;
        let index = self.0.iter().position(|known| known.name == overlay)?;
        let nodes = topology.nodes_named(node).ok()?;
        let daemon = self.0[index].daemon_at(nodes.start)?;
        (nodes.len() == 1).then_some((index, daemon))
    }

    /// Returns overlay and link for `A-B`, the link's ends. If several overlays have such a
    /// link, the name has to be `OVERLAY/A-B`.
    pub fn link_named(
        &self,
        name: &str,
        topology: &Topology,
    ) -> Result<(usize, overlay::LinkId), Problem> {
        let (of, ends) = match name.split_once('/') {
            Some((of, ends)) => (Some(of), ends),
            None => (None, name),
        };
        let candidates = self.0.iter().enumerate();
        let candidates = candidates.filter(|(_, overlay)| of.is_none_or(|of| of == overlay.name));
        let links = candidates
            .filter_map(|(index, overlay)| Some((index, overlay.link_named(ends, topology)?)));
        let links: Vec<_> = links.collect();
        match links.as_slice() {
            [link] => Ok(*link),
            [] => {
                let known = self.link_names(topology);
                let known = known.iter().map(String::as_str);
                Err(Problem::unknown("link of an overlay", name, known))
            }
            _ => {
                let message =
                    format!("several overlays have a link `{ends}`: write `OVERLAY/{ends}`");
                Err(Problem::Value(message))
            }
        }
    }

    /// Returns the name of a link, `A-B`.
    pub fn link_name(&self, overlay: usize, link: overlay::LinkId, topology: &Topology) -> String {
        let overlay = &self.0[overlay];
        let [from, to] = [link.from, link.to].map(|end| overlay.node_name(end, topology));
        format!("{from}-{to}")
    }

    fn link_names(&self, topology: &Topology) -> BTreeSet<String> {
        let links = self.0.iter().enumerate().flat_map(|(index, overlay)| {
            let links = overlay.topology.links();
            links.map(move |link| (index, link))
        });
        links
            .map(|(index, link)| self.link_name(index, link, topology))
            .collect()
    }
}

impl Overlay {
    fn new(table: &OverlayTable, topology: &Topology) -> Result<Overlay, Fault> {
        let nodes = daemons(table, topology)?;
        let by_node: BTreeMap<u32, DaemonId> = nodes
            .iter()
            .zip(0u16..)
            .map(|(node, number)| (*node, DaemonId(number)))
            .collect();
        let links = match table.links.is_empty() {
            true => network_links(topology, &by_node),
            false => overlay_links(table, topology, &by_node)?,
        };
        let node_name = |daemon: DaemonId| topology.nodes.get(nodes[usize::from(daemon.0)]);
        let joined = overlay::Topology::new(by_node.values().copied(), &links);
        let joined = joined.map_err(|error| match error {
            TopologyError::Apart(daemon) => {
                let [first, other] = [DaemonId(0), daemon].map(node_name);
                let message = format!("no links of the overlay lead from `{first}` to `{other}`");
                refuse("links", message)
            }
            TopologyError::Superfluous(link) => {
                let [a, b] = [links[link].0, links[link].1].map(node_name);
                refuse(
                    "links",
                    format!("`{a}-{b}` appears twice, or joins a daemon to itself"),
                )
            }
            other => refuse("links", other.to_string()),
        })?;
        check_reach(&nodes, topology)?;
        Ok(Overlay {
            name: table.name.clone(),
            nodes,
            endpoints: Ids::default(),
            by_node,
            topology: Arc::new(joined),
        })
    }

    /// Returns the daemon at a node.
    pub fn daemon_at(&self, node: u32) -> Option<DaemonId> {
        self.by_node.get(&node).copied()
    }

    /// Returns the endpoint of a daemon.
    pub fn endpoint(&self, daemon: DaemonId) -> EndpointId {
        self.endpoints.at(daemon.0.into())
    }

    /// Returns the name of a daemon's node.
    pub fn node_name<'t>(&self, daemon: DaemonId, topology: &'t Topology) -> &'t str {
        topology.nodes.get(self.nodes[usize::from(daemon.0)])
    }

    /// Returns the link with these ends. Names of nodes may contain dashes.
    fn link_named(&self, name: &str, topology: &Topology) -> Option<overlay::LinkId> {
        let daemon = |name: &str| {
            let nodes = topology.find_nodes(name)?;
            self.daemon_at(nodes.start).filter(|_| nodes.len() == 1)
        };
        let mut dashes = name.match_indices('-');
        dashes.find_map(|(dash, _)| {
            let (from, to) = (daemon(&name[..dash])?, daemon(&name[dash + 1..])?);
            self.topology.link(from, to)
        })
    }
}

/// Returns the nodes with daemons, in the order of the table.
fn daemons(table: &OverlayTable, topology: &Topology) -> Result<Vec<u32>, Fault> {
    let mut nodes = Vec::new();
    let mut known = BTreeSet::new();
    for name in &table.daemons {
        let named = topology.nodes_named(name);
        for node in named.map_err(|problem| Fault::at(&["daemons"], problem))? {
            if !known.insert(node) {
                let name = topology.nodes.get(node);
                return Err(refuse("daemons", format!("`{name}` appears twice")));
            }
            nodes.push(node);
        }
    }
    match nodes.len() {
        0 => Err(refuse("daemons", "an overlay needs at least one daemon")),
        1..=65_535 => Ok(nodes),
        _ => Err(refuse(
            "daemons",
            "an overlay can have at most 65,535 daemons",
        )),
    }
}

/// The two ends of an overlay link, and its weight.
type Link = (DaemonId, DaemonId, u32);

/// Returns an overlay link for each link of the network that joins two daemons.
///
/// The weights are in proportion to the delays of these links. Messages then take the routes of the
/// network, which are those of the shortest delay. With equal weights, an overlay link could be on
/// a path although the network has a shorter route between its ends, and the route shares links
/// of the network with other overlay links.
fn network_links(topology: &Topology, by_node: &BTreeMap<u32, DaemonId>) -> Vec<Link> {
    let mut known = BTreeSet::new();
    let mut links = Vec::new();
    for link in &topology.links {
        let ends = [link.from, link.to].map(|node| by_node.get(&node).copied());
        if let [Some(from), Some(to)] = ends
            && known.insert((from.min(to), from.max(to)))
        {
            links.push((from, to, link.config.delay.as_secs_f64()));
        }
    }
    let longest_s = links.iter().map(|link| link.2).fold(0.0, f64::max);
    let weight = |delay_s: f64| (delay_s / longest_s * f64::from(WEIGHT_MAX)).round() as u32;
    // Without any delay, the quotient is no number, and the weight 1.
    let links = links.into_iter();
    links
        .map(|(from, to, delay_s)| (from, to, weight(delay_s).max(1)))
        .collect()
}

/// Returns the overlay links that the table lists.
fn overlay_links(
    table: &OverlayTable,
    topology: &Topology,
    by_node: &BTreeMap<u32, DaemonId>,
) -> Result<Vec<Link>, Fault> {
    let mut links = Vec::new();
    for (index, OverlayLinkEntry(entry)) in table.links.iter().enumerate() {
        let within = |fault: Fault| fault.within(&index.to_string()).within("links");
        let ends = |name: &String| daemons_named(name, topology, by_node).map_err(within);
        let [from, to] = &entry.between;
        let (from, to) = (ends(from)?, ends(to)?);
        let weight = entry.weight.map_or(1, |weight| weight.get());
        if weight < 1 {
            return Err(within(refuse("weight", "a weight has to be at least 1")));
        }
        let pairs = from
            .iter()
            .flat_map(|&a| to.iter().map(move |&b| (a, b, weight)));
        links.extend(pairs);
    }
    Ok(links)
}

/// Returns the daemons at a node, or at the nodes of a group.
fn daemons_named(
    name: &str,
    topology: &Topology,
    by_node: &BTreeMap<u32, DaemonId>,
) -> Result<Vec<DaemonId>, Fault> {
    let nodes = topology.nodes_named(name);
    let nodes = nodes.map_err(|problem| Fault::at(&[], problem))?;
    let daemon = |node: u32| {
        by_node.get(&node).copied().ok_or_else(|| {
            let name = topology.nodes.get(node);
            Fault::value(format!("there is no daemon at `{name}`"))
        })
    };
    nodes.map(daemon).collect()
}

/// Checks that the first daemon can exchange packets with every other one.
fn check_reach(nodes: &[u32], topology: &Topology) -> Result<(), Fault> {
    let reached = Reach::new(topology).both_ways(nodes[0]);
    match nodes.iter().find(|node| !reached[**node as usize]) {
        None => Ok(()),
        Some(&far) => {
            let [from, to] = [nodes[0], far].map(|node| topology.nodes.get(node));
            let message = format!("no links of the network lead from `{from}` to `{to}` and back");
            Err(refuse("daemons", message))
        }
    }
}

fn refuse(key: &str, message: impl ToString) -> Fault {
    Fault::at(&[key], Problem::Value(message.to_string()))
}
