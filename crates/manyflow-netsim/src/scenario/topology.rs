//! `[nodes]` and `[[links]]` written out: every node, and every direction of every link.

mod generators;

use std::collections::BTreeMap;

use manyflow_core::link::LinkConfig;

use super::error::{Fault, Problem};
use super::links::LinkTable;
use super::schema::{NodesTable, Schema};

/// The most nodes, and the most links, of a scenario: some gigabytes of memory.
const SIZE_MAX: u64 = 5_000_000;

/// A network, before anything runs on it.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The nodes' names.
    pub nodes: Vec<String>,
    /// Nodes by name, and groups of nodes.
    groups: BTreeMap<String, Vec<u32>>,
    /// Every direction of every link.
    pub links: Vec<Direction>,
    /// Links by the name of their entry (the first number) and by their ends, `A-B`.
    names: BTreeMap<String, Named>,
    by_ends: BTreeMap<(u32, u32), u32>,
    /// The pairs that the generators have made: the links that `all-of` configures.
    generated: BTreeMap<String, Vec<(u32, u32)>>,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Where it begins.
    pub from: u32,
    /// Where it ends.
    pub to: u32,
    /// What it is like.
    pub config: LinkConfig,
}

#[derive(Clone, Debug, Default)]
struct Named {
    forward: Vec<u32>,
    back: Vec<u32>,
}

impl Topology {
    /// Writes out a scenario's network.
    pub(crate) fn new(schema: &Schema) -> Result<Topology, Fault> {
        let mut topology = Topology::default();
        topology
            .add_nodes(&schema.nodes)
            .map_err(|fault| fault.within("nodes"))?;
        for (index, table) in schema.links.iter().enumerate() {
            let key = table.name.clone().unwrap_or(index.to_string());
            topology
                .add_links(table)
                .map_err(|fault| fault.within(&key).within("links"))?;
        }
        Ok(topology)
    }

    /// The nodes of a name: one, or those of a group.
    pub(crate) fn nodes_named(&self, name: &str) -> Result<&[u32], Problem> {
        let known = || self.groups.keys().map(String::as_str);
        let found = self.groups.get(name);
        found
            .map(Vec::as_slice)
            .ok_or_else(|| Problem::unknown("node", name, known()))
    }

    /// The links of a name, in the direction in which it names them.
    pub(crate) fn links_named(&self, name: &str) -> Result<&[u32], Problem> {
        self.named(name).map(|named| named.forward.as_slice())
    }

    /// The links of a name in both directions; a name such as `A-B` names one.
    pub(crate) fn both_directions(&self, name: &str) -> Result<Vec<u32>, Problem> {
        let named = self.named(name)?;
        Ok(named.forward.iter().chain(&named.back).copied().collect())
    }

    /// A link's ends, with a dash.
    pub(crate) fn link_name(&self, link: u32) -> String {
        let Direction { from, to, .. } = &self.links[link as usize];
        let [from, to] = [from, to].map(|&node| &self.nodes[node as usize]);
        format!("{from}-{to}")
    }

    fn named(&self, name: &str) -> Result<&Named, Problem> {
        let known = || self.names.keys().map(String::as_str);
        self.names
            .get(name)
            .ok_or_else(|| Problem::unknown("link", name, known()))
    }

    fn add_nodes(&mut self, table: &NodesTable) -> Result<(), Fault> {
        for name in &table.names {
            self.add_node(name).map_err(|fault| fault.within("names"))?;
        }
        for (name, count) in &table.groups {
            self.add_group(name, u64::from(count.get()))
                .map_err(|fault| fault.within(name).within("groups"))?;
        }
        for (name, tree) in &table.trees {
            self.add_tree(name, tree)
                .map_err(|fault| fault.within(name).within("trees"))?;
        }
        for (name, dumbbell) in &table.dumbbells {
            self.add_dumbbell(name, dumbbell)
                .map_err(|fault| fault.within(name).within("dumbbells"))?;
        }
        for (name, random) in &table.random {
            self.add_random(name, random)
                .map_err(|fault| fault.within(name).within("random"))?;
        }
        Ok(())
    }

    fn add_node(&mut self, name: &str) -> Result<u32, Fault> {
        let number = self.nodes.len() as u32;
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_alphanumeric() || "-_.".contains(c))
        {
            return Err(Fault::value(format!(
                "`{name}` is no name: take letters, digits, `-`, `_` and `.`"
            )));
        }
        if self.groups.insert(name.to_owned(), vec![number]).is_some() {
            return Err(Fault::value(format!("there are two nodes called `{name}`")));
        }
        self.nodes.push(name.to_owned());
        Ok(number)
    }

    /// A group of nodes `NAME-0`, `NAME-1` and so on; returns the first.
    fn add_group(&mut self, name: &str, count: u64) -> Result<u32, Fault> {
        if count == 0 || count + self.nodes.len() as u64 > SIZE_MAX {
            return Err(Fault::value(format!(
                "{count} nodes: from 1 to {SIZE_MAX} in all are possible"
            )));
        }
        let first = self.nodes.len() as u32;
        let members = (0..count)
            .map(|index| self.add_node(&format!("{name}-{index}")))
            .collect::<Result<Vec<_>, Fault>>()?;
        self.name_group(name, members)?;
        Ok(first)
    }

    fn name_group(&mut self, name: &str, members: Vec<u32>) -> Result<(), Fault> {
        match self.groups.insert(name.to_owned(), members) {
            Some(_) => Err(Fault::value(format!("there is a node called `{name}`"))),
            None => Ok(()),
        }
    }

    fn add_links(&mut self, table: &LinkTable) -> Result<(), Fault> {
        let pairs = self.pairs(table)?;
        if (self.links.len() + 2 * pairs.len()) as u64 > 2 * SIZE_MAX {
            return Err(Fault::value(format!("more than {SIZE_MAX} links")));
        }
        let mut named = Named::default();
        for (from, to) in pairs {
            if from == to {
                let name = &self.nodes[from as usize];
                return Err(Fault::value(format!("a link from `{name}` to itself")));
            }
            let forward = self.direction(from, to);
            table
                .properties()
                .apply(&mut self.links[forward as usize].config);
            named.forward.push(forward);
            if !table.one_way {
                let back = self.direction(to, from);
                let config = &mut self.links[back as usize].config;
                table.properties().apply(config);
                table.back.apply(config);
                named.back.push(back);
            }
        }
        match &table.name {
            Some(name) if self.names.insert(name.clone(), named).is_some() => {
                Err(Fault::value(format!("there are two links called `{name}`")))
            }
            _ => Ok(()),
        }
    }

    /// The pairs of nodes that an entry joins.
    fn pairs(&self, table: &LinkTable) -> Result<Vec<(u32, u32)>, Fault> {
        let nodes = |key: &str, name: &str| {
            self.nodes_named(name)
                .map_err(|problem| Fault::at(&[key], problem))
        };
        match (&table.between, &table.chain, &table.all_of) {
            (Some([a, b]), None, None) => {
                let (a, b) = (nodes("between", a)?, nodes("between", b)?);
                if a.len() as u64 * b.len() as u64 > SIZE_MAX {
                    return Err(Fault::value(format!("more than {SIZE_MAX} links")));
                }
                let from = |&a: &u32| b.iter().map(move |&b| (a, b));
                Ok(a.iter().flat_map(from).collect())
            }
            (None, Some(names), None) => {
                let mut chain = Vec::new();
                for name in names {
                    chain.extend_from_slice(nodes("chain", name)?);
                }
                Ok(chain.windows(2).map(|pair| (pair[0], pair[1])).collect())
            }
            (None, None, Some(name)) => {
                let known = || self.generated.keys().map(String::as_str);
                let unknown = || Problem::unknown("tree, dumbbell or random graph", name, known());
                let found = self.generated.get(name);
                found
                    .cloned()
                    .ok_or_else(|| Fault::at(&["all-of"], unknown()))
            }
            _ => Err(Fault::value(
                "a link takes one of `between`, `chain` and `all-of`",
            )),
        }
    }

    /// The link from one node to another, made where there is none: a later entry amends an earlier one.
    fn direction(&mut self, from: u32, to: u32) -> u32 {
        if let Some(&found) = self.by_ends.get(&(from, to)) {
            return found;
        }
        let number = self.links.len() as u32;
        let config = LinkConfig::default();
        self.links.push(Direction { from, to, config });
        self.by_ends.insert((from, to), number);
        let [a, b] = [from, to].map(|node| &self.nodes[node as usize]);
        let forward = vec![number];
        let back = Vec::new();
        self.names
            .insert(format!("{a}-{b}"), Named { forward, back });
        number
    }
}

/// Which nodes can be reached from a node, along the links or against them.
pub(crate) struct Reach<'a> {
    topology: &'a Topology,
    /// For each node the numbers of the links that leave it, and of those that come in.
    leaving: Vec<Vec<u32>>,
    coming: Vec<Vec<u32>>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(topology: &'a Topology) -> Reach<'a> {
        let mut leaving = vec![Vec::new(); topology.nodes.len()];
        let mut coming = leaving.clone();
        for (number, link) in topology.links.iter().enumerate() {
            leaving[link.from as usize].push(number as u32);
            coming[link.to as usize].push(number as u32);
        }
        Reach {
            topology,
            leaving,
            coming,
        }
    }

    /// For each node whether packets get there from `node`, and back from there.
    pub(crate) fn both_ways(&self, node: u32) -> Vec<bool> {
        let there = flood(node, &self.leaving, |link| self.topology.links[link].to);
        let back = flood(node, &self.coming, |link| self.topology.links[link].from);
        there.iter().zip(&back).map(|(a, b)| *a && *b).collect()
    }
}

fn flood(start: u32, links: &[Vec<u32>], end: impl Fn(usize) -> u32) -> Vec<bool> {
    let mut reached = vec![false; links.len()];
    let mut pending = vec![start];
    while let Some(node) = pending.pop() {
        if !std::mem::replace(&mut reached[node as usize], true) {
            let next = links[node as usize].iter().map(|&link| end(link as usize));
            pending.extend(next);
        }
    }
    reached
}
