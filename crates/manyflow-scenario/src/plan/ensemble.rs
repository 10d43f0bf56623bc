//! Expands the switches of an ACP session: their nodes and their members.

use std::ops::{Range, RangeInclusive};

use crate::plan::topology::Topology;
use crate::schema::protocols::SwitchTable;
use manyflow_model::error::{Fault, Problem};
use manyflow_model::names::numbered;

/// A switch of a session.
#[derive(Clone, Debug)]
pub struct Switch {
    /// The node of the switch.
    pub node: u32,
    /// The members, in the order of the table.
    pub members: Vec<Branch>,
    /// For the policy `weighted`: the weight of the members at each range of nodes.
    pub weights: Vec<(Range<u32>, f64)>,
    /// For the policy `rule`: the keys that go to the members at each range of nodes.
    pub rules: Vec<(RangeInclusive<u32>, Range<u32>)>,
}

/// A member of a switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Branch {
    /// The receiver with this index in the session.
    Receiver(usize),
    /// The switch with this index in the session, one step further from the peer.
    Switch(usize),
}

/// The data from which the switches of a session are made.
pub struct Site<'a> {
    /// The network.
    pub topology: &'a Topology,
    /// The number of the session, for `{i}` in names.
    pub number: u32,
    /// The node of each receiver.
    pub receivers: Vec<u32>,
}

impl Site<'_> {
    /// Returns the switches, in the order of their tables.
    pub fn switches(&self, tables: &[SwitchTable]) -> Result<Vec<Switch>, Fault> {
        let mut nodes = Vec::with_capacity(tables.len());
        for (index, table) in tables.iter().enumerate() {
            nodes.push(self.place(table, &nodes).map_err(|f| within(f, index))?);
        }
        let mut switches: Vec<Switch> = Vec::with_capacity(tables.len());
        for (index, table) in tables.iter().enumerate() {
            let switch = self.switch(table, index, &nodes);
            let switch = switch.map_err(|fault| within(fault, index))?;
            let is_taken = |branch| switches.iter().any(|other| other.members.contains(branch));
            if switch.members.iter().any(is_taken) {
                let fault = refuse(
                    "members",
                    "one of them is already a member of another switch",
                );
                return Err(within(fault, index));
            }
            switches.push(switch);
        }
        self.check_all_are_members(&switches)?;
        Ok(switches)
    }

    fn nodes_named(&self, name: &str) -> Result<Range<u32>, Problem> {
        self.topology.nodes_named(&numbered(name, self.number))
    }

    /// Returns the node of a switch. The nodes in `before` have switches already.
    fn place(&self, table: &SwitchTable, before: &[u32]) -> Result<u32, Fault> {
        let nodes = self.nodes_named(&table.node);
        let nodes = nodes.map_err(|problem| Fault::at(&["node"], problem))?;
        if nodes.len() != 1 {
            let message = format!("`{}` is a group: name a single node", table.node);
            return Err(refuse("node", message));
        }
        match before.contains(&nodes.start) {
            true => Err(refuse(
                "node",
                "the session has another switch at this node",
            )),
            false => Ok(nodes.start),
        }
    }

    /// Makes the switch number `index`. `nodes` are the nodes of all switches.
    fn switch(&self, table: &SwitchTable, index: usize, nodes: &[u32]) -> Result<Switch, Fault> {
        let mut members = Vec::new();
        let mut own = Vec::new();
        for name in &table.members {
            let named = self.nodes_named(name);
            for node in named.map_err(|problem| Fault::at(&["members"], problem))? {
                let found = self.branches(node, index, nodes);
                let name = self.topology.nodes.get(node);
                if found.is_empty() {
                    let message = format!("at `{name}` there is no receiver and no later switch");
                    return Err(refuse("members", message));
                }
                if own.contains(&node) {
                    return Err(refuse("members", format!("`{name}` appears twice")));
                }
                own.push(node);
                members.extend(found);
            }
        }
        if members.is_empty() {
            return Err(refuse("members", "a switch needs at least one member"));
        }
        let mut weights = Vec::with_capacity(table.weights.len());
        for (name, weight) in &table.weights {
            let named = self.members_named(name, &own);
            let named = named.map_err(|problem| Fault::at(&["weights", name], problem))?;
            let overlaps =
                |(other, _): &(Range<u32>, f64)| named.start < other.end && other.start < named.end;
            if weights.iter().any(overlaps) {
                let message = format!("`{name}` already has a weight");
                return Err(refuse("weights", message));
            }
            weights.push((named, weight.0));
        }
        let mut rules = Vec::with_capacity(table.rules.len());
        for (number, rule) in table.rules.iter().enumerate() {
            let path = ["rules", &number.to_string(), "member"];
            let named = self.members_named(&rule.member, &own);
            let named = named.map_err(|problem| Fault::at(&path, problem))?;
            rules.push((rule.from.get()..=rule.to.get(), named));
        }
        Ok(Switch {
            node: nodes[index],
            members,
            weights,
            rules,
        })
    }

    /// Returns the members at a node: a later switch, or else the receivers.
    fn branches(&self, node: u32, index: usize, nodes: &[u32]) -> Vec<Branch> {
        let later = (index + 1..nodes.len()).find(|&other| nodes[other] == node);
        if let Some(switch) = later {
            return vec![Branch::Switch(switch)];
        }
        let receivers = self.receivers.iter().enumerate();
        let here = receivers.filter(|(_, at)| **at == node);
        here.map(|(receiver, _)| Branch::Receiver(receiver))
            .collect()
    }

    /// Returns the nodes that a weight or rule refers to.
    fn members_named(&self, name: &str, own: &[u32]) -> Result<Range<u32>, Problem> {
        match self.nodes_named(name) {
            Ok(named) if named.clone().all(|node| own.contains(&node)) => Ok(named),
            _ => {
                let known = own.iter().map(|&node| self.topology.nodes.get(node));
                Err(Problem::unknown("member", name, known))
            }
        }
    }

    /// Checks that each receiver, and each switch except the first, is a member of some switch.
    fn check_all_are_members(&self, switches: &[Switch]) -> Result<(), Fault> {
        if switches.is_empty() {
            return Ok(());
        }
        let receivers = self.receivers.iter().enumerate();
        let receivers = receivers.map(|(index, node)| (Branch::Receiver(index), *node));
        let behind = switches.iter().enumerate().skip(1);
        let behind = behind.map(|(index, switch)| (Branch::Switch(index), switch.node));
        for (branch, node) in receivers.chain(behind) {
            if !switches
                .iter()
                .any(|switch| switch.members.contains(&branch))
            {
                let name = self.topology.nodes.get(node);
                let message = format!("the endpoint at `{name}` is not a member of any switch");
                return Err(refuse("switches", message));
            }
        }
        Ok(())
    }
}

fn within(fault: Fault, index: usize) -> Fault {
    fault.within(&index.to_string()).within("switches")
}

fn refuse(key: &str, message: impl ToString) -> Fault {
    Fault::at(&[key], Problem::Value(message.to_string()))
}
