//! Expands `[nodes]` and `[[links]]`: every node, and every direction of every link.

mod generators;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use manyflow_core::link::LinkConfig;

use crate::schema::links::LinkTable;
use crate::schema::{NodesTable, Schema};
use manyflow_model::error::{Fault, Problem};
use manyflow_netsim::Names;

/// The maximum number of nodes, and of links, of a scenario. They take some gigabytes of memory.
const SIZE_MAX: u64 = 5_000_000;

/// A network, before anything runs on it. Names of generated nodes are computed instead of
/// stored, because there may be millions of nodes.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The names of the nodes.
    pub nodes: Names,
    /// Single nodes and groups, by name.
    groups: BTreeMap<String, Group>,
    /// Every direction of every link.
    pub links: Vec<Direction>,
    /// The links of each named entry.
    names: BTreeMap<String, Named>,
    by_ends: BTreeMap<(u32, u32), u32>,
    /// The default configuration, shared by all links that do not change it.
    plain: Arc<LinkConfig>,
    /// The pairs of nodes that the generators have joined. `all-of` configures their links.
    generated: BTreeMap<String, Vec<(u32, u32)>>,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The node at which the direction begins.
    pub from: u32,
    /// The node at which the direction ends.
    pub to: u32,
    /// The properties of the direction. Links that are configured alike share them.
    pub config: Arc<LinkConfig>,
}

/// Nodes with consecutive numbers.
#[derive(Clone, Debug)]
struct Group {
    nodes: Range<u32>,
    /// Whether its nodes are called `NAME-0`, `NAME-1` and so on.
    is_numbered: bool,
}

#[derive(Clone, Debug, Default)]
struct Named {
    forward: Vec<u32>,
    back: Vec<u32>,
}

impl Topology {
    /// Expands the network of a scenario.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or appears twice, or if a number is out of its range.
    pub fn new(schema: &Schema) -> Result<Topology, Fault> {
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

    /// Returns the nodes of a name: a single node, or all nodes of a group.
    ///
    /// # Errors
    /// Returns an error with similar names if nothing has this name.
    pub fn nodes_named(&self, name: &str) -> Result<Range<u32>, Problem> {
        self.find_nodes(name).ok_or_else(|| {
            let groups = self.groups.keys().map(String::as_str);
            let known: BTreeSet<&str> = groups.chain(self.nodes.iter()).collect();
            Problem::unknown("node", name, known)
        })
    }

    /// Returns the nodes of a name, or `None` if nothing has this name.
    pub fn find_nodes(&self, name: &str) -> Option<Range<u32>> {
        if let Some(group) = self.groups.get(name) {
            return Some(group.nodes.clone());
        }
        let (group, digits) = name.rsplit_once('-')?;
        let group = self.groups.get(group).filter(|group| group.is_numbered)?;
        let node = group.nodes.start.checked_add(digits.parse().ok()?)?;
        // A number can be written in other ways, such as with leading zeros, which name no node.
        let is_called_so = group.nodes.contains(&node) && self.nodes.get(node) == name;
        is_called_so.then_some(node..node + 1)
    }

    /// Returns the links of a name, in the direction in which the name gives them.
    ///
    /// # Errors
    /// Returns an error with similar names if no link has this name.
    pub fn links_named(&self, name: &str) -> Result<Vec<u32>, Problem> {
        self.named(name).map(|named| named.forward)
    }

    /// Returns the links of a name in both directions. A name such as `A-B` has only one direction.
    ///
    /// # Errors
    /// Returns an error with similar names if no link has this name.
    pub fn both_directions(&self, name: &str) -> Result<Vec<u32>, Problem> {
        let named = self.named(name)?;
        Ok(named.forward.into_iter().chain(named.back).collect())
    }

    /// Returns both directions of the only link with a limited rate, or of the only link.
    ///
    /// # Errors
    /// Returns an error with the names of links if there are several.
    pub fn bottleneck(&self) -> Result<Vec<u32>, Problem> {
        let is_limited = |link: &&Direction| link.config.rate.is_some();
        let any_limited = self.links.iter().any(|link| is_limited(&link));
        let candidates = self.links.iter();
        let candidates = candidates.filter(|link| !any_limited || is_limited(link));
        let pairs: BTreeSet<_> = candidates
            .map(|link| (link.from.min(link.to), link.from.max(link.to)))
            .collect();
        if pairs.len() != 1 {
            return Err(Problem::Value(self.unclear_link()));
        }
        let directions = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
        let links = directions.filter_map(|ends| self.by_ends.get(&ends).copied());
        Ok(links.collect())
    }

    fn unclear_link(&self) -> String {
        const SHOWN: usize = 32;
        let names = self.link_names();
        let quoted = names.iter().map(|name| format!("`{name}`"));
        let shown = quoted.take(SHOWN).collect::<Vec<_>>().join(", ");
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("the link is ambiguous: name one of {shown}{more}")
    }

    /// Returns the names of a link's ends, joined by a dash.
    pub fn link_name(&self, link: u32) -> String {
        let Direction { from, to, .. } = self.links[link as usize];
        format!("{}-{}", self.nodes.get(from), self.nodes.get(to))
    }

    fn named(&self, name: &str) -> Result<Named, Problem> {
        self.find_links(name).ok_or_else(|| {
            let known = self.link_names();
            Problem::unknown("link", name, known.iter().map(String::as_str))
        })
    }

    /// Returns all names of links.
    fn link_names(&self) -> BTreeSet<String> {
        let by_ends = (0..self.links.len() as u32).map(|link| self.link_name(link));
        by_ends.chain(self.names.keys().cloned()).collect()
    }

    /// Returns the links of an entry, or the one with the ends `A-B`. Names of nodes may
    /// contain dashes.
    fn find_links(&self, name: &str) -> Option<Named> {
        let node = |name: &str| self.find_nodes(name).filter(|nodes| nodes.len() == 1);
        let between = |(dash, _): (usize, &str)| {
            let ends = (node(&name[..dash])?.start, node(&name[dash + 1..])?.start);
            self.by_ends.get(&ends)
        };
        let by_ends = name
            .match_indices('-')
            .find_map(between)
            .map(|&link| Named {
                forward: vec![link],
                back: Vec::new(),
            });
        by_ends.or_else(|| self.names.get(name).cloned())
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
        let number = self.add_numbered(name)?;
        let single = Group {
            nodes: number..number + 1,
            is_numbered: false,
        };
        self.groups.insert(name.to_owned(), single);
        Ok(number)
    }

    /// Adds a node that is found by the name of its group and its number in the group.
    fn add_numbered(&mut self, name: &str) -> Result<u32, Fault> {
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_alphanumeric() || "-_.".contains(c))
        {
            return Err(Fault::value(format!(
                "`{name}` is not a valid name: use letters, digits, `-`, `_` and `.`"
            )));
        }
        if self.find_nodes(name).is_some() {
            return Err(Fault::value(format!("there are two nodes called `{name}`")));
        }
        self.nodes.push(name);
        Ok(self.nodes.len() as u32 - 1)
    }

    /// Adds a group of nodes `NAME-0`, `NAME-1` and so on. Returns the first.
    fn add_group(&mut self, name: &str, count: u64) -> Result<u32, Fault> {
        if count == 0 || count + self.nodes.len() as u64 > SIZE_MAX {
            return Err(Fault::value(format!(
                "{count} nodes: a scenario has from 1 to {SIZE_MAX} nodes in all"
            )));
        }
        let first = self.nodes.len() as u32;
        for index in 0..count {
            self.add_numbered(&format!("{name}-{index}"))?;
        }
        let group = Group {
            nodes: first..first + count as u32,
            is_numbered: true,
        };
        self.name_group(name, group)?;
        Ok(first)
    }

    fn name_group(&mut self, name: &str, group: Group) -> Result<(), Fault> {
        if self.find_nodes(name).is_some() {
            return Err(Fault::value(format!("there is a node called `{name}`")));
        }
        self.groups.insert(name.to_owned(), group);
        Ok(())
    }

    fn add_links(&mut self, table: &LinkTable) -> Result<(), Fault> {
        let pairs = self.pairs(table)?;
        for properties in [&table.properties(), &table.back] {
            properties
                .check()
                .map_err(|why| Fault::value(why.to_owned()))?;
        }
        if (self.links.len() + 2 * pairs.len()) as u64 > 2 * SIZE_MAX {
            return Err(Fault::value(format!(
                "this makes more than {SIZE_MAX} links"
            )));
        }
        let (mut there, mut back) = (Amendment::default(), Amendment::default());
        let mut named = Named::default();
        for (from, to) in pairs {
            if from == to {
                let name = self.nodes.get(from);
                return Err(Fault::value(format!(
                    "a link cannot join `{name}` to itself"
                )));
            }
            let forward = self.direction(from, to);
            let config = &mut self.links[forward as usize].config;
            there.apply(config, |config| table.properties().apply(config));
            named.forward.push(forward);
            if !table.one_way {
                let reverse = self.direction(to, from);
                back.apply(&mut self.links[reverse as usize].config, |config| {
                    table.properties().apply(config);
                    table.back.apply(config);
                });
                named.back.push(reverse);
            }
        }
        match &table.name {
            Some(name) if self.find_links(name).is_some() => {
                Err(Fault::value(format!("there are two links called `{name}`")))
            }
            Some(name) => {
                self.names.insert(name.clone(), named);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the pairs of nodes that an entry joins.
    fn pairs(&self, table: &LinkTable) -> Result<Vec<(u32, u32)>, Fault> {
        let nodes = |key: &str, name: &str| {
            self.nodes_named(name)
                .map_err(|problem| Fault::at(&[key], problem))
        };
        match (&table.between, &table.chain, &table.all_of) {
            (Some([a, b]), None, None) => {
                self.check_sides(a, b)?;
                let (a, b) = (nodes("between", a)?, nodes("between", b)?);
                if a.len() as u64 * b.len() as u64 > SIZE_MAX {
                    return Err(Fault::value(format!(
                        "this makes more than {SIZE_MAX} links"
                    )));
                }
                let from = |a: u32| b.clone().map(move |b| (a, b));
                Ok(a.flat_map(from).collect())
            }
            (None, Some(names), None) => {
                let mut chain = Vec::new();
                for name in names {
                    chain.extend(nodes("chain", name)?);
                }
                if chain.len() < 2 {
                    let problem = "a chain joins two nodes or more";
                    return Err(Fault::at(&["chain"], Problem::Value(problem.to_owned())));
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

    /// Checks that an entry does not join all left hosts of a dumbbell directly to all right hosts:
    /// that would be a full mesh beside the routers.
    fn check_sides(&self, a: &str, b: &str) -> Result<(), Fault> {
        let sides = |left: &str, right: &str| {
            let name = left.strip_suffix("-left")?;
            let is_dumbbell = right.strip_suffix("-right") == Some(name)
                && self.generated.contains_key(name)
                && self.groups.contains_key(&format!("{name}-router"));
            is_dumbbell.then(|| name.to_owned())
        };
        match sides(a, b).or_else(|| sides(b, a)) {
            None => Ok(()),
            Some(name) => Err(Fault::at(
                &["between"],
                Problem::Value(format!(
                    "this joins each left host of the dumbbell `{name}` to each right host, past its routers: write \
                     `all-of = \"{name}\"` for its links, and `between = [\"{name}-router-0\", \
                     \"{name}-router-1\"]` for its bottleneck"
                )),
            )),
        }
    }

    /// Returns the link from one node to another. Creates it if there is none: a later
    /// entry amends an earlier one.
    fn direction(&mut self, from: u32, to: u32) -> u32 {
        if let Some(&found) = self.by_ends.get(&(from, to)) {
            return found;
        }
        let number = self.links.len() as u32;
        let config = Arc::clone(&self.plain);
        self.links.push(Direction { from, to, config });
        self.by_ends.insert((from, to), number);
        number
    }
}

/// The effect of one entry on links. Links that shared a configuration before the entry share
/// one after it.
#[derive(Default)]
struct Amendment(Option<(Arc<LinkConfig>, Arc<LinkConfig>)>);

impl Amendment {
    fn apply(&mut self, config: &mut Arc<LinkConfig>, change: impl FnOnce(&mut LinkConfig)) {
        if let Some((before, after)) = &self.0
            && Arc::ptr_eq(before, config)
        {
            *config = Arc::clone(after);
            return;
        }
        let mut changed = LinkConfig::clone(config);
        change(&mut changed);
        let before = std::mem::replace(config, Arc::new(changed));
        self.0 = Some((before, Arc::clone(config)));
    }
}

/// Finds the nodes that can be reached from a node, along the links or against them.
pub struct Reach<'a> {
    topology: &'a Topology,
    /// For each node, the links that leave it.
    leaving: Vec<Vec<u32>>,
    /// For each node, the links that arrive at it.
    coming: Vec<Vec<u32>>,
}

impl<'a> Reach<'a> {
    /// Prepares the search in this network.
    pub fn new(topology: &'a Topology) -> Reach<'a> {
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

    /// Returns for each node whether packets can travel to it from `node` and back.
    pub fn both_ways(&self, node: u32) -> Vec<bool> {
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
