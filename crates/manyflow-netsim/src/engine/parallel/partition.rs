//! Divides the nodes of a network among threads.
//!
//! The parts are about equally large, and are separated by links with a long delay: the shortest
//! one is the lookahead. Links that cannot be cut, or have a shorter delay, keep their ends
//! in one part. The remaining components are taken in the order of a depth-first search, which
//! visits a subtree or a pod as a whole, and this order is cut into pieces of equal weight. Several
//! delays are tried. Among the partitions whose lookahead is at least half of the longest one, that
//! with the fewest links between parts is chosen.

use core::time::Duration;

/// The number of delays that are tried, from the longest to the shortest.
const TRIED: usize = 32;
/// The weight of the heaviest part, in units of the average weight, must not exceed this.
const IMBALANCE_MAX: f64 = 1.2;

/// A direction of a link, as a partition sees it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    /// The delay, or `None` if the ends of the link must be in one part.
    pub(super) lookahead: Option<Duration>,
}

/// The part of each node, and the shortest delay of the links between parts.
#[derive(Debug, PartialEq)]
pub(super) struct Partition {
    pub(super) parts: Vec<u16>,
    pub(super) lookahead: Duration,
    /// The number of directions of links between parts.
    cut: usize,
}

/// Divides nodes with these weights into `count` parts. Returns `None` if there are no parts of
/// about equal weight with a delay between them.
pub(super) fn partition(weights: &[u32], edges: &[Edge], count: usize) -> Option<Partition> {
    let mut delays: Vec<_> = edges.iter().filter_map(|edge| edge.lookahead).collect();
    delays.sort_unstable();
    delays.dedup();
    let step = delays.len().div_ceil(TRIED).max(1);
    let order = visit(weights.len(), edges);
    let tried = delays.iter().rev().step_by(step).chain(delays.first());
    let mut found = tried
        .filter_map(|&lookahead| divide(weights, edges, &order, count, lookahead))
        .peekable();
    let longest = found.peek()?.lookahead;
    let long = found.take_while(|found| found.lookahead * 2 >= longest);
    // `min_by_key` returns the first of equal minima, which has the longest lookahead.
    long.min_by_key(|found| found.cut)
}

/// Divides the nodes by links with at least this delay.
fn divide(
    weights: &[u32],
    edges: &[Edge],
    order: &[u32],
    count: usize,
    lookahead: Duration,
) -> Option<Partition> {
    let mut sets = Sets((0..weights.len() as u32).collect());
    for edge in edges {
        if edge.lookahead.is_none_or(|delay| delay < lookahead) {
            sets.join(edge.from, edge.to);
        }
    }
    let mut component = vec![0u64; weights.len()];
    for (node, weight) in (0..).zip(weights) {
        component[sets.find(node) as usize] += u64::from(*weight);
    }
    let total: u64 = component.iter().sum();
    let share = total as f64 / count as f64;
    let mut sums = vec![0u64; count];
    let mut part_of = vec![u16::MAX; weights.len()];
    let mut before = 0;
    for &node in order {
        let root = sets.find(node) as usize;
        if part_of[root] == u16::MAX {
            let weight = component[root];
            // The part in which the middle of the component falls.
            let middle = before as f64 + weight as f64 / 2.0;
            let part = ((middle / share) as usize).min(count - 1);
            part_of[root] = part as u16;
            sums[part] += weight;
            before += weight;
        }
    }
    let heaviest = sums.iter().max().copied().unwrap_or(0);
    if heaviest as f64 > share * IMBALANCE_MAX || sums.contains(&0) {
        return None;
    }
    let nodes = 0..weights.len() as u32;
    let parts: Vec<u16> = nodes
        .map(|node| part_of[sets.find(node) as usize])
        .collect();
    let between = edges.iter().filter(|edge| {
        let [from, to] = [edge.from, edge.to].map(|node| parts[node as usize]);
        from != to
    });
    // Parts without any link between them never wait for each other.
    let shortest = between.clone().filter_map(|edge| edge.lookahead).min();
    let cut = between.count();
    Some(Partition {
        parts,
        lookahead: shortest.unwrap_or(lookahead),
        cut,
    })
}

/// Returns all nodes in the order of a depth-first search.
fn visit(nodes: usize, edges: &[Edge]) -> Vec<u32> {
    let mut first = vec![0u32; nodes + 1];
    for edge in edges {
        first[edge.from as usize + 1] += 1;
    }
    for node in 0..nodes {
        first[node + 1] += first[node];
    }
    let mut place = first.clone();
    let mut ends = vec![0u32; edges.len()];
    for edge in edges {
        let at = &mut place[edge.from as usize];
        ends[*at as usize] = edge.to;
        *at += 1;
    }
    let mut seen = vec![false; nodes];
    let mut order = Vec::with_capacity(nodes);
    let mut path = Vec::new();
    for start in 0..nodes as u32 {
        path.push(start);
        while let Some(node) = path.pop() {
            if core::mem::replace(&mut seen[node as usize], true) {
                continue;
            }
            order.push(node);
            let (from, to) = (first[node as usize], first[node as usize + 1]);
            let next = ends[from as usize..to as usize].iter().rev();
            path.extend(next.filter(|next| !seen[**next as usize]));
        }
    }
    order
}

/// Disjoint sets of nodes: each node refers to another one of its set, or to itself.
struct Sets(Vec<u32>);

impl Sets {
    fn find(&mut self, mut node: u32) -> u32 {
        while self.0[node as usize] != node {
            let next = self.0[node as usize];
            self.0[node as usize] = self.0[next as usize];
            node = next;
        }
        node
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b) as usize] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplex(a: u32, b: u32, delay_ms: u64) -> [Edge; 2] {
        let lookahead = (delay_ms > 0).then(|| Duration::from_millis(delay_ms));
        let edge = |from, to| Edge {
            from,
            to,
            lookahead,
        };
        [edge(a, b), edge(b, a)]
    }

    #[test]
    fn a_dumbbell_is_cut_at_its_long_link() {
        let links = [(0, 2, 1), (1, 2, 1), (2, 3, 20), (3, 4, 1), (3, 5, 1)];
        let edges: Vec<_> = links
            .iter()
            .flat_map(|&(a, b, d)| duplex(a, b, d))
            .collect();
        let found = partition(&[1; 6], &edges, 2).unwrap();
        assert_eq!(found.parts, [0, 0, 0, 1, 1, 1]);
        assert_eq!(found.lookahead, Duration::from_millis(20));
    }

    #[test]
    fn links_without_a_delay_are_never_cut() {
        let edges: Vec<_> = (0..5).flat_map(|node| duplex(node, node + 1, 0)).collect();
        assert_eq!(partition(&[1; 6], &edges, 2), None);
    }

    #[test]
    fn few_links_of_a_tree_are_cut() {
        // A root with four children, each with four leaves.
        let inner = (1..5).flat_map(|child| duplex(0, child, 5));
        let leaves = (1..5).flat_map(|child| {
            (0..4).flat_map(move |leaf| duplex(child, 5 + 4 * (child - 1) + leaf, 5))
        });
        let edges: Vec<_> = inner.chain(leaves).collect();
        let parts = partition(&[1; 21], &edges, 2).unwrap().parts;
        let part = |node: u32| parts[node as usize];
        let cut = edges.iter().filter(|edge| part(edge.from) != part(edge.to));
        // Both directions of two links of the root, and of one leaf's.
        assert_eq!(cut.count(), 6);
    }
}
