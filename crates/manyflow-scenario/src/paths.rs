//! The paths of packets in networks that have several, and links by their names.

use std::collections::BTreeSet;

use crate::file::Scenario;
use crate::plan::Plan;
use crate::plan::routing::Paths;
use crate::plan::topology::Topology;
use manyflow_model::error::{Problem, ScenarioError};
use manyflow_netsim::LinkId;

/// The path of a session's packets from its sender to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPath {
    /// The name of the session.
    pub session: String,
    /// The names of the nodes, from the sender's to the receiver's.
    pub nodes: Vec<String>,
}

impl Scenario {
    /// Returns the links of a cell that these names stand for. The name of an entry stands for its
    /// links in both directions, and `A-B` for one direction. Without names, returns both
    /// directions of the only link with a limited rate, or of the only link.
    ///
    /// # Errors
    /// Returns an error for an unknown name, or if there is no name and several links could be
    /// meant.
    pub fn links_to_capture(
        &self,
        cell: usize,
        names: &[String],
    ) -> Result<BTreeSet<LinkId>, Problem> {
        let cell = self.cell(cell).map_err(|error| error.problem)?;
        let topology = Topology::new(&cell.schema).map_err(|fault| fault.problem)?;
        if names.is_empty() {
            return Ok(topology.bottleneck()?.into_iter().map(LinkId).collect());
        }
        let mut chosen = BTreeSet::new();
        for name in names {
            chosen.extend(topology.both_directions(name)?.into_iter().map(LinkId));
        }
        Ok(chosen)
    }

    /// Returns the paths of a cell's packets from senders to receivers, at most `paths_max` of
    /// them, and the number of the others. Returns none if the network has no circle, so that only
    /// one path leads from a node to another. Messages of overlays take the paths of their daemons.
    ///
    /// A run chooses each path once, by the shortest delay and then by the fewest links. It does
    /// not change when a link is cut.
    ///
    /// # Errors
    /// Returns the error in the cell's values. There is none after [`parse`](Scenario::parse)
    /// accepted the file.
    pub fn chosen_paths(
        &self,
        cell: usize,
        paths_max: usize,
    ) -> Result<(Vec<ChosenPath>, usize), ScenarioError> {
        let plan = Plan::new(self.cell(cell)?).map_err(|fault| self.place(fault))?;
        if !has_circle(&plan.topology) {
            return Ok((Vec::new(), 0));
        }
        let sessions = plan.sessions.0.iter();
        let direct = sessions.filter(|session| session.affiliation.is_none());
        let pairs: Vec<_> = direct
            .flat_map(|session| {
                let nodes: BTreeSet<u32> = session.receivers.iter().map(|r| r.node).collect();
                nodes.into_iter().map(move |node| (session, node))
            })
            .collect();
        let mut paths = Paths::new(&plan.topology);
        let shown = pairs.iter().take(paths_max);
        let chosen = shown.map(|&(session, node)| {
            let numbers = match session.protocol.is_multicast() {
                true => paths
                    .find_path(session.sender, node)
                    .into_iter()
                    .rev()
                    .collect(),
                false => paths.find_unicast(session.sender, node),
            };
            let name = |node: u32| plan.topology.nodes.get(node).to_string();
            ChosenPath {
                session: session.name.clone(),
                nodes: numbers.into_iter().map(name).collect(),
            }
        });
        let chosen: Vec<ChosenPath> = chosen.collect();
        let others = pairs.len() - chosen.len();
        Ok((chosen, others))
    }
}

/// Returns whether links lead from a node back to it without any link twice.
fn has_circle(topology: &Topology) -> bool {
    let links = topology.links.iter();
    let pairs = links.map(|link| (link.from.min(link.to), link.from.max(link.to)));
    let mut pairs: Vec<(u32, u32)> = pairs.collect();
    // There may be millions of links, most of them in both directions.
    pairs.sort_unstable();
    pairs.dedup();
    // A link within a part closes a circle.
    let mut parts = Parts((0..topology.nodes.len() as u32).collect());
    let joined = pairs.iter().filter(|(from, to)| parts.join(*from, *to));
    joined.count() < pairs.len()
}

/// The parts of a network between which no links lead: a disjoint-set forest, in which each node
/// refers to another of its part, and one node of each part to itself.
struct Parts(Vec<u32>);

impl Parts {
    fn root(&mut self, mut node: u32) -> u32 {
        while self.0[node as usize] != node {
            let next = self.0[self.0[node as usize] as usize];
            self.0[node as usize] = next;
            node = next;
        }
        node
    }

    /// Joins the parts of two nodes. Returns whether they were two.
    fn join(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a as usize] = b;
        a != b
    }
}
