//! The generators of nodes and of the pairs of them that a link joins.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Group, SIZE_MAX, Topology};
use crate::schema::{DumbbellTable, RandomTable, TreeTable};
use manyflow_model::error::Fault;

impl Topology {
    /// Adds a balanced tree. Node 0 is the root. In a binary tree the children of node i
    /// are 2i+1 and 2i+2.
    pub(super) fn add_tree(&mut self, name: &str, tree: &TreeTable) -> Result<(), Fault> {
        let children = u64::from(tree.children.get());
        let mut rows = vec![1u64];
        for _ in 0..tree.depth.get().min(64) {
            rows.push(rows[rows.len() - 1].saturating_mul(children));
        }
        let count = rows.iter().fold(0u64, |sum, row| sum.saturating_add(*row));
        let first = self.add_group(name, count)?;
        let end = first + count as u32;
        let leaves = Group {
            nodes: end - rows[rows.len() - 1] as u32..end,
            is_numbered: false,
        };
        self.groups.insert(format!("{name}-leaves"), leaves);
        let pair = |child: u64| {
            (
                first + ((child - 1) / children) as u32,
                first + child as u32,
            )
        };
        let pairs = (1..count).map(pair).collect();
        self.generated.insert(name.to_owned(), pairs);
        Ok(())
    }

    /// Adds two routers, with the left hosts at the first router and the right hosts at the second.
    pub(super) fn add_dumbbell(&mut self, name: &str, table: &DumbbellTable) -> Result<(), Fault> {
        let routers = self.add_group(&format!("{name}-router"), 2)?;
        let mut pairs = vec![(routers, routers + 1)];
        for (side, count, router) in [
            ("left", table.left, routers),
            ("right", table.right, routers + 1),
        ] {
            let first = self
                .add_group(&format!("{name}-{side}"), u64::from(count.get()))
                .map_err(|fault| fault.within(side))?;
            pairs.extend((first..first + count.get()).map(|host| (router, host)));
        }
        let all = Group {
            nodes: routers..self.nodes.len() as u32,
            is_numbered: false,
        };
        self.name_group(name, all)?;
        self.generated.insert(name.to_owned(), pairs);
        Ok(())
    }

    /// Adds a random spanning tree, and further links between random pairs that have none.
    pub(super) fn add_random(&mut self, name: &str, table: &RandomTable) -> Result<(), Fault> {
        let (nodes, links) = (u64::from(table.nodes.get()), u64::from(table.links.get()));
        let most = nodes.saturating_mul(nodes.saturating_sub(1)) / 2;
        if links + 1 < nodes || links > most.min(SIZE_MAX) {
            return Err(Fault::value(format!(
                "{links} links: {nodes} nodes take from {} to {most}",
                nodes.saturating_sub(1)
            )));
        }
        let first = self.add_group(name, nodes)?;
        let mut random = Pcg64Mcg::seed_from_u64(u64::from(table.seed.get()));
        let mut pairs: BTreeSet<(u32, u32)> = (1..nodes as u32)
            .map(|node| (first + random.random_range(0..node), first + node))
            .collect();
        while (pairs.len() as u64) < links {
            let (a, b) = (
                random.random_range(0..nodes as u32),
                random.random_range(0..nodes as u32),
            );
            if a != b {
                pairs.insert((first + a.min(b), first + a.max(b)));
            }
        }
        self.generated
            .insert(name.to_owned(), pairs.into_iter().collect());
        Ok(())
    }
}
